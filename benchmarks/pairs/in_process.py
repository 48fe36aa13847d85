"""What others have for a single process: Taskiq, Dramatiq, Kombu, and a bare `asyncio.Queue`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from benchmarks.pairs.pair import Pair
from benchmarks.sent import EVENT, QUEUE, Handle, Publish, as_builtins, decode, encode, moment
from benchmarks.sent import Sent as SentStruct

Send = Callable[[float], object]


def awaited(send: Send) -> Publish:
    """For a client that blocks."""

    async def publish(at: float) -> None:
        send(at)

    return publish


# asyncio.Queue


@asynccontextmanager
async def bare_together(url: str, handle: Handle) -> AsyncGenerator[Publish]:
    queue: asyncio.Queue[bytes] = asyncio.Queue()

    async def consume() -> None:
        while True:
            handle(decode(await queue.get()).at)

    consumer = asyncio.create_task(consume())
    yield putting(queue)
    consumer.cancel()


@asynccontextmanager
async def bare_publisher(url: str) -> AsyncGenerator[Publish]:
    yield putting(asyncio.Queue())


def putting(queue: asyncio.Queue[bytes]) -> Publish:
    async def publish(at: float) -> None:
        await queue.put(encode(SentStruct(at)))

    return publish


# Kombu


@contextmanager
def kombu_producer(charge: Callable[[Any, Any], None] | None) -> Generator[tuple[Any, Send]]:
    from kombu.connection import Connection
    from kombu.entity import Exchange, Queue

    exchange = Exchange("orders", type="direct")
    billing = Queue(QUEUE, exchange, routing_key=EVENT)
    with Connection("memory://") as connection:
        producer = connection.Producer(exchange=exchange, serializer="json")
        billing.bind(producer.channel).declare()

        def send(at: float) -> None:
            producer.publish(as_builtins(at), routing_key=EVENT)

        if charge is None:
            yield connection, send
        else:
            with connection.Consumer([billing], callbacks=[charge], accept=["json"]):
                yield connection, send


@asynccontextmanager
async def kombu_together(url: str, handle: Handle) -> AsyncGenerator[Publish]:
    def charge(body: object, message: Any) -> None:
        handle(moment(body))
        message.ack()

    with kombu_producer(charge) as (connection, send):

        def send_and_drain(at: float) -> None:
            send(at)
            connection.drain_events(timeout=10)

        yield awaited(send_and_drain)


@asynccontextmanager
async def kombu_publisher(url: str) -> AsyncGenerator[Publish]:
    with kombu_producer(None) as (_, send):
        yield awaited(send)


# Dramatiq


def stub(handle: Handle) -> tuple[Any, Send]:
    from dramatiq import actor
    from dramatiq.brokers.stub import StubBroker

    def charge(order: dict[str, object]) -> None:
        handle(moment(order))

    broker = StubBroker()
    broker.emit_after("process_boot")
    charging = actor(broker=broker)(charge)
    return broker, lambda at: charging.send(as_builtins(at))


@asynccontextmanager
async def dramatiq_together(url: str, handle: Handle) -> AsyncGenerator[Publish]:
    from dramatiq import Worker

    broker, send = stub(handle)
    worker = Worker(broker, worker_timeout=100)
    worker.start()
    yield awaited(send)
    worker.stop()
    broker.close()


@asynccontextmanager
async def dramatiq_publisher(url: str) -> AsyncGenerator[Publish]:
    broker, send = stub(lambda at: None)
    yield awaited(send)
    broker.close()


PAIRS = {
    "asyncio.Queue": Pair(publisher=bare_publisher, together=bare_together),
    "Kombu": Pair(publisher=kombu_publisher, together=kombu_together, flight=1),
    "Dramatiq": Pair(publisher=dramatiq_publisher, together=dramatiq_together, flight=1),
}
