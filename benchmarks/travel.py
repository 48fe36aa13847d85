"""From a publisher in one process to a handler in another: how long, how many, from which start.

Three measurements of one entry, each a turn: `travel` (orders at a steady rate, then as many as it
can), `fill` (orders that stay in the queue, and the memory they take), `begin` (a fresh process up
to its first handled order).
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

from benchmarks.child import child
from benchmarks.harness import RunFailed
from benchmarks.pairs.entries import Entry
from benchmarks.place import Site

SETTLING = 1.0  # seconds for a broker to put away what it was given
LIMIT = 60.0  # seconds that a turn may take longer than it should
PER = 100_000
ENOUGH = 20_000
"""Fewer orders than this are not counted up to 100,000: what a process or a broker takes and gives
back for reasons of its own would be counted up with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much a turn has to do."""

    paced: int = 600
    rate: float = 200.0
    burst: int = 10_000
    fill: int = PER
    fill_seconds: float = 25.0


@dataclass(frozen=True, slots=True)
class Trip:
    """Seconds that the median order took and the one in a hundred, and orders a second."""

    p50: float
    p99: float
    rate: float


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes by which process and broker grew, for so many orders."""

    count: int
    process: int
    broker: int | None


async def travel(entry: Entry, site: Site, amount: Amount) -> Trip:
    with site.place() as url:
        async with _limit(entry, amount.paced / amount.rate):
            taken, seconds = await _travel(entry, url, amount)
    cuts = statistics.quantiles(taken, n=100)
    return Trip(cuts[49], cuts[98], amount.burst / seconds)


async def _travel(entry: Entry, url: str, amount: Amount) -> tuple[list[float], float]:
    what = {
        "entry": entry.key,
        "url": url,
        "paced": amount.paced,
        "rate": amount.rate,
        "burst": amount.burst,
    }
    if entry.broker == "memory":
        async with child(role="together", **what) as both:
            began = await both.hear("sent")
            done = await both.hear("done")
            return done.taken, done.moment - began.moment
    async with child(role="worker", **what) as worker:
        await worker.hear("ready")
        async with child(role="sender", **what) as sender:
            await worker.hear("warm")
            sender.say()
            began = await sender.hear("sent")
            done = await worker.hear("done")
    return done.taken, done.moment - began.moment


async def fill(entry: Entry, site: Site, amount: Amount) -> Growth:
    with site.place() as url:
        async with _limit(entry, amount.fill_seconds):
            what = {"count": amount.fill, "seconds": amount.fill_seconds}
            async with child(role="filler", entry=entry.key, url=url, **what) as filler:
                await filler.hear("warm")
                await asyncio.sleep(SETTLING)
                before = site.memory() if site.memory else 0
                filler.say()
                told = await filler.hear("done")
                await asyncio.sleep(SETTLING)
                after = site.memory() if site.memory else 0
                filler.say()
    if told.count < min(ENOUGH, amount.fill):
        msg = f"only {told.count:,} orders were sent within {amount.fill_seconds:g} s"
        raise RunFailed(f"{msg}, too few to weigh")
    return Growth(told.count, told.after - told.before, after - before if site.memory else None)


async def begin(entry: Entry, site: Site) -> float:
    """Seconds from starting a process until its first order was handled."""
    with site.place() as url:
        async with _limit(entry, 0):
            if entry.broker != "memory":
                async with child(role="filler", entry=entry.key, url=url, count=1) as filler:
                    await filler.hear("warm")
                    filler.say()
                    await filler.hear("done")
                    filler.say()
            began = monotonic()
            async with child(role="starter", entry=entry.key, url=url) as starter:
                told = await starter.hear("done")
    return told.moment - began


@asynccontextmanager
async def _limit(entry: Entry, seconds: float) -> AsyncGenerator[None]:
    """Ends a turn that takes too long, with the name of who it was."""
    try:
        async with asyncio.timeout(LIMIT + seconds):
            yield
    except TimeoutError as late:
        raise RunFailed(f"{entry.key}: not done within {LIMIT + seconds:g} s") from late
