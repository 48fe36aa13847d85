"""What happened between two looks, and the last of it all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from queuecraft.admin.growth import growth
from queuecraft.admin.overview import Happening, Overview, WorkerRow

KEPT = 200
TOGETHER = timedelta(minutes=1)  # dead letters of a queue within this time are one happening


def happenings(before: Overview, now: Overview) -> list[Happening]:
    """What has changed, worst last."""
    found = [
        *_connection(before, now),
        *_workers(before, now),
        *_pauses(before, now),
        *_circuits(before, now),
        *_dead_letters(before, now),
    ]
    rank = {"info": 0, "warning": 1, "error": 2}
    return sorted(found, key=lambda each: rank[each.level])


class Happenings:
    """The last of them, newest first."""

    def __init__(self) -> None:
        self._kept: deque[Happening] = deque(maxlen=KEPT)
        self._letters: dict[str, tuple[Happening, int, datetime]] = {}  # and since when

    def add(self, new: Iterable[Happening], growth: Mapping[str, int]) -> None:
        """Keep more of them; `growth` says how many dead letters each queue has got."""
        for each in new:
            if each.kind == "dead-letters" and each.queue is not None:
                self._kept.appendleft(self._joined(each, each.queue, growth.get(each.queue, 1)))
            else:
                self._kept.appendleft(each)
        if len(self._letters) > KEPT:
            self._letters = dict(list(self._letters.items())[-KEPT:])

    def all(self) -> tuple[Happening, ...]:
        """Newest first."""
        return tuple(self._kept)

    def _joined(self, new: Happening, queue: str, count: int) -> Happening:
        """A queue that fails all the time would leave no room for anything else."""
        since = new.at
        if (known := self._letters.pop(queue, None)) is not None:
            last, before, first = known
            if last in self._kept and new.at - first <= TOGETHER:
                self._kept.remove(last)
                since = first
                count += before
                new = replace(new, text=_grown(queue, count))
        self._letters[queue] = (new, count, since)
        return new


def _connection(before: Overview, now: Overview) -> Iterator[Happening]:
    if before.state != now.state:
        if now.state == "connected":
            yield _happening(now.at, "connection", "The broker answers again.")
        else:
            why = f": {now.last_error}" if now.last_error else "."
            yield _happening(now.at, "connection", f"The broker is {now.state}{why}", "error")
    if before.blocked != now.blocked:
        if now.blocked is None:
            yield _happening(now.at, "blocked", "The broker takes messages again.")
        else:
            yield _happening(
                now.at, "blocked", f"The broker takes no messages: {now.blocked}.", "error"
            )


def _workers(before: Overview, now: Overview) -> Iterator[Happening]:
    if before.workers is None or now.workers is None:
        return
    old = {(row.process, row.queue): row for row in before.workers}
    new = {(row.process, row.queue): row for row in now.workers}
    came = [row for who, row in new.items() if who not in old and _is_young(row)]
    yield from _told(now.at, "worker", came, "came", "info")
    went = [row for who, row in old.items() if who not in new and row.state != "silent"]
    yield from _told(now.at, "worker", went, "stopped", "info")
    lost = [row for who, row in old.items() if who not in new and row.state == "silent"]
    yield from _told(now.at, "worker", lost, "is gone without a word", "error")
    for state, text in (
        ("silent", "has given no sign of life lately"),
        ("reconnecting", "has lost the broker"),
    ):
        those = [
            row
            for who, row in new.items()
            if row.state == state and who in old and old[who].state != state
        ]
        yield from _told(now.at, "worker", those, text, "warning")
    back = [
        row
        for who, row in new.items()
        if who in old
        and old[who].state in ("silent", "reconnecting")
        and row.state in ("running", "paused")
    ]
    yield from _told(now.at, "worker", back, "is back", "info")


def _pauses(before: Overview, now: Overview) -> Iterator[Happening]:
    old = {row.name: row.paused for row in before.queues}
    for row in now.queues:
        if row.name not in old or old[row.name] == row.paused:
            continue
        if row.paused is None:
            yield _happening(now.at, "resumed", f"{row.name!r} is resumed.", queue=row.name)
        elif old[row.name] is None:
            text = f"{row.name!r} stands still: {row.paused}"
            yield _happening(now.at, "paused", text, "warning", queue=row.name)


def _circuits(before: Overview, now: Overview) -> Iterator[Happening]:
    old = {(row.process, row.name): row.state for row in before.circuits}
    told: set[tuple[str, str]] = set()
    for row in now.circuits:
        was = old.get((row.process, row.name), "closed")
        if was == row.state or (row.name, row.state) in told:
            continue
        told.add((row.name, row.state))  # once, however many processes have it
        text = f"The circuit {row.name!r} is {row.state.replace('_', ' ')} on {row.host}."
        yield _happening(now.at, "circuit", text, "warning" if row.state == "open" else "info")


def _dead_letters(before: Overview, now: Overview) -> Iterator[Happening]:
    for name, count in growth(before.queues, now.queues).items():
        yield _happening(now.at, "dead-letters", _grown(name, count), "warning", queue=name)


def _grown(queue: str, count: int) -> str:
    return f"{count:,} new dead letter{'' if count == 1 else 's'} in {queue!r}."


def _told(
    at: datetime,
    kind: str,
    rows: Iterable[WorkerRow],
    text: str,
    level: Literal["info", "warning", "error"],
) -> Iterator[Happening]:
    """One line for each queue, however many workers it has."""
    by_queue: dict[str, list[WorkerRow]] = {}
    for row in rows:
        by_queue.setdefault(row.queue, []).append(row)
    for queue, those in by_queue.items():
        first = those[0]
        if len(those) == 1:
            said = f"The worker of {queue!r} on {first.host} ({first.pid}) {text}."
        else:
            many = text.replace("has ", "have ").replace("is ", "are ")
            said = f"{len(those):,} workers of {queue!r} {many}."
        yield _happening(at, kind, said, level, queue=queue)


def _is_young(row: WorkerRow) -> bool:
    """Whether it has begun just now, by its own clock. Where signs of life are not kept, one that
    was there all the time may be heard of only now."""
    return row.seen_at - row.started_at < timedelta(seconds=60)


def _happening(
    at: datetime,
    kind: str,
    text: str,
    level: Literal["info", "warning", "error"] = "info",
    *,
    queue: str | None = None,
) -> Happening:
    return Happening(at=at, kind=kind, text=text, level=level, queue=queue)
