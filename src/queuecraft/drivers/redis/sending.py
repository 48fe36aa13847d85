"""Messages on their way: runs that go the same way, and an answer for each message."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from queuecraft.clock import Clock
from queuecraft.drivers.base import (
    ACCEPTED,
    ConnectionLost,
    Outgoing,
    Receipt,
    Rejected,
    Unknown,
)
from queuecraft.drivers.redis import scripts
from queuecraft.drivers.redis.client import Argument, Client, RedisError
from queuecraft.drivers.redis.envelope import encode, strung, told_apart
from queuecraft.drivers.redis.refusals import homeless, let_down, refusal, unstored
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import PublishError

MOST: Final = 1000  # messages in one script: nobody else is served meanwhile
LARGEST: Final = 8 * 1024 * 1024  # bytes in one script, unless it is one message
LATEST: Final = 9e12  # seconds since the epoch: later is as good as never
STORED: Final = ord("1")
HOMELESS: Final = ord("0")
BY_HEADERS: Final = ord("h")


Way: TypeAlias = tuple[str, int, int, bytes]
"""Where a message goes, its level, when it is due, and its headers if they matter."""

Parcel: TypeAlias = tuple[Outgoing, bytes]
"""A message, and as what it is stored."""


class Sending:
    """Stores messages by a script that finds out where they go."""

    def __init__(self, client: Client, base: str, clock: Clock) -> None:
        self._client = client
        self._base = base
        self._clock = clock
        self._by_headers: set[str] = set()  # exchanges that want to see them

    async def send(self, messages: Sequence[Outgoing], *, atomic: bool) -> Sequence[Receipt]:
        """Store messages in order, and answer for each. Raises only if nothing was attempted."""
        if self._client.lost is not None:
            raise ConnectionLost(self._client.lost.message, broker="redis", operation="send")
        parcels: list[tuple[Outgoing, bytes]] = []
        unfit: dict[int, Receipt] = {}
        for place, message in enumerate(messages):
            try:
                parcels.append((message, encode(message)))
            except (ValueError, OverflowError, TypeError) as error:
                unfit[place] = Rejected(unstored(message, f"it cannot be encoded: {error}"))
        if unfit and atomic:
            return [unfit.get(place, Rejected(let_down())) for place in range(len(messages))]
        receipts: list[Receipt] = []
        for some in [parcels] if atomic else _portions(parcels):
            try:
                receipts += await self._send(some, atomic)
            except ConnectionLost as error:
                if not receipts:
                    raise
                receipts += [Unknown(error)] * (len(parcels) - len(receipts))
                break
        for place, answer in unfit.items():
            receipts.insert(place, answer)
        return receipts

    def way(self, message: Outgoing) -> Way:
        """Where a message goes, its level, when it is due, and the headers if they matter."""
        if message.queue is None:
            to = f"x{message.exchange}\0{message.routing_key}"
        else:
            to = "q" + message.queue
        headers = b""
        if message.queue is None and message.exchange in self._by_headers:
            headers = strung(told_apart(message.headers))
        due = 0
        # In whole milliseconds that are never early, this very moment would be one to come.
        if message.due_at is not None and message.due_at > self._clock.now():
            due = math.ceil(min(message.due_at, LATEST) * 1000)
        return to, max(0, min(message.priority, 9)), due, headers

    def wants_headers(self, message: Outgoing) -> None:
        """An exchange has turned out to be one that routes by headers."""
        self._by_headers.add(message.exchange)

    async def _send(self, parcels: Sequence[Parcel], atomic: bool) -> Sequence[Receipt]:
        arguments: list[Argument] = ["atomic" if atomic else ""]
        sizes: list[int] = []
        for way, values in self._runs(parcels):
            arguments += (*way, len(values))
            arguments += values
            sizes.append(len(values))
        failpoint("send.before_commit")
        try:
            answer = await self._client.eval(scripts.SEND, [self._base], arguments, now=True)
        except RedisError as error:
            return _refused(parcels, error)
        except ConnectionLost as error:
            return [Unknown(error)] * len(parcels)
        failpoint("send.after_commit")
        letters: bytes = answer[0]
        if letters == b"1":
            return [ACCEPTED] * len(parcels)
        told = [letter for letter, size in zip(letters, sizes, strict=True) for _ in range(size)]
        if BY_HEADERS in letters:
            return await self._send_by_headers(parcels, told, atomic)
        fault = fault_of(answer)
        failed = atomic and letters.strip(b"1") != b""
        return [
            receipt(message, letter, fault, atomic=failed)
            for (message, _), letter in zip(parcels, told, strict=True)
        ]

    async def _send_by_headers(
        self, parcels: Sequence[Parcel], told: Sequence[int], atomic: bool
    ) -> Sequence[Receipt]:
        """Send again, with headers, what could not be routed without them; the rest is stored, if
        it was not to be stored together."""
        again = [each for each, letter in zip(parcels, told, strict=True) if letter == BY_HEADERS]
        for message, _ in again:
            self.wants_headers(message)
        if atomic:
            return await self._send(parcels, atomic)
        answers = iter(await self._send(again, atomic))
        return [
            next(answers) if letter == BY_HEADERS else receipt(message, letter, "")
            for (message, _), letter in zip(parcels, told, strict=True)
        ]

    def _runs(self, parcels: Sequence[Parcel]) -> Iterator[tuple[Way, list[bytes]]]:
        """Messages in order, those together that go the same way."""
        last: Outgoing | None = None
        way: Way = ("", 0, 0, b"")
        values: list[bytes] = []
        for message, value in parcels:
            # Nearly always they are of one event: then there is nothing to work out.
            if last is None or not (
                message.routing_key is last.routing_key
                and message.exchange is last.exchange
                and message.queue is last.queue
                and message.priority == last.priority
                and message.due_at is last.due_at is None
                and not way[3]
            ):
                following = self.way(message)
                if values and following != way:
                    yield way, values
                    values = []
                way, last = following, message
            values.append(value)
        if values:
            yield way, values


def _portions(parcels: Sequence[Parcel]) -> Iterator[Sequence[Parcel]]:
    """What one script can be given: a server takes only so much at a time."""
    start = size = 0
    for place, (_, value) in enumerate(parcels):
        if place - start >= MOST or (size and size + len(value) > LARGEST):
            yield parcels[start:place]
            start, size = place, 0
        size += len(value)
    if start < len(parcels):
        yield parcels[start:]


def fault_of(answer: Sequence[bytes | None]) -> str:
    """What went wrong while messages were stored. Raises if another server is to be asked: then
    this one has stored nothing."""
    if len(answer) < 2 or answer[1] is None:
        return ""
    fault = answer[1].decode(errors="replace")
    if isinstance(why := refusal(RedisError(fault), "send"), ConnectionLost):
        raise why
    return fault


def receipt(message: Outgoing, letter: int, fault: str, *, atomic: bool = False) -> Receipt:
    """What the letter of an answer means for a message."""
    if letter == HOMELESS:
        return Rejected(homeless(message))
    if atomic:
        return Rejected(let_down())
    return ACCEPTED if letter == STORED else Rejected(unstored(message, fault))


def _refused(parcels: Sequence[Parcel], error: RedisError) -> Sequence[Receipt]:
    """The script has stored nothing: it fails before its first write, or not at all."""
    why = refusal(error, "send")
    if isinstance(why, ConnectionLost):
        raise why
    return [Rejected(PublishError(why.message, broker="redis"))] * len(parcels)
