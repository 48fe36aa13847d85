"""One worker process, as its supervisor sees it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence

from queuecraft.cli.processes.line import Hello, State, SupervisorEnd
from queuecraft.cli.processes.stop import GRACE, MARGIN

SILENCE = 10.0  # seconds without a report after which a child is taken to be stuck
LAST = 3.0  # seconds between the child's own last deadline and being killed

HELD_BACK = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Child:
    """Started with `Child.start`; `ended` has its exit code when it is gone."""

    def __init__(self, number: int, process: Process, line: SupervisorEnd) -> None:
        self.number = number
        self.hello: Hello | None = None
        self.started = False
        self.leaving = False
        """Whether it was told to go."""
        self.news = asyncio.Event()
        """Set when it says something, and when it ends."""
        self._process = process
        self._line = line
        self._healthy = False
        self._heard = time.monotonic()
        self._born = time.monotonic()
        self._reading = asyncio.ensure_future(self._read())
        self._dismissing: asyncio.Task[None] | None = None
        self.ended: asyncio.Task[int] = asyncio.ensure_future(self._wait())

    @classmethod
    async def start(cls, number: int, command: Sequence[str], *, attended: bool) -> Child:
        """A fresh interpreter; with `attended` it has our stdin, for a debugger."""
        ours, theirs = socket.socketpair()
        with theirs:
            # It inherits this, and lets them in when it is ready to hear them.
            signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    f"--supervised={theirs.fileno()}",
                    f"--number={number}",
                    pass_fds=[theirs.fileno()],
                    stdin=None if attended else DEVNULL,
                )
            except BaseException:
                ours.close()
                raise
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
        return cls(number, process, await SupervisorEnd.open(ours))

    @property
    def name(self) -> str:
        """How it is called in the log."""
        return f"process {self.number} (pid {self._process.pid})"

    @property
    def age(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self._born

    @property
    def healthy(self) -> bool:
        """Whether it lives, works, and has said so lately."""
        heard = time.monotonic() - self._heard < SILENCE
        return self._healthy and heard and not self.ended.done()

    @property
    def epitaph(self) -> str:
        """How it ended, in words.

        Only for one that has.
        """
        code = self.ended.result()
        how = f"ended with exit code {code}"
        if code < 0:
            try:
                how = f"was killed by {signal.Signals(-code).name}"
            except ValueError:
                how = f"was killed by signal {-code}"
        return f"{self.name} {how} after {self.age:.3g} s"

    def dismiss(self) -> None:
        """Have it finish what runs and go; killed in the end if it does not."""
        self.leaving = True
        if self._dismissing is None:
            self._dismissing = asyncio.ensure_future(self._dismiss())

    def force(self) -> None:
        """Have it go at once; killed in the end if it does not."""
        self.leaving = True
        if self._dismissing is not None:
            self._dismissing.cancel()
        self._dismissing = asyncio.ensure_future(self._force())

    async def loaded(self) -> bool:
        """Wait until it has its application; False if it ends before."""
        return await self._until("hello")

    async def works(self) -> bool:
        """Wait until its workers are at work; False if it ends before."""
        return await self._until("started")

    async def _until(self, what: str) -> bool:
        while not getattr(self, what) and not self.ended.done():
            self.news.clear()
            await self.news.wait()
        return bool(getattr(self, what))

    async def _read(self) -> None:
        async for report in self._line.reports():
            self._heard = time.monotonic()
            if isinstance(report, Hello):
                self.hello = report
            elif isinstance(report, State):
                self.started, self._healthy = report.started, report.healthy
            self.news.set()

    async def _wait(self) -> int:
        code = await self._process.wait()
        self._reading.cancel()
        if self._dismissing is not None:
            self._dismissing.cancel()
        self._line.close()
        asyncio.get_running_loop().call_soon(self.news.set)  # once this task is done
        return code

    async def _dismiss(self) -> None:
        if self.hello is None:
            # Still importing, it does not listen to the line, and has nothing to finish.
            self._signal(signal.SIGTERM)
            patience = 0.0
        else:
            self._line.tell("stop")
            patience = self.hello.shutdown_timeout
        await asyncio.sleep(patience + MARGIN + LAST)
        self._signal(signal.SIGKILL)

    async def _force(self) -> None:
        self._line.tell("force")
        if self.hello is None:
            self._signal(signal.SIGTERM)
        await asyncio.sleep(GRACE + LAST)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
