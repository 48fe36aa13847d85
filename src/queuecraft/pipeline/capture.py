"""Capture: every message of a queue into a lake, acknowledged only once it is there for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from queuecraft.app import QueueCraft
from queuecraft.clock import Clock
from queuecraft.drivers.base import Delivery, Traits
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import ConfigError, QueueError, UnsupportedFeature
from queuecraft.model.settings import Settings
from queuecraft.model.types import T
from queuecraft.pipeline.archive import archived
from queuecraft.pipeline.arrow import require_arrow
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.replayed import Replayed
from queuecraft.pipeline.segments import new_place, write_segment
from queuecraft.pipeline.tap import Tap, undisturbed

ROWS: Final = 20_000
SECONDS: Final = 10.0
LONGEST: Final = 900.0  # of them on RabbitMQ, which takes back what is held for half an hour
MOST: Final = 65_535  # messages that RabbitMQ gives out before it is told of any
BYTES: Final = 64 << 20  # of payloads in one segment
LARGE: Final = 1 << 20  # bytes of a message, before anything is known of their size
IDLE: Final = 30.0  # seconds one receive waits; only a bound, a message wakes it
SET_BACK: Final = 60e6  # microseconds of a clock that goes wrong; one set back further is believed
EMPTY: Final = 0.25  # seconds without a message after which a queue may be empty
LINGER: Final = 5.0  # seconds in which a consumer that has died is still counted, at most
FAREWELL: Final = 5.0  # seconds that a broker has for an answer, once the capture is to end
GROUP_LINGER: Final = 15.0  # the same where a group waits for its dead: Kafka, by its defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """How far a capture has come, or how it ended.

    >>> Captured(rows=10, segments=1)
    Captured(rows=10, segments=1, size=0, replayed=0)
    """

    rows: int = 0
    segments: int = 0
    size: int = 0  # bytes of payloads
    replayed: int = 0  # messages left out: the lake has them already


async def capture(
    qc: QueueCraft,
    queue: str,
    lake: Lake,
    *,
    rows: int = ROWS,
    seconds: float = SECONDS,
    once: bool = False,
    force: bool = False,
    replayed: bool = False,
    stop: asyncio.Event | None = None,
    progress: Callable[[Captured], object] | None = None,
) -> Captured:
    """Take all messages out of a queue and into a lake, until `stop` is set or, with `once`, until
    the queue is empty and nobody holds any of it.

    A segment has at most `rows` messages and is written when its first one has waited for
    `seconds`. Messages are acknowledged when their segment is on the disk: what dies in between
    gives duplicates, which have the same id and queue, and loses nothing. So many messages are held
    at a time, and no more, however long the queue is. Cancel the task to end it at once: what is
    not in a segment goes back to the queue. A broker that does not answer is left after a few
    seconds then: what it has not heard of comes again.

    The queue is one made for it, a tap. One that has consumers is a work queue, whose messages
    would be taken away from its workers; one of dead letters would be emptied. Both are a
    `QueueError`, unless `force` is given.

    A message that this lake has replayed as it was is in it already: a tap lets it pass, unless
    `replayed` asks for it. What the replay changed is archived, and where `force` was needed
    everything is, since it is nowhere else.

    >>> from tempfile import TemporaryDirectory
    >>> async def main(folder: str) -> Captured:
    ...     async with QueueCraft("local://") as qc:
    ...         await qc.admin.declare("tap", "order.*", dead_letters=False)
    ...         await qc.publish_many("order.placed", [{"n": n} for n in range(5)])
    ...         return await capture(qc, "tap", Lake.at(folder), once=True)
    >>> with TemporaryDirectory() as folder:
    ...     asyncio.run(main(folder))
    Captured(rows=5, segments=1, size=35, replayed=0)
    """
    require_arrow()
    if not 1 <= rows <= MOST:
        raise ConfigError(f"capture(rows={rows!r}): expected a number from 1 to {MOST:,}")
    if not seconds > 0:
        raise ConfigError(f"capture(seconds={seconds!r}): expected a number above 0")
    engine = qc._engine  # pyright: ignore[reportPrivateUsage]  the seam is not for applications
    await qc.admin.inspect(queue)  # there has to be one
    _check_keeps(engine.connection.traits, qc.settings, seconds, force=force)
    if not force:
        await _check_tap(qc, queue, engine.clock, engine.connection.traits)
    tap = Tap(engine.connection, queue, rows, engine.clock, engine.facts.log)
    run = _Run(
        tap,
        lake,
        engine.clock,
        rows=rows,
        seconds=seconds,
        replayed=replayed or force,
        stop=stop or asyncio.Event(),
        progress=progress,
    )
    try:
        await (run.until_empty() if once else run.until_stopped())
    finally:
        await undisturbed(_close(tap))
    return run.state


class _Run:
    """One capture under way."""

    def __init__(
        self,
        tap: Tap,
        lake: Lake,
        clock: Clock,
        *,
        rows: int,
        seconds: float,
        replayed: bool,
        stop: asyncio.Event,
        progress: Callable[[Captured], object] | None,
    ) -> None:
        self.state = Captured()
        self._tap = tap
        self._lake = lake
        self._clock = clock
        self._rows = rows
        self._seconds = seconds
        self._replayed = None if replayed else Replayed(lake)
        self._stop = stop
        self._progress = progress
        self._typical = LARGE  # bytes of a message, as far as is known
        self._next = 0  # microseconds: no message was taken before those that came before it

    async def until_stopped(self) -> None:
        """Go on for as long as nobody says otherwise."""
        while not self._stop.is_set():
            await self._keep(await self._gather(IDLE))

    async def until_empty(self) -> None:
        """Go on until there is nothing left."""
        drained = False
        while not self._stop.is_set():
            batch = await self._gather(EMPTY)
            if drained and not batch:  # looked twice: what is on its way to us is in no count
                return
            await self._keep(batch)
            drained = await self._unless_stopped(self._tap.drained(), False)

    async def _gather(self, patience: float) -> list[Delivery]:
        """The messages of the next segment: as many as there is room for, or as have come when
        none came for so many seconds, the first has waited long enough, or it is to end."""
        batch: list[Delivery] = []
        size = 0
        until: float | None = None
        while (room := self._room(len(batch), size)) > 0 and not self._stop.is_set():
            now = self._clock.monotonic()
            wait = patience if until is None else min(patience, until - now)
            if wait <= 0:
                break
            try:
                got = await self._unless_stopped(self._tap.receive(room, wait), ())
            except QueueError:  # perhaps the queue is gone, and there is nowhere to go back to
                await self._keep(batch)
                raise
            if got is None:  # perhaps nobody will have it again: rather twice than never
                await self._keep(batch)
                batch, size, until = [], 0, None
            elif not got:
                break
            else:
                batch += got
                size += _size(got)
                self._typical = max(1, size // len(batch))
                until = until or now + self._seconds
        return batch

    def _room(self, held: int, size: int) -> int:
        """How many more messages a segment has room for, by the size of those before."""
        return min(self._rows - held, max(not held, (BYTES - size) // self._typical))

    async def _unless_stopped(self, asking: Coroutine[Any, Any, T], otherwise: T) -> T:
        """The answer; something else if it is to end before there is one."""
        tasks = asyncio.ensure_future(asking), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return otherwise if tasks[0].cancelled() else tasks[0].result()

    async def _keep(self, batch: Sequence[Delivery]) -> None:
        if batch:
            state = self.state
            try:
                await undisturbed(self._store(batch))
            finally:
                if self.state is not state:  # it is in the lake, also if we are cancelled
                    await self._acknowledge(batch)

    async def _store(self, batch: Sequence[Delivery]) -> None:
        kept = batch
        if self._replayed is not None:
            kept = await asyncio.to_thread(self._replayed.without, batch)
        segments = _cut(kept)
        for some in segments:
            failpoint("capture.before_segment")
            await asyncio.to_thread(self._write, some)
        failpoint("capture.before_ack")
        state = self.state
        self.state = Captured(
            rows=state.rows + len(kept),
            segments=state.segments + len(segments),
            size=state.size + _size(kept),
            replayed=state.replayed + len(batch) - len(kept),
        )
        if self._progress is not None:
            self._progress(self.state)

    async def _acknowledge(self, batch: Sequence[Delivery]) -> None:
        """Let the broker forget a batch. Once this is to end, it has not for ever to do so."""
        task = asyncio.current_task()
        acking = asyncio.ensure_future(self._tap.ack(batch))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            if task is not None and not task.cancelling():
                await asyncio.wait((acking, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            await asyncio.wait([acking], timeout=FAREWELL)
            if acking.cancel():
                await asyncio.wait([acking])
            _ = acking.cancelled() or acking.exception()  # seen, also if nobody asks below
        if acking.cancelled():
            self._tap.log.warning(
                "the broker does not answer; %s messages that are in the lake come again",
                f"{len(batch):,}",
            )
            return
        acking.result()
        failpoint("capture.after_ack")

    def _write(self, batch: Sequence[Delivery]) -> None:
        # Each has a moment of its own, also if the clock goes back: published at one, by which else
        # would a replay know their order?
        now = round(1e6 * self._clock.now())
        first = self._next if 0 < self._next - now < SET_BACK else now
        self._next = first + len(batch)
        at = first / 1e6
        write_segment(self._lake, archived(batch, at, apart=1), place=new_place("captured", at))


async def _close(tap: Tap) -> None:
    """Give back what is held; where the broker does not answer, that goes with the connection."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL):
            await tap.close()


def _cut(batch: Sequence[Delivery]) -> list[Sequence[Delivery]]:
    """Messages in order, as many together as a segment may hold: where some are large, far more may
    have come than were expected."""
    pieces: list[Sequence[Delivery]] = []
    start = size = 0
    for at, each in enumerate(batch):
        if at > start and size + len(each.sent.body) > BYTES:
            pieces.append(batch[start:at])
            start, size = at, 0
        size += len(each.sent.body)
    if start < len(batch):
        pieces.append(batch[start:])
    return pieces


def _size(batch: Sequence[Delivery]) -> int:
    return sum(len(each.sent.body) for each in batch)


def _check_keeps(traits: Traits, settings: Settings, seconds: float, *, force: bool) -> None:
    """Refuse a broker that forgets messages before they are in the lake, or takes them back."""
    if traits.name == "rabbitmq" and seconds > LONGEST:
        raise ConfigError(
            f"capture(seconds={seconds!r}): expected at most {LONGEST:g} on RabbitMQ, which takes "
            "back what a consumer holds for long"
        )
    if traits.name == "redis" and settings.redis_delivery == "at-most-once":
        raise ConfigError(
            "with redis_delivery='at-most-once' a capture that dies loses what it holds; leave "
            "that setting out for the capture"
        )
    if not traits.competing and not force:
        raise UnsupportedFeature(
            "this broker gives events to those who listen and keeps none for a capture that is not "
            "running; take another mode, such as list or stream, or insist with force",
            broker=traits.name,
            operation="capture",
        )


async def _check_tap(qc: QueueCraft, queue: str, clock: Clock, traits: Traits) -> None:
    """Refuse a queue that somebody else lives on."""
    if await _holds_dead_letters(qc, queue):
        raise QueueError(
            f"queue {queue!r} holds dead letters, and a capture takes them out of it; insist with "
            "force if they are to be in the lake alone",
            operation="capture",
            queue=queue,
        )
    until = clock.monotonic() + (GROUP_LINGER if traits.partitioned else LINGER)
    while consumers := (await qc.admin.inspect(queue)).consumers:
        if clock.monotonic() > until:
            who = "a consumer" if consumers == 1 else f"{consumers} consumers"
            raise QueueError(
                f"queue {queue!r} has {who}: a capture would take messages away from its workers; "
                f"make a tap beside it (queuecraft declare {queue}.tap EVENT --no-dead-letters) "
                "and capture that, or insist with force",
                operation="capture",
                queue=queue,
            )
        await clock.sleep(LINGER / 10)


async def _holds_dead_letters(qc: QueueCraft, queue: str) -> bool:
    """Whether it does by its name, because a worker of this application says so, or because the
    broker knows of a queue whose dead letters go there."""
    roster = qc._roster  # pyright: ignore[reportPrivateUsage]
    if roster.holds_dead_letters(queue):
        return True
    told = await qc.admin.topology()
    # Bound to events, it is a tap: what waits for another try may go by there as a dead letter.
    events = qc.settings.exchange
    if any(to == queue and binding.exchange.name == events for binding, to in told.bindings):
        return False
    return any(target == queue for _, target in told.dead_letters)
