"""A consumer of a queue in memory, and the deliveries it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from queuecraft.clock import Clock
from queuecraft.drivers.base import (
    ACCEPTED,
    ConnectionLost,
    Delivery,
    Move,
    Outgoing,
    Receipt,
    Rejected,
    Subscription,
    stale,
)
from queuecraft.drivers.local.inbox import Inbox
from queuecraft.drivers.local.refusals import deleted
from queuecraft.failpoints import failpoint

if TYPE_CHECKING:
    from queuecraft.drivers.local.memory import MemoryDriver


class MemorySubscription(Subscription):
    """A consumer in the process, and the deliveries it holds."""

    def __init__(self, driver: MemoryDriver, inbox: Inbox, prefetch: int, clock: Clock) -> None:
        self.inbox = inbox
        self.prefetch = prefetch
        # A dict keeps the order of receipt, so that what goes back goes back in order.
        self.held: dict[Delivery, None] = {}
        self._driver = driver
        self._clock = clock
        self._closed = False
        self._waiting: asyncio.Future[None] | None = None

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        self._check_open()
        taken = self._take(limit)
        if taken or wait <= 0:
            return taken
        waiting = self.inbox.waiting
        deadline = self._clock.monotonic() + wait
        while True:
            future = self._waiting = asyncio.get_running_loop().create_future()
            if len(self.held) < self.prefetch:  # else a wake-up would be lost on us
                waiting.append(future)
            timer = self._clock.call_later(wait, partial(_wake, future))
            try:
                await future
            except asyncio.CancelledError:
                if not future.cancelled():
                    self.inbox.wake()  # it was for a message that somebody else may have now
                raise
            finally:
                timer.cancel()
                self._waiting = None
                if future in waiting:
                    waiting.remove(future)
            self._check_open()
            taken = self._take(limit)
            if taken or (wait := deadline - self._clock.monotonic()) <= 0:
                return taken

    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        failpoint("ack.before")
        gone: list[Delivery] = []
        held = self.held
        for delivery in deliveries:
            try:
                del held[delivery]
            except KeyError:
                gone.append(delivery)
        if self._waiting is not None:
            _wake(self._waiting)
        return gone

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        ours = [each for each in dict.fromkeys(deliveries) if each in self.held]
        for delivery in ours:
            del self.held[delivery]
        if not self.inbox.deleted:
            self.inbox.put_back(ours, redelivered=False)
        if self._waiting is not None:
            _wake(self._waiting)

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        return await self._driver.send(messages)

    async def move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        held = self.held
        ours: dict[Delivery, Outgoing] = {}
        answers: list[Receipt | None] = []  # None: to be sent
        for move in moves:
            if move.delivery in held and move.delivery not in ours:
                ours[move.delivery] = move.to
                answers.append(None)
            else:
                answers.append(Rejected(stale(move.delivery, "local")))
        sent = await self._driver.send(tuple(ours.values()))
        for delivery, receipt in zip(ours, sent, strict=True):
            if receipt is ACCEPTED:
                del held[delivery]
        if self._waiting is not None:
            _wake(self._waiting)
        receipts = iter(sent)
        return [answer or next(receipts) for answer in answers]

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if not self.inbox.deleted:
            self.inbox.put_back(self.held, redelivered=True)
            self.inbox.wake()  # one for us may be under way: the message is somebody else's now
        self.held.clear()
        if self._waiting is not None:
            _wake(self._waiting)
        self._driver.forget(self)

    def _take(self, limit: int) -> list[Delivery]:
        limit = min(limit, self.prefetch - len(self.held))
        if limit <= 0:
            return []
        taken = self.inbox.take(limit)
        self.held.update(dict.fromkeys(taken))
        return taken

    def look_again(self) -> None:
        """Let a `receive` that waits see what has changed."""
        if self._waiting is not None:
            _wake(self._waiting)

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionLost("the subscription is closed", broker="local")
        if self.inbox.deleted:
            raise deleted(self.inbox.name)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
