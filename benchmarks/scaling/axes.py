"""What grows: message size, number of queues, backlog, concurrency, processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from benchmarks.place import Site
from benchmarks.scaling import processes
from benchmarks.scaling.load import IN_FLIGHT, at_once, consume, declare, fill, load, publish
from queuecraft import QueueCraft

Figures = dict[str, float]
"""By the name of the line; messages a second, or microseconds for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much is done for one point."""

    messages: int = 5_000
    megabytes: int = 64
    sizes: Sequence[int] = (100, 1_000, 10_000, 100_000, 1_000_000)
    queues: Sequence[int] = (1, 10, 100, 1_000, 10_000)
    backlogs: Sequence[int] = (0, 1_000, 10_000, 100_000)
    handlers: Sequence[int] = (1, 4, 16, 64, 256)
    processes: Sequence[int] = (1, 2, 4)
    patience: float = 240.0
    """Seconds for declaring queues; those that are not made by then are not measured."""


FULL = Amount()
QUICK = Amount(
    messages=2_000,
    megabytes=8,
    queues=(1, 10, 100, 1_000),
    backlogs=(0, 1_000, 10_000),
    patience=8.0,
)

WAITING = 0.005
COMPUTING = 0.0005
FEW = 8
DECLARING = 8  # queues under way at a time


class OutOfPatience(Exception):
    """A point that would take too long."""


async def by_size(site: Site, size: int, amount: Amount) -> Figures:
    """Microseconds a message of so many bytes."""
    count = max(20, min(amount.messages, amount.megabytes * 1_000_000 // size))
    with site.place() as url:
        async with QueueCraft(url) as qc:
            await declare(qc)
            published = await publish(qc, count, size)
        # Few at a time, or all the large ones would be there before the first is handled.
        handled = await consume(url, count, concurrency=FEW, prefetch=FEW)
    return {"publish": 1e6 * published, "consume": 1e6 * handled}


async def by_queues(site: Site, queues: int, amount: Amount) -> Figures:
    """Microseconds a message with so many queues there, each with events of its own; and
    milliseconds to make a queue."""
    with site.place() as url:
        async with QueueCraft(url) as qc:
            exchange = qc.settings.default_exchange
            began = monotonic()

            async def make_one(number: int) -> None:
                taken = monotonic() - began
                enough = max(number, queues / 10)  # to tell how long all of them would take
                if taken > amount.patience * enough / queues:
                    msg = f"{number:,} queues were made in {taken:.0f} s, too few to go on"
                    raise OutOfPatience(msg)
                await qc.admin.declare(f"queue-{number}", f"load.{number}", exchange=exchange)

            made = await at_once(make_one, queues, DECLARING)
            payload = load(225)

            async def publish_one(number: int) -> None:
                await qc.publish(f"load.{number % queues}", payload)

            await at_once(publish_one, min(amount.messages, queues))  # whatever is made at first
            published = await at_once(publish_one, amount.messages) / amount.messages
    return {"publish": 1e6 * published, "declare": 1e3 * made / queues}


async def by_backlog(site: Site, backlog: int, amount: Amount) -> Figures:
    """Messages a second with so many waiting already."""
    with site.place() as url:
        async with QueueCraft(url) as qc:
            await declare(qc)
            await fill(qc, backlog)
            published = await publish(qc, amount.messages)
        handled = await consume(url, amount.messages)
    return {"publish": 1 / published, "consume": 1 / handled}


async def by_concurrency(site: Site, handlers: int, amount: Amount) -> Figures:
    """Messages a second with so many handlers: some that do nothing, some that wait."""
    patient = max(100, min(amount.messages, 100 * handlers))

    async def handled(count: int, waiting: float) -> float:
        with site.place() as url:
            async with QueueCraft(url) as qc:
                await declare(qc)
                await fill(qc, count)
            return await consume(url, count, concurrency=handlers, waiting=waiting)

    quick = await handled(amount.messages, 0.0)
    slow = await handled(patient, WAITING)
    return {"nothing": 1 / quick, "waiting": 1 / slow}


async def by_processes(site: Site, number: int, amount: Amount) -> Figures:
    """Messages a second of so many processes: handlers that do nothing, and some that compute."""
    with site.place() as url:
        quick = await processes.rate(url, number, 2 * amount.messages, 0.0)
    with site.place() as url:
        slow = await processes.rate(url, number, amount.messages, COMPUTING)
    return {"nothing": quick, "computing": slow}


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One thing that grows."""

    name: str
    title: str
    x: str
    lines: dict[str, str]
    """What is measured at each point, and its unit."""
    points: Callable[[Amount], Sequence[int]]
    measure: Callable[[Site, int, Amount], Awaitable[Figures]]
    even: bool = False
    """Drawn on even axes from zero, not on logarithmic ones."""


AXES = (
    Axis(
        name="size",
        title="Message size",
        x="bytes",
        lines={"publish": "µs a message", "consume": "µs a message"},
        points=lambda amount: amount.sizes,
        measure=by_size,
    ),
    Axis(
        name="queues",
        title="Number of queues",
        x="queues",
        lines={"publish": "µs a message", "declare": "ms a queue"},
        points=lambda amount: amount.queues,
        measure=by_queues,
    ),
    Axis(
        name="backlog",
        title="Backlog",
        x="messages waiting",
        lines={"publish": "msg/s", "consume": "msg/s"},
        points=lambda amount: amount.backlogs,
        measure=by_backlog,
        even=True,
    ),
    Axis(
        name="concurrency",
        title="Concurrency",
        x="handlers at once",
        lines={"nothing": "msg/s", "waiting": "msg/s"},
        points=lambda amount: amount.handlers,
        measure=by_concurrency,
    ),
    Axis(
        name="processes",
        title="Processes",
        x="processes",
        lines={"nothing": "msg/s", "computing": "msg/s"},
        points=lambda amount: amount.processes,
        measure=by_processes,
        even=True,
    ),
)

__all__ = ["AXES", "FULL", "IN_FLIGHT", "QUICK", "Amount", "Axis", "OutOfPatience"]
