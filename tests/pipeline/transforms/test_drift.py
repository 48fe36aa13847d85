"""Fields of payloads that come, go and change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.testing import assertDataFrameEqual

from queuecraft.pipeline.schemas import DRIFT
from queuecraft.pipeline.transforms.drift import drift
from queuecraft.pipeline.transforms.fields import fields
from tests.pipeline.rows import at, published
from tests.pipeline.transforms.frames import bronze, collected, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def order(number: int, payload: Any, **more: Any) -> dict[str, Any]:
    """Published so many minutes after noon."""
    return published(
        f"m-{number}", at(minutes=number), payload=msgspec.json.encode(payload), **more
    )


def changes(spark: SparkSession, *rows: dict[str, Any]) -> dict[tuple[str, str], str]:
    found = collected(drift(fields(bronze(spark, *rows))))
    return {(each["field"], each["type"]): each["change"] for each in found}


def test_fields_are_counted_with_their_types(spark: SparkSession) -> None:
    rows = bronze(
        spark, order(0, {"id": "a", "lines": [{"n": 1}, {"n": 2}]}), order(1, {"id": "b"})
    )
    both = {"event": "order.placed", "count": 2, "first_seen": at(), "last_seen": at(60)}
    once = {**both, "count": 1, "last_seen": at(), "share": 0.5, "change": ""}
    expected = [
        {**both, "field": "$", "type": "object", "share": 1.0, "change": ""},
        {**both, "field": "id", "type": "string", "share": 1.0, "change": ""},
        {**once, "field": "lines", "type": "array"},
        {**once, "field": "lines[]", "type": "object"},
        {**once, "field": "lines[].n", "type": "number"},
    ]
    assertDataFrameEqual(drift(fields(rows)), frame(spark, DRIFT, expected))


def test_fields_come_go_and_change_their_type(spark: SparkSession) -> None:
    before = [order(n, {"id": n, "old": True, "note": None}) for n in range(5)]
    after = [order(n, {"id": str(n), "new": 1.5, "note": None}) for n in range(6, 11)]
    assert changes(spark, *before, *after) == {
        ("$", "object"): "",
        ("id", "number"): "gone",
        ("id", "string"): "type",
        ("old", "boolean"): "gone",
        ("new", "number"): "new",
        ("note", "null"): "",
    }


def test_what_was_hardly_ever_there_is_not_missed(spark: SparkSession) -> None:
    rows = [order(n, {"id": n, **({"rare": 1} if n == 2 else {})}) for n in range(10)]
    assert changes(spark, *rows)["rare", "number"] == ""


def test_what_is_not_plain_json_is_not_looked_into(spark: SparkSession) -> None:
    rows = [
        published("m-1", payload=b"\xff"),
        published("m-2", payload=b"\x1f\x8b", content_encoding="gzip"),
        published("m-3"),
    ]
    assert changes(spark, *rows) == {}
