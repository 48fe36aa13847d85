"""Celery: a list, and a hash of what is not acknowledged; `acks_late`, no results, the solo pool.

It sends over a blocking connection: one in flight. The worker needs a process of its own, and
runs without gossip, mingle, heartbeat and remote control, all of which cost it something; it
fetches a hundred messages ahead. It carries builtins, turned into the order by msgspec.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import msgspec
from celery import Celery
from celery.exceptions import WorkerShutdown

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, WrongCount, orders
from benchmarks.rabbitmq.celery_app import Handled
from benchmarks.rabbitmq.stretch import PREFETCH, QUEUE, Stretch
from benchmarks.redis.broker import Place, place

LIMIT = 60.0
AFTERWARDS = 0.1


def connecting(here: Place, charge: Callable[[dict[str, object]], None]) -> Any:
    """The application and its task."""
    app = Celery("orders", broker=here.server)
    app.conf.update(
        broker_connection_retry_on_startup=True,
        broker_transport_options={"global_keyprefix": here.key("")},
        task_acks_late=True,
        task_default_queue=QUEUE,
        task_ignore_result=True,
        worker_enable_remote_control=False,
        worker_prefetch_multiplier=PREFETCH,
        worker_redirect_stdouts=False,
    )
    return app, app.task(name="charge")(charge)


def send_all(here: Place, messages: int) -> Measurement:
    def charge(order: dict[str, object]) -> None: ...

    payloads = [msgspec.to_builtins(order) for order in orders(Order, messages)]
    app, task = connecting(here, charge)
    with app, app.producer_or_acquire() as producer:
        app.amqp.queues[QUEUE].bind(producer.channel).declare()
        started = perf_counter()
        for payload in payloads:
            task.apply_async((payload,), producer=producer)
        return Measurement(messages, perf_counter() - started)


def publish(messages: int) -> Measurement:
    with place() as here:
        measurement = send_all(here, messages)
        here.verify_count("LLEN", QUEUE, messages)
    return measurement


def consume(messages: int) -> Measurement:
    with place() as here:
        send_all(here, messages)
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.redis.celery_app"]
        # Its warnings are about who runs it, and about nothing that is measured.
        worker = subprocess.run(
            [*command, here.server, here.prefix, str(messages)],
            stdout=subprocess.PIPE,
            timeout=LIMIT,
            check=True,
        )
        here.verify_count("LLEN", QUEUE, 0)
        here.verify_count("HLEN", "unacked", 0)
    handled = msgspec.json.decode(worker.stdout.splitlines()[-1], type=Handled)
    if handled.messages != messages:
        raise WrongCount(f"handled {handled.messages} messages of {messages}")
    return Measurement(messages, handled.seconds)


def work(here: Place, messages: int) -> None:
    """In the other process, until the last one is handled."""
    stretch = Stretch(messages)

    def charge(order: dict[str, object]) -> None:
        stretch.add(msgspec.convert(order, Order))
        if stretch.handled == messages:
            # A signal it would not notice while it is idle; its acks are sent in the next turn.
            worker.hub.timer.call_after(AFTERWARDS, stop)

    def stop() -> None:
        raise WorkerShutdown(0)

    app, _ = connecting(here, charge)
    worker = app.Worker(
        pool="solo",
        concurrency=1,
        loglevel="ERROR",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()
    measurement = stretch.measurement(Order)
    told = msgspec.json.encode(Handled(measurement.messages, measurement.seconds))
    print(told.decode(), flush=True)


def case(name: str, run: Callable[[int], Measurement]) -> Case:
    return Case(name=name, group="redis", contender="Celery", run=run)


CASES = (case("publish, one at a time", publish), case("consume lists, solo", consume))

if __name__ == "__main__":
    work(Place(sys.argv[1], sys.argv[2]), int(sys.argv[3]))
