"""A QueueCraft whose delayed messages are looked at, on each kind of store that needs no server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from queuecraft import QueueCraft
from queuecraft.model.delayed import DelayedSettings
from queuecraft.testing import FakeClock


class Make(Protocol):
    async def __call__(self, **settings: Any) -> QueueCraft: ...


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "local://" if request.param == "memory" else f"local://{tmp_path}/queue.db"


@pytest.fixture
async def make(url: str, clock: FakeClock) -> AsyncIterator[Make]:
    """Makes a QueueCraft with these settings of `delayed`, connected, with a queue `billing`."""
    made: list[QueueCraft] = []

    async def make(**settings: Any) -> QueueCraft:
        qc = QueueCraft(url, clock=clock, delayed=DelayedSettings(**settings))
        made.append(qc)
        await qc.open()
        await qc.admin.declare("billing", "order.*")
        return qc

    yield make
    for qc in made:
        await qc.shutdown()


@pytest.fixture
async def qc(make: Make) -> QueueCraft:
    return await make()
