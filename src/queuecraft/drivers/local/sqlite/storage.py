"""Putting messages into the file, and bringing those forward whose time has come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import apsw

from queuecraft.drivers.base import ACCEPTED, Outgoing, Receipt, Rejected
from queuecraft.drivers.local.refusals import homeless, let_down
from queuecraft.drivers.local.sqlite.catalogue import Catalogue, Place
from queuecraft.drivers.local.sqlite.database import rows, value
from queuecraft.drivers.local.sqlite.position import PLACES, level
from queuecraft.drivers.local.sqlite.record import encode
from queuecraft.model.errors import PublishError, QueueError

DUE_AT_ONCE: Final = 500  # delayed messages brought forward in one transaction
NEVER: Final = float("inf")


class Stored:
    """What a transaction has put where, so that consumers can be told once it is committed."""

    __slots__ = ("arrived", "delayed", "next_due", "receipts")

    def __init__(self) -> None:
        self.receipts: list[Receipt] = []
        self.arrived: dict[int, int] = {}  # messages by queue
        self.delayed: set[int] = set()  # queues
        self.next_due = NEVER


_Levels: TypeAlias = dict[tuple[int, int], list[bytes]]
"""Records by queue and priority."""


def store(
    connection: apsw.Connection,
    catalogue: Catalogue,
    messages: Sequence[Outgoing],
    now: float,
    *,
    atomic: bool = False,
) -> Stored:
    """Put messages into all the queues they go to."""
    stored = Stored()
    if (place := _only_place(catalogue, messages)) is not None:
        try:
            records = [encode(message) for message in messages]
        except Exception:
            pass  # below, it is found which of them cannot be stored
        else:
            _append(connection, place.number, 0, records)
            stored.arrived[place.number] = len(messages)
            stored.receipts = [ACCEPTED] * len(messages)
            return stored
    receipts = stored.receipts
    levels: _Levels = {}
    later: list[tuple[int, int, float, bytes]] = []
    for message in messages:
        targets = catalogue.targets(message)
        if not targets:
            receipts.append(Rejected(homeless(message)))
            continue
        try:
            record = encode(message)
        except Exception as error:
            receipts.append(Rejected(_unencodable(message, error)))
            continue
        receipts.append(ACCEPTED)
        if message.due_at is not None and message.due_at > now:
            for place in targets:
                later.append((place.number, message.priority, message.due_at, record))
                stored.delayed.add(place.number)
            stored.next_due = min(stored.next_due, message.due_at)
        else:
            for place in targets:
                levels.setdefault((place.number, message.priority), []).append(record)
    if atomic and any(receipt is not ACCEPTED for receipt in receipts):
        stored.receipts = [
            Rejected(let_down()) if receipt is ACCEPTED else receipt for receipt in receipts
        ]
        return stored
    for (number, priority), kept in levels.items():
        _append(connection, number, priority, kept)
        stored.arrived[number] = stored.arrived.get(number, 0) + len(kept)
    if later:
        connection.executemany(
            "INSERT INTO delayed (queue, priority, due, data) VALUES (?, ?, ?, ?)", later
        )
        _count_delayed(connection, (number for number, _, _, _ in later), +1)
    return stored


def _only_place(catalogue: Catalogue, messages: Sequence[Outgoing]) -> Place | None:
    """Where all of them go, if it is one queue and now: nearly every batch is of one event."""
    if not messages:
        return None
    first = messages[0]
    exchange, routing_key = first.exchange, first.routing_key
    if first.queue is not None or not catalogue.exchanges.by_key(exchange):
        return None
    for message in messages:
        if (
            message.routing_key is not routing_key
            or message.exchange is not exchange
            or message.queue is not None
            or message.due_at is not None
            or message.priority
        ):
            return None
    targets = catalogue.targets(first)
    return targets[0] if len(targets) == 1 else None


def bring_forward(connection: apsw.Connection, now: float) -> Stored:
    """Make delayed messages ready that are due, those due first in front."""
    stored = Stored()
    due = rows(
        connection,
        "SELECT number, queue, priority, data FROM delayed WHERE due <= ? "
        "ORDER BY due, number LIMIT ?",
        (now, DUE_AT_ONCE),
    )
    if due:
        levels: _Levels = {}
        for _, queue, priority, record in due:
            levels.setdefault((queue, priority), []).append(record)
        for (queue, priority), records in levels.items():
            _append(connection, queue, priority, records)
            stored.arrived[queue] = stored.arrived.get(queue, 0) + len(records)
        connection.executemany(
            "DELETE FROM delayed WHERE number = ?", ((number,) for number, _, _, _ in due)
        )
        _count_delayed(connection, (queue for _, queue, _, _ in due), -1)
    stored.next_due = next_due(connection)
    if not due and stored.next_due <= now:  # else it would be looked for again and again
        raise apsw.CorruptError("the index of delayed messages does not match them")
    return stored


def next_due(connection: apsw.Connection) -> float:
    """When the next delayed message is due."""
    due = value(connection, "SELECT min(due) FROM delayed")
    return NEVER if due is None else due


def _append(
    connection: apsw.Connection, queue: int, priority: int, records: Sequence[bytes]
) -> None:
    count = len(records)
    following = value(
        connection,
        "UPDATE counter SET next = next + ?, stored = stored + ? WHERE queue = ? RETURNING next",
        (count, count, queue),
    )
    if following is None:
        raise apsw.CorruptError("a queue has no counter")
    if following > PLACES:
        following = _start_over(connection, queue, count)
    first = level(queue, priority) + following - count
    connection.executemany(
        "INSERT INTO message VALUES (?, ?)", zip(range(first, first + count), records, strict=True)
    )


def _start_over(connection: apsw.Connection, queue: int, count: int) -> int:
    """Places are used up; they can be used again once none is taken."""
    connection.execute(
        "UPDATE counter SET next = ? WHERE queue = ? AND stored = ?", (count, queue, count)
    )
    if not connection.changes():
        raise QueueError(
            f"the queue has had {PLACES} messages and was never empty; drain it once",
            broker="local",
            operation="send",
        )
    return count


def _count_delayed(connection: apsw.Connection, queues: Iterable[int], step: int) -> None:
    counts: dict[int, int] = {}
    for queue in queues:
        counts[queue] = counts.get(queue, 0) + step
    connection.executemany(
        "UPDATE counter SET delayed = delayed + ? WHERE queue = ?",
        ((count, queue) for queue, count in counts.items()),
    )


def _unencodable(message: Outgoing, error: Exception) -> PublishError:
    refused = PublishError(
        f"a header cannot be stored: {error}",
        broker="local",
        queue=message.queue,
        message_id=message.id,
    )
    refused.__cause__ = error
    return refused
