"""The queue in memory keeps the contract: as it is, behind a slow connection, with plain moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from queuecraft.drivers.base import Driver, Move, Queue, Receipt, Subscription, Traits
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.drivers.local.subscription import MemorySubscription
from queuecraft.testing import DriverConformance, FaultyDriver


class LocalConformance(DriverConformance):
    quiet: ClassVar[float] = 0.005
    moment: ClassVar[float] = 0.02


class TestMemoryDriver(LocalConformance):
    @pytest.fixture
    async def driver(self) -> AsyncIterator[Driver]:
        driver = MemoryDriver()
        await driver.open()
        yield driver
        await driver.close()


class TestMemoryDriverBehindCallsThatSuspend(LocalConformance):
    @pytest.fixture
    async def driver(self) -> AsyncIterator[Driver]:
        driver = FaultyDriver(inline=False)
        assert not driver.traits.inline
        await driver.open()
        yield driver
        await driver.close()


class PlainMoves(MemorySubscription):
    """Moves as a driver has them that does nothing of its own about it."""

    async def move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        return await Subscription.move(self, moves)


class PlainDriver(MemoryDriver):
    traits: ClassVar[Traits] = replace(MemoryDriver.traits, atomic_move=False)

    async def subscribe(self, queue: Queue, *, prefetch: int) -> Subscription:
        self._check_open()
        subscription = PlainMoves(self, self._inbox(queue.name, "subscribe"), prefetch, self._clock)
        self._subscriptions[subscription] = None
        return subscription


class TestMemoryDriverWithPlainMoves(LocalConformance):
    @pytest.fixture
    async def driver(self) -> AsyncIterator[Driver]:
        driver = PlainDriver()
        await driver.open()
        yield driver
        await driver.close()
