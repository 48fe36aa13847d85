"""Executing a plan: chunk after chunk, each written down when it is done."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from queuecraft.failpoints import failpoint
from queuecraft.model.errors import ConfigError, ConnectionLost, QueueError
from queuecraft.pipeline.connections import DEFAULT, connection_settings, variables
from queuecraft.pipeline.replay.destination import Destination
from queuecraft.pipeline.replay.expression import reason
from queuecraft.pipeline.replay.job import interruptible
from queuecraft.pipeline.replay.ledger import Done, Ledger
from queuecraft.pipeline.replay.order import by_key
from queuecraft.pipeline.replay.plan import Plan
from queuecraft.pipeline.replay.sending import COLUMNS, TOLD, Sending
from queuecraft.pipeline.replay.table import PLAN
from queuecraft.pipeline.replay.target import Look, Target, backlog
from queuecraft.pipeline.replay.watch import Watch
from queuecraft.pipeline.source.pace import BATCH
from queuecraft.pipeline.source.site import SPECULATION, Site

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from queuecraft.pipeline.lake import Lake

FAILURES = 0.1
SETTLE = 30.0
LOOK_AGAIN = 0.5  # seconds between two looks at a queue that is waited for
SUMMED = ("sent", "refused", "expired", "size", "failed")
SLOW = 100.0  # messages a second that one task is enough for


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a replay has come, or how it ended.

    >>> Progress(id="r-1", messages=100, chunks=1, chunks_done=1, sent=98, refused=2).done
    True
    """

    id: str
    messages: int
    chunks: int
    chunks_done: int = 0
    sent: int = 0
    refused: int = 0
    expired: int = 0
    size: int = 0
    failed: int = 0
    """Dead letters that the targets got meanwhile, whoever's they are."""
    failure_rate: float = 0.0
    """The share that was refused or failed, of the last chunks."""
    waiting: str | None = None
    """What is waited for just now."""
    paused: str | None = None
    """Why it stopped by itself."""
    refusals: tuple[tuple[str, str], ...] = ()
    """Some of those refused: ids and reasons."""
    unattended: tuple[str, ...] = ()
    """Target queues that nobody consumes."""

    @property
    def done(self) -> bool:
        """Whether every chunk was sent."""
        return self.chunks_done >= self.chunks

    @property
    def seen(self) -> int:
        """Messages that are dealt with, one way or another."""
        return self.sent + self.refused + self.expired


def execute(
    spark: SparkSession,
    lake: Lake,
    replay_id: str,
    *,
    connection: str = DEFAULT,
    url: str | None = None,
    rate: float | None = None,
    tasks: int | None = None,
    max_failure_rate: float = FAILURES,
    max_backlog: int | None = None,
    settle: float = SETTLE,
    expired: bool = False,
    force: bool = False,
    on_progress: Callable[[Progress], object] = lambda progress: None,
) -> Progress:
    """Send the messages of a plan, from the first chunk that is not done yet: what was interrupted
    goes on there, and at most that chunk is sent twice, with the same ids and the same
    `x-replay-id`. What was refused before is tried again first.

    `url` is that of a broker without a name, where all of Spark runs on this machine.

    At most `rate` messages a second, by `tasks` tasks or as many as run at once. Between chunks the
    targets are looked at: when more than `max_failure_rate` of the messages were refused or have
    become dead letters, it pauses, which is told by `paused` of the result, unless `force` is
    given; while more than `max_backlog` messages wait in a target, it waits. After its first chunk,
    which is small, it waits until that was handled, at most `settle` seconds.

    Messages that have run out of time are left out; with `expired` they are sent, without an end.

    Raises `ConnectionLost` or `QueueError` when a chunk could not be sent to its end; executed
    again, it goes on, and `ConfigError` if that would be at another broker.
    """
    _check_above_zero(rate=rate, tasks=tasks, max_backlog=max_backlog)
    site = Site.of(spark)
    _check_url(url, connection, site)
    _check_copies(site)
    settings = connection_settings(connection, local=site.local, url=url)
    ledger = Ledger.of(lake, replay_id)
    with ledger.locked():
        plan = ledger.plan()
        begun, here = ledger.destination(), Destination.of(connection, settings, plan)
        if begun is not None and not begun.is_same(here):
            raise _elsewhere(ledger, begun, here)
        target = Target.of(settings, plan)
        run = _Run(
            spark,
            ledger,
            plan,
            target,
            Sending(
                connection,
                site.local,
                expired=expired,
                environ=variables(os.environ) if site.local else None,
                url=url,
            ),
            slots=tasks or site.slots or 1,
            rate=rate,
            max_failure_rate=float("inf") if force else max_failure_rate,
            max_backlog=max_backlog,
            settle=0.0 if force else settle,
            on_progress=on_progress,
        )
        if not run.left:
            return run.progress
        target.check()
        if begun is None:
            ledger.begin(here)
        ledger.resume()
        return run.execute()


def progress_of(lake: Lake, replay_id: str) -> Progress:
    """How far a replay has come, by what is written down of it."""
    ledger = Ledger.of(lake, replay_id)
    return _so_far(ledger.plan(), ledger.done())


def shares(size: int, slots: int, rate: float | None) -> tuple[int, float | None]:
    """How many tasks send a chunk, and how fast each may be: together no faster than the rate.

    >>> (
    ...     shares(10_000, 4, None),
    ...     shares(10_000, 4, 1000),
    ...     shares(10_000, 4, 50),
    ...     shares(100, 4, 1000),
    ... )
    ((4, None), (4, 250.0), (1, 50), (1, 1000))
    """
    tasks = max(1, min(slots, -(-size // BATCH)))
    if rate is None:
        return tasks, None
    tasks = max(1, min(tasks, int(rate // SLOW)))
    return tasks, rate if tasks == 1 else rate / tasks


class _Run:
    """One execution under way."""

    def __init__(
        self,
        spark: SparkSession,
        ledger: Ledger,
        plan: Plan,
        target: Target,
        sending: Sending,
        *,
        slots: int,
        rate: float | None,
        max_failure_rate: float,
        max_backlog: int | None,
        settle: float,
        on_progress: Callable[[Progress], object],
    ) -> None:
        self._spark = spark
        self._ledger = ledger
        self._plan = plan
        self._target = target
        self._sending = sending
        self._slots = slots
        self._rate = rate
        self._watch = Watch(max_failure_rate)
        self._limit = max_failure_rate
        self._max_backlog = max_backlog
        self._settle = settle
        self._on_progress = on_progress
        self._done = ledger.done()
        self.progress = _so_far(plan, self._done)
        # What was refused is the oldest, so it comes first.
        self.left = [
            number
            for number in range(len(plan.chunks))
            if number not in self._done or self._done[number].refused
        ]

    def execute(self) -> Progress:
        """Send what is left, chunk by chunk."""
        before = self._target.look()
        self._tell(unattended=before.unattended)
        for number in self.left:
            if (crowded := self._crowded(before)) is not None:
                return self._pause(crowded)
            failpoint("replay.before_chunk")
            done, refused = self._send(number)
            failpoint("replay.after_chunk")
            self._note(done, refused)
            failpoint("replay.after_ledger")
            after = self._target.look()
            more = number != self.left[-1]
            if number == self.left[0] and more:
                after = self._settled(before, after, done)
            self._judge(done, refused, after.died_since(before), after)
            before = after
            if more and self._watch.alarmed:
                return self._pause(self._alarm(done))
        return self.progress

    def _send(self, number: int) -> tuple[Done, list[int]]:
        """Send a chunk, or what was refused of it: what has become of the chunk now, and the
        positions of those that are refused."""
        so_far, meant = self._so_far(number)
        size = self._plan.chunks[number] if meant is None else len(meant)
        tasks, rate = shares(size, self._slots, self._rate)
        try:
            messages = by_key(self._messages(number, meant), tasks)
            job = messages.mapInArrow(replace(self._sending, rate=rate), COLUMNS)
            reports = interruptible(self._spark, job.collect)
        except Exception as error:  # Spark's own, or those of the bridge to it
            raise self._unfinished(number, reason(error)) from error
        troubled = [each for each in reports if each["trouble"] is not None]
        if troubled:
            worst = min(troubled, key=lambda each: not each["lost"])
            kind = ConnectionLost if worst["lost"] else QueueError
            raise self._unfinished(number, worst["trouble"], kind)
        refused = sorted(position for each in reports for position in each["positions"])
        done = msgspec.structs.replace(
            so_far,
            sent=so_far.sent + _sum(reports, "sent"),
            refused=len(refused),
            expired=so_far.expired + _sum(reports, "expired"),
            size=so_far.size + _sum(reports, "size"),
            refusals=_refusals(reports),
            finished_at=time.time(),
        )
        return done, refused

    def _so_far(self, number: int) -> tuple[Done, list[int] | None]:
        """What has become of a chunk, and the positions of those that are to be sent; None is all
        of it, also where it was not noted which were refused: rather twice than never."""
        noted = self._done.get(number)
        if noted is not None and (refused := self._ledger.refused(number)) is not None:
            return noted, refused
        return Done(chunk=number, started_at=time.time()), None

    def _messages(self, number: int, meant: list[int] | None) -> DataFrame:
        place = str(self._ledger.chunk(number).absolute())
        messages = self._spark.read.schema(PLAN.spark).parquet(place)
        if meant is None:
            return messages
        # As a table: ten thousand numbers in an expression are slow.
        positions = self._spark.createDataFrame(pa.table({"position": pa.array(meant, pa.int64())}))
        return messages.join(positions, "position", "left_semi").select(*PLAN.names)

    def _unfinished(self, number: int, why: str, kind: type[QueueError] = QueueError) -> QueueError:
        return kind(
            f"chunk {number} of replay {self._plan.id} was not sent to its end: {why}; resume the "
            "replay, which sends that chunk again"
        )

    def _note(self, done: Done, refused: Sequence[int]) -> None:
        self._ledger.note(done, refused)
        self._done[done.chunk] = done
        self._tell(**_counts(self._done))

    def _judge(self, done: Done, refused: Sequence[int], died: int, now: Look) -> None:
        """Count what has failed since the chunk before. Of what was sent again the whole chunk
        counts: a few that are refused for good are still few."""
        self._watch.note(sent=done.tried, failed=done.refused + died)
        if died:
            self._note(msgspec.structs.replace(done, failed=done.failed + died), refused)
        self._tell(failure_rate=self._watch.rate, unattended=now.unattended)

    def _settled(self, before: Look, now: Look, done: Done) -> Look:
        """The target once the first messages are handled, as far as somebody handles them."""
        until = time.monotonic() + self._settle
        names = {info.name for info in now.attended.queues}
        had = sum(backlog(info) for info in before.queues if info.name in names)
        while names and done.sent and time.monotonic() < until:
            has = sum(backlog(info) for info in now.queues if info.name in names)
            failed = done.refused + now.died_since(before)
            if has <= had or failed > self._limit * done.tried:
                break
            self._tell(waiting="the first messages to be handled")
            time.sleep(LOOK_AGAIN)
            now = self._target.look()
        self._tell(waiting=None)
        return now

    def _crowded(self, now: Look) -> str | None:
        """Wait until there is room in the targets; why that is of no use, if it is."""
        if self._max_backlog is None:
            return None
        while crowded := [info for info in now.queues if backlog(info) > self._max_backlog]:
            fullest = max(crowded, key=backlog)
            told = f"queue {fullest.name!r} has {backlog(fullest):,} messages waiting"
            if any(info.consumers == 0 for info in crowded):
                name = next(info.name for info in crowded if info.consumers == 0)
                return f"{told}, and nobody consumes {name!r}; start its worker, then resume"
            self._tell(waiting=f"room: {told}")
            time.sleep(LOOK_AGAIN)
            now = self._target.look()
        self._tell(waiting=None)
        return None

    def _alarm(self, done: Done) -> str:
        watch = self._watch
        share = f"{watch.failed:,} of the last {watch.sent:,} messages failed"
        told = f"{share}, more than {self._limit:.0%}"
        if done.refusals:
            return f"{told}; one was refused: {done.refusals[0][1]}"
        names = ", ".join(sorted({info.name for info in self._target.look().queues if info.dead}))
        return f"{told}; see the dead letters of {names}"

    def _pause(self, why: str) -> Progress:
        self._ledger.pause(why)
        self._tell(paused=why, waiting=None)
        return self.progress

    def _tell(self, **changes: Any) -> None:
        progress = replace(self.progress, **changes)
        if progress != self.progress:
            self.progress = progress
            self._on_progress(progress)


def _so_far(plan: Plan, done: Mapping[int, Done]) -> Progress:
    return Progress(id=plan.id, messages=plan.messages, chunks=len(plan.chunks), **_counts(done))


def _counts(done: Mapping[int, Done]) -> dict[str, Any]:
    chunks = done.values()
    refusals = tuple(refusal for each in chunks for refusal in each.refusals)
    return {
        "chunks_done": len(chunks),
        "refusals": refusals[:TOLD],
        **{name: sum(getattr(each, name) for each in chunks) for name in SUMMED},
    }


def _sum(reports: Sequence[Row], name: str) -> int:
    return sum(each[name] for each in reports)


def _refusals(reports: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    kind = tuple[tuple[str, str], ...]
    found = (msgspec.json.decode(each["refusals"], type=kind) for each in reports)
    return tuple(refusal for each in found for refusal in each)


def _elsewhere(ledger: Ledger, begun: Destination, here: Destination) -> ConfigError:
    return ConfigError(
        f"replay {ledger.folder.name} began at {begun} (connection {begun.connection!r}), and this "
        f"is {here}; name that broker, or plan the replay anew for this one; if they are the same "
        f"broker, delete {ledger.broker}"
    )


def _check_url(url: str | None, connection: str, site: Site) -> None:
    if url is None:
        return
    if connection != DEFAULT:
        raise ConfigError("the broker has a name or a URL; say connection or url, not both")
    if not site.local:
        raise ConfigError(
            "the url of a replay stays on this machine, and the executors are elsewhere; set "
            "QUEUECRAFT_CONNECTION_SHOP_URL there and here, and name the connection 'shop'"
        )


def _check_copies(site: Site) -> None:
    if site.speculates:
        raise ConfigError(
            f"with {SPECULATION} Spark starts a copy of a task that is slow, which would send the "
            "same messages beside it, and beyond the rate; start the session with "
            f"{SPECULATION}=false, or the server if that is elsewhere, and resume the replay"
        )


def _check_above_zero(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not value > 0:
            raise ConfigError(f"execute({name}={value!r}): expected a number above 0")
