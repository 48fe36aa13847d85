from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.drivers.base import NO_HEADERS, Delivery, Outgoing
from queuecraft.model.errors import PayloadError
from queuecraft.model.outcome import Failure
from queuecraft.model.queue import DeadLetterTarget
from queuecraft.observers.journal.headers import parted
from queuecraft.pipeline.archive import archived, joined, outgoing_of, split
from queuecraft.runtime.dead_message import DeadMessage
from queuecraft.runtime.successor import dead_letter_of, redrive_of

Writing: TypeAlias = Callable[[Mapping[str, Any]], tuple[dict[str, str] | None, str | None]]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
MOMENTS = st.none() | st.integers(0, 4_102_444_800_000_000).map(lambda us: us / 1e6)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.binary(max_size=20)
    | TEXT
)
TABLES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXT | st.sampled_from(["base64", "float", "table"]), inner, max_size=2)
    ),
    max_leaves=6,
)
NAMES = TEXT.filter(lambda name: name and not name.startswith("x-"))
MESSAGES = st.builds(
    Outgoing,
    body=st.binary(max_size=100),
    id=TEXT,
    exchange=TEXT,
    routing_key=TEXT,
    timestamp=MOMENTS,
    content_type=st.none() | TEXT,
    content_encoding=st.none() | TEXT,
    key=st.none() | TEXT,
    headers=st.dictionaries(
        NAMES | st.sampled_from(["x-replay-id", "x-error"]), TABLES, max_size=4
    ),
    due_at=MOMENTS,
    expires_at=MOMENTS,
    priority=st.integers(0, 9),
    correlation_id=st.none() | TEXT,
    reply_to=st.none() | TEXT,
)


def fields(message: Outgoing) -> dict[str, Any]:
    told: dict[str, Any] = {name: getattr(message, name) for name in Outgoing.__struct_fields__}
    return {**told, "headers": dict(message.headers)}


def row(message: Outgoing, queue: str = "tap", redeliveries: int = 0) -> dict[str, Any]:
    batch = archived([Delivery(message, queue, redeliveries)], 1_700_000_000.25)
    (told,) = batch.to_pylist()
    return dict(told)


@given(MESSAGES)
def test_a_message_comes_back_from_the_archive_as_it_was(message: Outgoing) -> None:
    assert fields(outgoing_of(row(message))) == fields(message)


@pytest.mark.parametrize("writing", [split, parted], ids=["archive", "journal"])
@given(st.dictionaries(TEXT, TABLES, max_size=5))
def test_headers_of_any_kind_come_back(writing: Writing, headers: dict[str, Any]) -> None:
    texts, typed = writing(headers)
    assert joined(texts, typed) == headers
    assert joined(None if texts is None else list(texts.items()), typed) == headers


@pytest.mark.parametrize("writing", [split, parted], ids=["archive", "journal"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_number_that_json_does_not_have_comes_back(value: float, writing: Writing) -> None:
    (back,) = joined(*writing({"n": value})).values()
    assert repr(back) == repr(value)


@pytest.mark.parametrize(
    "table",
    [
        {"table": "orders"},
        {"table": {"rows": 5}},
        {"table": {"base64": "AA==", "rows": 5}},
        {"float": "1.5"},
        {"float": "many"},
        {"float": 5},
        {"base64": "no base64"},
        {"base64": [1]},
    ],
    ids=repr,
)
def test_a_table_that_an_old_journal_wrote_as_it_is_comes_back(table: dict[str, Any]) -> None:
    typed = msgspec.json.encode({"of": table}).decode()
    assert joined(None, typed) == {"of": table}


def test_a_row_tells_what_is_known_of_a_message() -> None:
    message = Outgoing(
        b"\xff\x00",
        "m-1",
        "events",
        "order.placed",
        timestamp=1_600_000_000.5,
        key="o-1",
        headers={"tenant": "t1", "pages": 2, "x-replay-id": "r-1"},
        priority=3,
    )
    told = row(message, "tap", redeliveries=2)
    assert (told["kind"], told["queue"], told["event"], told["key"]) == (
        "captured",
        "tap",
        "order.placed",
        "o-1",
    )
    assert (told["attempt"], told["redeliveries"], told["size"], told["version"]) == (0, 2, 2, 1)
    assert told["at"].timestamp() == 1_700_000_000.25
    assert told["published_at"].timestamp() == 1_600_000_000.5
    assert told["headers"] == [("tenant", "t1")]
    assert told["typed_headers"] == '{"pages":2}'
    assert told["replay_id"] == "r-1"
    assert (told["reason"], told["fingerprint"], told["outcome"]) == (None, None, None)


def test_a_dead_letter_tells_its_story_and_can_be_sent_back() -> None:
    original = Outgoing(b"{}", "m-1", "events", "order.placed", headers={"tenant": "t1"})
    letter = dead_letter_of(
        Delivery(original, "billing"),
        DeadLetterTarget("", "billing.dlq", "billing.dlq"),
        attempt=3,
        reason="handler-error",
        failure=Failure(error="order 17 is unknown", error_type="KeyError", traceback=""),
        now=1_700_000_000,
    )
    delivery = Delivery(letter, "billing.dlq")
    told = row(letter, "billing.dlq")
    assert told["reason"] == "handler-error"
    assert (told["error_type"], told["error"]) == ("KeyError", "order 17 is unknown")
    assert told["fingerprint"] == DeadMessage.of(delivery).fingerprint

    again = redrive_of(Delivery(outgoing_of(told), "billing.dlq"), "billing", now=5.0)
    assert (again.queue, again.routing_key) == ("billing", "order.placed")
    assert again.headers == {"tenant": "t1"}


def test_a_row_of_spark_is_as_good_as_one_of_arrow() -> None:
    message = Outgoing(b"{}", "m-1", "events", "order.placed", 1_600_000_000.5, headers={"a": "b"})
    told = row(message)
    as_spark_has_it = {
        **told,
        "payload": bytearray(b"{}"),
        "headers": {"a": "b"},
        "published_at": told["published_at"].astimezone().replace(tzinfo=None),  # local, naive
    }
    assert fields(outgoing_of(as_spark_has_it)) == fields(message)


def test_a_message_can_go_to_another_queue() -> None:
    there = outgoing_of(row(Outgoing(b"{}", "m-1", "events", "order.placed")), queue="billing")
    assert (there.exchange, there.queue, there.routing_key) == ("", "billing", "order.placed")
    assert there.headers is NO_HEADERS


def test_what_a_broker_has_noted_is_archived_and_not_sent_on() -> None:
    headers: dict[str, Any] = {"x-death": [{"count": 1}], "tenant": "t1"}
    told = row(Outgoing(b"", "m-1", headers=headers))
    assert told["typed_headers"] == '{"x-death":[{"count":1}]}'
    assert outgoing_of(told).headers == {"tenant": "t1"}


def test_a_row_without_a_payload_is_no_message() -> None:
    with pytest.raises(PayloadError, match='journal keep payloads with payload="full"') as caught:
        outgoing_of({"message_id": "m-1", "payload": None})
    assert caught.value.message_id == "m-1"


@pytest.mark.parametrize(
    "odd",
    [
        {"timestamp": 1e300},
        {"due_at": -1e300},
        {"expires_at": math.nan},
        {"priority": 2**40},
        {"routing_key": "half of \ud83d"},
        {"headers": {"half of \ud83d": "half of \ud83d"}},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_what_has_no_place_in_the_columns_costs_neither_the_payload_nor_the_others(
    odd: dict[str, Any],
) -> None:
    strange = msgspec.structs.replace(Outgoing(b"precious", "m-2", headers={"a": "b"}), **odd)
    messages = [Outgoing(b"1", "m-1", timestamp=5.0), strange, Outgoing(b"3", "m-3", timestamp=7.0)]
    first, middle, last = archived([Delivery(each, "tap") for each in messages], 9.0).to_pylist()
    assert (first["error"], last["error"]) == (None, None)
    assert (first["published_at"].timestamp(), last["published_at"].timestamp()) == (5.0, 7.0)
    assert (middle["kind"], middle["message_id"], middle["payload"]) == (
        "captured",
        "m-2",
        b"precious",
    )
    assert middle["error"].startswith("not all of it fits the archive: ")


def test_headers_that_no_json_can_hold_cost_only_themselves() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    headers: dict[str, Any] = {"a": "b", "deep": deep}
    told = row(Outgoing(b"precious", "m-1", headers=headers))
    assert (told["payload"], told["headers"], told["typed_headers"]) == (
        b"precious",
        [("a", "b")],
        None,
    )
    assert told["error"].startswith("not all headers fit the archive: ")
