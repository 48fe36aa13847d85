"""Drivers on a file of the test's own, closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from queuecraft.clock import Clock
from queuecraft.drivers.local.sqlite import SqliteDriver
from queuecraft.drivers.local.sqlite import driver as driver_module

Opener: TypeAlias = Callable[..., Awaitable[SqliteDriver]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
async def open_driver(path: Path) -> AsyncIterator[Opener]:
    """Opens another driver on the file, as another process would."""
    opened: list[SqliteDriver] = []

    async def open_one(at: Path = path, clock: Clock | None = None) -> SqliteDriver:
        driver = SqliteDriver(at, clock)
        opened.append(driver)
        await driver.open()
        return driver

    yield open_one
    for driver in opened:
        await driver.close()


@pytest.fixture
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be seen has to be told: nobody looks by himself."""
    monkeypatch.setattr(driver_module, "POLL", 3600.0)
