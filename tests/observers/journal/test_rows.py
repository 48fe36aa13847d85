"""What a row tells of a message, and what it keeps to itself."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft import Journal, fingerprint
from queuecraft.codec import Codec
from queuecraft.model.envelope import NO_HEADERS, Delivery, Outgoing
from queuecraft.model.outcome import Failure
from queuecraft.model.queue import DeadLetterTarget
from queuecraft.observers.journal import Line, Row
from queuecraft.observers.journal.headers import COLUMNS
from queuecraft.observers.journal.lines import Lines, Note
from queuecraft.observers.journal.payload import Payloads
from queuecraft.observers.journal.rows import MOST, Rows
from queuecraft.runtime.dead_letters import DeadMessage
from queuecraft.runtime.successor import dead_letter_of
from tests.observers.journal import spooled
from tests.observers.journal.spooled import told

BODY = b'{"card":{"number":"4111","name":"Ada"},"total":9.50}'


def made(
    payload: Literal["none", "headers", "full"] = "headers",
    redact: tuple[str, ...] = (),
    *,
    max_bytes: int = 2**20,
) -> Rows:
    journal = Journal("lake", payload=payload, redact=redact)
    return Rows(journal, Payloads(journal, Codec(max_bytes=max_bytes)))


def message(body: bytes = BODY, **fields: Any) -> Outgoing:
    fields = {"content_type": "application/json", "timestamp": 1.5, **fields}
    return Outgoing(body, "m-1", "events", "order.placed", **fields)


def read(lines: Sequence[Line]) -> list[Row]:
    """Rows as whoever reads the journal has them."""
    count = sum(line.count for line in lines)
    found = Lines.of([Note(count, lambda: lines)])
    assert (found.rows, found.lost) == (count, 0)
    data = found.data
    return spooled.read(data)


def row_of(rows: Rows, sent: Outgoing) -> Row:
    (row,) = read(rows.published(2.5, [sent]))
    return row


# -- many at once ----------------------------------------------------------------------------------

TEXT = st.text(max_size=5)
MAYBE = st.none() | TEXT
TIMES = st.none() | st.sampled_from([1.5, 1_750_000_000.123456, 1e-7])
MESSAGES = st.builds(
    Outgoing,
    body=st.binary(max_size=3),
    id=TEXT,
    exchange=st.sampled_from(["", "events", 'ex"change']),
    routing_key=st.sampled_from(["order.placed", "ördér\\"]),
    timestamp=TIMES,
    content_type=st.sampled_from(["application/json", None]),
    content_encoding=st.sampled_from([None, "gzip"]),
    key=MAYBE,
    queue=st.sampled_from([None, "billing"]),
    headers=st.sampled_from([NO_HEADERS, {}, {"tenant": "t1"}, {"x-retry-count": 2}]),
    due_at=st.sampled_from([None, 2.0]),
    expires_at=st.sampled_from([None, 3.0]),
    priority=st.sampled_from([0, 5]),
    correlation_id=st.sampled_from([None, "c"]),
    reply_to=st.sampled_from([None, "r"]),
)
PLAIN = st.builds(
    Outgoing,
    body=st.binary(max_size=3),
    id=TEXT,
    exchange=st.just('ex"change'),
    routing_key=st.just("ördér\\"),
    timestamp=TIMES,
    key=MAYBE,
)
"""Alike, but for their times perhaps."""


@given(st.lists(PLAIN, min_size=8, max_size=12) | st.lists(PLAIN | MESSAGES, max_size=12))
def test_rows_of_many_are_the_rows_of_each(messages: list[Outgoing]) -> None:
    rows = made()
    many = read(rows.published(2.5, messages))
    assert [told(row) for row in many] == [told(row_of(rows, each)) for each in messages]


@given(
    st.lists(PLAIN, min_size=8, max_size=12) | st.lists(PLAIN | MESSAGES, max_size=12),
    st.integers(0, 1),
    st.booleans(),
)
def test_deliveries_of_many_are_the_deliveries_of_each(
    messages: list[Outgoing], redeliveries: int, by_hand: bool
) -> None:
    rows = made()
    deliveries = [Delivery(each, "billing") for each in messages]
    if deliveries:
        deliveries[-1] = Delivery(messages[-1], "billing", redeliveries)
    durations = [] if by_hand else [n / 3 for n in range(len(messages))]
    many = read(rows.succeeded(2.5, deliveries, durations))
    each = [
        read(rows.succeeded(2.5, [one], [] if by_hand else [durations[at]]))[0]
        for at, one in enumerate(deliveries)
    ]
    assert [told(row) for row in many] == [told(row) for row in each]


@pytest.mark.parametrize(
    "odd",
    [
        {"exchange": "orders"},
        {"routing_key": "order.paid"},
        {"timestamp": 7.5},
        {"content_type": "text/plain"},
        {"content_encoding": "gzip"},
        {"queue": "billing"},
        {"headers": {"tenant": "t1"}},
        {"due_at": 2.0},
        {"expires_at": 3.0},
        {"priority": 5},
        {"correlation_id": "c-1"},
        {"reply_to": "r-1"},
    ],
    ids=lambda odd: next(iter(odd)),
)
@pytest.mark.parametrize("place", [0, 4, 9])
def test_one_that_is_not_like_the_others_is_told_as_it_is(odd: dict[str, Any], place: int) -> None:
    rows, sent = made(), [message() for _ in range(10)]
    sent[place] = msgspec.structs.replace(sent[place], **odd)
    assert [told(row) for row in read(rows.published(2.5, sent))] == [
        told(row_of(rows, each)) for each in sent
    ]
    handled = [Delivery(each, "billing") for each in sent]
    assert [told(row) for row in read(rows.succeeded(2.5, handled, [0.5] * 10))] == [
        told(read(rows.succeeded(2.5, [each], [0.5]))[0]) for each in handled
    ]


def test_many_that_are_alike_are_one_line() -> None:
    sent = [message(key=f"k-{n}") for n in range(8)]
    assert [line.count for line in made().published(2.5, sent)] == [8]
    handled = [Delivery(each, "billing") for each in sent]
    assert [line.count for line in made().succeeded(2.5, handled, [0.1] * 8)] == [8]


def test_no_line_has_more_rows_than_may_be_lost_with_it() -> None:
    sent = [message(b"." * n) for n in range(2 * MOST + 1)]
    assert [line.count for line in made().published(2.5, sent)] == [MOST, MOST, 1]
    assert [row.size for row in read(made().published(2.5, sent))] == list(range(2 * MOST + 1))
    handled = [Delivery(each, "billing") for each in sent]
    durations = [float(n) for n in range(len(sent))]
    succeeded = read(made().succeeded(2.5, handled, durations))
    assert [row.duration for row in succeeded] == durations


def test_a_text_that_is_no_unicode_spoils_only_itself() -> None:
    sent = [message(key="\ud800" if n == 3 else f"k-{n}") for n in range(8)]
    keys = [row.key for row in read(made().published(2.5, sent))]
    assert keys == ["k-0", "k-1", "k-2", "?", "k-4", "k-5", "k-6", "k-7"]


# -- headers and payload ---------------------------------------------------------------------------


def test_headers_of_ours_are_columns_and_not_repeated() -> None:
    headers = dict.fromkeys(COLUMNS, "x") | {"x-replay-id": "r-1", "tenant": "t1"}
    row = row_of(made(), message(headers=headers))
    assert (row.replay_id, row.headers, row.typed_headers) == ("r-1", {"tenant": "t1"}, None)


def test_headers_that_are_no_texts_keep_their_types() -> None:
    headers = {
        "a": 1,
        "b": None,
        "c": True,
        "d": 1.5,
        "e": b"\xff",
        "f": [b"", {"g": (2,), 3: float("inf")}],
        "h": object,
    }
    row = row_of(made(), message(headers=headers))
    assert row.headers is None
    assert row.typed_headers is not None
    assert json.loads(row.typed_headers) == {
        "a": 1,
        "b": None,
        "c": True,
        "d": 1.5,
        "e": {"base64": "/w=="},
        "f": [{"base64": ""}, {"g": [2], "3": {"float": "inf"}}],
        "h": "<class 'object'>",
    }


def test_a_replay_id_that_is_no_text_is_none() -> None:
    assert row_of(made(), message(headers={"x-replay-id": 5})).replay_id is None


def test_without_headers_a_row_still_knows_its_attempt_and_replay() -> None:
    headers = {"tenant": "t1", "n": 1, "x-retry-count": 2, "x-replay-id": "r-1"}
    delivery = Delivery(message(headers=headers), "billing")
    (row,) = read(made("none").succeeded(2.5, [delivery], [0.5]))
    assert (row.headers, row.typed_headers, row.payload) == (None, None, None)
    assert (row.attempt, row.replay_id) == (3, "r-1")


@pytest.mark.parametrize("payload", ["none", "headers"])
def test_no_payload_is_written_unless_asked_for(payload: Literal["none", "headers"]) -> None:
    row = row_of(made(payload), message())
    assert (row.payload, row.payload_base64, row.size) == (None, None, len(BODY))


def test_a_payload_is_written_as_it_is() -> None:
    row = row_of(made("full"), message())
    assert (row.payload, row.payload_base64) == (BODY.decode(), None)
    row = row_of(made("full"), message(b"\xff\x00", content_encoding="zstd"))
    assert (row.payload, row.payload_base64, row.content_encoding) == (None, "/wA=", "zstd")


def test_a_redacted_payload_is_unpacked_and_masked() -> None:
    rows = made("full", ("card.number",))
    masked = '{"card":{"number":"***","name":"Ada"},"total":9.50}'
    row = row_of(rows, message())
    assert (row.payload, row.content_encoding, row.size) == (masked, None, len(BODY))
    packed = gzip.compress(BODY)
    row = row_of(rows, message(packed, content_encoding="gzip", content_type=None))
    assert (row.payload, row.content_encoding, row.size) == (masked, None, len(packed))


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"card 4111", {}),
        (b'{"card": 4111', {}),
        (b"\xff4111", {}),
        (b"[" * 100_000, {}),
        (BODY, {"content_type": "application/msgpack"}),
        (BODY, {"content_encoding": "br"}),
        (BODY, {"content_encoding": "gzip"}),
        (gzip.compress(b'"' + b"4111" * 10_000 + b'"'), {"content_encoding": "gzip"}),
    ],
    ids=["text", "cut", "bytes", "deep", "type", "encoding", "not packed", "bomb"],
)
def test_what_cannot_be_masked_is_left_out(body: bytes, fields: dict[str, Any]) -> None:
    row = row_of(made("full", ("card.number",), max_bytes=1000), message(body, **fields))
    assert (row.payload, row.payload_base64) == (None, None)
    assert row.content_encoding == fields.get("content_encoding")


# -- failures --------------------------------------------------------------------------------------

ERRORS = st.builds(
    Failure,
    error_type=st.text(max_size=3) | st.just("E" * 2000),
    error=st.text(max_size=20) | st.just("no order 17 " * 200),
    traceback=st.text(max_size=20) | st.just('  File "a.py", line 1, in f\n' * 1000),
)


@given(st.none() | ERRORS, st.text(max_size=5) | st.just("r" * 2000))
def test_a_row_has_the_fingerprint_of_its_dead_letter(failure: Failure | None, reason: str) -> None:
    delivery = Delivery(message(), "billing")
    target = DeadLetterTarget("", "billing.dlq", "billing.dlq")
    letter = DeadMessage.of(
        Delivery(dead_letter_of(delivery, target, 1, reason, failure, 2.5), "billing.dlq")
    )
    row = made().delivered(
        2.5, delivery, "dead-lettered", attempt=1, reason=reason, failure=failure
    )
    assert row.fingerprint == letter.fingerprint
    assert row.reason == letter.reason
    assert (row.error_type or "", row.error or "") == (letter.error_type, letter.error)


def test_a_success_has_no_fingerprint() -> None:
    row = made().delivered(2.5, Delivery(message(), "billing"), "succeeded", attempt=1)
    assert row.fingerprint is None
    assert row.fingerprint != fingerprint("")


def test_text_that_is_no_unicode_is_mended_and_spoils_no_other_row() -> None:
    rows = made()
    sent = [message(key=key) for key in ("a", "\ud800", "b")]
    sent[2] = msgspec.structs.replace(sent[2], headers={"t\ud800": "\udfff"})
    written = read(rows.published(2.5, sent))
    assert [row.key for row in written] == ["a", "?", "b"]
    assert written[2].headers == {"t?": "?"}


def test_a_row_that_cannot_be_made_is_lost_alone() -> None:
    def broken() -> list[Line]:
        raise RuntimeError("no")

    good = Note(1, lambda: made().published(2.5, [message()]))
    lines = Lines.of([good, Note(3, broken), good])
    assert (lines.rows, lines.lost, str(lines.error)) == (2, 3, "no")
    assert lines.data.count(b"\n") == 2


def test_bytes_are_written_in_base64_that_can_be_read_back() -> None:
    body = bytes(range(256))
    row = row_of(made("full"), message(body))
    assert row.payload_base64 is not None
    assert base64.b64decode(row.payload_base64, validate=True) == body
