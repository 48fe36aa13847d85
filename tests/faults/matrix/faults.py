"""The columns of the matrix: what goes wrong, in words, and how it is made to."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from queuecraft import Filter
from tests.faults.job import QUEUE, Job
from tests.faults.process import Process

if TYPE_CHECKING:
    from tests.faults.matrix.cell import Cell

ROUNDS: Final = 3
HELD: Final = 6.0  # seconds that a fault lasts which has a beginning and an end
OUTAGE: Final = 2.0
IMPATIENT: Final = 2.0  # seconds a publisher waits for a broker whose disk is full; 30 by default
LATENCY: Final = 0.1
BANDWIDTH: Final = 64 * 1024
GUESTS: Final = 6
LOOK: Final = 0.5  # seconds between two looks at the dead letters
LIMIT: Final = 4  # redeliveries after which a message that kills is set aside; 20 by default


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One column."""

    key: str
    name: str
    what: str
    """What is done, in a sentence for the reader of the report."""
    act: Callable[[Cell], Awaitable[None]]
    """Does it, and returns when it is over."""
    network: bool = False
    """Whether it needs a network that fails on command."""
    disk: bool = False
    """Whether it needs a disk that can run full."""
    new_only: bool = False
    """Whether it has recovered only when a message is handled that was published afterwards."""
    publishing: Mapping[str, Any] = field(default_factory=dict)
    """What publishers are told on top of the usual."""
    working: Mapping[str, Any] = field(default_factory=dict)


async def kill_workers(cell: Cell) -> None:
    for _ in range(ROUNDS):
        await cell.goes_on()
        cell.replace(cell.workers)


async def kill_publishers(cell: Cell) -> None:
    for _ in range(ROUNDS):
        await cell.goes_on()
        cell.replace(cell.publishers)


async def kill_broker(cell: Cell) -> None:
    await asyncio.to_thread(cell.row.kill)
    await asyncio.to_thread(cell.row.start)


async def cut(cell: Cell) -> None:
    for reset in (True, False):
        cell.proxy.cut(reset=reset)
        await cell.goes_on()
    for side in ("client", "server"):
        done = cell.proxy.cut_after(random.randrange(1, 3000), to=side)
        await cell.until(done.is_set, "so many bytes have passed")
        await cell.goes_on()
    cell.proxy.refuse()
    cell.proxy.cut()
    await asyncio.sleep(OUTAGE)
    cell.proxy.restore()


async def black_hole(cell: Cell) -> None:
    cell.proxy.black_hole()
    await asyncio.sleep(HELD)
    cell.proxy.restore()


async def freeze(cell: Cell) -> None:
    await asyncio.to_thread(cell.row.freeze)
    try:
        await asyncio.sleep(HELD)
    finally:
        await asyncio.to_thread(cell.row.thaw)


async def slow_down(cell: Cell) -> None:
    cell.proxy.delay(LATENCY)
    cell.proxy.throttle(BANDWIDTH)
    await asyncio.sleep(HELD)
    cell.proxy.restore()


async def crash_again_and_again(cell: Cell) -> None:
    """Somebody has to start workers again, as a supervisor does, until the message is set aside."""
    await cell.scene.publish(Job("killer", "kills"))
    qc = await cell.scene.qc
    deaths, looked = 0, 0.0
    while True:
        for each in [each for each in cell.workers if each.status is not None]:
            await cell.scene.dies(each)
            cell.workers[cell.workers.index(each)] = cell.scene.again(each)
            cell.over()
            deaths += 1
        if time.monotonic() - looked > LOOK:
            if await qc.dead_letters.list(QUEUE, where=Filter(reason="crash-loop"), limit=1):
                break
            looked = time.monotonic()
        await asyncio.sleep(0.02)
    assert deaths <= LIMIT + 1, f"set aside only after {deaths} workers had died"


async def fill_disk(cell: Cell) -> None:
    await asyncio.to_thread(cell.row.fill)
    try:
        await asyncio.sleep(HELD)
    finally:
        await asyncio.to_thread(cell.row.free)


async def shut_down(cell: Cell) -> None:
    for _ in range(ROUNDS):
        await cell.goes_on()
        leaving = [*cell.publishers, *cell.workers]
        await cell.ready(*leaving)  # before that, nobody listens to a signal
        await cell.scene.stop(*leaving)
        cell.publishers[:] = map(cell.scene.again, cell.publishers)
        cell.workers[:] = map(cell.scene.again, cell.workers)


async def come_and_go(cell: Cell) -> None:
    guests: list[Process] = []
    for number in range(GUESTS):
        guests.append(cell.worker(concurrency=2))
        await cell.ready(guests[-1])
        if number % 2:  # two come, two go
            await cell.scene.stop(*guests)
            guests.clear()


FAULTS: Final[Mapping[str, Fault]] = {
    fault.key: fault
    for fault in (
        Fault(
            key="worker-killed",
            name="Workers killed",
            what=f"All workers are killed with `kill -9` at once, in the middle of their handlers, "
            f"and replaced; {ROUNDS} times.",
            act=kill_workers,
        ),
        Fault(
            key="publisher-killed",
            name="Publishers killed",
            what=f"All publishers are killed with `kill -9` at once and replaced; {ROUNDS} times. "
            "It has recovered when a message of a new publisher is handled.",
            act=kill_publishers,
            new_only=True,
        ),
        Fault(
            key="broker-killed",
            name="Broker killed",
            what="The broker is killed with `kill -9` and started again on the data it has.",
            act=kill_broker,
        ),
        Fault(
            key="cut",
            name="Connection cut",
            what="All connections are cut: by a reset, in order, in the middle of an answer, in "
            f"the middle of a command; then once more, with nobody let in for {OUTAGE:g} seconds.",
            act=cut,
            network=True,
        ),
        Fault(
            key="black-hole",
            name="Network black-holed",
            what=f"For {HELD:g} seconds the network takes everything and delivers nothing, "
            "without an error.",
            act=black_hole,
            network=True,
        ),
        Fault(
            key="broker-frozen",
            name="Broker frozen",
            what=f"For {HELD:g} seconds the broker stands still (`SIGSTOP`): connections stay open "
            "and nothing answers.",
            act=freeze,
        ),
        Fault(
            key="slow",
            name="Slow network",
            what=f"For {HELD:g} seconds everything arrives {LATENCY * 1000:g} ms later each way, "
            f"at {BANDWIDTH // 1024} KiB a second for each connection.",
            act=slow_down,
            network=True,
        ),
        Fault(
            key="crash-loop",
            name="Handler crash loop",
            what="One message kills every worker that handles it, and workers are started again "
            f"each time. It has to end as a dead letter after {LIMIT} redeliveries "
            f"(`max_redeliveries={LIMIT}`), and no other message with it.",
            act=crash_again_and_again,
            working={"max_redeliveries": LIMIT},
        ),
        Fault(
            key="disk-full",
            name="Disk full",
            what=f"The disk has no byte left for {HELD:g} seconds, then there is room again; a "
            "server that gave up is started again. On RabbitMQ its free-disk alarm is raised "
            "instead, which is what it does before the disk is full. "
            f"Publishers have `publish_timeout={IMPATIENT:g}` (30 by default).",
            act=fill_disk,
            disk=True,
            publishing={"timeout": IMPATIENT},
        ),
        Fault(
            key="shutdown",
            name="Shutdown under load",
            what="All publishers and workers are told to stop (`SIGTERM`) under load, have to end "
            f"in order, and are replaced; {ROUNDS} times.",
            act=shut_down,
        ),
        Fault(
            key="rebalance",
            name="Rebalance storm",
            what=f"{GUESTS} more workers join and leave in quick succession, while the others "
            "work. On Kafka each of them moves partitions.",
            act=come_and_go,
        ),
    )
}
