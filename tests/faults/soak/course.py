"""One broker under a mixed load for a long time, while one thing after another goes wrong."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final

import msgspec

from tests.faults import page
from tests.faults.matrix.brokers import Row
from tests.faults.matrix.cell import WORKERS, Cell
from tests.faults.matrix.faults import Fault
from tests.faults.matrix.tally import Tally, count
from tests.faults.nursery import Nursery
from tests.faults.process import Process
from tests.faults.scene import Scene
from tests.faults.soak.vitals import Growth, Vitals

BEAT: Final = 4.0  # seconds from one trouble to the next
LOOK: Final = 0.5
FROZEN: Final = 1.0
HIGH: Final = 1_000  # messages that wait, from which on publishers wait too
LOW: Final = 200  # until there are so few: what grows is to be a leak, and not what was fetched
PATIENCE: Final = 60.0  # seconds without a message handled until the rest counts as stuck
PUBLISHERS: Final = ({"pace": 0.4}, {"pace": 0.8, "batch": 5})  # that may be killed


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A small form of a fault of the matrix."""

    name: str
    what: str
    """What is done, in a sentence for the reader of the page."""
    act: Callable[[Cell], Awaitable[None]]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the messages, and of the processes that nobody killed."""

    broker: str
    seconds: float
    troubles: int = 0
    waiting: int = 0
    """Messages, at the most."""
    tally: Tally | None = None
    growth: Sequence[Growth] = ()
    left: Sequence[str] = ()
    failed: str = ""

    @property
    def complaints(self) -> list[str]:
        """All that should not be."""
        found = [self.failed] if self.failed else []
        if self.tally is not None:
            if self.tally.lost:
                found.append(f"{len(self.tally.lost)} lost: {', '.join(self.tally.lost[:5])}")
            found += [f"dead without a reason: {each}" for each in self.tally.unexplained[:5]]
            found += [f"handled, never published: {each}" for each in self.tally.out_of_nowhere[:5]]
        found += [f"left over: {each}" for each in self.left]
        return found + [each for one in self.growth for each in one.complaints]


async def kill_a_worker(cell: Cell) -> None:
    some = cell.workers[:1]
    cell.replace(some)
    cell.workers[:1] = some


async def kill_a_publisher(cell: Cell) -> None:
    some = cell.publishers[:1]
    cell.replace(some)
    cell.publishers[:1] = some


async def cut(cell: Cell) -> None:
    cell.proxy.cut(reset=True)


async def freeze(cell: Cell) -> None:
    await asyncio.to_thread(cell.row.freeze)
    try:
        await asyncio.sleep(FROZEN)
    finally:
        await asyncio.to_thread(cell.row.thaw)


async def kill_the_broker(cell: Cell) -> None:
    await asyncio.to_thread(cell.row.kill)
    await asyncio.to_thread(cell.row.start)


async def have_a_guest(cell: Cell) -> None:
    guest = cell.worker(concurrency=2)
    await cell.ready(guest)
    await cell.scene.stop(guest)


TROUBLES: Final[Mapping[str, Trouble]] = {
    "worker-killed": Trouble(
        name="Worker killed",
        what=f"One worker of {len(WORKERS) + 1} is killed with `kill -9` and replaced.",
        act=kill_a_worker,
    ),
    "cut": Trouble(
        name="Connection cut",
        what="All connections are cut once, by a reset.",
        act=cut,
    ),
    "publisher-killed": Trouble(
        name="Publisher killed",
        what=f"One publisher of {len(PUBLISHERS) + 1} is killed with `kill -9` and replaced.",
        act=kill_a_publisher,
    ),
    "rebalance": Trouble(
        name="Guest",
        what="One more worker joins, and leaves once it is ready. On Kafka it moves partitions.",
        act=have_a_guest,
    ),
    "broker-frozen": Trouble(
        name="Broker frozen",
        what=f"For {FROZEN:g} s the broker stands still (`SIGSTOP`): connections stay open and "
        "nothing answers.",
        act=freeze,
    ),
    "broker-killed": Trouble(
        name="Broker killed",
        what="The broker is killed with `kill -9` and started again on the data it has.",
        act=kill_the_broker,
    ),
}
"""By the faults they are the small form of; a broker that is excused from one is spared it."""


async def soak(
    row: Row,
    nursery: Nursery,
    *,
    seconds: float,
    hear: Callable[[float], None],
    keep: Path | None = None,
) -> Outcome:
    """Run it on a broker that was started. It has an outcome in any case, and leaves no process;
    `hear` is told how many seconds have passed. With `keep`, what the processes wrote down and
    said is kept there, if something was wrong."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="queuecraft-soak-"))
    try:
        try:
            outcome = await _soak(row, nursery, folder, seconds, hear)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:2000]
            outcome = Outcome(broker=row.key, seconds=time.monotonic() - began, failed=text)
        if outcome.complaints and keep is not None:
            shutil.copytree(folder, keep / row.key, dirs_exist_ok=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


async def _soak(
    row: Row, nursery: Nursery, folder: Path, seconds: float, hear: Callable[[float], None]
) -> Outcome:
    network = "cut" not in row.excuses
    fault = Fault(key="soak", name="Soak", what="", act=kill_a_worker, network=network)
    began = time.monotonic()
    with row.place(folder, network=network) as place:
        scene = Scene(place.broker, nursery, folder)
        cell = Cell(row, fault, place, scene)
        try:
            await scene.declare()
            await scene.look_away()
            cell.workers += [cell.worker(**each) for each in WORKERS]
            cell.publishers += [cell.publisher(**each) for each in PUBLISHERS]
            observed = {
                "publisher": cell.publisher(pace=0.1),
                "worker": cell.worker(prefetch=20),
            }
            await cell.ready(*cell.workers, *cell.publishers, *observed.values())
            troubles, waiting, growth = await _live(cell, observed, began + seconds, hear)
            cell.publishers.append(observed["publisher"])
            cell.workers.append(observed["worker"])
            left = await _ended(cell)
            # Not in the loop, where the others would hear nothing from their brokers for so long.
            tally = await asyncio.to_thread(_counted, folder)
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await scene.close()
    return Outcome(
        broker=row.key,
        seconds=time.monotonic() - began,
        troubles=troubles,
        waiting=waiting,
        tally=tally,
        growth=growth,
        left=left,
    )


async def _ended(cell: Cell) -> list[str]:
    """What is left in the queues when all is done: a slow machine may take its time for it, as long
    as it goes on."""

    async def end() -> list[str]:
        await cell.ready(*cell.publishers, *cell.workers)  # to hear of it
        return await cell.drain()

    ending = asyncio.ensure_future(end())
    handled = -1
    try:
        while not (await asyncio.wait([ending], timeout=PATIENCE))[0]:
            cell.notes.look()
            if cell.notes.counts["handled"] == handled:
                text = f"nothing handled for {PATIENCE:g} s, still waiting until {cell.waiting}"
                raise AssertionError(f"{text}; {cell.scene.account().summary()}")
            handled = cell.notes.counts["handled"]
        return ending.result()
    finally:
        ending.cancel()


def _counted(folder: Path) -> Tally:
    return count(page.read(folder), end=time.monotonic_ns())


async def _live(
    cell: Cell, observed: Mapping[str, Process], end: float, hear: Callable[[float], None]
) -> tuple[int, int, list[Growth]]:
    """One trouble after another until the end, and a look at the observed all the time. How many
    troubles, the most messages that waited, and how the observed have grown."""
    looks: dict[str, list[Vitals]] = {name: [] for name in observed}
    start, most = time.monotonic(), 0

    async def look() -> None:
        nonlocal most
        while True:
            cell.notes.look()
            waiting = len(cell.notes.unsettled)
            most = max(most, waiting)
            if waiting > HIGH or waiting < LOW:
                cell.scene.ebb(waiting > HIGH)
            for name, process in observed.items():
                try:
                    looks[name].append(Vitals.of(process.pid))
                except (FileNotFoundError, ProcessLookupError):
                    raise AssertionError(f"{process} is gone:\n{process.output[-2000:]}") from None
            hear(time.monotonic() - start)
            await asyncio.sleep(LOOK)

    looking = asyncio.ensure_future(look())
    troubles = 0
    try:
        for key, trouble in cycle(TROUBLES.items()):
            if looking.done() or time.monotonic() + BEAT >= end:
                break
            await asyncio.sleep(BEAT)
            if key not in cell.row.excuses:
                await trouble.act(cell)
                await cell.goes_on()
                troubles += 1
    finally:
        if not looking.cancel():
            looking.result()  # which says what went wrong
        cell.scene.ebb(low=False)
    return troubles, most, [Growth.of(name, each) for name, each in looks.items()]
