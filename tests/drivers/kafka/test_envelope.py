"""A message is a record of Kafka and back; and so is what others have put there."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.codec.headers import CONTENT_TYPE, EVENT, ID, PUBLISHED_AT
from queuecraft.drivers.base import Outgoing
from queuecraft.drivers.kafka.envelope import DEEPEST, TYPES, Header, Opener, message_of, packed

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = TEXT.filter(lambda name: name not in (TYPES, "")).map("user-{}".format)
MOMENTS = st.none() | st.integers(0, 253402300799_000).map(lambda ms: ms / 1000)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.binary(max_size=20)
)
MESSAGES = st.builds(
    Outgoing,
    body=st.binary(max_size=100),
    id=TEXT.filter(bool),
    exchange=st.just("events"),
    routing_key=TEXT.filter(bool),
    timestamp=MOMENTS.filter(lambda moment: moment is not None),
    content_type=st.none() | TEXT,
    content_encoding=st.none() | TEXT,
    key=st.none() | TEXT,
    headers=st.dictionaries(NAMES, VALUES, max_size=5),
    priority=st.integers(0, 9),
    due_at=MOMENTS,
    expires_at=MOMENTS,
    correlation_id=st.none() | TEXT,
    reply_to=st.none() | TEXT,
)
FIELDS = (
    "body",
    "id",
    "exchange",
    "routing_key",
    "timestamp",
    "content_type",
    "content_encoding",
    "key",
    "priority",
    "due_at",
    "expires_at",
    "correlation_id",
    "reply_to",
)


def record(
    value: bytes | None = b"{}", key: bytes | None = None, headers: list[Header] | None = None
) -> Message:
    there: dict[str, Any] = {"topic": "order.placed", "partition": 2, "offset": 5}
    return Message(**there, key=key, value=value, headers=headers, timestamp=(1, 1500))


@given(MESSAGES)
def test_what_is_packed_is_the_same_when_it_comes_back(message: Outgoing) -> None:
    key = None if message.key is None else message.key.encode()
    back = message_of(record(message.body, key, packed(message)), "events", "other")
    for name in FIELDS:
        assert getattr(back, name) == getattr(message, name), name
    assert dict(back.headers) == dict(message.headers)
    kinds = {name: type(value) for name, value in message.headers.items()}
    assert {name: type(value) for name, value in back.headers.items()} == kinds


ODD = st.none() | st.binary(max_size=4) | st.sampled_from([b"1500", b"9" * 15, b"9" * 40, b"-1"])


@given(st.lists(st.tuples(ODD, ODD, ODD, ODD, ODD), max_size=5))
def test_one_record_after_the_other_is_read_as_each_would_be_alone(
    records: list[tuple[bytes | None, bytes | None, bytes | None, bytes | None, bytes | None]],
) -> None:
    opener = Opener("events", "order.placed")
    for id, event, published, kind, key in records:
        usual: list[Header] = [
            (ID, id),
            (EVENT, event),
            (PUBLISHED_AT, published),
            (CONTENT_TYPE, kind),
        ]
        ours = opener.open(record(b"{}", key, usual))
        alone = message_of(record(b"{}", key, usual[::-1]), "events", "order.placed")
        for name in FIELDS:
            assert getattr(ours, name) == getattr(alone, name), name
        assert dict(ours.headers) == dict(alone.headers) == {}


def test_what_has_other_headers_than_its_neighbours_is_read_whole() -> None:
    opener = Opener("events", "order.placed")
    usual = packed(Outgoing(b"{}", "m-1", "events", "order.paid", 1.5, "application/json"))
    assert opener.open(record(b"{}", None, usual)).routing_key == "order.paid"
    bare = opener.open(record(b"{}", None, [(ID, b"m-2")]))
    assert (bare.id, bare.routing_key, bare.timestamp) == ("m-2", "order.placed", None)
    more = opener.open(record(b"{}", None, [*usual, ("tenant", b"acme")]))
    assert (more.routing_key, dict(more.headers)) == ("order.paid", {"tenant": "acme"})


@pytest.mark.parametrize("headers", [None, [], [("trace", b"t-1")]])
def test_a_record_of_somebody_else_is_a_message_with_defaults(headers: list[Header] | None) -> None:
    message = message_of(record(b"hello", b"ada", headers), "events", "order.placed")
    assert (message.body, message.key, message.routing_key) == (b"hello", "ada", "order.placed")
    assert (message.id, message.timestamp) == ("order.placed-2-5", 1.5)
    assert dict(message.headers) == ({"trace": "t-1"} if headers else {})


def test_a_header_that_is_no_text_stays_as_it_is() -> None:
    message = message_of(record(headers=[("raw", b"\xff\x00"), ("none", None)]))
    assert dict(message.headers) == {"raw": b"\xff\x00", "none": None}


@pytest.mark.parametrize("levels", [DEEPEST + 1, 900, 100_000])
def test_a_header_that_is_nested_too_deeply_stays_as_it_is(levels: int) -> None:
    deep = b"[" * levels + b"]" * levels
    message = message_of(record(headers=[(TYPES, b'{"h":"json"}'), ("h", deep), ("n", b"1")]))
    assert dict(message.headers) == {"h": deep, "n": "1"}


def test_a_header_that_is_wide_or_nested_a_little_comes_back_as_it_was() -> None:
    deep: list[Any] = []
    for _ in range(DEEPEST - 1):
        deep = [deep]
    headers: dict[str, Any] = {"deep": deep, "wide": [{"n": each} for each in range(DEEPEST)]}
    sent = Outgoing(b"{}", "m-1", "events", "order.placed", headers=headers)
    assert dict(message_of(record(headers=packed(sent))).headers) == headers


def test_a_tombstone_is_an_empty_message() -> None:
    assert message_of(record(None, b"\xff")).body == b""
    assert message_of(record(None, b"\xff")).key == "\\xff"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "x-id",
                    "x-event",
                    "x-published-at",
                    "x-due-at",
                    "x-expires-at",
                    "x-priority",
                    "x-types",
                    "x-to",
                    "content-type",
                    "x-retry-count",
                    "y",
                ]
            ),
            st.none() | st.binary(max_size=30) | st.integers().map(lambda n: str(n).encode()),
        ),
        max_size=8,
    ),
    st.none() | st.binary(max_size=10),
)
def test_hostile_headers_are_read_without_harm(headers: list[Header], key: bytes | None) -> None:
    message = message_of(record(b"", key, headers), "events", "order.placed")
    assert message.id
    assert 0 <= message.priority < 1000
    packed(message)  # and can be sent on
