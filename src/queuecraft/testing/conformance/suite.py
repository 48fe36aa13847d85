"""What every part of the suite starts from: the driver under test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest
import pytest_asyncio

from queuecraft.drivers.base import Driver
from queuecraft.testing.conformance.broker import Broker


@pytest.mark.asyncio
class Suite:
    """The fixtures and settings a driver's author gives or keeps.

    >>> Suite().unique("billing").startswith("billing-")
    True
    """

    patience: ClassVar[float] = 10.0
    """Seconds that what must come may take."""

    quiet: ClassVar[float] = 0.1
    """Seconds to watch for what must not come."""

    moment: ClassVar[float] = 0.1
    """A short delay that the broker can tell from twice as long."""

    @pytest.fixture
    def driver(self) -> Driver:
        """The driver under test, opened, on a broker that may hold other things."""
        pytest.fail("the suite needs a fixture `driver`: an opened Driver")

    @pytest.fixture
    def second_driver(self, driver: Driver) -> Driver:
        """Another connection to the same broker; the same object where there can be but one."""
        return driver

    @pytest_asyncio.fixture
    async def broker(self, driver: Driver) -> AsyncIterator[Broker]:
        """The driver, with names of this test's own; cleaned up in the end."""
        broker = Broker(driver, unique=self.unique, patience=self.patience, quiet=self.quiet)
        yield broker
        await broker.clean_up()

    def unique(self, name: str) -> str:
        """A name that nobody else uses on this broker."""
        return f"{name}-{os.urandom(4).hex()}"
