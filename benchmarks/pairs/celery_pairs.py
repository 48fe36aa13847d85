"""Celery: on RabbitMQ and on Redis; its worker has the solo pool, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from celery import Celery

from benchmarks.pairs.address import redis_key, redis_server
from benchmarks.pairs.in_process import awaited
from benchmarks.pairs.pair import Pair
from benchmarks.sent import PREFETCH, QUEUE, Handle, Publish, as_builtins, moment

Connect = Callable[[str], Any]


def in_rabbitmq(url: str) -> Any:
    return configured(Celery("orders", broker=url), {"confirm_publish": True})


def in_redis(url: str) -> Any:
    app = Celery("orders", broker=redis_server(url))
    return configured(app, {"global_keyprefix": redis_key(url, "")})


def configured(app: Any, transport: dict[str, object]) -> Any:
    app.conf.update(
        broker_connection_retry_on_startup=True,
        broker_transport_options=transport,
        task_acks_late=True,
        task_default_queue=QUEUE,
        task_ignore_result=True,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_prefetch_multiplier=PREFETCH,
        worker_redirect_stdouts=False,
    )
    return app


def charging(app: Any, handle: Handle) -> Any:
    def charge(order: dict[str, object]) -> None:
        handle(moment(order))

    return app.task(name="charge", mandatory=True)(charge)


def pair(connect: Connect) -> Pair:
    @asynccontextmanager
    async def publisher(url: str) -> AsyncGenerator[Publish]:
        app = connect(url)
        task = charging(app, lambda at: None)
        with app, app.producer_or_acquire() as producer:
            app.amqp.queues[QUEUE].bind(producer.channel).declare()
            yield awaited(lambda at: task.apply_async((as_builtins(at),), producer=producer))

    @asynccontextmanager
    async def worker(url: str, handle: Handle) -> AsyncGenerator[None]:
        app = connect(url)
        charging(app, handle)
        app.finalize()
        started = app.WorkController(
            pool="solo",
            concurrency=1,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
        )
        # Its event loop blocks; the process ends without waiting for it.
        threading.Thread(target=started.start, daemon=True).start()
        yield

    return Pair(publisher=publisher, worker=worker, flight=1)


PAIRS = {"rabbitmq": pair(in_rabbitmq), "redis": pair(in_redis)}
