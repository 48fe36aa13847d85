"""One part of a measurement, in a process of its own: a worker, a sender, a filler, a starter.

    python -m benchmarks.part '{"role": "starter", "entry": "file/QueueCraft: …", "url": "…"}'

It talks to the one that started it in lines of JSON, and waits for a line where it has to. What is
imported here counts as the time of starting, and is little.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from time import monotonic

import msgspec

from benchmarks.pairs.entries import BY_KEY
from benchmarks.sent import WARM, Publish

PAUSE = 0.3  # seconds between what is sent evenly and what is sent at once


class Task(msgspec.Struct, kw_only=True):
    """What to do."""

    role: str
    entry: str
    url: str
    paced: int = 0
    rate: float = 200.0
    burst: int = 0
    count: int = 0
    seconds: float = 10.0


class Told(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What came of it."""

    word: str
    taken: list[float] = []
    moment: float = 0.0
    count: int = 0
    before: int = 0
    after: int = 0


def tell(told: Told) -> None:
    sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
    sys.stdout.flush()


async def wait_for_word() -> None:
    await asyncio.to_thread(sys.stdin.readline)


def resident(pid: int | str = "self") -> int:
    """Bytes of memory that a process has.

    >>> resident() > 1_000_000
    True
    """
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Arrivals:
    """Notes what arrives; may be called from any thread."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.taken: list[float] = []
        self.left = task.paced + task.burst
        self.ended = 0.0
        self.warm = asyncio.Event()
        self.done = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.counting = threading.Lock()

    def handle(self, at: float) -> None:
        now = monotonic()
        if at == WARM:
            self.loop.call_soon_threadsafe(self.warm.set)
            return
        with self.counting:
            if len(self.taken) < self.task.paced:
                self.taken.append(now - at)
            self.left -= 1
            if self.left == 0:
                self.ended = now
                self.loop.call_soon_threadsafe(self.done.set)


async def work(task: Task) -> None:
    """Says when it is ready, when the first order has come, and how long each has taken."""
    pair = BY_KEY[task.entry].load()
    assert pair.worker is not None
    await pair.prepare(task.url)
    arrivals = Arrivals(task)
    async with pair.worker(task.url, arrivals.handle):
        tell(Told(word="ready"))
        await arrivals.warm.wait()
        tell(Told(word="warm"))
        await arrivals.done.wait()
        tell(Told(word="done", taken=arrivals.taken, moment=arrivals.ended))


async def send(task: Task) -> None:
    """Sends one order, waits for a word, then some evenly, then the rest as fast as it can."""
    pair = BY_KEY[task.entry].load()
    assert pair.publisher is not None
    async with pair.publisher(task.url) as publish:
        await publish(WARM)
        await wait_for_word()
        began = await send_all(publish, task, pair.flight)
    tell(Told(word="sent", moment=began))


async def send_all(publish: Publish, task: Task, flight: int) -> float:
    """Says when the burst began."""
    async with asyncio.TaskGroup() as publishing:
        start = monotonic() + PAUSE
        for number in range(task.paced):
            await asyncio.sleep(max(0.0, start + number / task.rate - monotonic()))
            publishing.create_task(_publish(publish))
    await asyncio.sleep(PAUSE)
    began = monotonic()
    await at_once(publish, task.burst, flight)
    return began


async def _publish(publish: Publish) -> None:
    await publish(monotonic())


async def at_once(publish: Publish, count: int, flight: int, until: float = float("inf")) -> int:
    """So many tasks that send one order after the other; says how many were sent."""
    numbers = iter(range(count))
    done = 0

    async def publish_on() -> None:
        nonlocal done
        for _ in numbers:
            now = monotonic()
            if now > until:
                return
            await publish(now)
            done += 1
            if flight == 1 and not done % 100:
                await asyncio.sleep(0)  # a client that blocks lets nobody else run

    await asyncio.gather(*(publish_on() for _ in range(flight)))
    return done


async def together(task: Task) -> None:
    """Worker and sender in one process."""
    pair = BY_KEY[task.entry].load()
    assert pair.together is not None
    arrivals = Arrivals(task)
    async with pair.together(task.url, arrivals.handle) as publish:
        await publish(WARM)
        await arrivals.warm.wait()
        began = await send_all(publish, task, pair.flight)
        await arrivals.done.wait()
        tell(Told(word="sent", moment=began))
        tell(Told(word="done", taken=arrivals.taken, moment=arrivals.ended))


async def fill(task: Task) -> None:
    """Leaves orders in the queue, and says by how much this process has grown."""
    pair = BY_KEY[task.entry].load()
    assert pair.publisher is not None
    await pair.prepare(task.url)
    async with pair.publisher(task.url) as publish:
        await at_once(publish, min(task.count, pair.flight), pair.flight)
        before = resident()
        tell(Told(word="warm"))
        await wait_for_word()
        until = monotonic() + task.seconds
        count = await at_once(publish, task.count, pair.flight, until)
        after = resident()
        tell(Told(word="done", count=count, before=before, after=after))
        await wait_for_word()


async def start(task: Task) -> None:
    """Handles the order that waits; in memory, one of its own."""
    pair = BY_KEY[task.entry].load()
    handled: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    def note(now: float) -> None:
        if not handled.done():
            handled.set_result(now)

    def handle(at: float) -> None:
        loop.call_soon_threadsafe(note, monotonic())

    if pair.worker is None:
        assert pair.together is not None
        async with pair.together(task.url, handle) as publish:
            await publish(monotonic())
            tell(Told(word="done", moment=await handled))
        return
    async with pair.worker(task.url, handle):
        tell(Told(word="done", moment=await handled))


ROLES = {"worker": work, "sender": send, "together": together, "filler": fill, "starter": start}


def main() -> None:
    task = msgspec.json.decode(sys.argv[1], type=Task)
    asyncio.run(ROLES[task.role](task))
    sys.stdout.flush()
    os._exit(0)  # threads of a contender may never end


if __name__ == "__main__":
    main()
