"""One cell of the matrix: a broker under load, a fault, and what became of every message."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from queuecraft import Filter
from tests.faults import page
from tests.faults.account import Account
from tests.faults.job import LAST_ATTEMPT, QUEUE, Job
from tests.faults.matrix.brokers import Place, Row
from tests.faults.matrix.faults import Fault
from tests.faults.matrix.result import Result
from tests.faults.matrix.room import NoRoom, small_disk
from tests.faults.matrix.tally import count, left_over
from tests.faults.nursery import Nursery
from tests.faults.page import LENGTH, Line
from tests.faults.process import Process
from tests.faults.scene import Scene
from tests.proxy import Proxy

LONGEST: Final = 60.0  # seconds
HEARTBEAT: Final = 2.0
WORKERS: Final = ({"concurrency": 4, "prefetch": 8}, {"concurrency": 2, "prefetch": 20})
SOME: Final = 20  # messages that show that work goes on
TOLD: Final = 1500  # characters of a failure
WAITING: Final = "waiting"  # a file with what was hoped for last


class Notes:
    """What the processes of a cell write down, read as it comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.counts: Counter[page.What] = Counter()
        self._ready: dict[int, int] = {}  # when, by process id
        self.handled: list[Line] = []
        self.unsettled: set[str] = set()
        """Jobs that were published, and neither handled nor failed for the last time."""
        self._settled: set[str] = set()  # before they were seen to be published

    def look(self) -> None:
        for each in self._folder.glob("*.page"):
            start = self._read.get(each, 0)
            with each.open("rb") as file:
                file.seek(start)
                data = file.read()
            data = data[: len(data) - len(data) % LENGTH]
            self._read[each] = start + len(data)
            for line in data.splitlines():
                self._note(msgspec.json.decode(line, type=Line))

    def is_ready(self, process: Process) -> bool:
        """Whether this one has said so, not one before it that had its process id."""
        return self._ready.get(process.pid, 0) > process.born

    def _note(self, line: Line) -> None:
        self.counts[line.what] += 1
        if line.what == "ready":
            self._ready[line.pid] = line.at
        elif line.what == "published":
            if line.id not in self._settled:
                self.unsettled.add(line.id)
        elif line.what == "handled":
            self.handled.append(line)
            self._settle(line.id)
        elif line.what == "failed" and line.attempt >= LAST_ATTEMPT:
            self._settle(line.id)

    def _settle(self, id: str) -> None:
        if id in self.unsettled:
            self.unsettled.discard(id)
        else:
            self._settled.add(id)


class Cell:
    """What a fault may lay its hands on."""

    def __init__(self, row: Row, fault: Fault, place: Place, scene: Scene) -> None:
        self.row = row
        self.scene = scene
        self.publishers: list[Process] = []
        self.workers: list[Process] = []
        self.notes = Notes(scene.folder)
        self.waiting = "nothing"
        self._fault = fault
        self._place = place
        self._end = 0

    @property
    def proxy(self) -> Proxy:
        assert self._place.proxy is not None, f"{self._fault.key} does not ask for a network"
        return self._place.proxy

    def worker(self, **options: Any) -> Process:
        return self.scene.worker(
            url=self._place.url, heartbeat=HEARTBEAT, **{**self._fault.working, **options}
        )

    def publisher(self, **options: Any) -> Process:
        return self.scene.publisher(
            url=self._place.url, heartbeat=HEARTBEAT, **{**self._fault.publishing, **options}
        )

    def replace(self, processes: list[Process]) -> None:
        """Kill them all at once, and start others in their place."""
        for each in processes:
            self.scene.kill(each)
        processes[:] = map(self.scene.again, processes)

    def over(self) -> None:
        """The fault is over by now; for one that has more to do before it returns."""
        self._end = time.monotonic_ns()

    # -- waiting -----------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until it is so; the time of the cell is the limit."""
        self.waiting = what
        while not condition():  # noqa: ASYNC110  others make it so
            await asyncio.sleep(0.02)

    async def noted(self, condition: Callable[[Notes], bool], what: str) -> None:
        """Wait until what is written down says so."""
        self.waiting = what
        while True:
            self.notes.look()
            if condition(self.notes):
                return
            await asyncio.sleep(0.05)

    async def ready(self, *processes: Process) -> None:
        """Wait until they do what they were started for."""
        await self.noted(lambda notes: all(map(notes.is_ready, processes)), "processes are ready")

    async def goes_on(self) -> None:
        """Wait until some more are published, and some more handled."""
        self.notes.look()
        before = self.notes.counts.copy()
        more: tuple[page.What, ...] = ("published", "handled")
        await self.noted(
            lambda notes: all(notes.counts[what] >= before[what] + SOME for what in more),
            "publishing and handling go on",
        )

    # -- the course of it --------------------------------------------------------------------------

    async def load(self) -> None:
        """Start publishers and workers, and wait until all are at work."""
        await self.scene.declare()
        # The first delay makes the queues that retries wait in.
        await self.scene.publish(Job("delayed"), delay=0.05)
        await self.scene.look_away()
        self.workers += [self.worker(**each) for each in WORKERS]
        self.publishers += [
            self.publisher(pace=0.08),
            self.publisher(pace=0.16, batch=5, in_flight=2),
        ]
        await self.ready(*self.publishers, *self.workers)

    async def suffer(self, messages: int) -> int:
        """Let the fault happen in the middle of the load; when it was over."""
        first = messages // 5
        await self.noted(lambda notes: notes.counts["handled"] >= first, "the first are handled")
        self.waiting = f"this is over: {self._fault.name}"
        await self._fault.act(self)
        end = self._end or time.monotonic_ns()
        await self.noted(
            lambda notes: sum(line.at > end for line in notes.handled) >= SOME,
            "some more are handled after it",
        )
        await self.noted(lambda notes: notes.counts["published"] >= messages, "all are published")
        await self.ready(*self.publishers, *self.workers)  # to be told to stop
        return end

    async def drain(self) -> list[str]:
        """No more publishing; all is handled, dead letters are sent back and handled too; workers
        stop. What is left in the queues then."""
        scene = self.scene
        self.waiting = "publishers have stopped"
        await scene.stop(*self.publishers)
        self.waiting = "the queue is empty"
        await self._quiet()
        await scene.declare()
        await scene.note_dead_letters()
        scene.mend()
        qc = await scene.qc
        # What kills its worker would do so again.
        await qc.dead_letters.redrive(QUEUE, where=Filter(reason="handler-error"))
        self.waiting = "the queue is empty again"
        await self._quiet()
        self.waiting = "workers have stopped"
        await scene.stop(*self.workers)
        if await scene.note_dead_letters():
            await qc.dead_letters.purge(QUEUE)
        left = left_over(await qc.admin.queues())
        return left or await asyncio.to_thread(self.row.left_over, self._place)

    async def _quiet(self) -> None:
        """Twice in a row: a message may be between two places that are looked at one after the
        other."""
        await self.scene.quiet()
        await asyncio.sleep(0.3)
        await self.scene.quiet()


async def run(
    row: Row, fault: Fault, nursery: Nursery, *, messages: int, keep: Path | None = None
) -> Result:
    """Run one cell on a broker that was started. It always has a result, and leaves no process.

    With `keep`, what the processes of a cell wrote down and said is kept there.
    """
    began = time.monotonic()
    if reason := row.excuses.get(fault.key):
        return Result(broker=row.key, fault=fault.key, excused=reason)
    folder = Path(tempfile.mkdtemp(prefix="queuecraft-matrix-"))
    try:
        try:
            async with asyncio.timeout(LONGEST):
                result = await _run(row, fault, nursery, folder, messages)
        except NoRoom as error:
            result = Result(broker=row.key, fault=fault.key, excused=f"Not run: {error}.")
        except Exception as error:
            result = Result(broker=row.key, fault=fault.key, failed=_story(error, folder))
        if keep is not None:
            shutil.copytree(folder, keep / f"{row.key}-{fault.key}", dirs_exist_ok=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return msgspec.structs.replace(result, seconds=round(time.monotonic() - began, 1))


async def _run(row: Row, fault: Fault, nursery: Nursery, folder: Path, messages: int) -> Result:
    with ExitStack() as stack:
        if fault.disk and row.on_disk:
            row = type(row)(stack.enter_context(small_disk(folder)))
            stack.callback(row.close)
            await asyncio.to_thread(row.start)
        place = stack.enter_context(row.place(folder, network=fault.network))
        scene = Scene(place.broker, nursery, folder)
        cell = Cell(row, fault, place, scene)
        try:
            await cell.load()
            end = await cell.suffer(messages)
            left = await cell.drain()
            tally = count(page.read(folder), end=end, new_only=fault.new_only)
        finally:
            (folder / WAITING).write_text(cell.waiting, encoding="utf-8")
            (folder / "broker.log").write_text(row.log, encoding="utf-8")
            with suppress(TimeoutError):  # a broker that is gone does not say goodbye
                async with asyncio.timeout(5):
                    await scene.close()
    return Result(broker=row.key, fault=fault.key, tally=tally, left=left)


def _story(error: Exception, folder: Path) -> str:
    """What went wrong, for somebody who was not there."""
    waiting = folder / WAITING
    if isinstance(error, TimeoutError) and waiting.exists():
        text = f"after {LONGEST:g} s still waiting until {waiting.read_text(encoding='utf-8')}"
    else:
        text = str(error) or type(error).__name__
    with suppress(AssertionError):
        text += f" ({Account.of(folder).summary()})"
    return text.strip()[:TOLD]
