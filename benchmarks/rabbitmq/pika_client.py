"""pika, without an event loop: its blocking connection, a callback for each delivery.

`confirm_delivery` makes `basic_publish` wait for each confirmation, so there is one in flight.
The callback decodes the order with msgspec and acks it alone, as in RabbitMQ's own tutorial.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

import msgspec
import pika

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, orders
from benchmarks.rabbitmq.broker import place, verify_depth
from benchmarks.rabbitmq.stretch import PREFETCH, QUEUE, Stretch

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Order).decode


def send(channel: Any, order: Order) -> None:
    channel.basic_publish(
        "",
        QUEUE,
        encode(order),
        pika.BasicProperties(content_type="application/json", delivery_mode=2),
        mandatory=True,
    )


def publish(messages: int) -> Measurement:
    payloads = orders(Order, messages)
    with place() as url:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            channel.queue_declare(QUEUE, durable=True)
            channel.confirm_delivery()
            started = perf_counter()
            for order in payloads:
                send(channel, order)
            seconds = perf_counter() - started
        asyncio.run(verify_depth(url, QUEUE, messages))
    return Measurement(messages, seconds)


def consume(messages: int) -> Measurement:
    stretch = Stretch(messages)

    def charge(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        stretch.add(decode(body))
        channel.basic_ack(method.delivery_tag)
        if stretch.handled == messages:
            channel.stop_consuming()

    with place() as url:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            channel.queue_declare(QUEUE, durable=True)
            for order in orders(Order, messages):
                send(channel, order)
            channel.basic_qos(prefetch_count=PREFETCH)
            channel.basic_consume(QUEUE, charge)
            channel.start_consuming()
        asyncio.run(verify_depth(url, QUEUE, 0))
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Measurement]) -> Case:
    return Case(name=name, group="rabbitmq", contender="pika", run=run)


CASES = (case("publish, one at a time", publish), case("consume", consume))
