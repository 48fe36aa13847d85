"""The broker as an operator meets it: queues that have to be there, and what it cannot do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from queuecraft.admin.private import is_private
from queuecraft.admin.unknown import UnknownQueue
from queuecraft.admin.wiring import Wiring
from queuecraft.drivers.base import Delivery, Driver, Exchange, QueueInfo, Rewinding, VirtualHosts
from queuecraft.drivers.partial import lacking
from queuecraft.model.errors import UnsupportedFeature
from queuecraft.model.naming import check_name


class Broker:
    """An open driver, and what is refused with a reason before it is asked."""

    def __init__(
        self, driver: Driver, default: Exchange, holds_dead_letters: Callable[[str], bool]
    ) -> None:
        self.driver = driver
        self.wiring = Wiring(driver, default)
        self._holds_dead_letters = holds_dead_letters

    async def info(self, queue: str, operation: str) -> QueueInfo:
        """The state of a queue; raises `UnknownQueue` where there is none."""
        check_name("queue", queue)
        for info in await self.driver.inspect([queue]):
            return info
        others = await self.driver.inspect()
        raise UnknownQueue.among(
            queue,
            [info.name for info in others if not is_private(info.name)],
            operation=operation,
            broker=self.driver.traits.name,
            partial=lacking(others) is not None,
        )

    async def peek(self, queue: str, limit: int, *, force: bool = False) -> Sequence[Delivery]:
        """The next messages of a queue, unless looking would count against them."""
        traits = self.driver.traits
        info = await self.info(queue, "peek")
        harmless = traits.peek == "clean" or self._holds_dead_letters(queue)
        if not (harmless or force or info.consumers == 0):
            raise UnsupportedFeature(
                "peeking marks messages as redelivered on this broker, and the queue has "
                "consumers; stop them first, or force it",
                broker=traits.name,
                operation="peek",
                queue=queue,
            )
        return await self.driver.peek(queue, limit)

    @property
    def divided(self) -> VirtualHosts:
        """The driver, if its broker has virtual hosts."""
        if not isinstance(self.driver, VirtualHosts):
            name = self.driver.traits.name
            raise UnsupportedFeature(
                f"{name} has no virtual hosts; give each tenant a prefix or an address of its own",
                broker=name,
            )
        return self.driver

    @property
    def rewinding(self) -> Rewinding:
        """The driver, if its broker keeps what was consumed."""
        if not isinstance(self.driver, Rewinding):
            name = self.driver.traits.name
            raise UnsupportedFeature(
                f"{name} keeps nothing that was consumed, so a queue cannot be set back; send "
                "messages again from the archive with `queuecraft lake replay`",
                broker=name,
                operation="rewind",
            )
        return self.driver
