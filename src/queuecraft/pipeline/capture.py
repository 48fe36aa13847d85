"""Capture: every message of a queue into a lake, acknowledged only once it is there for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from queuecraft.app import QueueCraft
from queuecraft.clock import Clock
from queuecraft.codec.headers import REPLAY_ID
from queuecraft.drivers.base import (
    ConnectionLost,
    Delivery,
    Driver,
    Queue,
    Subscription,
    Traits,
)
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import (
    ConfigError,
    QueueError,
    TopologyMismatch,
    UnsupportedFeature,
)
from queuecraft.model.settings import Settings
from queuecraft.pipeline.archive import archived
from queuecraft.pipeline.arrow import require_arrow
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.segments import new_place, write_segment
from queuecraft.runtime.connection import Connection

if TYPE_CHECKING:
    from queuecraft.pipeline.replay.contents import Content, Contents
    from queuecraft.pipeline.replay.ledger import Ledger

ROWS: Final = 20_000
SECONDS: Final = 10.0
MOST: Final = 65_535  # messages that RabbitMQ gives out before it is told of any
BYTES: Final = 64 << 20  # of payloads in one segment
AT_ONCE: Final = 1000  # messages received, and acknowledged, in one call
IDLE: Final = 30.0  # seconds one receive waits; only a bound, a message wakes it
REPLAYS: Final = 100  # that are remembered, known or not
PLANS: Final = 4  # whose contents are held: 16 bytes a message
AGAIN: Final = 1.0  # seconds before a queue that cannot be consumed is asked for again
LASTING: Final = (ConfigError, TopologyMismatch, UnsupportedFeature)  # however often it is tried
EMPTY: Final = 0.25  # seconds without a message after which a queue may be empty
LINGER: Final = 5.0  # seconds in which a consumer that has died is still counted, at most
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
    not in a segment goes back to the queue.

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
    _check_keeps(engine.connection.traits, qc.settings, force=force)
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
        await _undisturbed(tap.close())
    return run.state


class Tap:
    """A queue that is consumed, through lost connections and lost places in a group: what was held
    then comes again."""

    def __init__(
        self,
        connection: Connection,
        queue: str,
        prefetch: int,
        clock: Clock,
        log: logging.Logger,
    ) -> None:
        self._connection = connection
        self._queue = Queue[Any](queue)
        self._prefetch = prefetch
        self._clock = clock
        self._log = log
        self._driver: Driver | None = None
        self._subscription: Subscription | None = None
        self._generation = 0
        self._stood = False  # there was a subscription: if there cannot be one now, that may pass
        self._not_before = 0.0

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery] | None:
        """Messages, or none within so many seconds; None when the connection or the subscription
        was lost, and with it every message that was held. Raises `QueueError` if the queue is gone
        or trying again is of no use."""
        try:
            if self._subscription is None:
                await self._join()
            elif self._generation != self._connection.generation:  # somebody else met the loss
                self._subscription = None
            if self._subscription is None:
                return None
            return await self._subscription.receive(limit, wait)
        except ConnectionLost as error:
            self._lost(error)
        except QueueError as error:
            await self._leave(error)
        return None

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Let the broker forget messages. Those it does not hear of come again."""
        subscription = self._subscription
        try:
            for start in range(0, len(deliveries), AT_ONCE):
                if subscription is not None:
                    await subscription.ack(deliveries[start : start + AT_ONCE])
        except ConnectionLost as error:
            self._lost(error)
        except QueueError as error:
            await self._leave(error)

    async def drained(self) -> bool:
        """Whether there is nothing to be had, now or when another lets go of what it holds."""
        driver = await self._connection.ready()
        try:
            infos = await driver.inspect([self._queue.name])
        except ConnectionLost as error:
            self._connection.lost(driver, error)
            return False
        return not any(info.ready or info.in_flight for info in infos)

    async def close(self) -> None:
        """Give back what is held."""
        if self._subscription is not None:
            try:
                await self._subscription.close()
            except ConnectionLost as error:
                self._lost(error)

    async def _join(self) -> None:
        if (left := self._not_before - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
        driver = await self._connection.ready()
        self._driver, self._generation = driver, self._connection.generation
        self._subscription = await driver.subscribe(self._queue, prefetch=self._prefetch)
        self._stood = True

    async def _leave(self, error: QueueError) -> None:
        """Begin again with another subscription, in a while. What this one held is not ours any
        more, and is never acknowledged by another."""
        subscription, self._subscription = self._subscription, None
        self._not_before = self._clock.monotonic() + AGAIN
        if subscription is not None:
            await _undisturbed(self._close(subscription))
        if not self._stood or isinstance(error, LASTING):
            raise error
        if await self._is_gone():
            raise QueueError(
                f"queue {self._queue.name!r} exists no more: {error.message}",
                operation="capture",
                queue=self._queue.name,
            ) from error
        self._log.warning("cannot capture %s: %s; trying again", self._queue.name, error)

    async def _close(self, subscription: Subscription) -> None:
        try:
            await subscription.close()
        except Exception as error:  # it is of no use any more, whatever it says
            self._log.debug("leaving %s: %r", self._queue.name, error)

    async def _is_gone(self) -> bool:
        """Whether the broker says that there is no such queue."""
        driver = self._driver
        if driver is None:
            return False
        try:
            return not await driver.inspect([self._queue.name])
        except ConnectionLost as error:
            self._lost(error)
        except QueueError as error:
            self._log.debug("looking for %s: %r", self._queue.name, error)
        return False

    def _lost(self, error: ConnectionLost) -> None:
        self._subscription = None
        if self._driver is None or self._connection.state in ("disconnected", "closing", "closed"):
            raise error  # there will be no connection again
        if self._generation == self._connection.generation:
            self._connection.lost(self._driver, error)


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
        self._replayed = replayed
        self._unchanged = lru_cache(REPLAYS)(partial(_unchanged, lake))
        self._contents = lru_cache(PLANS)(_contents)
        self._stop = stop
        self._progress = progress

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
            drained = await self._tap.drained()

    async def _gather(self, patience: float) -> list[Delivery]:
        """The messages of the next segment: as many as there is room for, or as have come when
        none came for so many seconds, the first has waited long enough, or it is to end."""
        batch: list[Delivery] = []
        size = 0
        until: float | None = None
        while len(batch) < self._rows and size < BYTES and not self._stop.is_set():
            now = self._clock.monotonic()
            wait = patience if until is None else min(patience, until - now)
            if wait <= 0:
                break
            limit = min(AT_ONCE, self._rows - len(batch))
            try:
                got = await self._unless_stopped(self._tap.receive(limit, wait))
            except QueueError:  # perhaps the queue is gone, and there is nowhere to go back to
                await self._keep(batch)
                raise
            if got is None:  # what was held comes again
                batch, size, until = [], 0, None
            elif not got:
                break
            else:
                batch += got
                size += sum(len(each.sent.body) for each in got)
                until = until or now + self._seconds
        return batch

    async def _unless_stopped(
        self, receiving: Coroutine[Any, Any, Sequence[Delivery] | None]
    ) -> Sequence[Delivery] | None:
        """What is received; nothing if it is to end before anything is."""
        tasks = asyncio.ensure_future(receiving), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return () if tasks[0].cancelled() else tasks[0].result()

    async def _keep(self, batch: Sequence[Delivery]) -> None:
        if batch:
            await _undisturbed(self._store(batch))

    async def _store(self, batch: Sequence[Delivery]) -> None:
        kept = await asyncio.to_thread(self._missing, batch)
        size = sum(len(each.sent.body) for each in kept)
        if kept:
            failpoint("capture.before_segment")
            await asyncio.to_thread(self._write, kept)
        failpoint("capture.before_ack")
        state = self.state
        self.state = Captured(
            rows=state.rows + len(kept),
            segments=state.segments + bool(kept),
            size=state.size + size,
            replayed=state.replayed + len(batch) - len(kept),
        )
        if self._progress is not None:
            self._progress(self.state)
        await self._tap.ack(batch)
        failpoint("capture.after_ack")

    def _missing(self, batch: Sequence[Delivery]) -> Sequence[Delivery]:
        """All but what this lake has sent again as it was. Anyone may write the header, or keep it
        when he changes the message: what is not in the plan, just so, is not in the lake."""
        replayed: dict[Ledger, list[Delivery]] = {}
        for each in () if self._replayed else batch:
            replay_id = each.sent.headers.get(REPLAY_ID)
            ledger = self._unchanged(replay_id) if isinstance(replay_id, str) else None
            if ledger is not None:
                replayed.setdefault(ledger, []).append(each)
        here: set[Delivery] = set()
        for ledger, deliveries in replayed.items():
            try:
                known = self._contents(ledger)
            except QueueError:  # rather twice than never, and perhaps it can be read the next time
                continue
            here.update(each for each in deliveries if _content(each) in known)
        return [each for each in batch if each not in here]

    def _write(self, batch: Sequence[Delivery]) -> None:
        now = self._clock.now()
        write_segment(self._lake, archived(batch, now), place=new_place("captured", now))


def _unchanged(lake: Lake, replay_id: str) -> Ledger | None:
    """A replay that this lake has planned, and whose messages it has just as they are sent."""
    from queuecraft.pipeline.replay.ledger import Ledger

    try:
        ledger = Ledger.of(lake, replay_id)
        return None if ledger.plan().changed else ledger
    except QueueError:  # none of ours, or one that cannot be read: rather twice than never
        return None


def _contents(ledger: Ledger) -> Contents:
    return ledger.contents()


def _content(delivery: Delivery) -> Content:
    sent = delivery.sent
    return sent.id, sent.routing_key, sent.body


def _check_keeps(traits: Traits, settings: Settings, *, force: bool) -> None:
    """Refuse a broker that forgets messages before they are in the lake."""
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
    if queue.endswith(".dlq"):
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


async def _undisturbed(work: Coroutine[Any, Any, None]) -> None:
    """Do something to its end, also when this task is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task])
        raise
