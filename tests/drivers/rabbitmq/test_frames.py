"""Frames are what pamqp would have made of them; what is no frame is `Malformed`, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from queuecraft.drivers.rabbitmq import frames
from queuecraft.drivers.rabbitmq.fields import Malformed
from queuecraft.drivers.rabbitmq.frames import Properties, content, pack, read_properties
from tests.drivers.rabbitmq.broker import delivery
from tests.drivers.rabbitmq.test_fields import TEXT, tables

MOST = 4088
SHORT = st.none() | TEXT.filter(lambda text: len(text.encode()) <= 255)
OCTET = st.none() | st.integers(0, 255)
PROPERTIES = st.fixed_dictionaries(
    {
        "content_type": SHORT,
        "content_encoding": SHORT,
        "headers": st.none() | tables(st.binary()).filter(bool),
        "delivery_mode": st.sampled_from([None, 1, 2]),
        "priority": OCTET,
        "correlation_id": SHORT,
        "reply_to": SHORT,
        "expiration": SHORT,
        "message_id": SHORT,
        "timestamp": st.none() | st.integers(0, 4_000_000_000),
        "message_type": SHORT,
    }
)


def told(properties: object) -> dict[str, Any]:
    return {name: getattr(properties, name) for name in Properties.__struct_fields__}


def unmarshalled(data: bytes) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []
    while data:
        size, channel, each = frame.unmarshal(data)
        found.append((channel, each))
        data = data[size:]
    return found


# -- packing ---------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(PROPERTIES, st.binary(max_size=50))
def test_pamqp_reads_every_property_that_we_write(values: dict[str, Any], body: bytes) -> None:
    (channel, header), *bodies = unmarshalled(
        b"".join(content(7, pack(Properties(**values)), body, 100_000))
    )
    assert (channel, header.body_size) == (7, len(body))
    expected = dict(values)
    if values["timestamp"] is not None:
        expected["timestamp"] = datetime.fromtimestamp(values["timestamp"], UTC)
    assert told(header.properties) == expected
    assert [(number, each.value) for number, each in bodies] == ([(7, body)] if body else [])


@settings(max_examples=60)
@given(PROPERTIES, st.integers(0, 2**64 - 1))
def test_we_read_every_property_that_pamqp_writes(values: dict[str, Any], size: int) -> None:
    values = {name: None if value == "" else value for name, value in values.items()}
    if values["headers"]:
        values["headers"] = {"a": 1, "b": "two"}
    wanted = dict(values)  # by pamqp, for which an empty text is none
    if values["timestamp"] is not None:
        wanted["timestamp"] = datetime.fromtimestamp(values["timestamp"], UTC)
    others: dict[str, Any] = {"user_id": "u", "app_id": "a"}  # which we have no use for
    header = ContentHeader(0, size % 2**63, commands.Basic.Properties(**wanted, **others))
    got_size, got = read_properties(header.marshal())
    assert (got_size, told(got)) == (size % 2**63, values)


@settings(max_examples=40)
@given(st.integers(0, 3 * MOST + 2))
def test_a_body_is_cut_into_frames_that_are_small_enough(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    _, *pieces = unmarshalled(b"".join(content(1, pack(Properties()), body, MOST)))
    assert all(isinstance(piece, ContentBody) for _, piece in pieces)
    assert len(pieces) == -(-size // MOST)
    assert all(0 < len(piece.value) <= MOST for _, piece in pieces)
    assert b"".join(piece.value for _, piece in pieces) == body


def test_headers_that_fill_the_frame_to_the_last_byte_are_packed() -> None:
    room = MOST - 14 - 4 - len(b"\x01aS") - 4
    header = content(1, pack(Properties(headers={"a": "x" * room})), b"", MOST)
    assert len(b"".join(header)) == MOST + frames.OVERHEAD


def test_headers_that_do_not_fit_into_a_frame_are_refused_before_they_cost_the_connection() -> None:
    room = MOST - 14 - 4 - len(b"\x01aS") - 4
    with pytest.raises(ValueError, match=r"its headers take 4,089 bytes; the broker allows 4,088"):
        content(1, pack(Properties(headers={"a": "x" * (room + 1)})), b"", MOST)


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        (Properties(content_type="x" * 256), "256 bytes"),
        (Properties(correlation_id="x" * 256), "256 bytes"),
        (Properties(message_id="x" * 256), "256 bytes"),
        (Properties(message_id="\ud800"), "surrogates"),
        (Properties(priority=256), "range"),
        (Properties(headers={"a": 2**63}), "64 bits"),
    ],
)
def test_what_a_property_cannot_hold_is_a_value_error(properties: Properties, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        pack(properties)


@given(st.integers(1, 65535), st.integers(1, 2**64 - 1), st.booleans())
def test_acks_are_those_of_pamqp(channel: int, tag: int, multiple: bool) -> None:
    said = frames.ack(channel, tag, multiple=multiple) + frames.give_back(channel, tag)
    # pamqp packs tags as signed: what it reads of ours is compared modulo that.
    signed = tag - 2**64 if tag >= 2**63 else tag
    (one, ack), (two, nack) = unmarshalled(said)
    assert (one, ack.delivery_tag, ack.multiple) == (channel, signed, multiple)
    assert (two, nack.delivery_tag, nack.multiple, nack.requeue) == (channel, signed, False, True)
    assert frames.read_tag(said[7:-1]) == (tag, multiple)


# -- reading ---------------------------------------------------------------------------------------


def test_flags_beyond_the_fifteenth_are_passed_over() -> None:
    payload = bytes.fromhex("003c0000" + "00" * 8 + "0081" + "0001" + "0000") + b"\x02id"
    assert read_properties(payload)[1].message_id == "id"


@given(st.binary(max_size=255))
def test_a_name_that_is_no_unicode_is_not_longer_when_it_is_sent_on(name: bytes) -> None:
    text, _ = frames.read_short(bytes([len(name)]) + name, 0)
    assert len(text.encode()) <= len(name)


READERS: list[Callable[[bytes], object]] = [
    frames.read_properties,
    frames.read_tag,
    frames.read_route,
    frames.read_returned,
    frames.read_method,
]
FULL = ContentHeader(
    0,
    5,
    commands.Basic.Properties(
        content_type="application/json",
        headers={"x-death": [{"count": 1, "queue": "q"}], "deep": {"er": [1, None, "x"]}},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        message_id="m",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    ),
).marshal()
VALID = [
    FULL,
    frame.marshal(commands.Basic.Return(312, "NO_ROUTE", "e", "key"), 1)[7:-1],
    frame.marshal(commands.Basic.Ack(1, True), 1)[7:-1],
    frame.marshal(commands.Connection.Start(0, 9, {"a": {"b": [1]}}, "PLAIN", "en_US"), 0),
    frame.marshal(commands.Channel.Close(404, "NOT_FOUND", 50, 10), 1),
    b"\x01e\x03key",
]


@pytest.mark.parametrize("read", READERS)
@given(data=st.binary(max_size=200))
def test_random_bytes_are_read_or_malformed(read: Callable[[bytes], object], data: bytes) -> None:
    try:
        read(data)
    except Malformed:
        pass


@pytest.mark.parametrize("read", READERS)
@given(
    valid=st.sampled_from(VALID),
    flips=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), max_size=4),
    end=st.integers(0, 400),
)
def test_frames_with_a_few_bits_wrong_are_read_or_malformed(
    read: Callable[[bytes], object], valid: bytes, flips: list[tuple[int, int]], end: int
) -> None:
    data = bytearray(valid)
    for at, mask in flips:
        data[at % len(data)] ^= mask
    try:
        read(bytes(data[:end]))
    except Malformed:
        pass


def test_a_header_that_is_cut_off_anywhere_is_malformed() -> None:
    assert read_properties(FULL)[1].message_id == "m"
    for end in range(len(FULL)):
        with pytest.raises(Malformed):
            read_properties(FULL[:end])


def test_a_route_that_is_cut_off_anywhere_is_malformed() -> None:
    whole = frame.marshal(commands.Basic.Return(312, "NO_ROUTE", "e", "key"), 1)[7:-1]
    assert frames.read_returned(whole) == ("e", "key")
    for end in range(len(whole)):
        with pytest.raises(Malformed):
            frames.read_returned(whole[:end])


def test_a_delivery_of_pamqp_is_what_we_think_it_is() -> None:
    (_, deliver), (_, header), (_, body) = unmarshalled(delivery(3, 9, b"{}", message_id="m"))
    assert (deliver.delivery_tag, header.properties.message_id, body.value) == (9, "m", b"{}")


def test_a_content_where_a_method_should_be_is_malformed() -> None:
    with pytest.raises(Malformed, match="where a method was expected"):
        frames.read_method(frame.marshal(ContentBody(b"x"), 1))
