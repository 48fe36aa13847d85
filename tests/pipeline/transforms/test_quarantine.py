"""What cannot be read is kept, and told why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from queuecraft.pipeline.transforms.events import events
from queuecraft.pipeline.transforms.messages import messages
from queuecraft.pipeline.transforms.quarantine import quarantine
from tests.pipeline.rows import at, delivered, published, row
from tests.pipeline.transforms.frames import segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JSON: dict[str, Any] = {"content_type": "application/json"}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "line": (row("unreadable", None, at(), payload=b"{torn", error="not JSON"), "unreadable line"),
    "segment": (row("unreadable", None, at(), reason="unreadable segment"), "unreadable segment"),
    "newer": (published("m", version=2), "unknown version"),
    "no version": (published("m", version=None), "unknown version"),
    "kind": (row("swallowed", "m", at()), "unknown kind"),
    "no kind": ({**published("m"), "kind": None}, "unknown kind"),
    "no id": ({**delivered("m"), "message_id": None}, "no message id"),
    "empty id": (delivered(""), "no message id"),
    "no time": (row("published", "m", None), "impossible time"),
    "1970": (published("m", datetime(1970, 1, 1, tzinfo=UTC)), "impossible time"),
    "published 1970": (
        delivered("m", published_at=datetime(1970, 1, 1, tzinfo=UTC)),
        "impossible time",
    ),
    "tomorrow": (published("m", at(hours=72)), "impossible time"),
    "late": (published("m", at() - timedelta(days=9)), "late"),
    "not JSON": (published("m", **JSON, payload=b"<xml/>"), "payload is not JSON"),
    "cut off": (published("m", **JSON, payload=b'{"id": 1'), "payload is not JSON"),
    "more after it": (published("m", **JSON, payload=b'{"id": 1} x'), "payload is not JSON"),
    "two values": (published("m", **JSON, payload=b"1,2"), "payload is not JSON"),
    "nothing": (published("m", **JSON, payload=b""), "payload is not JSON"),
    "not UTF-8": (published("m", **JSON, payload=b'"\xff"'), "payload is not JSON"),
    "a dialect": (
        published("m", content_type="application/Problem+JSON; charset=utf-8", payload=b"{'a':1}"),
        "payload is not JSON",
    ),
}
GOOD: dict[str, dict[str, Any]] = {
    "published": published("g-1"),
    "delivered": delivered("g-2"),
    "captured": row("captured", "g-3", at()),
    "JSON": published("g-4", **JSON, payload=b'{"id": [1, null, "x"]}'),
    "null is JSON": published("g-5", **JSON, payload=b"null"),
    "the same name twice": published("g-6", **JSON, payload=b'{"a": 1, "a": 2}'),
    "no claim": published("g-7", payload=b"<xml/>"),
    "compressed": published("g-8", **JSON, content_encoding="gzip", payload=b"\x1f\x8b"),
    "no payload kept": published("g-9", **JSON),
    "six days late": published("g-10", at() - timedelta(days=6)),
    "a clock ahead": published("g-11", at(hours=20)),
    "due next year": published("g-12", due_at=at(hours=9000)),
}


@pytest.fixture(scope="module")
def problems(spark: SparkSession) -> dict[str, str]:
    from queuecraft.pipeline.jobs.tables import prepare

    prepare(spark)
    rows = messages(
        segment(
            spark,
            *({**each, "host": name} for name, (each, _) in BAD.items()),
            *({**each, "host": name} for name, each in GOOD.items()),
        )
    )
    found = {each["host"]: each["problem"] for each in quarantine(rows).collect()}
    kept = {each["host"] for each in events(rows).collect()}
    assert kept.isdisjoint(found)
    assert kept | set(found) == {*BAD, *GOOD}
    return found


@pytest.mark.parametrize("name", BAD)
def test_a_row_that_cannot_be_read_has_a_problem(problems: dict[str, str], name: str) -> None:
    assert problems.get(name) == BAD[name][1]


@pytest.mark.parametrize("name", GOOD)
def test_a_row_that_can_be_read_has_none(problems: dict[str, str], name: str) -> None:
    assert name not in problems
