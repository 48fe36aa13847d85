"""The queue in a file keeps the contract, for one process and between two connections to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from queuecraft.drivers.base import Driver
from queuecraft.drivers.local.sqlite import SqliteDriver
from tests.conformance.test_local import LocalConformance


class TestSqliteDriver(LocalConformance):
    @pytest.fixture
    async def driver(self, tmp_path: Path) -> AsyncIterator[Driver]:
        driver = SqliteDriver(tmp_path / "queue.db")
        await driver.open()
        yield driver
        await driver.close()

    @pytest.fixture
    async def second_driver(self, driver: Driver, tmp_path: Path) -> AsyncIterator[Driver]:
        second = SqliteDriver(tmp_path / "queue.db")
        await second.open()
        yield second
        await second.close()
