"""A message is the same after its journey, and a stranger's is a message too."""

from __future__ import annotations

import asyncio
import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands, frame

from queuecraft.codec.headers import DUE_AT, EVENT, EXPIRES_AT, KEY, PUBLISHED_AT, REDELIVERIES
from queuecraft.drivers.base import Outgoing
from queuecraft.drivers.rabbitmq.confirms import Parcel
from queuecraft.drivers.rabbitmq.consuming import Arrival, Consuming
from queuecraft.drivers.rabbitmq.envelope import DELIVERY_COUNT, is_counted, message_of, parcel
from queuecraft.drivers.rabbitmq.fields import short
from queuecraft.drivers.rabbitmq.frames import Properties, content, read_properties
from tests.drivers.rabbitmq.broker import Broker
from tests.drivers.rabbitmq.test_fields import FINITE, TEXT, tables

MOST = 131_064
SHORT = TEXT.filter(lambda text: 0 < len(text.encode()) <= 255)
TIMES = st.none() | st.integers(0, 4_000_000_000_000).map(lambda ms: ms / 1000)
OURS = {PUBLISHED_AT, DUE_AT, EXPIRES_AT, KEY, EVENT, REDELIVERIES, DELIVERY_COUNT}
MESSAGES = st.builds(
    Outgoing,
    body=st.binary(max_size=50),
    id=SHORT,
    exchange=SHORT,
    routing_key=SHORT,
    timestamp=TIMES,
    content_type=st.none() | SHORT,
    content_encoding=st.none() | SHORT,
    key=st.none() | TEXT,
    headers=tables(FINITE, st.binary()).filter(lambda headers: not OURS & headers.keys()),
    due_at=TIMES,
    expires_at=TIMES,
    priority=st.integers(0, 255),
    persistent=st.booleans(),
    correlation_id=st.none() | SHORT,
    reply_to=st.none() | SHORT,
)


def carried(packed: Parcel) -> Arrival:
    """As it arrives at a consumer."""
    exchange, routing_key, _, properties, body = packed

    async def receive() -> Arrival:
        broker = Broker()
        channel = Consuming(broker.wire)
        # By hand: RabbitMQ takes any text for a name, pamqp would not.
        said = struct.pack(">HHBQB", 60, 60, 0, 1, 0) + short(exchange) + short(routing_key)
        start = struct.pack(">BHI", 1, channel.number, len(said))
        frames = [start, said, b"\xce", *content(channel.number, properties, body, MOST)]
        broker.wire.data_received(b"".join(frames))
        assert broker.wire.lost is None
        return channel.arrivals.pop()

    return asyncio.run(receive())


def told(message: Outgoing) -> dict[str, Any]:
    return {name: getattr(message, name) for name in Outgoing.__struct_fields__} | {
        "headers": dict(message.headers)
    }


@settings(max_examples=60)
@given(MESSAGES)
def test_a_message_comes_back_as_it_was_sent(message: Outgoing) -> None:
    arrival = carried(parcel(message, message.exchange, message.routing_key))
    got, counted, noted = message_of(arrival)
    assert told(got) == told(message)
    assert (counted, noted) == (None, 0)


@settings(max_examples=40)
@given(MESSAGES, st.integers(1, 1000))
def test_a_message_that_took_another_way_still_knows_its_event(
    message: Outgoing, redeliveries: int
) -> None:
    arrival = carried(parcel(message, "", "billing", redeliveries=redeliveries))
    got, counted, noted = message_of(arrival)
    assert told(got) == told(message) | {"exchange": ""}
    assert (counted, noted) == (None, redeliveries)


def test_a_count_of_the_brokers_own_is_told_apart_and_taken_off() -> None:
    properties = Properties(headers={DELIVERY_COUNT: 3, REDELIVERIES: 2, "tenant": "t1"})
    arrival = Arrival(1, False, "e", "k", properties, b"")
    for _ in range(2):
        message, counted, noted = message_of(arrival)
        assert (counted, noted, message.headers) == (3, 2, {"tenant": "t1"})


# -- what others send ------------------------------------------------------------------------------


def foreign(**properties: Any) -> Arrival:
    return Arrival(1, False, "events", "order.placed", Properties(**properties), b"{}")


def test_a_message_with_no_properties_at_all_is_a_message() -> None:
    message, counted, noted = message_of(foreign())
    assert message.id.startswith("foreign-")
    assert told(message) == told(
        Outgoing(b"{}", message.id, "events", "order.placed", persistent=False)
    )
    assert (counted, noted) == (None, 0)


def test_each_message_without_an_id_is_given_one_of_its_own() -> None:
    ids = {message_of(foreign(message_id=each))[0].id for each in (None, "", None)}
    assert len(ids) == 3


@pytest.mark.parametrize("headers", [None, {}, {"tenant": "t1"}, {PUBLISHED_AT: "soon"}])
def test_the_time_of_a_foreign_message_is_that_of_its_property(
    headers: dict[str, Any] | None,
) -> None:
    assert message_of(foreign(timestamp=1_700_000_000, headers=headers))[0].timestamp == 1.7e9


@pytest.mark.parametrize("stamp", [0.0, 1_700_000_000.0, 1_700_000_000.123, 1_700_000_000.9996])
def test_the_time_of_a_plain_message_is_kept_to_the_millisecond(stamp: float) -> None:
    message = Outgoing(b"{}", "m-1", "events", "order.placed", stamp, "application/json")
    flags, said = parcel(message, "events", "order.placed")[3]
    _, properties = read_properties(struct.pack(">HHQH", 60, 0, 2, flags) + said)
    assert properties.headers is None
    arrival = Arrival(1, False, "events", "order.placed", properties, b"{}")
    assert message_of(arrival)[0].timestamp == round(stamp, 3)


def test_what_a_plain_message_says_fits_into_what_the_broker_handles_fastest() -> None:
    message = Outgoing(b"{}", "0" * 32, "events", "order.placed", 1.7e9, "application/json")
    _, said = parcel(message, "events", "order.placed")[3]
    assert len(said) + 2 <= 64


@pytest.mark.parametrize("kind", ["order", "", "zz", "ÄÖ", "0", "000"])
def test_the_type_of_a_foreign_message_does_not_change_its_time(kind: str) -> None:
    arrival = foreign(timestamp=1_700_000_000, message_type=kind)
    assert message_of(arrival)[0].timestamp == 1.7e9


def test_our_own_time_is_more_precise() -> None:
    arrival = foreign(timestamp=1_700_000_000, headers={PUBLISHED_AT: 1_700_000_000_123})
    assert message_of(arrival)[0].timestamp == 1_700_000_000.123


@pytest.mark.parametrize("stamp", [2**64 - 1, 2**63, 253_402_300_800])
def test_a_time_beyond_the_calendar_is_none(stamp: int) -> None:
    assert message_of(foreign(timestamp=stamp))[0].timestamp is None


WRONG = [
    *("soon", b"\xff", True, None, [1], {"a": 1}, -1, 2**63 - 1, -(2**63), 253_402_300_800_000),
    *(float("nan"), float("inf"), float("-inf"), 1e300),
]


@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize("name", [PUBLISHED_AT, DUE_AT, EXPIRES_AT])
def test_a_time_that_is_none_is_left_as_it_came(name: str, value: Any) -> None:
    message, _, _ = message_of(foreign(headers={name: value}))
    assert (message.timestamp, message.due_at, message.expires_at) == (None, None, None)
    assert message.headers[name] is value


@pytest.mark.parametrize("milliseconds", [0, 0.5, 1, 253_402_300_799_000])
def test_a_time_that_is_one_can_be_told(milliseconds: float) -> None:
    due = message_of(foreign(headers={DUE_AT: milliseconds}))[0].due_at
    assert due is not None
    assert datetime.fromtimestamp(due, UTC).year <= 9999


@pytest.mark.parametrize("value", [None, 7, b"\xff", [], {}, 1.5, True], ids=repr)
def test_names_of_ours_with_other_types_are_headers_like_any_other(value: Any) -> None:
    arrival = foreign(headers={KEY: value, EVENT: value, "tenant": "t1"})
    message, _, _ = message_of(arrival)
    assert (message.key, message.routing_key) == (None, "order.placed")
    assert message.headers == {KEY: value, EVENT: value, "tenant": "t1"}


@pytest.mark.parametrize("value", [*WRONG, "3", 3.7], ids=repr)
def test_a_count_that_is_none_never_fails_and_never_stays(value: Any) -> None:
    arrival = foreign(headers={REDELIVERIES: value, DELIVERY_COUNT: value})
    message, counted, noted = message_of(arrival)
    assert counted is not None
    assert 0 <= counted == noted <= 1_000_000
    assert message.headers == {}


DEATH = {"count": 1, "reason": "rejected", "queue": "q", "time": 1_767_225_600}


def test_the_story_of_a_death_is_read_and_can_be_sent_on() -> None:
    headers = {"x-death": [{**DEATH, "routing-keys": ["q"]}], "x-first-death-queue": "q"}
    message = message_of(foreign(headers=headers))[0]
    again = message_of(carried(parcel(message, "", "q")))[0]
    assert again.headers == headers


# -- poison ----------------------------------------------------------------------------------------


def sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


POISON = {
    "a time beyond 63 bits": b"\x01aT" + b"\xff" * 8,
    "a name that is no text": b"\xff" + b"\xff" * 255 + b"V",
    "our time, beyond all time": b"\x0ex-published-at" + b"l\x7f" + b"\xff" * 7,
    "our time, unsigned": b"\x0ex-published-at" + b"T" + b"\xff" * 8,
    "a text that is none": b"\x01aS" + sized(b"\xff" * 300),
    "our key, no text": b"\x05x-keyS" + sized(b"\xff"),
    "our event, far too long": b"\x07x-eventS" + sized(b"x" * 300),
}


@pytest.mark.parametrize("kind", POISON)
def test_a_strangers_message_can_be_retried_and_dead_lettered(kind: str) -> None:
    """The broker lets these pass; if they could not be sent on, no worker would get rid of them."""
    message = message_of(arrived(POISON[kind]))[0]
    carried(parcel(message, "", "billing.dlq", redeliveries=1))


def arrived(table: bytes, **flags: bytes) -> Arrival:
    async def receive() -> Arrival:
        broker = Broker()
        channel = Consuming(broker.wire)
        payload = struct.pack(">HHQH", 60, 0, 0, 1 << 13 | (1 << 7 if flags else 0))
        payload += sized(table) + b"".join(flags.values())
        method = commands.Basic.Deliver("tag", 1, False, "", "billing")
        start = struct.pack(">BHI", 2, channel.number, len(payload))
        broker.wire.data_received(frame.marshal(method, channel.number) + start + payload + b"\xce")
        assert broker.wire.lost is None, broker.wire.lost
        return channel.arrivals.pop()

    return asyncio.run(receive())


def test_an_id_that_is_no_text_can_be_sent_on() -> None:
    message = message_of(arrived(b"", message_id=b"\xff" + b"\xfea" * 127 + b"b"))[0]
    assert message.id == "a" * 127 + "b"
    carried(parcel(message, "", "billing.dlq"))


def test_only_quorum_queues_count() -> None:
    assert is_counted({"x-queue-type": "quorum"})
    assert not is_counted({"x-queue-type": "classic"})
    assert not is_counted({})
