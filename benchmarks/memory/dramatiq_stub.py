"""Dramatiq's StubBroker with a worker: encoded, queued, decoded, called in a thread, acknowledged.

Set up as in its guide to testing: `Worker(broker, worker_timeout=100)`, then `broker.join` and
`worker.join`, with its default middleware, retries among it, and its default of eight threads,
which is also its fastest here. Actors are plain functions, its native kind: an async one would
pay for a hop to another thread. It carries builtins only, so the order is turned into a dict
and back by msgspec.
"""

from __future__ import annotations

import threading
from time import perf_counter

import msgspec
from dramatiq import Worker, actor
from dramatiq.brokers.stub import StubBroker

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, Tally, orders

LIMIT_MS = 60_000


def run(messages: int) -> Measurement:
    tally = Tally(messages)
    counting = threading.Lock()

    def charge(order: dict[str, object]) -> None:
        typed = msgspec.convert(order, Order)
        with counting:
            tally.add(typed)

    broker = StubBroker()
    broker.emit_after("process_boot")
    charging = actor(broker=broker)(charge)
    payloads = orders(Order, messages)
    worker = Worker(broker, worker_timeout=100)
    worker.start()
    try:
        started = perf_counter()
        for payload in payloads:
            charging.send(msgspec.to_builtins(payload))
        broker.join(charging.queue_name, timeout=LIMIT_MS)
        worker.join()
        seconds = perf_counter() - started
    finally:
        worker.stop()
        broker.close()
    tally.verify(Order)
    return Measurement(messages, seconds)


CASES = (Case(name="send, 8 threads", group="memory", contender="Dramatiq", run=run),)
