"""What the tests of publishing share: an app on a broker that fails on command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from queuecraft import Event, QueueCraft
from queuecraft.drivers.base import Driver, Outgoing
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.facts import Fact
from queuecraft.model.settings import SettingsOptions
from queuecraft.runtime.options import PublishOptions
from queuecraft.testing import FakeClock, FaultyDriver

R = TypeVar("R")
F = TypeVar("F", bound=Fact)


@dataclass
class Order:
    id: str
    total: float = 9.5


order_placed = Event("order.placed", Order)
nobody_cares = Event("nobody.cares", dict)


class Shop:
    """An app whose queue `billing` takes every order, on brokers that fail on command.

    Its worker is declared and never started, so that what was published can be looked at.
    """

    def __init__(
        self,
        *,
        inline: bool = False,
        drivers: list[FaultyDriver] | None = None,
        **settings: Unpack[SettingsOptions],
    ) -> None:
        self.clock = FakeClock()
        self.drivers = drivers or [FaultyDriver(MemoryDriver(self.clock), inline=inline)]
        self.driver = self.drivers[0]
        self.qc = QueueCraft(drivers=self.drivers, clock=self.clock, **settings)
        self.qc.worker("billing").on("order.#", _never)
        self.facts: list[Fact] = []
        self.qc.observe(Fact, self.facts.append)

    async def __aenter__(self) -> Self:
        await self.qc.open()
        self.driver.calls.clear()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for driver in self.drivers:
            driver.heal()
        await self.qc.shutdown(timeout=0)

    def publish(self, id: str, **options: Unpack[PublishOptions]) -> asyncio.Task[str]:
        """A publish under way."""
        options["message_id"] = id
        return started(self.qc.publish(order_placed, Order(id), **options))

    async def stored(self, queue: str = "billing") -> list[str]:
        """The ids of what the broker has, in order."""
        return [each.id for each in await self.messages(queue)]

    async def messages(self, queue: str = "billing") -> list[Outgoing]:
        """What the broker has, in order."""
        return await messages(self.driver.inner, queue)

    @property
    def state(self) -> str:
        """The state of the connection now."""
        return self.qc.connection_state

    def seen(self, kind: type[F]) -> list[F]:
        """The facts of one kind so far."""
        return [fact for fact in self.facts if isinstance(fact, kind)]

    async def outage(self) -> None:
        """Lose the connection, and refuse every new one until `recover`."""
        for driver in self.drivers:
            driver.refuse(opens=1_000_000)
        await self.driver.drop()
        # Somebody has to notice: nothing is sent by looking.
        connection = self.qc._engine.connection
        connection.lost(self.driver, self.driver.lost("the cable is cut"))
        await self.clock.settle()

    async def recover(self) -> None:
        """Let the next attempt to connect succeed, and wait for it."""
        for driver in self.drivers:
            driver.heal()
        await self.clock.advance(31)


async def messages(driver: Driver, queue: str = "billing") -> list[Outgoing]:
    """What is ready in a queue, in order."""
    return [each.sent for each in await driver.peek(queue, 1_000_000)]


def started(work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
    """The work, begun at the next turn of the loop."""
    return asyncio.get_running_loop().create_task(work)


async def outcome(task: asyncio.Task[R]) -> R | BaseException:
    """How it ended: its result, or its error."""
    (result,) = await asyncio.gather(task, return_exceptions=True)
    return result


async def eventually(condition: Callable[[], object]) -> None:
    """Return once the condition holds."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  it is no event that a test could wait for
            await asyncio.sleep(0)


async def turns(count: int = 20) -> None:
    """Let everything happen that needs no time to pass."""
    for _ in range(count):
        await asyncio.sleep(0)


async def _never(payload: Any) -> None:
    raise AssertionError("the worker of a shop is never started")
