"""One broker, the processes around it, and the account of what they do."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from queuecraft import QueueCraft
from queuecraft.drivers.base import QueueInfo
from tests.faults.account import Account
from tests.faults.child import Options
from tests.faults.job import QUEUE, Hands, Job, job, worker_of
from tests.faults.nursery import Nursery
from tests.faults.page import Page
from tests.faults.process import Process
from tests.faults.publisher import PublisherOptions
from tests.faults.worker import WorkerOptions

PATIENCE = 40.0


@dataclass(frozen=True)
class Broker:
    """All that tests know of a broker."""

    url: str
    brisk: Mapping[str, float] = field(default_factory=dict)
    """Constants of its driver, as `module:NAME`: it does at once what it would do now and then."""
    short_lease: Mapping[str, float] = field(default_factory=dict)
    """More of them: a consumer that stands still loses what it holds within a second."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """What the queue is declared with."""
    atomic_moves: bool = True
    """Whether nobody who dies can leave behind both a message and its retry."""
    unsettled: Callable[[], int] | None = None
    """How many messages are not done with, where the driver cannot tell; it may take its time."""


class Scene:
    """Starts processes on one broker, ends them, and sees to it that the account adds up."""

    def __init__(self, broker: Broker, nursery: Nursery, folder: Path) -> None:
        self.broker = broker
        self._nursery = nursery
        self.folder = folder
        self.page = Page(folder)
        self.processes: list[Process] = []
        self._busy: set[Process] = set()
        self._qc: QueueCraft | None = None

    async def close(self) -> None:
        for process in self.processes:
            process.close()
        await self.look_away()
        self.page.close()

    async def look_away(self) -> None:
        """Be connected no more, until there is something to be looked at."""
        if self._qc is not None:
            await self._qc.shutdown()
            self._qc = None

    @property
    async def qc(self) -> QueueCraft:
        """To look at the broker with; connected when it is first needed, not before."""
        if self._qc is None:
            self._qc = QueueCraft(self.broker.url, reconnect_delay=0.05)
            await self._qc.open()
        return self._qc

    # -- processes -----------------------------------------------------------------------------

    def publisher(self, **options: Any) -> Process:
        """A process that publishes."""
        return self.start("publisher", PublisherOptions, **options)

    def worker(self, **options: Any) -> Process:
        """A process that handles."""
        return self.start("worker", WorkerOptions, **options)

    def start(
        self,
        program: str,
        kind: type[Options],
        *,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Process:
        """A process of any kind."""
        usual: dict[str, Any] = {"url": self.broker.url, "arguments": self.broker.arguments}
        told = kind(**{**usual, **options}, folder=str(self.folder))
        return self._start(program, told, environment)

    def again(self, process: Process) -> Process:
        """Another of the same kind."""
        return self._start(process.program, process.options)

    def kill(self, process: Process) -> None:
        """End it as `kill -9` does, and write down what that may cost."""
        assert process.status is None, f"{process} has ended before:\n{process.output}"
        self.page.write("killing", victim=process.pid, allowed=process.options.allowed)
        process.kill()
        assert process.status == -signal.SIGKILL

    def freeze(self, process: Process) -> None:
        """Let it stand still, and write down what that may cost."""
        self.page.write("freezing", victim=process.pid, allowed=process.options.allowed)
        process.send(signal.SIGSTOP)

    async def dies(self, process: Process) -> None:
        """Wait until it has killed itself; nothing else will do."""
        await self._gone(process)
        assert process.status == -signal.SIGKILL, f"{process} ended otherwise:\n{process.output}"
        self.page.write("died", victim=process.pid, allowed=process.options.allowed)

    async def stop(self, *processes: Process) -> None:
        """End them as a deployment does."""
        for process in processes:
            if process.program == "ordered":
                self.page.write("stopping", victim=process.pid)
            process.send(signal.SIGTERM)
        await self.ended(*processes)

    async def ended(self, *processes: Process) -> None:
        """Wait until they have ended well."""
        for process in processes:
            await self._gone(process)
            assert process.status == 0, f"{process} did not end well:\n{process.output}"

    async def _gone(self, process: Process) -> None:
        await self.until(lambda: process.status is not None, f"{process} is gone")

    def _start(
        self, program: str, options: Options, environment: Mapping[str, str] | None = None
    ) -> Process:
        process = Process(self._nursery, program, options, environment)
        self.processes.append(process)
        return process

    # -- jobs ----------------------------------------------------------------------------------

    async def declare(self) -> None:
        """Make the queue of jobs before anybody works on it."""
        qc = await self.qc
        hands = Hands(self.folder, self.page)
        await worker_of(qc, hands, arguments=self.broker.arguments).declare()

    async def publish(self, *jobs: Job, by: QueueCraft | None = None, **options: Any) -> None:
        """Publish jobs from the process of the test."""
        for each in jobs:
            self.page.write("publishing", each.id, temper=each.temper)
        await (by or await self.qc).publish_many(job, jobs, **options)
        for each in jobs:
            self.page.write("published", each.id)

    def open_gate(self, process: Process) -> None:
        """Let the jobs of a process go on that wait."""
        (self.folder / f"gate-{process.pid}").touch()

    def ebb(self, low: bool) -> None:
        """Let publishers wait, or go on."""
        mark = self.folder / "ebb"
        if low:
            mark.touch()
        else:
            mark.unlink(missing_ok=True)

    # -- waiting -------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until it is so."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {PATIENCE:g} s until {what}; {self._troubles()}")
            await asyncio.sleep(0.01)

    async def busy(self, *processes: Process) -> None:
        """Wait until they have published or handled something."""
        for process in processes:
            await self.until(partial(self.is_busy, process), f"{process} is at work")

    def is_busy(self, process: Process) -> bool:
        if process not in self._busy:
            try:
                text = (self.folder / f"{process.pid}.page").read_bytes()
            except FileNotFoundError:
                return False
            if b'"publishing"' in text or b'"started"' in text:
                self._busy.add(process)
        return process in self._busy

    async def quiet(self) -> None:
        """Wait until there is nothing to be done in the queue, as long as something is done."""
        written, deadline = 0, time.monotonic() + PATIENCE
        while True:
            info = await self.queue()
            left = info.ready or info.in_flight or info.delayed or await self._unsettled()
            if not left:
                return
            if (now := self._written()) != written:
                written, deadline = now, time.monotonic() + PATIENCE
            if time.monotonic() > deadline:
                raise AssertionError(f"stands still with {left} left: {info}; {self._troubles()}")
            await asyncio.sleep(0.02)

    def _written(self) -> int:
        """How many bytes all processes have written down."""
        return sum(page.stat().st_size for page in self.folder.glob("*.page"))

    async def _unsettled(self) -> int:
        ask = self.broker.unsettled
        return 0 if ask is None else await asyncio.to_thread(ask)

    def _troubles(self) -> str:
        said = (f"{each!r}: {each.output[-2000:]}" for each in self.processes if each.output)
        return f"{self.account().summary()}\n" + "\n".join(said)

    # -- the account ---------------------------------------------------------------------------

    def account(self) -> Account:
        return Account.of(self.folder, atomic_moves=self.broker.atomic_moves)

    async def queue(self) -> QueueInfo:
        return await (await self.qc).admin.inspect(QUEUE)

    async def note_dead_letters(self) -> int:
        """Write down what the dead-letter queue holds."""
        letters = await (await self.qc).dead_letters.list(QUEUE, limit=1_000_000)
        for letter in letters:
            id = msgspec.json.decode(letter.body)["id"]
            self.page.write("dead", id, reason=letter.reason, attempt=letter.failures)
        return len(letters)

    def mend(self) -> None:
        """From now on nothing fails any more, and dead letters may be sent back."""
        (self.folder / "mended").touch()
        self.page.write("redriving")

    async def redrive(self) -> None:
        """Mend what is wrong and send all dead letters back."""
        await self.declare()  # a driver may know of no queues but those it has seen
        count = await self.note_dead_letters()
        self.mend()
        report = await (await self.qc).dead_letters.redrive(QUEUE)
        assert (report.moved, report.refused) == (count, 0), report

    async def check(self, note: str = "") -> Account:
        """The account adds up and the broker is empty."""
        account = self.account()
        account.check(await (await self.qc).admin.queues(), note)
        return account

    async def finish(self, note: str = "") -> Account:
        """Let everything come to its end: no more publishing, all handled, dead letters sent
        back and handled, workers stopped; and then it adds up."""
        await self.stop(*self._living("publisher"))
        await self.quiet()
        await self.redrive()
        await self.quiet()
        await self.stop(*self._living("worker"))
        return await self.check(note)

    def _living(self, program: str) -> list[Process]:
        return [each for each in self.processes if each.program == program and each.status is None]
