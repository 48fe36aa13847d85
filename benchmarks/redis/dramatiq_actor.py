"""Dramatiq: stored by a script, kept on the server until the actor has run.

It sends over a blocking connection: one in flight. The worker has its default of eight threads and
all its default middleware, retries among it. Its prefetch, twice its threads by default, is a
hundred here, as everybody's. It carries builtins, turned into the order by msgspec.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter

import msgspec
from dramatiq import Worker, actor
from dramatiq.brokers.redis import RedisBroker

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, WrongCount, orders
from benchmarks.rabbitmq.stretch import PREFETCH, QUEUE, Stretch
from benchmarks.redis.broker import Place, place

LIMIT = 60.0
NAMESPACE = "dramatiq"
LIST = f"{NAMESPACE}:{QUEUE}"
KEPT = f"{NAMESPACE}:{QUEUE}.msgs"

Order_ = dict[str, object]


def send_all(here: Place, charge: Callable[[Order_], None], messages: int) -> Measurement:
    payloads = [msgspec.to_builtins(order) for order in orders(Order, messages)]
    broker = RedisBroker(url=here.server, namespace=here.key(NAMESPACE))
    charging = actor(broker=broker, queue_name=QUEUE)(charge)
    try:
        started = perf_counter()
        for payload in payloads:
            charging.send(payload)
        return Measurement(messages, perf_counter() - started)
    finally:
        broker.close()
        broker.client.connection_pool.disconnect()  # which it leaves to the collector


def publish(messages: int) -> Measurement:
    def charge(order: Order_) -> None: ...

    with place() as here:
        measurement = send_all(here, charge, messages)
        here.verify_count("LLEN", LIST, messages)
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

    with place() as here:
        send_all(here, charge, messages)
        broker = RedisBroker(url=here.server, namespace=here.key(NAMESPACE))
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
            broker.client.connection_pool.disconnect()  # which it leaves to the collector
        here.verify_count("HLEN", KEPT, 0)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Measurement]) -> Case:
    return Case(name=name, group="redis", contender="Dramatiq", run=run)


CASES = (case("publish, one at a time", publish), case("consume lists, 8 threads", consume))
