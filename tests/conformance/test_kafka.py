"""Kafka keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from queuecraft.drivers.base import Driver
from queuecraft.drivers.kafka import drivers
from queuecraft.drivers.target import Target
from queuecraft.testing import DriverConformance


class TestKafkaDriver(DriverConformance):
    moment: ClassVar[float] = 0.6

    @pytest.fixture
    async def driver(self, kafka_url: str) -> AsyncIterator[Driver]:
        (driver,) = drivers(Target(f"{kafka_url}&drain_timeout=0.3&session_timeout=6&refresh=0.3"))
        await driver.open()
        yield driver
        await driver.close()

    @pytest.fixture
    async def second_driver(self, driver: Driver, kafka_url: str) -> AsyncIterator[Driver]:
        (second,) = drivers(Target(f"{kafka_url}&drain_timeout=0.3&session_timeout=6&refresh=0.3"))
        await second.open()
        yield second
        await second.close()
