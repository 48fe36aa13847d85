"""Which rows of a file can be left unread, as far as Spark says so beforehand."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

COMPARED = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def expression(filters: Iterable[Filter], schema: pa.Schema) -> pc.Expression | None:
    """What Arrow can look for in these columns; None if there is nothing. It may find more rows
    than are wanted, never fewer: Spark looks again.

    >>> str(expression([EqualTo(("kind",), "captured")], pa.schema([("kind", pa.string())])))
    '(kind == "captured")'
    """
    known = (_one(each, schema) for each in filters)
    found = [each for each in known if each is not None]
    return reduce(and_, found) if found else None


def _one(each: Filter, schema: pa.Schema) -> pc.Expression | None:
    if not isinstance(each, (*COMPARED, In)) or len(each.attribute) != 1:
        return None
    name = each.attribute[0]
    if name not in schema.names or pa.types.is_nested(schema.field(name).type):
        return None
    try:
        return _compared(each, pc.field(name), schema.field(name).type)
    except (pa.ArrowException, TypeError, ValueError):  # another type: let Spark compare
        return None


def _compared(each: Any, column: pc.Expression, kind: pa.DataType) -> pc.Expression:
    if isinstance(each, In):
        return column.isin(pa.array(list(each.value), kind))
    value = pa.scalar(each.value, kind)
    match each:
        case GreaterThan():
            return column > value
        case GreaterThanOrEqual():
            return column >= value
        case LessThan():
            return column < value
        case LessThanOrEqual():
            return column <= value
        case _:
            return column == value
