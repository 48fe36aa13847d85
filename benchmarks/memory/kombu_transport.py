"""Kombu's memory transport: encoded, routed through an exchange, decoded, called, acknowledged.

A producer and a consumer on one connection, JSON on the wire, `drain_events` in a loop, as in its
user guide; 500 are published, then drained, its fastest rhythm. It retries nothing and knows no
event loop: the handler is a plain callback. It decodes to builtins, which msgspec turns into the
typed order.
"""

from __future__ import annotations

from time import perf_counter

import msgspec
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.message import Message

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, Tally, orders

BATCH = 500
QUIET = 10.0


def run(messages: int) -> Measurement:
    tally = Tally(messages)

    def charge(body: object, message: Message) -> None:
        tally.add(msgspec.convert(body, Order))
        message.ack()

    exchange = Exchange("orders", type="direct")
    billing = Queue("billing", exchange, routing_key="order.placed")
    payloads = orders(Order, messages)
    with (
        Connection("memory://") as connection,
        connection.Consumer([billing], callbacks=[charge], accept=["json"]),
        connection.Producer(exchange=exchange, serializer="json") as producer,
    ):
        started = perf_counter()
        for start in range(0, messages, BATCH):
            batch = payloads[start : start + BATCH]
            for payload in batch:
                producer.publish(msgspec.to_builtins(payload), routing_key="order.placed")
            while tally.handled < start + len(batch):
                connection.drain_events(timeout=QUIET)
        seconds = perf_counter() - started
    tally.verify(Order)
    return Measurement(messages, seconds)


CASES = (Case(name="publish 500, then drain", group="memory", contender="Kombu", run=run),)
