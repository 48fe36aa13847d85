"""The life of one worker process: connect, work until asked to stop, finish what runs."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from queuecraft.cli.exits import sentence
from queuecraft.cli.processes.application import Application
from queuecraft.cli.processes.line import ChildEnd, Hello, State
from queuecraft.cli.processes.stop import Stop
from queuecraft.model.errors import ConfigError, ConnectionLost, QueueError
from queuecraft.model.masking import masked

CLEAN, FAILED, MISTAKEN, UNREACHABLE = 0, 1, 2, 3
"""How a process ends, as its exit code."""

SOON, LATER = 0.5, 10.0  # seconds until it says what is still at work, and says it again
TELLING = 1.0  # seconds between two reports to a supervisor


class Life:
    """Runs the workers of an application in this process, once."""

    def __init__(self, application: Application, stop: Stop, log: logging.Logger) -> None:
        self._qc = application.qc
        self._workers = application.workers
        self._stop = stop
        self._log = log
        self._started = asyncio.Event()

    @property
    def hello(self) -> Hello:
        """What there is to know about this process before it works."""
        events: dict[str, tuple[str, ...]] = {}
        for worker in self._workers:
            patterns = tuple(handler.pattern for handler in worker.handlers)
            events[worker.queue_name] = events.get(worker.queue_name, ()) + patterns
        settings = self._qc.settings
        return Hello(masked(settings.url), events, settings.shutdown_timeout)

    @property
    def healthy(self) -> bool:
        """Whether it is connected and consumes, and means to go on."""
        going_on = self._started.is_set() and not self._stop.asked.is_set()
        return going_on and self._qc.health_check().ok

    async def live(self) -> int:
        """Until asked to stop, or until there is nothing left to run; the exit code."""
        loop = asyncio.get_running_loop()
        self._stop.begin(self._qc.settings.shutdown_timeout)
        working = asyncio.ensure_future(self._work())
        await _first(working, self._stop.asked.wait())
        code = self._judge(working)
        deadline = loop.time() + self._qc.settings.shutdown_timeout
        leaving = asyncio.ensure_future(self._qc.shutdown())
        held = await self._wait_for(leaving, deadline)
        if not leaving.done():
            await asyncio.gather(*(worker.stop(drain=False) for worker in self._workers))
        await leaving
        if self._stop.forced.is_set():
            return FAILED
        if loop.time() < deadline:
            return code
        if held:
            self._log.warning(
                "%g s were not enough: %s back and will be delivered again",
                self._qc.settings.shutdown_timeout,
                "1 message goes" if held == 1 else f"{held} messages go",
            )
        return FAILED

    async def _wait_for(self, leaving: asyncio.Future[None], deadline: float) -> int:
        """Until everything is finished, or nobody wants to wait any longer; meanwhile says how
        much is left, as nothing else would. How much it was in the end."""
        loop = asyncio.get_running_loop()
        forced = asyncio.ensure_future(self._stop.forced.wait())
        held, pause = 0, SOON
        try:
            while not leaving.done() and not forced.done():
                await asyncio.wait(
                    (leaving, forced), timeout=pause, return_when=asyncio.FIRST_COMPLETED
                )
                now = sum(worker.in_flight for worker in self._workers)
                left = deadline - loop.time()
                held = now or held
                if now and left >= 1 and not leaving.done() and not forced.done():
                    self._log.info(
                        "%s still at work, at most %.0f s; Ctrl-C again stops at once",
                        "1 handler" if now == 1 else f"{now} handlers",
                        left,
                    )
                    pause = LATER
        finally:
            forced.cancel()
        return held

    async def live_supervised(self, fd: int) -> int:
        """The same, at the other end of a supervisor's line."""
        line = await ChildEnd.open(fd)
        tasks = [asyncio.ensure_future(each) for each in (self._obey(line), self._tell(line))]
        try:
            return await self.live()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            line.close()

    async def _work(self) -> None:
        # Every queue before the first handler, also those that run elsewhere: an event published
        # by a handler here then finds all who wait for it.
        for worker in self._qc.workers:
            await worker.declare()
        for worker in self._workers:
            await worker.start()
        self._started.set()
        await asyncio.gather(*(worker.until_stopped() for worker in self._workers))

    def _judge(self, working: asyncio.Future[None]) -> int:
        if not working.done():
            working.cancel()
            return CLEAN
        error = working.exception()
        if error is None:
            self._log.info("every worker was stopped")
            return CLEAN
        if not isinstance(error, QueueError):
            self._log.error("the workers failed", exc_info=error)
            return FAILED
        self._log.error("%s", sentence(error))
        if isinstance(error, ConnectionLost):
            return UNREACHABLE
        return MISTAKEN if isinstance(error, ConfigError) else FAILED

    async def _obey(self, line: ChildEnd) -> None:
        async for word in line.words():
            if word == "force":
                self._stop.force("the supervisor insists")
            else:
                self._stop.ask("the supervisor asks")
        self._stop.ask("the supervisor is gone")

    async def _tell(self, line: ChildEnd) -> None:
        line.tell(self.hello)
        started = asyncio.ensure_future(self._started.wait())
        try:
            while True:
                line.tell(State(self._started.is_set(), self.healthy))
                if started.done():
                    await asyncio.sleep(TELLING)
                else:  # that is told at once
                    await asyncio.wait([started], timeout=TELLING)
        finally:
            started.cancel()


async def _first(*waits: Any) -> None:
    """Until the first is done. Futures go on; what was started here for waiting does not."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task, wait in zip(tasks, waits, strict=True):
        if task is not wait:
            task.cancel()
