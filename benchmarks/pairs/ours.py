"""QueueCraft: the same program for every broker."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from benchmarks.pairs.pair import Pair
from benchmarks.sent import EVENT, IN_FLIGHT, PREFETCH, QUEUE, Handle, Publish, Sent
from queuecraft import Event, QueueCraft, Worker

sent = Event(EVENT, Sent)


def handling(qc: QueueCraft, handle: Handle) -> Worker:
    worker = qc.worker(QUEUE, concurrency=IN_FLIGHT, prefetch=PREFETCH)

    @worker.on(sent)
    async def take(order: Sent) -> None:
        handle(order.at)

    return worker


def publishing(qc: QueueCraft) -> Publish:
    async def publish(at: float) -> None:
        await qc.publish(sent, Sent(at))

    return publish


@asynccontextmanager
async def worker(url: str, handle: Handle) -> AsyncGenerator[None]:
    qc = QueueCraft(url)
    billing = handling(qc, handle)
    async with qc:
        await billing.start()
        yield


@asynccontextmanager
async def publisher(url: str) -> AsyncGenerator[Publish]:
    async with QueueCraft(url) as qc:
        yield publishing(qc)


async def prepare(url: str) -> None:
    async with QueueCraft(url) as qc:
        await qc.admin.declare(QUEUE, EVENT)


@asynccontextmanager
async def storing(url: str) -> AsyncGenerator[Publish]:
    """For a queue that ends with the process: nobody else could have made it."""
    async with QueueCraft(url) as qc:
        await qc.admin.declare(QUEUE, EVENT)
        yield publishing(qc)


@asynccontextmanager
async def together(url: str, handle: Handle) -> AsyncGenerator[Publish]:
    qc = QueueCraft(url)
    billing = handling(qc, handle)
    async with qc:
        await billing.start()
        yield publishing(qc)


apart = partial(Pair, publisher=publisher, worker=worker, prepare=prepare)

PAIRS = {
    "memory": Pair(publisher=storing, together=together),
    "anywhere": apart(),
    "anywhere, one at a time": apart(flight=1),
    "anywhere, 1000 in flight": apart(flight=1000),
}
