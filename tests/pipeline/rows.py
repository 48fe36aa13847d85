"""Makers of rows for a lake."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import SEGMENTS, Table

NOON: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)
NOTHING: Final[Mapping[str, Any]] = dict.fromkeys(SEGMENTS.names)


def at(seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0) -> datetime:
    """So long after noon."""
    return NOON + timedelta(seconds=seconds, minutes=minutes, hours=hours)


def row(kind: str, message_id: str | None, when: datetime | None, **more: Any) -> dict[str, Any]:
    """A row of a segment; what is not said is as the journal would have it."""
    usual = {"attempt": 0, "redeliveries": 0, "size": 10, "priority": 0, "process": 1, "version": 1}
    return {**NOTHING, **usual, "kind": kind, "message_id": message_id, "at": when, **more}


def published(message_id: str, when: datetime | None = None, **more: Any) -> dict[str, Any]:
    """A publish of `order.placed` through the exchange `events`."""
    moment = when or at()
    usual = {"event": "order.placed", "exchange": "events", "published_at": moment}
    return row("published", message_id, moment, **{**usual, **more})


def delivered(
    message_id: str, when: datetime | None = None, outcome: str = "succeeded", **more: Any
) -> dict[str, Any]:
    """A delivery to `billing` of what was published at noon."""
    usual: dict[str, Any] = {
        "event": "order.placed",
        "queue": "billing",
        "attempt": 1,
        "duration": 0.5,
        "outcome": outcome,
        "published_at": at(),
    }
    return row("delivered", message_id, when or at(2), **{**usual, **more})


def write_rows(
    lake: Lake, rows: Sequence[Mapping[str, Any]], *, name: str = "a", date: str = "2026-03-02"
) -> Path:
    """A segment with these rows."""
    path = lake.segments / f"date={date}" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema=SEGMENTS.arrow), path)
    return path


def table_rows(lake: Lake, table: Table) -> list[dict[str, Any]]:
    """All rows of a table, in an order of their own: partitions and batches do not matter."""
    found: list[dict[str, Any]] = []
    for file in sorted((lake.tables / table.name).rglob("*.parquet")):
        if not any(part.startswith((".", "_")) for part in file.relative_to(lake.tables).parts):
            found += pq.ParquetFile(file).read().to_pylist()
    return sorted(found, key=lambda row: repr(sorted(row.items())))


def business(messages: int, seed: int = 1, hours: float = 3.0) -> list[dict[str, Any]]:
    """Some hours of a small shop: orders that are billed and shipped, retries, dead letters,
    messages nobody has taken yet, and rows that were lost."""
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for number in range(messages):
        born = at(chance.uniform(0, hours * 3600))
        event = chance.choice(("order.placed", "order.paid"))
        mine: dict[str, Any] = {
            "event": event,
            "published_at": born,
            "key": f"k-{number % 7}",
            "size": chance.randint(50, 500),
            "content_type": "application/json",
            "payload": b'{"id": "o-%d", "total": %d.5}' % (number, number),
        }
        if chance.random() < 0.95:  # the journal may lose rows
            rows.append(published(f"m-{number}", born + timedelta(milliseconds=3), **mine))
        for queue in ("billing", "shipping"):
            if chance.random() < 0.05:
                continue  # not handled yet
            moment = born + timedelta(seconds=chance.uniform(0.01, 90))
            for attempt in (1, 2, 3):
                fails = chance.random() < 0.2
                outcome = ("dead-lettered" if attempt == 3 else "retried") if fails else "succeeded"
                trouble: dict[str, Any] = {}
                if fails:
                    code = chance.choice(("o-1", "o-2"))
                    trouble = {
                        "reason": "error",
                        "error_type": chance.choice(("KeyError", "TimeoutError")),
                        "error": f"order '{code}' failed",
                    }
                rows.append(
                    delivered(
                        f"m-{number}",
                        moment,
                        outcome,
                        **{**mine, **trouble},
                        queue=queue,
                        attempt=attempt,
                        duration=chance.uniform(0.001, 0.9),
                    )
                )
                if not fails:
                    break
                moment += timedelta(seconds=chance.uniform(1, 1500))
    return sorted(rows, key=lambda row: (row["at"], row["message_id"]))


def in_segments(lake: Lake, rows: Sequence[Mapping[str, Any]], count: int) -> Iterable[Path]:
    """The rows in so many segments, in order."""
    size = -(-len(rows) // count)
    return [
        write_rows(lake, rows[start : start + size], name=f"s-{start // size:05}")
        for start in range(0, len(rows), size)
    ]


def segment_rows(lake: Lake) -> list[dict[str, Any]]:
    """All rows of all segments, in an order of their own."""
    files = [path for path in lake.segments.glob("date=*/*.parquet") if path.name[0] != "."]
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted(rows, key=lambda row: repr(sorted(row.items())))
