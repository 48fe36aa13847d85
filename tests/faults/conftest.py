"""The broker under test. Nothing but this file knows what it is."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.faults.nursery import Nursery
from tests.faults.scene import Broker, Scene

_LOCAL = "queuecraft.drivers.local.sqlite"


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    (tmp_path / "broker").mkdir()
    return Broker(
        f"local://{tmp_path}/broker/queue.db",
        brisk={f"{_LOCAL}.driver:POLL": 0.05},
        short_lease={
            f"{_LOCAL}.pulse:LEASE": 0.8,
            f"{_LOCAL}.pulse:BEAT": 0.1,
            f"{_LOCAL}.session:LEASE": 0.8,
        },
    )


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
async def scene(broker: Broker, nursery: Nursery, tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(broker, nursery, tmp_path)
    try:
        yield scene
    finally:
        await scene.close()


@pytest.fixture
def chance() -> random.Random:
    """Chance that can be had again: QUEUECRAFT_SEED is shown when a test fails."""
    seed = int(os.environ.get("QUEUECRAFT_SEED") or random.randrange(1 << 32))
    print(f"QUEUECRAFT_SEED={seed}")
    return random.Random(seed)
