"""Dramatiq: on RabbitMQ and on Redis, with its default of eight threads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from dramatiq import Worker, actor

from benchmarks.pairs.address import redis_key, redis_server
from benchmarks.pairs.in_process import awaited
from benchmarks.pairs.pair import Pair
from benchmarks.sent import PREFETCH, QUEUE, Handle, Publish, as_builtins, moment

Connect = Callable[[str], Any]


def in_rabbitmq(url: str) -> Any:
    from dramatiq.brokers.rabbitmq import RabbitmqBroker

    return RabbitmqBroker(url=url, confirm_delivery=True)


def in_redis(url: str) -> Any:
    from dramatiq.brokers.redis import RedisBroker

    return RedisBroker(url=redis_server(url), namespace=redis_key(url, "dramatiq"))


def charging(broker: Any, handle: Handle) -> Any:
    def charge(order: dict[str, object]) -> None:
        handle(moment(order))

    return actor(broker=broker, queue_name=QUEUE)(charge)


def pair(connect: Connect) -> Pair:
    @asynccontextmanager
    async def publisher(url: str) -> AsyncGenerator[Publish]:
        broker = connect(url)
        task = charging(broker, lambda at: None)
        yield awaited(lambda at: task.send(as_builtins(at)))
        broker.close()

    @asynccontextmanager
    async def worker(url: str, handle: Handle) -> AsyncGenerator[None]:
        broker = connect(url)
        broker.emit_after("process_boot")
        charging(broker, handle)
        started = Worker(broker, worker_timeout=100)
        started.queue_prefetch = PREFETCH
        started.start()
        yield
        started.stop()
        broker.close()

    return Pair(publisher=publisher, worker=worker, flight=1)


PAIRS = {"rabbitmq": pair(in_rabbitmq), "redis": pair(in_redis)}
