"""Queues that somebody has paused, for all processes and until somebody resumes them.

What is said about a queue is a message in a queue of ours; the newest counts. That works alike on
every broker, and outlives all processes. Nothing there says nothing: on a broker that hides a
message while another looks at it, its absence must not resume anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from math import inf, isfinite, nextafter
from typing import Any, Final, Protocol

from queuecraft.clock import Clock
from queuecraft.drivers.base import ACCEPTED, Delivery, Driver, Outgoing, Queue
from queuecraft.model.errors import ConnectionLost, PublishError, QueueError
from queuecraft.model.ids import new_id
from queuecraft.model.naming import PAUSES
from queuecraft.model.pause import Pause
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.redrive import Sweep

SUPERSEDED: Final = 200  # notes that a newer one has overtaken, until they are swept away
LOOK: Final = 10_000  # notes looked at
REST: Final = 6  # looks without reading, at most, while as many are there as were read
LONGEST: Final = 500  # characters of a reason, or of who has said it
GLANCES: Final = 3  # looks for notes that others may be looking at
FRESH: Final = 1.0  # seconds that a look will do for the next worker that begins
BLINK: Final = 0.05  # seconds between them

# Classic: RabbitMQ drops what was looked at too often from a quorum queue. Kafka keeps things for a
# week unless it is told otherwise.
PLACE: Final[Queue[Any]] = Queue(
    PAUSES, arguments={"x-queue-type": "classic", "retention.ms": "-1"}
)


class Pausable(Protocol):
    """A worker, as far as it is needed here."""

    @property
    def queue_name(self) -> str:
        """The queue it consumes."""
        ...

    @property
    def paused(self) -> str | None:
        """Why it takes no messages, if so."""
        ...

    def pause(self, reason: str = ...) -> None:
        """Take no more messages."""
        ...

    def resume(self) -> None:
        """Take messages again."""
        ...


class Pauses:
    """What is said about queues, as far as this process has seen it."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._known: dict[str, Pause] = {}
        self._read = 0  # notes, when they were last read
        self._rested = 0
        self._fresh_until = 0.0
        # On which connection, by its number:
        self._looked = -1
        self._declared = -1
        self._hopeless = -1  # there is no such queue, and none can be made
        self._missing = 0  # times in a row that it was not there though it was declared
        self._warned = False
        self._ours: dict[Pausable, str] = {}  # workers that stand still because of a note
        self.changed: Callable[[], object] = lambda: None
        """Called when something was said here."""

    def reason(self, queue: str) -> str | None:
        """Why a queue is not to be consumed, if so."""
        known = self._known.get(queue)
        return known.text if known is not None and known.paused else None

    @property
    def paused(self) -> dict[str, Pause]:
        """The queues that are paused, as of the last look."""
        return {name: each for name, each in sorted(self._known.items()) if each.paused}

    # -- looking -------------------------------------------------------------------------------

    async def before(self, queue: str, log: logging.Logger, *, within: float) -> str | None:
        """Why a worker that is about to begin is not to, if so. Waits for a broker that is away;
        one that cannot tell keeps nobody from work."""
        connection = self._connection
        loop = asyncio.get_running_loop()
        while True:
            driver = await connection.ready()
            if self._looked != connection.generation or loop.time() > self._fresh_until:
                try:
                    async with asyncio.timeout(within):
                        await self.look(driver)
                except ConnectionLost as error:
                    connection.lost(driver, error)
                    continue
                except (QueueError, TimeoutError) as error:
                    log.warning("cannot see whether queue %s is paused: %r", queue, error)
                else:
                    self._fresh_until = loop.time() + FRESH
                if self._hopeless == connection.generation and not self._warned:
                    self._warned = True
                    log.warning(
                        "pauses are not seen here: there is no queue %s, and it cannot be made; "
                        "make it beforehand, or give the user that permission",
                        PAUSES,
                    )
            return self.reason(queue)

    async def look(self, driver: Driver) -> None:
        """See what was said since the last look. Costs one question while nothing was."""
        if self._looked != self._connection.generation:
            await self.look_closely(driver)
            return
        ready = await self._count(driver)
        if ready is None or (ready == self._read and self._rested < REST):
            self._rested += 1
        else:
            self._learn(await driver.peek(PAUSES, LOOK) if ready else ())

    async def look_closely(self, driver: Driver) -> list[Pause]:
        """See all there is, also what others are just looking at; every note that was found."""
        found: dict[str, Delivery] = {}
        generation = self._connection.generation
        for turn in range(GLANCES if driver.traits.peek == "marks" else 1):
            if turn:
                await asyncio.sleep(BLINK)
            ready = await self._count(driver)
            if ready is None:
                break
            if ready:
                found |= {each.sent.id: each for each in await driver.peek(PAUSES, LOOK)}
        self._looked = generation
        return self._learn(tuple(found.values()))

    async def _count(self, driver: Driver) -> int | None:
        """How many notes there are; None if there is no place for them."""
        if driver.traits.logs_missing and not await self._made(driver):
            return None
        count = await driver.count(PAUSES)
        if count is not None:
            self._missing = 0
        elif driver.traits.logs_missing:  # somebody has deleted it; or declaring does nothing
            self._declared = -1
            self._missing += 1
            if self._missing > 1:
                self._hopeless = self._connection.generation
        return count

    async def _made(self, driver: Driver) -> bool:
        """Make the queue, where asking for one that is missing would be an error each time."""
        generation = self._connection.generation
        if self._hopeless == generation:
            return False
        if self._declared != generation:
            try:
                await driver.declare(PLACE)
            except ConnectionLost:
                raise
            except QueueError:  # the user may not
                self._hopeless = generation
                return False
            self._declared = generation
        return True

    def _learn(self, deliveries: Sequence[Delivery]) -> list[Pause]:
        read = [Pause.read(each.sent.body) for each in deliveries]
        notes = [each for each in read if each is not None and isfinite(each.at)]
        for note in notes:
            known = self._known.get(note.queue)
            if known is None or _rank(note) > _rank(known):
                self._known[note.queue] = note
        self._read, self._rested = len(read), 0
        return notes

    # -- saying --------------------------------------------------------------------------------

    async def say(
        self, driver: Driver, queue: str, *, paused: bool, reason: str = "", by: str = ""
    ) -> None:
        """Pause or resume a queue, for everybody, once the broker has it."""
        await driver.declare(PLACE)
        notes = await self.look_closely(driver)
        before = self._known.get(queue)
        # Whoever said the last thing may have a clock that is ahead of ours.
        at = max(self._clock.now(), 0.0 if before is None else _after(before.at))
        note = Pause(queue=queue, at=at, paused=paused, reason=reason[:LONGEST], by=by[:LONGEST])
        message = Outgoing(
            note.written(),
            new_id(),
            queue=PAUSES,
            key=queue,
            timestamp=self._clock.now(),
            content_type="application/json",
        )
        (receipt,) = await driver.send([message])
        if receipt is not ACCEPTED:
            error: QueueError = getattr(receipt, "error")  # noqa: B009
            what = "paused" if paused else "resumed"
            raise PublishError(
                f"it cannot be written down that queue {queue!r} is {what}: {error.message}",
                broker=driver.traits.name,
                queue=queue,
            ) from error
        self._known[queue] = note
        self.changed()
        if len(notes) - len({each.queue for each in notes}) > SUPERSEDED:
            await self._sweep(driver, len(notes))

    async def _sweep(self, driver: Driver, total: int) -> None:
        """Forget what newer notes have overtaken. What is left is back in its place."""
        subscription = await driver.subscribe(PLACE, prefetch=total)
        slow = driver.traits.partitioned
        async with Sweep(subscription, total, lambda _: None, partitioned=slow) as sweep:
            async for batch in sweep.batches():
                await sweep.forget([each for each in batch if self._is_superseded(each)])

    def _is_superseded(self, delivery: Delivery) -> bool:
        note = Pause.read(delivery.sent.body)
        if note is None:
            return False
        known = self._known.get(note.queue)
        return known is not None and _rank(note) < _rank(known)

    # -- workers -------------------------------------------------------------------------------

    def apply(self, workers: Iterable[Pausable]) -> None:
        """Let these workers stand still or go on, as was said. A worker that stands still for a
        reason of its own goes on doing so."""
        for worker in workers:
            reason = self.reason(worker.queue_name)
            if reason is not None:
                if worker.paused is None:
                    worker.pause(reason)
                    self._ours[worker] = reason
            elif self._ours.pop(worker, "") == worker.paused:
                worker.resume()

    def hold(self, worker: Pausable, reason: str) -> None:
        """Let a worker that is just beginning stand still."""
        worker.pause(reason)
        self._ours[worker] = reason


def _after(at: float) -> float:
    return max(at + 0.001, nextafter(at, inf))  # a millisecond is nothing to a time far away


def _rank(note: Pause) -> tuple[float, bool]:
    """Which of two notes counts. Of two of the same moment it must be the same one for everybody,
    whichever each has seen first: rather a queue that waits."""
    return note.at, note.paused
