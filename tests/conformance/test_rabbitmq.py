"""RabbitMQ keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from queuecraft.drivers.base import Driver
from queuecraft.drivers.rabbitmq import drivers
from queuecraft.drivers.target import Target
from queuecraft.testing import DriverConformance


class TestRabbitDriver(DriverConformance):
    moment: ClassVar[float] = 0.4  # a level of delay is a tenth of a second

    @pytest.fixture
    async def driver(self, rabbitmq_url: str) -> AsyncIterator[Driver]:
        (driver,) = drivers(Target(rabbitmq_url))
        await driver.open()
        yield driver
        await driver.close()

    @pytest.fixture
    async def second_driver(self, driver: Driver, rabbitmq_url: str) -> AsyncIterator[Driver]:
        (second,) = drivers(Target(rabbitmq_url))
        await second.open()
        yield second
        await second.close()
