"""A message arrives as it was sent, to the last bit."""

from __future__ import annotations

import time
from typing import Any

import pytest

from queuecraft.drivers.base import Delivery, Outgoing, Queue
from queuecraft.model.types import HeaderValue
from queuecraft.testing.conformance.broker import Broker
from queuecraft.testing.conformance.suite import Suite

HEADERS: dict[str, HeaderValue] = {
    "text": "order",
    "empty": "",
    "unicode": "zürich 数 🚀",
    "quotes": """ "'\\\n\t\0 """,
    "zero": 0,
    "negative": -1,
    "large": 2**62,
    "small": -(2**62),
    "float": 0.1,
    "whole-float": 2.0,
    "true": True,
    "false": False,
    "bytes": b"\x00\xff{}",
    "no-bytes": b"",
    "none": None,
    "long": "x" * 10_000,
}
"""A header of each kind."""


async def arrived(broker: Broker, **fields: Any) -> Delivery:
    """A message with these fields, as it was delivered."""
    queue = await broker.queue("billing")
    sent = await broker.send(queue, **fields)
    (delivery,) = await broker.holds(queue, sent)
    return delivery


class EnvelopeConformance(Suite):
    """Bodies, headers, names, times.

    >>> issubclass(EnvelopeConformance, Suite)
    True
    """

    async def test_every_field_of_a_message_arrives(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        now = time.time()
        sent = Outgoing(
            body=b'{"id": "o-1"}',
            id="an-id-of-mine",
            exchange=broker.name("events"),
            routing_key="order.placed",
            timestamp=now - 5,
            content_type="application/json",
            content_encoding="gzip",
            key="customer-7",
            headers={"tenant": "acme", "x-retry-count": 2},
            expires_at=now + 3600,
            correlation_id="because-of-this",
            reply_to="qc.reply.somewhere",
        )
        await broker.accepted([sent])
        (delivery,) = await broker.holds(queue, [sent.id])
        got = delivery.sent
        assert delivery.queue == queue.name
        assert delivery.redeliveries == 0
        assert bytes(got.body) == sent.body
        assert dict(got.headers) == dict(sent.headers)
        for name in (
            "id",
            "routing_key",
            "content_type",
            "content_encoding",
            "key",
            "correlation_id",
            "reply_to",
        ):
            assert getattr(got, name) == getattr(sent, name), name
        assert got.timestamp == pytest.approx(now - 5, abs=0.001)
        assert got.expires_at == pytest.approx(now + 3600, abs=0.001)

    async def test_what_was_not_given_stays_unsaid(self, broker: Broker) -> None:
        got = (await arrived(broker)).sent
        assert dict(got.headers) == {}
        for name in (
            "timestamp",
            "content_type",
            "content_encoding",
            "key",
            "due_at",
            "expires_at",
            "correlation_id",
            "reply_to",
        ):
            assert getattr(got, name) is None, name
        assert got.priority == 0

    @pytest.mark.parametrize("name", sorted(HEADERS))
    async def test_a_header_arrives_with_its_type(self, broker: Broker, name: str) -> None:
        value = HEADERS[name]
        got = (await arrived(broker, headers={name: value})).sent.headers
        assert dict(got) == {name: value}
        assert type(got[name]) is type(value)

    async def test_many_headers_arrive_together(self, broker: Broker) -> None:
        headers = {**HEADERS, **{f"header-{n}": n for n in range(50)}, "zürich": "name"}
        assert dict((await arrived(broker, headers=headers)).sent.headers) == headers

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(b"", id="empty"),
            pytest.param(b"\x00", id="zero"),
            pytest.param(bytes(range(256)), id="every-byte"),
            pytest.param(bytes(range(256)) * 4096, id="1-MiB"),
        ],
    )
    async def test_a_body_arrives_byte_by_byte(self, broker: Broker, body: bytes) -> None:
        got = (await arrived(broker, body=body)).sent.body
        assert bytes(got) == body

    async def test_names_may_be_any_text(self, broker: Broker) -> None:
        event = "bestellung.größe.数 🚀"
        exchange = broker.exchange("ereignisse für 数")
        queue = await broker.queue("rechnungen für 数", event, exchange=exchange)
        published = await broker.publish(
            event, exchange=exchange.name, id="nummer-数", key="schlüssel-数"
        )
        (delivery,) = await broker.holds(queue, published)
        assert delivery.queue == queue.name
        assert delivery.sent.routing_key == event
        assert delivery.sent.key == "schlüssel-数"

    async def test_a_name_may_be_as_long_as_the_driver_says(self, broker: Broker) -> None:
        queue = Queue(broker.name("q").ljust(broker.traits.max_name, "x"))
        await broker.driver.declare(queue)
        sent = await broker.send(queue)
        await broker.holds(queue, sent)
        await broker.driver.delete(queue.name)

    async def test_equal_ids_are_two_messages(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        await broker.send(queue, 2, id="same")
        await broker.holds(queue, ["same", "same"])
