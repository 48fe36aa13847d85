"""Signs of life: a process with workers says every few seconds that it is there, and how it is."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable, Iterable
from typing import Final

from queuecraft.model.presence import BOUNDS, Presence, WorkerPresence, step_of
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.facts import (
    CircuitChanged,
    ConnectionState,
    MessagesSucceeded,
    WorkerStarted,
)
from queuecraft.runtime.worker import Worker
from queuecraft.version import __version__

NAME: Final = "worker."  # how the names of these notes begin
UP_FOR: Final = 3  # times the distance of two signs
SAMPLED: Final = 200  # durations that are counted between two signs: more cost, and tell no more
CIRCUITS: Final = 100  # that are told of
SOON: Final = 1.0  # seconds for the broker to answer, at least


class LifeSigns:
    """Begins with the first worker that runs and ends with the last. It has its own time, that of
    the event loop: where a test moves the clock, it neither keeps up nor holds up."""

    def __init__(
        self,
        engine: Engine,
        workers: Iterable[Worker],
        state: Callable[[], ConnectionState],
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._state = state
        self._every = engine.settings.presence
        self._id = ""
        self._pid = 0
        self._host = ""
        self._started_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._up = False
        self._in_trouble: set[str] = set()
        self._circuits: dict[str, str] = {}
        self._durations: dict[str, list[int]] = {}
        self._sampled = 0
        self._stop_sampling: Callable[[], None] | None = None
        if self._every:
            engine.pauses.changed = self._apply
            engine.facts.observe(WorkerStarted, lambda _: self._start())
            engine.at_rest = self._rest
            engine.facts.observe(CircuitChanged, self._note_circuit)

    async def close(self) -> None:
        """Say that this process is gone."""
        self._end()
        if self._ending is not None and not self._ending.done():
            await asyncio.wait([self._ending])

    # -- life ----------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._pid != os.getpid():  # a process that was forked is another
            self._id, self._pid = os.urandom(8).hex(), os.getpid()
            self._host = socket.gethostname()
            self._started_at = self._engine.clock.now()
            self._task = None
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._live())

    async def _rest(self) -> None:
        """A worker has stopped."""
        if not self._running():
            await self.close()

    def _end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            self._sample_no_more()
            self._ending = asyncio.get_running_loop().create_task(self._take_down(task))

    async def _live(self) -> None:
        while True:
            await self._beat()
            self._sample()
            await asyncio.sleep(self._every * random.uniform(0.9, 1.0))

    async def _beat(self) -> None:
        driver = self._engine.connection.current
        if driver is None:
            return
        within = max(SOON, self._every)
        try:
            async with asyncio.timeout(within):
                await self._engine.pauses.look(driver)
        except Exception as error:  # whoever works with the connection meets the same, and says so
            self._say("what is paused is not known", error)
        else:
            self._in_trouble.discard("what is paused is not known")
        self._up = True
        try:
            self._apply()
            note = self.presence().written()
            async with asyncio.timeout(within):
                await driver.announce(NAME + self._id, note, ttl=UP_FOR * self._every)
        except Exception as error:
            self._say("no sign of life", error)
        else:
            self._in_trouble.discard("no sign of life")

    async def _take_down(self, before: asyncio.Task[None]) -> None:
        await asyncio.wait([before])
        driver, up = self._engine.connection.current, self._up
        self._up = False
        if not up or driver is None or self._task is not None:
            return
        try:
            async with asyncio.timeout(SOON):
                await driver.announce(NAME + self._id, b"", ttl=SOON)
        except Exception as error:
            self._say("no sign of life", error)

    def _say(self, what: str, error: Exception) -> None:
        """Once, until it goes well again."""
        if what not in self._in_trouble:
            self._in_trouble.add(what)
            self._engine.facts.log.debug("%s: %r", what, error)

    # -- what is told --------------------------------------------------------------------------

    def presence(self) -> Presence:
        """This process as it is now."""
        engine = self._engine
        connection = engine.connection
        return Presence(
            id=self._id,
            host=self._host,
            pid=self._pid,
            started_at=self._started_at,
            at=engine.clock.now(),
            state=self._state(),
            version=__version__,
            every=self._every,
            sent=engine.publisher.sent,
            blocked=connection.blocked,
            last_error=engine.trouble or connection.last_error,
            workers=tuple(self._told(self._running())),
            circuits=dict(self._circuits),
        )

    def _running(self) -> list[Worker]:
        return [each for each in self._workers if each.state not in ("new", "stopped")]

    def _told(self, workers: Iterable[Worker]) -> Iterable[WorkerPresence]:
        counted: set[str] = set()
        for worker in workers:
            counters, name = worker.counters, worker.queue_name
            # Of several workers on one queue, the first tells how long things take.
            durations = () if name in counted else tuple(self._durations.get(name, ()))
            counted.add(name)
            yield WorkerPresence(
                queue=name,
                concurrency=worker.at_once,
                in_flight=worker.in_flight,
                paused=worker.standing,
                received=counters.received,
                succeeded=counters.succeeded,
                failed=counters.failed,
                retried=counters.retried,
                postponed=counters.postponed,
                dead_lettered=counters.dead_lettered,
                expired=counters.expired,
                dropped=counters.dropped,
                durations=durations,
            )

    def _apply(self) -> None:
        self._engine.pauses.apply(self._running())

    # -- what is counted -----------------------------------------------------------------------

    def _note_circuit(self, fact: CircuitChanged) -> None:
        if fact.name in self._circuits or len(self._circuits) < CIRCUITS:
            self._circuits[fact.name] = fact.state

    def _sample(self) -> None:
        """Count some durations until the next sign, so that it costs nothing under load."""
        self._sampled = 0
        if self._stop_sampling is None:
            self._stop_sampling = self._engine.facts.observe(MessagesSucceeded, self._count)

    def _sample_no_more(self) -> None:
        if self._stop_sampling is not None:
            self._stop_sampling()
            self._stop_sampling = None

    def _count(self, fact: MessagesSucceeded) -> None:
        counts = self._durations.get(fact.worker)
        if counts is None:
            counts = self._durations[fact.worker] = [0] * (len(BOUNDS) + 1)
        for seconds in fact.durations[: SAMPLED - self._sampled]:
            counts[step_of(seconds)] += 1
        self._sampled += len(fact.durations)
        if self._sampled >= SAMPLED:
            self._sample_no_more()
