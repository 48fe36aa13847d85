"""Who holds which messages: ranges of positions, each owned by one consumer.

A range costs one row however many messages it covers, and goes on covering what was settled long
ago: a position is never used again, so nothing new can turn up inside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import apsw

from queuecraft.drivers.local.sqlite.database import rows, value
from queuecraft.drivers.local.sqlite.position import level_of

Row: TypeAlias = tuple[int, bytes]
"""Position and record of a message."""


class Claim:
    """Messages taken from one gap between leases: to be a lease of their own, or, where they
    follow one of ours, a longer one."""

    __slots__ = ("extends", "first", "last", "rows")

    def __init__(self, first: int, rows: Sequence[Row], extends: int | None) -> None:
        self.first = first
        self.last = rows[-1][0]
        self.rows = rows
        self.extends = extends


def gaps(
    connection: apsw.Connection, first: int, last: int
) -> Iterator[tuple[int, int, tuple[int, int] | None]]:
    """Stretches between two positions that nobody holds, and the lease before each: its first
    position and its consumer."""
    before: tuple[int, int] | None = None
    held = rows(
        connection,
        "SELECT first, last, consumer FROM lease WHERE first BETWEEN ? AND ? ORDER BY first",
        (first, last),
    )
    for start, end, consumer in held:
        if first < start:
            yield first, start - 1, before
        first = end + 1
        before = start, consumer
    if first <= last:
        yield first, last, before


def claim(
    connection: apsw.Connection, consumer: int, first: int, last: int, limit: int
) -> list[Claim]:
    """Take up to `limit` messages that nobody holds, from the head."""
    claims: list[Claim] = []
    for start, end, before in gaps(connection, first, last):
        found = rows(
            connection,
            "SELECT position, data FROM message WHERE position BETWEEN ? AND ? "
            "ORDER BY position LIMIT ?",
            (start, end, limit),
        )
        _check_order(found)
        for level, same in _by_level(found):
            # From the end of the lease before, so that no gap is left to be searched again; but
            # not beyond the level, where more urgent messages may still arrive.
            begin = max(start, level)
            extends = None
            if begin == start and before is not None and level <= before[0]:
                extends = before[0] if before[1] == consumer else None
            claims.append(Claim(begin, same, extends))
            before, start = (begin, consumer), same[-1][0] + 1
        limit -= len(found)
        if limit <= 0:
            break
    for each in claims:
        if each.extends is not None:
            connection.execute(
                "UPDATE lease SET last = ? WHERE first = ?", (each.last, each.extends)
            )
        else:
            connection.execute(
                "INSERT INTO lease VALUES (?, ?, ?)", (each.first, each.last, consumer)
            )
    return claims


def owned(connection: apsw.Connection, consumer: int, first: int) -> bool:
    """Whether a lease is still this consumer's."""
    owner: int | None = value(connection, "SELECT consumer FROM lease WHERE first = ?", (first,))
    return owner == consumer


def redeliveries(connection: apsw.Connection, first: int, last: int) -> dict[int, int]:
    """How often messages were given back by a consumer that went away, if they were."""
    return dict(
        rows(
            connection,
            "SELECT position, count FROM redelivery WHERE position BETWEEN ? AND ?",
            (first, last),
        )
    )


def replace(
    connection: apsw.Connection, consumer: int, first: int, kept: Iterable[tuple[int, int]]
) -> None:
    """Hold these ranges instead of a lease."""
    connection.execute("DELETE FROM lease WHERE first = ?", (first,))
    connection.executemany(
        "INSERT INTO lease VALUES (?, ?, ?)", ((start, end, consumer) for start, end in kept)
    )


def give_back(connection: apsw.Connection, consumer: int) -> int:
    """A consumer has gone: all it held is ready again, as redeliveries. How many it was."""
    returned = 0
    for first, last in rows(
        connection, "SELECT first, last FROM lease WHERE consumer = ?", (consumer,)
    ):
        connection.execute(
            "INSERT INTO redelivery SELECT position, 1 FROM message "
            "WHERE position BETWEEN ? AND ? "
            "ON CONFLICT (position) DO UPDATE SET count = count + 1",
            (first, last),
        )
        returned += connection.changes()
    connection.execute("DELETE FROM lease WHERE consumer = ?", (consumer,))
    return returned


def _check_order(rows: Sequence[Row]) -> None:
    """A damaged table may give messages twice, or out of order; ranges over them would be wrong."""
    positions = [position for position, _ in rows]
    if len(rows) > 1 and positions != sorted(set(positions)):
        raise apsw.CorruptError("messages were found in the wrong order")


def _by_level(rows: Sequence[Row]) -> Iterator[tuple[int, Sequence[Row]]]:
    """Messages of one priority at a time."""
    while rows:
        level = level_of(rows[0][0])
        if level_of(rows[-1][0]) == level:  # nearly always
            yield level, rows
            return
        count = next(at for at, (position, _) in enumerate(rows) if level_of(position) != level)
        yield level, rows[:count]
        rows = rows[count:]
