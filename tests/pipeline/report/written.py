"""Tables of a lake, written as the jobs leave them: by hour of birth, in folders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import Table

START = datetime(2030, 1, 7, 9, 0, tzinfo=UTC)  # a Monday


def at(minutes: float) -> datetime:
    """So many minutes after nine."""
    return START + timedelta(minutes=minutes)


def write(lake: Lake, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """More rows of a table; columns that are not given are null."""
    given = list(rows)
    wrong = {name for row in given for name in row} - set(table.names)
    assert not wrong, wrong
    folder = lake.tables / table.name / "date=2030-01-07" / "hour=9"
    folder.mkdir(parents=True, exist_ok=True)
    filled = [{name: row.get(name) for name in table.names} for row in given]
    name = f"part-{len(list(folder.iterdir())):04}.parquet"
    pq.write_table(pa.Table.from_pylist(filled, table.arrow), folder / name)


def minute(
    minutes: float, queue: str | None, event: str = "order.placed", **known: Any
) -> dict[str, Any]:
    """A row of the throughput."""
    counts = ("published", "delivered", "succeeded", "retried", "dead_lettered", "dropped")
    none = dict.fromkeys((*counts, "expired", "bytes"), 0)
    return {**none, "minute": at(minutes), "queue": queue, "event": event, **known}


def life(id: str, queue: str | None, settled: float | None = None, **known: Any) -> dict[str, Any]:
    """A row of a message's life, published at nine unless told otherwise."""
    return {
        "message_id": id,
        "queue": queue,
        "event": "order.placed",
        "published_at": at(0),
        "settled_at": None if settled is None else at(settled),
        **known,
    }
