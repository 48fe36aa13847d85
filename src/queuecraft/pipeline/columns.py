"""Rows of the lake, column by column, as Arrow has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from queuecraft.observers.journal.row import Row
from queuecraft.pipeline.schemas import SEGMENTS

EARLIEST, LATEST = -62_135_596_800, 253_402_300_799  # seconds that a datetime can tell
SCHEMA: pa.Schema = SEGMENTS.arrow

Entry: TypeAlias = tuple[Row, bytes | None]
"""A row, and its payload as bytes: what the row itself says of it is not looked at."""


class Misfit(ValueError):
    """Something that the columns have no room for, such as a time after the year 9999."""


def batch_of(entries: Sequence[Entry]) -> pa.RecordBatch:
    """The rows in columns, in order; raises `Misfit` if a value has no place in its column.

    >>> rows = batch_of([(Row(kind="captured", at=1.5, message_id="m-1"), b"{}")])
    >>> rows.column("at")[0].as_py().isoformat()
    '1970-01-01T00:00:01.500000+00:00'
    """
    columns = [_column(field, values) for field, values in _values(entries)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def fitting_batch_of(
    entries: Sequence[Entry], instead: Callable[[int, str], Entry]
) -> pa.RecordBatch:
    """The same, but `instead` of an entry that has no place, by its number and the reason, another
    is taken."""
    try:
        return batch_of(entries)
    except Misfit:
        mended = list(entries)
        for number, reason in _misfits(entries).items():
            mended[number] = instead(number, reason)
        return batch_of(mended)


def _misfits(entries: Sequence[Entry]) -> dict[int, str]:
    """Those that have no place, by their numbers, and why."""
    found: dict[int, str] = {}
    for field, values in _values(entries):
        try:
            _column(field, values)
        except Misfit:
            for number, value in enumerate(values):
                try:
                    _column(field, [value])
                except Misfit as error:
                    found.setdefault(number, str(error))
    return found


def _values(entries: Sequence[Entry]) -> Iterator[tuple[pa.Field, list[Any]]]:
    """What is to be in each column."""
    rows = [row for row, _ in entries]
    for field in SCHEMA:
        if field.name == "payload":
            yield field, [payload for _, payload in entries]
        else:
            yield field, list(map(attrgetter(field.name), rows))


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    kind = field.type
    try:
        if pa.types.is_timestamp(kind):
            return _times(values, kind)
        if pa.types.is_map(kind):
            values = [None if value is None else list(value.items()) for value in values]
        return pa.array(values, kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise Misfit(f"{field.name}: {error}") from None


def _times(values: list[float | None], kind: pa.DataType) -> pa.Array:
    seconds = pa.array(values, pa.float64())
    found = pc.call_function("min_max", [seconds]).as_py()
    if found["min"] is not None and not EARLIEST <= found["min"] <= found["max"] <= LATEST:
        raise ValueError("no moment of any year from 1 to 9999")
    millionths = pc.call_function("multiply", [seconds, pa.scalar(1e6)])
    return pc.call_function("round", [millionths]).cast(pa.int64()).cast(kind)
