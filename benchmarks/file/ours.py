"""QueueCraft on its queue in a file: typed, routed, on the disk before a publish returns, acked
when handled.

The worker is in the same process and event loop, and holds up to 500 messages at a time. The file
is in the temporary folder of the system: `TMPDIR` puts it on the disk you care for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Case, Measurement
from benchmarks.memory.ours import BATCH, in_batches, one_at_a_time, timed
from benchmarks.order import Order, Tally, orders
from queuecraft import Event, QueueCraft

IN_FLIGHT = 100

Publish = Callable[[QueueCraft, Event[Order], Sequence[Order]], Awaitable[None]]

order_placed = Event("order.placed", Order)


async def in_flight(qc: QueueCraft, event: Event[Order], payloads: Sequence[Order]) -> None:
    """A hundred tasks that publish one order after the other, as request handlers do."""
    left = iter(payloads)

    async def publish_on() -> None:
        for payload in left:
            await qc.publish(event, payload)

    await asyncio.gather(*(publish_on() for _ in range(IN_FLIGHT)))


async def run(messages: int, *, publish: Publish) -> Measurement:
    tally = Tally(messages)

    async def charge(order: Order) -> None:
        tally.add(order)

    with TemporaryDirectory(prefix="queuecraft-benchmark-") as folder:
        qc = QueueCraft(Path(folder, "queue.db").as_uri().replace("file:", "local:"))
        worker = qc.worker("billing", concurrency=1, prefetch=BATCH)
        worker.on(order_placed)(charge)
        publishing = partial(publish, qc, order_placed, orders(Order, messages))
        seconds = await timed(qc, worker, publishing, tally)
    tally.verify(Order)
    return Measurement(messages, seconds)


def case(name: str, publish: Publish) -> Case:
    return Case(name=name, group="file", contender="QueueCraft", run=partial(run, publish=publish))


CASES = (
    case("publish_many, batches of 500", in_batches),
    case("publish, 100 in flight", in_flight),
    case("publish, one at a time", one_at_a_time),
)
