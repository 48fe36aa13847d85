"""One queue in memory: what is ready, by priority, and who waits for more."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator

from queuecraft.drivers.base import Delivery, Outgoing, Queue


class Inbox:
    """Ready messages in order, the most urgent first, and the consumers waiting for them."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.name = queue.name
        self.ready: deque[Delivery] = deque()  # priority 0: nearly always all there is
        self.urgent: dict[int, deque[Delivery]] = {}
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.delayed = 0
        self.deleted = False

    def __len__(self) -> int:
        return len(self.ready) + sum(map(len, self.urgent.values()))

    def __iter__(self) -> Iterator[Delivery]:
        for _, level in sorted(self.urgent.items(), reverse=True):
            yield from level
        yield from self.ready

    def put(self, message: Outgoing) -> None:
        """Add at the tail of its priority."""
        delivery = Delivery(message, self.name)
        if message.priority:
            self.urgent.setdefault(message.priority, deque()).append(delivery)
        else:
            self.ready.append(delivery)
        if self.waiting:
            self.wake()

    def take(self, limit: int) -> list[Delivery]:
        """Remove up to `limit` from the head."""
        ready = self.ready
        if not self.urgent:
            if limit >= len(ready):
                taken = list(ready)
                ready.clear()
                return taken
            return [ready.popleft() for _ in range(limit)]
        taken = []
        for priority in sorted(self.urgent, reverse=True):
            level = self.urgent[priority]
            while level and len(taken) < limit:
                taken.append(level.popleft())
            if not level:
                del self.urgent[priority]
        while ready and len(taken) < limit:
            taken.append(ready.popleft())
        return taken

    def put_back(self, deliveries: Iterable[Delivery], *, redelivered: bool) -> None:
        """Return deliveries to the head, in order. New objects, so that old holds are void."""
        for delivery in reversed(list(deliveries)):
            sent = delivery.sent
            back = Delivery(sent, self.name, delivery.redeliveries + redelivered)
            level = self.urgent.setdefault(sent.priority, deque()) if sent.priority else self.ready
            level.appendleft(back)
            self.wake()

    def clear(self) -> int:
        """Forget everything that is ready."""
        count = len(self)
        self.ready.clear()
        self.urgent.clear()
        return count

    def wake(self) -> None:
        """Let one waiting consumer look again."""
        while self.waiting:
            future = self.waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
