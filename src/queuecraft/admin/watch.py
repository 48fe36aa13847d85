"""Watching a broker: everything at a glance, again and again, and hardly a burden to it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from queuecraft.admin import rates
from queuecraft.admin.groups import FailureGroups
from queuecraft.admin.growth import growth, held
from queuecraft.admin.happenings import Happenings, happenings
from queuecraft.admin.history import History
from queuecraft.admin.overview import Overview, QueueRow
from queuecraft.admin.private import is_private
from queuecraft.admin.rates import Pace, Who
from queuecraft.admin.rows import circuit_rows, queue_rows, worker_rows
from queuecraft.admin.sample import Sample, heard
from queuecraft.admin.status import Trends, judged
from queuecraft.drivers.base import QueueInfo
from queuecraft.drivers.partial import lacking
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.model.masking import masked
from queuecraft.model.naming import PAUSES
from queuecraft.model.pause import Pause
from queuecraft.model.presence import Presence
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.failure_groups import FailureGroup

SHARED = 1.0  # seconds for which everybody gets the same answer
SHARE = 10  # or so many times as long as the broker took for it
LONGEST_SHARED = 15.0  # though no longer than that
ANSWER = 3.0  # seconds in which a broker has to answer
IMPATIENT = 0.1  # seconds for an answer that should have come long ago
HOPELESS = 30.0  # seconds until the question is asked anew
WINDOW = 10.0  # seconds over which rates are taken, or two signs of life, if that is longer
LONGEST_WINDOW = 120.0
MINUTE = 60.0  # over which durations are taken
STEP = 10.0  # from one of the counts that are kept for it to the next
PAUSES_AGAIN = 10.0  # seconds until it is asked again which queues are paused, if nothing changed
FIRST_LOOK = 0.5  # seconds in which it waits for what failed alike: somebody waits for it

log = logging.getLogger("queuecraft")


class Watch:
    """Looks at a broker for as many as want to see it: `async with qc.admin.watch() as watch`.

    However many call `look`, the broker is asked at most once a second, and for a tenth of the
    time at most: one with thousands of queues is asked more seldom. One that does not answer is
    told of in the overview; what was known last stays in it.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        queues: Callable[[], Awaitable[Sequence[QueueInfo]]],
        workers: Callable[[], Awaitable[Sequence[Presence] | None]],
        pauses: Callable[[], Awaitable[Mapping[str, Pause]]],
        holds_dead_letters: Callable[[str], bool],
    ) -> None:
        self._engine = engine
        self._queues = queues
        self._workers = workers
        self._pauses = pauses
        self._holds_dead_letters = holds_dead_letters
        self._history = History()
        self._happenings = Happenings()
        self._groups = FailureGroups(engine.connection.ready)
        self._trends = Trends()
        self._samples: deque[Sample] = deque()
        self._minute: deque[tuple[float, dict[Who, tuple[int, ...]]]] = deque()
        self._last: Overview | None = None
        self._last_rows: tuple[QueueRow, ...] | None = None  # of the last answer
        self._last_time = float("-inf")
        self._asked_pauses: tuple[float, int | None, Mapping[str, str]] | None = None
        self._asking: tuple[asyncio.Task[Sample], float] | None = None
        self._looking: asyncio.Task[Overview] | None = None
        self._open = False

    async def look(self, *, groups: bool = True) -> Overview:
        """The broker, its queues and workers now. With `groups=False`, nobody looks into dead
        letters for it."""
        if not self._open:
            raise ConfigError("watch: look() works inside `async with qc.admin.watch() as watch`")
        time = self._engine.clock.monotonic()
        # The first answer takes longer than all others: it says nothing about the next.
        asked_in = None if self._last is None or len(self._samples) < 2 else self._last.asked_in
        if self._last is not None and time - self._last_time < shared_for(asked_in):
            return self._last
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look(groups=groups))
        return await asyncio.shield(self._looking)  # others wait for it, too

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open = False
        asking = None if self._asking is None else self._asking[0]
        for task in (self._looking, asking):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        await self._groups.close()

    # -- asking --------------------------------------------------------------------------------

    async def _answer(self) -> Sample | str:
        """What the broker says, or why it says nothing."""
        connection = self._engine.connection
        gone = connection.current is None and connection.state != "disconnected"
        if gone and (connection.down or connection.state != "connecting"):
            return connection.last_error or "the connection is lost"
        loop = asyncio.get_running_loop()
        if self._asking is None:
            self._asking = loop.create_task(self._ask()), loop.time()
        task, since = self._asking
        waited = loop.time() - since
        await asyncio.wait([task], timeout=max(IMPATIENT, ANSWER - waited))
        if not task.done():
            if waited > HOPELESS:
                task.cancel()
                self._asking = None
            return f"it has not answered for {loop.time() - since:.0f} s"
        self._asking = None
        if task.cancelled():
            return "the question was given up"
        if (error := task.exception()) is not None:
            if not isinstance(error, QueueError):
                log.error("the broker could not be looked at", exc_info=error)
            return error.message if isinstance(error, QueueError) else repr(error)
        return task.result()

    async def _ask(self) -> Sample:
        clock = self._engine.clock
        await self._engine.connection.ready(patient=False)  # who waits can be told at once
        began = clock.monotonic()
        infos = await self._queues()
        took = clock.monotonic() - began
        presences = await self._workers()
        pauses = await self._paused(infos)
        at, time = clock.now(), clock.monotonic()
        before = self._samples[-1].heard if self._samples else {}
        return Sample(
            at=at,
            time=time,
            queues={info.name: info for info in infos if not is_private(info.name)},
            presences=None if presences is None else tuple(presences),
            heard=heard(before, presences or (), at=at, time=time),
            pauses=pauses,
            lacking=lacking(infos),
            took=took,
        )

    async def _paused(self, infos: Sequence[QueueInfo]) -> Mapping[str, str]:
        """Which queues are paused. Asked only if something may have been said: on some brokers
        looking at the notes hides them from others for a moment."""
        time = self._engine.clock.monotonic()
        count = next((info.ready for info in infos if info.name == PAUSES), None)
        last = self._asked_pauses
        if last is not None and last[1] == count and time - last[0] < PAUSES_AGAIN:
            return last[2]
        told = {name: pause.text for name, pause in (await self._pauses()).items()}
        self._asked_pauses = (time, count, told)
        return told

    # -- telling -------------------------------------------------------------------------------

    async def _look(self, *, groups: bool) -> Overview:
        began = self._engine.clock.monotonic()
        answer = await self._answer()
        first = self._last is None
        if isinstance(answer, str):
            overview = self._unanswered(answer)
        else:
            paces, durations = self._measured(answer)
            overview = self._told(answer, paces, durations)
            if groups:
                underway = self._groups.start(self._engine.clock.monotonic)
                if first and underway is not None:
                    left = began + FIRST_LOOK - self._engine.clock.monotonic()
                    await asyncio.wait([underway], timeout=max(0.0, left))
            overview = self._judged(overview, answer, paces)
        last = self._last
        if last is not None:
            new = happenings(last, overview)
            self._happenings.add(new, growth(last.queues, overview.queues))
        overview = replace(
            overview,
            numbers=self._history.numbers,
            groups=self._groups.groups,
            looked_at=self._groups.looked_at,
            happenings=self._happenings.all(),
        )
        self._last = overview
        self._last_time = self._engine.clock.monotonic()
        return overview

    def _unanswered(self, why: str) -> Overview:
        connection = self._engine.connection
        now = self._engine.clock.now()
        self._history.add(now)
        state: str = connection.state
        return replace(
            self._last or self._blank(),
            at=datetime.fromtimestamp(now, UTC),
            status="critical",
            reasons=(f"The broker does not answer: {why}.",),
            state="not answering" if state == "connected" else state,
            last_error=why,
            asked_in=None,
        )

    def _told(
        self,
        sample: Sample,
        paces: Mapping[Who, Pace],
        durations: Mapping[Who, tuple[int, ...]],
    ) -> Overview:
        """What the broker said, not yet judged."""
        before = self._samples[0] if self._samples else None
        rows = queue_rows(before, sample, paces, durations, self._holds_dead_letters)
        workers = worker_rows(sample, paces, durations)
        circuits = circuit_rows(sample)
        self._samples.append(sample)
        self._trends = self._trends.after(self._last_rows or (), rows, sample.time)
        letters = {row.name: held(row) for row in rows if row.holds_dead_letters}
        self._groups.note(letters, sample.time, _deaths(sample.presences or ()))
        self._remember(sample, rows, paces)
        self._last_rows = rows
        return replace(
            self._blank(),
            at=datetime.fromtimestamp(sample.at, UTC),
            state=self._engine.connection.state,
            blocked=self._engine.connection.blocked,
            asked_in=sample.took,
            queues=rows,
            workers=workers,
            circuits=circuits,
            dead=sum(letters.values()),
            lacking=sample.lacking,
        )

    def _judged(self, overview: Overview, sample: Sample, paces: Mapping[Who, Pace]) -> Overview:
        """The same, and whether all is well."""
        ratios = {name: pace.failure_ratio for name, pace in rates.by_queue(paces).items()}
        status, reasons = judged(
            overview.queues,
            overview.workers or (),
            overview.circuits,
            self._trends,
            {name: ratio for name, ratio in ratios.items() if ratio},
            died=_last_deaths(self._groups.groups, sample.at),
            blocked=overview.blocked,
            time=sample.time,
        )
        return replace(overview, status=status, reasons=reasons)

    def _measured(self, sample: Sample) -> tuple[dict[Who, Pace], dict[Who, tuple[int, ...]]]:
        """What was done lately, and how long it took."""
        presences = sample.presences or ()
        window = min(LONGEST_WINDOW, max([WINDOW, *(2 * each.every for each in presences)]))
        # The last that is old enough stays, so that there is always something to compare with.
        while len(self._samples) > 1 and sample.time - self._samples[1].time >= window:
            self._samples.popleft()
        before = self._samples[0] if self._samples else sample
        paces = rates.paces(before.presences or (), presences, sample.time - before.time)
        counts = rates.durations(presences)
        while len(self._minute) > 1 and sample.time - self._minute[1][0] >= MINUTE:
            self._minute.popleft()
        base: dict[Who, tuple[int, ...]] = {}
        for _, earlier in self._minute:
            base = {**earlier, **base}  # the oldest that is known of each
        if not self._minute or sample.time - self._minute[-1][0] >= STEP:
            self._minute.append((sample.time, counts))
        return paces, rates.since(base, counts)

    def _remember(
        self, sample: Sample, rows: Sequence[QueueRow], paces: Mapping[Who, Pace]
    ) -> None:
        """The four numbers, of the queues that are worked on."""
        work = [row for row in rows if not row.holds_dead_letters]
        arriving = [row.in_per_second for row in work if row.in_per_second is not None]
        handled = [row.handled_per_second for row in work if row.handled_per_second is not None]
        ages = [0.0 if row.ready == 0 else row.oldest_age for row in work]
        known = [age for age in ages if age is not None]
        self._history.add(
            sample.at,
            arriving=sum(arriving) if arriving else None,
            handled=sum(handled) if handled else None,
            failure_ratio=sum(paces.values(), Pace()).failure_ratio,
            oldest_age=max(known, default=None),
        )

    def _blank(self) -> Overview:
        return Overview(
            at=datetime.fromtimestamp(self._engine.clock.now(), UTC),
            status="healthy",
            broker=self._engine.connection.traits.name,
            url=masked(self._engine.settings.url),
        )


def _deaths(presences: Sequence[Presence]) -> dict[str, int]:
    """How many dead letters workers have put into each queue, where it has the usual name."""
    found: Counter[str] = Counter()
    for process in presences:
        for worker in process.workers:
            found[f"{worker.queue}.dlq"] += worker.dead_lettered
    return dict(found)


def _last_deaths(groups: Sequence[FailureGroup], now: float) -> dict[str, float]:
    """How many seconds ago the last message died in each dead-letter queue."""
    found: dict[str, float] = {}
    for group in groups:
        if group.last is not None:
            ago = abs(now - group.last.timestamp())  # of a clock ahead of ours, too
            found[group.queue] = min(ago, found.get(group.queue, ago))
    return found


def shared_for(asked_in: float | None) -> float:
    """Seconds for which an answer is good that took the broker so long; None if none came.

    >>> shared_for(0.02), shared_for(0.4), shared_for(2.5), shared_for(None)
    (1.0, 4.0, 15.0, 1.0)
    """
    return min(LONGEST_SHARED, max(SHARED, SHARE * (asked_in or 0.0)))
