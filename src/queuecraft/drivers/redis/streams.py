"""Queues that are streams, each with one group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from queuecraft.drivers.base import Delivery
from queuecraft.drivers.redis import scripts
from queuecraft.drivers.redis.client import Argument, Script
from queuecraft.drivers.redis.envelope import decode
from queuecraft.drivers.redis.subscription import RedisSubscription


class StreamSubscription(RedisSubscription):
    """A consumer of the group. What was given back is kept beside the stream, and comes before
    what nobody has seen."""

    take_script: ClassVar[Script] = scripts.TAKE_ENTRIES
    move_script: ClassVar[Script] = scripts.MOVE_ENTRIES

    def watched(self) -> list[str]:
        name, base = self.queue.name, self.base
        return [f"{base}stream:{name}", f"{base}back:{name}"]

    def demand(self, limit: int) -> list[Argument]:
        single = "single" if self.queue.single_active else ""
        return [self.queue.name, self.consumer, limit, single]

    def unpack(self, values: Sequence[Any], levels: bytes) -> list[Delivery]:
        queue = self.queue.name
        taken: list[Delivery] = []
        for place in range(0, len(values), 2):
            token = values[place].decode()
            message, again = decode(values[place + 1], f"stream-{token}")
            taken.append(Delivery(message, queue, again, token))
        return taken

    async def settle(self, deliveries: Sequence[Delivery]) -> int:
        count: int = await self.eval("ack", scripts.ACK_ENTRIES, self._named(deliveries))
        return count

    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        await self.eval("release", scripts.RELEASE_ENTRIES, self._named(deliveries))

    def _named(self, deliveries: Sequence[Delivery]) -> list[Argument]:
        tokens = [each.token for each in deliveries]
        return [self.queue.name, self.consumer, self.driver.retain, *tokens]
