"""A message without a broker, for tests of a single handler."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, NamedTuple

from queuecraft.model.envelope import NO_HEADERS, Delivery, Outgoing
from queuecraft.model.errors import AlreadySettled
from queuecraft.model.message import Message
from queuecraft.model.types import Headers, T


class Call(NamedTuple):
    """Something a handler asked of its message.

    >>> Call("retry", {"delay": 5})
    Call(name='retry', arguments={'delay': 5})
    """

    name: str
    arguments: dict[str, Any]


class _Done:
    """An awaitable that is ready, and that nobody needs to await."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class _Record:
    """Settles nothing, and remembers what it was asked to do."""

    def __init__(self, attempt: int) -> None:
        self.calls: list[Call] = []
        self.settled: str | None = None
        self._attempt = attempt

    def attempt(self, delivery: Delivery) -> int:
        return self._attempt

    def ack(self, delivery: Delivery) -> Awaitable[None]:
        return self._settle(delivery, "ack")

    def nack(self, delivery: Delivery, requeue: bool, reason: str) -> Awaitable[None]:
        return self._settle(delivery, "nack", requeue=requeue, reason=reason)

    def retry(self, delivery: Delivery, delay: float | None) -> Awaitable[None]:
        return self._settle(delivery, "retry", delay=delay)

    def requeue(self, delivery: Delivery) -> Awaitable[None]:
        return self._settle(delivery, "requeue")

    def dead_letter(self, delivery: Delivery, reason: str) -> Awaitable[None]:
        return self._settle(delivery, "dead_letter", reason=reason)

    def extend(self, delivery: Delivery, seconds: float) -> None:
        self.calls.append(Call("extend", {"seconds": seconds}))

    def lapsed(self, delivery: Delivery) -> bool:
        return False

    def _settle(self, delivery: Delivery, name: str, **arguments: Any) -> Awaitable[None]:
        if self.settled is not None:
            raise AlreadySettled(
                f"{name}() after {self.settled}(): a message is settled once",
                operation=name,
                queue=delivery.queue,
                message_id=delivery.sent.id,
            )
        self.settled = name
        self.calls.append(Call(name, arguments))
        return _Done()


class RecordedMessage(Message[T]):
    """A message that remembers what was asked of it; made by `message_of`.

    >>> message = message_of({"id": "o-1"})
    >>> _ = message.retry(delay=5)
    >>> message.settled
    'retry'
    >>> message.calls
    [Call(name='retry', arguments={'delay': 5})]
    """

    __slots__ = ("_record",)

    def __init__(self, payload: T, delivery: Delivery, attempt: int) -> None:
        self._record = _Record(attempt)
        super().__init__(delivery, lambda *_: payload, self._record)

    @property
    def settled(self) -> str | None:
        """How it was settled by hand: the name of the method, or None."""
        return self._record.settled

    @property
    def calls(self) -> list[Call]:
        """Every call that was made, in order, `extend` included."""
        return list(self._record.calls)


def message_of(
    payload: T,
    *,
    routing_key: str = "",
    headers: Headers | None = None,
    attempt: int = 1,
    redeliveries: int = 0,
    queue: str = "test",
    id: str = "m-1",
    key: str | None = None,
) -> RecordedMessage[T]:
    """A message to call a handler with, no broker needed.

    >>> import asyncio
    >>> async def charge(order: dict, message: Message) -> None:
    ...     if message.attempt > 2:
    ...         await message.dead_letter("tried twice")
    >>> message = message_of({"id": "o-1"}, attempt=3)
    >>> asyncio.run(charge(message.payload, message))
    >>> message.settled
    'dead_letter'
    """
    sent = Outgoing(
        b"",
        id,
        routing_key=routing_key,
        key=key,
        queue=queue,
        headers=NO_HEADERS if headers is None else headers,
    )
    return RecordedMessage(payload, Delivery(sent, queue, redeliveries), attempt)
