"""What is in a queue: counted, looked at, and deleted a few thousand at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import apsw

from queuecraft.drivers.base import Delivery, Queue, QueueInfo
from queuecraft.drivers.local.sqlite import leases
from queuecraft.drivers.local.sqlite.catalogue import Place
from queuecraft.drivers.local.sqlite.database import Database, rows, value
from queuecraft.drivers.local.sqlite.position import PLACES, level_of
from queuecraft.drivers.local.sqlite.record import decode

SOME: Final = 5000  # messages deleted in one transaction, so that others get their turn
SLACK: Final = 16_384  # free pages that stay in the file for the next messages: 64 MB
LITTLE: Final = 4096  # pages in use that are copied in less than a tenth of a second: 16 MB


def info(
    connection: apsw.Connection, place: Place, places: Mapping[str, Place], now: float
) -> QueueInfo:
    """The state of a queue."""
    stored, delayed = _counts(connection, place)
    in_flight = _in_flight(connection, place)
    target = place.queue.dead_letters
    dead = None if target is None else places.get(target.queue)
    since = [each.sent.due_at or each.sent.timestamp for each in _heads(connection, place)]
    known = [when for when in since if when is not None]
    return QueueInfo(
        name=place.queue.name,
        ready=stored - in_flight,
        in_flight=in_flight,
        delayed=delayed,
        dead=None if dead is None else _counts(connection, dead)[0],
        consumers=len(place.consumers),
        oldest_age=max(0.0, now - min(known)) if known else None,
    )


def ready(connection: apsw.Connection, place: Place) -> int:
    """How many messages wait to be delivered."""
    return _counts(connection, place)[0] - _in_flight(connection, place)


def head(connection: apsw.Connection, place: Place, limit: int) -> list[Delivery]:
    """The next messages. They have no token: they cannot be settled."""
    name = place.queue.name
    found: list[Delivery] = []
    for start, end, _ in leases.gaps(connection, place.first, place.last):
        next_ones = rows(
            connection,
            "SELECT position, data FROM message WHERE position BETWEEN ? AND ? "
            "ORDER BY position LIMIT ?",
            (start, end, limit - len(found)),
        )
        if next_ones:
            counts = leases.redeliveries(connection, next_ones[0][0], next_ones[-1][0])
            found += [Delivery(decode(d, p), name, counts.get(p, 0)) for p, d in next_ones]
        if len(found) >= limit:
            break
    return found


def purge_some(connection: apsw.Connection, place: Place, most: int) -> int:
    """Delete messages nobody holds, from the head; how many it was."""
    gone = 0
    most = min(most, SOME)
    for start, end, _ in list(leases.gaps(connection, place.first, place.last)):
        gone += _delete(connection, place, start, end, most - gone)
        if gone >= most:
            break
    return gone


def shut(connection: apsw.Connection, place: Place) -> None:
    """Let nothing more in or out of a queue that is to be deleted."""
    connection.execute("DELETE FROM binding WHERE queue = ?", (place.number,))
    connection.execute("DELETE FROM consumer WHERE queue = ?", (place.number,))
    connection.execute("DELETE FROM lease WHERE first BETWEEN ? AND ?", (place.first, place.last))


def delete_some(connection: apsw.Connection, place: Place) -> int:
    """Delete messages of a queue that is shut; how many it was."""
    return _delete(connection, place, place.first, place.last, SOME)


def delete_rest(connection: apsw.Connection, place: Place) -> None:
    """Delete everything that is left in a queue."""
    for table in ("message", "redelivery"):
        connection.execute(
            f"DELETE FROM {table} WHERE position BETWEEN ? AND ?", (place.first, place.last)
        )
    connection.execute("DELETE FROM delayed WHERE queue = ?", (place.number,))


def shrink(database: Database, connection: apsw.Connection) -> None:
    """Give the disk back what a backlog has taken, once the file is nearly empty: then it is made
    anew in a moment. Page by page, beside the traffic, took most of the throughput."""
    free: int = value(connection, "PRAGMA freelist_count")
    if free > SLACK and value(connection, "PRAGMA page_count") - free < LITTLE:
        database.believe()
        try:
            connection.execute("VACUUM")
        except (apsw.BusyError, apsw.LockedError, apsw.FullError):
            return  # another time
        database.copy_back(connection, "TRUNCATE")


async def after_restart(database: Database, connection: apsw.Connection) -> None:
    """The first to open the file after the machine was started: queues and exchanges that are not
    durable are gone, as they would be from a broker."""
    boot = _boot()
    if database.read(connection, "open", lambda c: value(c, "SELECT boot FROM state")) == boot:
        return

    def work(connection: apsw.Connection) -> None:
        if value(connection, "SELECT boot FROM state") == boot:
            return
        connection.execute("UPDATE state SET boot = ?, topology = topology + 1", (boot,))
        for (number,) in rows(connection, "SELECT number FROM queue WHERE NOT durable"):
            place = Place(number, Queue(f"queue-{number}"))
            shut(connection, place)
            delete_rest(connection, place)
            connection.execute("DELETE FROM queue WHERE number = ?", (number,))
            connection.execute("DELETE FROM counter WHERE queue = ?", (number,))
        connection.execute(
            "DELETE FROM binding WHERE exchange IN (SELECT name FROM exchange WHERE NOT durable)"
        )
        connection.execute("DELETE FROM exchange WHERE NOT durable")

    await database.write(connection, "restart", work)


def _boot() -> str:
    """Which start of the machine this is, where the system tells."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _counts(connection: apsw.Connection, place: Place) -> tuple[int, int]:
    row = connection.execute(
        "SELECT stored, delayed FROM counter WHERE queue = ?", (place.number,)
    ).fetchone()
    return (0, 0) if row is None else row


def _in_flight(connection: apsw.Connection, place: Place) -> int:
    return sum(
        value(
            connection, "SELECT count(*) FROM message WHERE position BETWEEN ? AND ?", (first, last)
        )
        for first, last in rows(
            connection,
            "SELECT first, last FROM lease WHERE first BETWEEN ? AND ?",
            (place.first, place.last),
        )
    )


def _heads(connection: apsw.Connection, place: Place) -> Iterator[Delivery]:
    """The first message of each priority."""
    for start, end, _ in leases.gaps(connection, place.first, place.last):
        while start <= end:
            row = connection.execute(
                "SELECT position, data FROM message WHERE position BETWEEN ? AND ? "
                "ORDER BY position LIMIT 1",
                (start, end),
            ).fetchone()
            if row is None:
                break
            position, data = row
            yield Delivery(decode(data, position), place.queue.name)
            start = level_of(max(start, position)) + PLACES  # further on, even in a damaged file


def _delete(connection: apsw.Connection, place: Place, first: int, last: int, most: int) -> int:
    row = connection.execute(
        "SELECT position FROM message WHERE position BETWEEN ? AND ? "
        "ORDER BY position LIMIT 1 OFFSET ?",
        (first, last, most - 1),
    ).fetchone()
    until = last if row is None else row[0]
    connection.execute("DELETE FROM message WHERE position BETWEEN ? AND ?", (first, until))
    gone = connection.changes()
    if gone:
        connection.execute("DELETE FROM redelivery WHERE position BETWEEN ? AND ?", (first, until))
        connection.execute(
            "UPDATE counter SET stored = stored - ? WHERE queue = ?", (gone, place.number)
        )
    return gone
