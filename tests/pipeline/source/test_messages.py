from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from queuecraft.drivers.base import Delivery, Outgoing, Traits
from queuecraft.model.errors import ConfigError, PayloadError
from queuecraft.model.queue import DeadLetterTarget
from queuecraft.model.settings import Settings
from queuecraft.pipeline.archive import archived
from queuecraft.pipeline.source.form import Form
from queuecraft.pipeline.source.messages import Messages, Target
from queuecraft.runtime.successor import dead_letter_of
from tests.pipeline.replay.scene import DEEP

NOW = 1_800_000_000.0
BILLING = Target(queue="billing")


def made(
    rows: pa.RecordBatch | dict[str, list[Any]],
    target: Target = BILLING,
    *,
    form: Form | None = None,
    traits: Traits | None = None,
    salt: str = "",
    apart: bool = False,
    **settings: Any,
) -> list[Outgoing]:
    batch = pa.RecordBatch.from_pydict(rows) if isinstance(rows, dict) else rows
    about = [name for name in batch.schema.names if name not in ("payload", "total", "tags")]
    messages = Messages(
        form or Form(tuple(about)),
        target,
        Settings(**settings),
        traits or Traits("test", priority=True),
        salt=salt,
        now=NOW,
        apart=apart,
    )
    return messages.of(batch)


# -- what a message is made of ---------------------------------------------------------------------


def test_columns_say_what_a_message_carries() -> None:
    (message,) = made(
        {
            "payload": [b"{}"],
            "message_id": ["m-1"],
            "key": ["c-1"],
            "event": ["order.placed"],
            "headers": pa.array([[("tenant", "t1")]], pa.map_(pa.string(), pa.string())),
            "typed_headers": ['{"pages":2}'],
            "priority": [5],
            "correlation_id": ["r-1"],
            "content_type": ["application/json"],
            "published_at": [datetime(2026, 1, 1, tzinfo=UTC)],
            "due_at": [datetime(2030, 1, 1, tzinfo=UTC)],
            "expires_at": [datetime(2031, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)],
            "replay_id": ["r-7"],
        }
    )
    assert (message.id, message.body, message.queue) == ("m-1", b"{}", "billing")
    assert (message.routing_key, message.exchange, message.key) == ("order.placed", "", "c-1")
    assert message.headers == {"tenant": "t1", "pages": 2, "x-replay-id": "r-7"}
    assert (message.priority, message.correlation_id) == (5, "r-1")
    assert message.timestamp == datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert message.due_at == datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    assert message.expires_at == datetime(2031, 1, 1, tzinfo=UTC).timestamp() + 0.5


def test_a_text_is_json_and_bytes_are_what_somebody_says() -> None:
    assert made({"payload": ['{"n": 1}']})[0].content_type == "application/json"
    assert made({"payload": [b"\xff"]})[0].content_type is None
    msgpack = replace(BILLING, content_type="application/msgpack")
    assert made({"payload": [b"\xff"]}, msgpack)[0].content_type == "application/msgpack"


def test_without_a_payload_the_other_columns_are_a_json_object() -> None:
    lines = pa.list_(pa.struct([("tags", pa.map_(pa.string(), pa.int64()))]))
    (message,) = made(
        pa.RecordBatch.from_pydict(
            {
                "key": ["c-1"],
                "total": pa.array([Decimal("9.50")]),
                "on": pa.array([date(2026, 1, 1)]),
                "raw": [b"\xff"],
                "tags": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
                "lines": pa.array([[{"tags": [("b", 2)]}, {"tags": None}]], lines),
                "none": pa.array([None], pa.string()),
            }
        ),
        form=Form(("key",), ("total", "on", "raw", "tags", "lines", "none")),
    )
    assert message.body == (
        b'{"total":9.50,"on":"2026-01-01","raw":"/w==","tags":{"a":1},'
        b'"lines":[{"tags":{"b":2}},{"tags":null}],"none":null}'
    )
    assert (message.key, message.content_type) == ("c-1", "application/json")


def test_an_event_goes_through_an_exchange_under_its_name() -> None:
    rows = {"payload": [b"{}", b"{}"], "event": ["order.placed", "order.paid"]}
    by_column = made(rows, Target())
    assert [each.routing_key for each in by_column] == ["order.placed", "order.paid"]
    assert {(each.exchange, each.queue) for each in by_column} == {("events", None)}
    (named, _) = made(rows, Target(event="order.new", exchange="shop"))
    assert (named.routing_key, named.exchange) == ("order.new", "shop")


def test_a_dead_letter_becomes_the_message_it_was() -> None:
    sent = Outgoing(b"{}", "m-1", "events", "order.placed", headers={"tenant": "t1", "n": 5})
    letter = dead_letter_of(
        Delivery(sent, "billing"),
        DeadLetterTarget("", "billing.dlq", "billing.dlq"),
        3,
        "x",
        None,
        1,
    )
    (message,) = made(
        archived([Delivery(letter, "billing.dlq")], 1.0),
        form=Form(("message_id", "event", "headers", "typed_headers")),
    )
    assert (message.id, message.routing_key) == ("m-1", "order.placed")
    assert message.headers == {"tenant": "t1", "n": 5}


def test_bodies_are_compressed_if_the_connection_says_so() -> None:
    rows = {"payload": ["x" * 5000, "y"], "content_encoding": [None, None]}
    large, small = made(rows, compression="gzip")
    assert (large.content_encoding, small.content_encoding) == ("gzip", None)
    (packed,) = made({"payload": [b"packed"], "content_encoding": ["zstd"]}, compression="gzip")
    assert (packed.body, packed.content_encoding) == (b"packed", "zstd")


# -- ids -------------------------------------------------------------------------------------------


def test_ids_are_made_of_what_a_message_says_and_the_seed() -> None:
    rows = {"payload": ["a", "b", "a"], "key": [None, None, "k"]}
    first, second = made(rows), made(rows)
    assert [each.id for each in first] == [each.id for each in second]
    assert len({each.id for each in first}) == 3
    assert not {each.id for each in first} & {each.id for each in made(rows, salt="other")}
    alone = made({"payload": ["b"]})
    assert alone[0].id == first[1].id  # whatever other rows and columns there are


def test_equal_rows_are_told_apart_where_they_are_other_messages() -> None:
    one = made({"payload": ["a", "b", "a", "a"]}, apart=True)
    other = made({"payload": ["b", "a", "a", "a"]}, apart=True)
    assert len({each.id for each in one}) == 4
    assert {each.id for each in one} == {each.id for each in other}
    same = made({"payload": ["a", "a"]})
    assert same[0].id == same[1].id


# -- what cannot be sent ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({"payload": ["x", None]}, "row 2 of its partition cannot be sent: the payload is null"),
        ({"payload": ["x" * 20]}, "the body has 20 bytes, the limit is 10"),
        ({"payload": ["x" * 20], "content_encoding": ["gzip"]}, "the limit is 10"),
        ({"payload": ["x"], "message_id": ["m" * 300]}, "message_id is no text of 1 to 255 bytes"),
        ({"payload": ["x"], "message_id": [""]}, "message_id is no text"),
        ({"payload": ["x"], "key": ["k" * 9000]}, "key has more than 8,192 bytes"),
        ({"payload": ["x"], "correlation_id": ["k" * 300]}, "correlation_id has more than 255"),
        ({"payload": ["x"], "priority": [256]}, "priority is 256"),
        ({"payload": ["x"], "typed_headers": ["[1]"]}, "typed_headers is no JSON object"),
        ({"payload": ["x"], "typed_headers": [DEEP]}, "typed_headers is no JSON object"),
        ({"payload": ["x"], "expires_at": [datetime(2026, 1, 1, tzinfo=UTC)]}, "it expired before"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(rows: dict[str, list[Any]], reason: str) -> None:
    with pytest.raises(PayloadError, match=reason):
        made(rows, max_message_bytes=10)


def test_what_is_wrong_with_an_event_is_told_with_the_message() -> None:
    with pytest.raises(PayloadError, match=r"it has no event.*message=m-1"):
        made({"payload": ["x"], "event": [None], "message_id": ["m-1"]}, Target())
    with pytest.raises(PayloadError, match=r"has an empty word.*message=m-1"):
        made({"payload": ["x"], "event": ["a..b"], "message_id": ["m-1"]}, Target())


def test_a_priority_needs_a_broker_that_has_them() -> None:
    rows = {"payload": ["x", "y"], "priority": [0, 3]}
    with pytest.raises(PayloadError, match=r"row 2 .*has no priorities here; drop the column"):
        made(rows, traits=Traits("stream"))


def test_headers_that_are_ours_cannot_be_forged() -> None:
    headers = [("x-retry-count", "9"), ("X-Id", "m-9"), ("x-death", "x"), ("tenant", "t1")]
    kind = pa.map_(pa.string(), pa.string())
    (message,) = made({"payload": ["x"], "headers": pa.array([headers], kind)})
    assert message.headers == {"tenant": "t1"}


# -- columns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("payload double", "column 'payload' is double, expected binary or string"),
        ("payload string, priority string", "column 'priority' is string, expected int"),
        ("payload string, headers string", "expected map<string,string>"),
        ("payload string, due_at string", "expected timestamp"),
        ("payload string, mesage_id string", "did you mean 'message_id'"),
        ("key string", "none that a payload could be made of"),
        ("total double, total double", "two columns have the same name"),
    ],
)
def test_a_table_that_no_messages_can_be_made_of_is_refused(columns: str, reason: str) -> None:
    schema = StructType()
    for column in columns.split(", "):
        name, _, kind = column.partition(" ")
        schema = schema.add(name, kind)
    with pytest.raises(ConfigError, match=reason):
        Form.of(schema)


def test_what_was_read_from_a_lake_can_be_written_to_a_queue() -> None:
    schema = StructType().add("payload", "binary").add("kind", "string").add("event", "string")
    assert Form.of(schema) == Form(("event",))
