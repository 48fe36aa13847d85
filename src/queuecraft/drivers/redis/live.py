"""Queues whose events come by pub/sub: each process that listens gets them, and only then."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from queuecraft.drivers.base import Delivery, Outgoing, Queue, Receipt
from queuecraft.drivers.redis import scripts
from queuecraft.drivers.redis.client import Argument, Client
from queuecraft.drivers.redis.envelope import AGAIN, OURS, decode
from queuecraft.drivers.redis.lists import ListSubscription
from queuecraft.model.errors import QueueError

if TYPE_CHECKING:
    from queuecraft.drivers.redis.driver import RedisDriver

FAIR: Final = 8  # one look in so many is for the lists, however many events there are
BACKLOG: Final = 100_000  # events that wait here; Redis keeps none for who is slow
log: Final = logging.getLogger("queuecraft")


class LiveSubscription(ListSubscription):
    """Events that are heard, before what is in the queue's own lists. The server knows nothing of
    an event that was heard; what is left of them when a process ends in order is put there."""

    def __init__(
        self, driver: RedisDriver, client: Client, queue: Queue, consumer: str, prefetch: int
    ) -> None:
        super().__init__(driver, client, queue, consumer, prefetch)
        self._channel = f"{self.base}live:{queue.name}"
        self._heard: deque[bytes] = deque()
        self._events = 0
        self._turns = 0
        self._dropped = 0

    async def begin(self) -> None:
        watch = self.driver.watch
        if not watch.listens(self._channel):
            _, count = await self.call("subscribe", "PUBSUB", "NUMSUB", self._channel)
            if count:
                raise QueueError(
                    "another process consumes this queue, and by pub/sub each would get every "
                    "event; stop it, give this worker a queue of its own, or use mode=list",
                    broker="redis",
                    operation="subscribe",
                    queue=self.queue.name,
                )
        await watch.listen(self._channel, self._hear)

    def gather(self, limit: int) -> None:
        self._turns += 1
        if self._turns % FAIR == 0:
            return  # the lists have their turn
        count = min(len(self._heard), self.room(limit) - len(self.unseen))
        for _ in range(count):
            value = self._heard.popleft()
            self._events += 1
            message, again = decode(value, f"{self.consumer}-e{self._events}")
            delivery = Delivery(message, self.queue.name, again, Event(value))
            self.unseen.append(delivery)
            self.held[delivery] = None

    async def settle(self, deliveries: Sequence[Delivery]) -> int:
        kept = [each for each in deliveries if _is_kept(each)]
        count = await super().settle(kept) if kept else 0
        return count + len(deliveries) - len(kept)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        # As if it had not been handed over: what is not begun when the process ends is not counted.
        events = [each for each in self._ours(deliveries)[0] if not _is_kept(each)]
        for each in events:
            del self.held[each]
        self._heard.extendleft(each.token.value for each in reversed(events))
        if events:
            self.look_again()
        await super().release([each for each in deliveries if _is_kept(each)])

    async def move_held(self, targets: dict[Delivery, Outgoing]) -> dict[Delivery, Receipt]:
        kept = {each: to for each, to in targets.items() if _is_kept(each)}
        events = {each: to for each, to in targets.items() if each not in kept}
        receipts = dict(await super().move_held(kept)) if kept else {}
        if events:
            sent = await self.send(list(events.values()))
            receipts.update(zip(events, sent, strict=True))
        return receipts

    async def close(self) -> None:
        if not self.closed:
            self.driver.watch.ignore(self._channel, self._hear)
            left = [_marked(e) for e in self.held if not _is_kept(e) and e not in self.unseen]
            left += [each.token.value for each in self.unseen if not _is_kept(each)]
            left += self._heard
            self.unseen = [each for each in self.unseen if _is_kept(each)]
            arguments: list[Argument] = [self.queue.name]
            for value in reversed(left):
                arguments += (0, value)
            try:
                if left and self.client.lost is None:
                    await self.eval("leave", scripts.PUT_BACK, arguments)
            finally:
                await super().close()

    def _hear(self, value: bytes) -> None:
        if len(self._heard) >= BACKLOG:
            self._heard.popleft()
            if not self._dropped:
                log.error(
                    "queue %r: more than %d events wait to be handled; the oldest are dropped, "
                    "since pub/sub keeps nothing; use mode=list or mode=stream",
                    self.queue.name,
                    BACKLOG,
                )
            self._dropped += 1
        self._heard.append(value)
        self.look_again()


class Event:
    """The token of an event that was heard: its value, to be put aside at the end."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value


def _is_kept(delivery: Delivery) -> bool:
    """Whether the server has it."""
    return not isinstance(delivery.token, Event)


def _marked(delivery: Delivery) -> bytes:
    """An event that was given to somebody, as one that was delivered in vain."""
    value: bytes = delivery.token.value
    id = b"" if value[:4] == OURS else delivery.sent.id.encode()
    return AGAIN + b"%08x%02x" % (delivery.redeliveries + 1, len(id)) + id + value
