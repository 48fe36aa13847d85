"""Dramatiq: `confirm_delivery=True`, which also makes it mandatory; acked when the actor has run.

It sends with pika's blocking connection: one in flight. The worker has its default of eight
threads and all its default middleware, retries among it. Its prefetch, twice its threads by
default, is a hundred here, as everybody's. It carries builtins, turned into the order by msgspec.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from time import perf_counter

import msgspec
from dramatiq import Worker, actor
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, WrongCount, orders
from benchmarks.rabbitmq.broker import place, verify_depth
from benchmarks.rabbitmq.stretch import PREFETCH, QUEUE, Stretch

LIMIT = 60.0

Order_ = dict[str, object]


def send_all(
    url: str, charge: Callable[[Order_], None], messages: int, *, confirm: bool
) -> Measurement:
    payloads = [msgspec.to_builtins(order) for order in orders(Order, messages)]
    broker = RabbitmqBroker(url=url, confirm_delivery=confirm)
    charging = actor(broker=broker, queue_name=QUEUE)(charge)
    broker.declare_queue(QUEUE, ensure=True)
    try:
        started = perf_counter()
        for payload in payloads:
            charging.send(payload)
        return Measurement(messages, perf_counter() - started)
    finally:
        broker.close()


def publish(messages: int) -> Measurement:
    def charge(order: Order_) -> None: ...

    with place() as url:
        measurement = send_all(url, charge, messages, confirm=True)
        asyncio.run(verify_depth(url, QUEUE, messages))
    return measurement


def consume(messages: int) -> Measurement:
    stretch = Stretch(messages)
    counting = threading.Lock()
    finished = threading.Event()

    def charge(order: Order_) -> None:
        typed = msgspec.convert(order, Order)
        with counting:
            stretch.add(typed)
            if stretch.handled == messages:
                finished.set()

    with place() as url:
        send_all(url, charge, messages, confirm=False)
        broker = RabbitmqBroker(url=url, confirm_delivery=True)
        broker.emit_after("process_boot")
        actor(broker=broker, queue_name=QUEUE)(charge)
        worker = Worker(broker, worker_timeout=100)
        worker.queue_prefetch = PREFETCH
        worker.start()
        try:
            if not finished.wait(LIMIT):
                raise WrongCount(f"handled {stretch.handled} of {messages} in {LIMIT:g} s")
        finally:
            worker.stop()
            broker.close()
        asyncio.run(verify_depth(url, QUEUE, 0))
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Measurement]) -> Case:
    return Case(name=name, group="rabbitmq", contender="Dramatiq", run=run)


CASES = (case("publish, one at a time", publish), case("consume, 8 threads", consume))
