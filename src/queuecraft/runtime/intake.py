"""Getting deliveries: one subscription at a time, for all runners of a consumer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence, Set
from functools import partial
from typing import Any, Protocol

from queuecraft.clock import Clock, Timer
from queuecraft.drivers.base import ConnectionLost, Delivery, Driver, Queue
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.counters import Counters
from queuecraft.runtime.facts import Facts, MessagesDelivered
from queuecraft.runtime.lanes import Lanes
from queuecraft.runtime.sameness import name_of
from queuecraft.runtime.settle import Owner, Settler
from queuecraft.runtime.slot import Slot

WAIT = 30.0  # seconds one receive waits; only a bound, a message wakes it
REJOIN = 1.0  # seconds before asking again for a queue that cannot be had


class Receiver(Owner, Protocol):
    """Whom deliveries are received for."""

    def pause(self, reason: str) -> None:
        """Nothing can be received until a person has seen to it."""

    def resume(self) -> None:
        """It can be received again."""

    def leaving(self, settler: Settler, deliveries: Sequence[Delivery]) -> None:
        """Others are about to be given these."""

    def left(self, settler: Settler, deliveries: Sequence[Delivery]) -> None:
        """Others have these."""


class Intake:
    """What was received and not begun, and the runners waiting for more.

    The runner that finds nothing to do fetches for all; the others park, and are woken one by
    one while there is more to take than runners at work, or nobody fetches. `settler` is the
    present session: it goes with the connection, and everything received through it goes too.
    """

    def __init__(
        self,
        queue: Queue,
        connection: Connection,
        counters: Counters,
        facts: Facts,
        clock: Clock,
        owner: Receiver,
        *,
        prefetch: int,
        ordered: bool,
    ) -> None:
        self.buffer: deque[Delivery] = deque()
        self.lanes = Lanes() if ordered else None
        self.settler: Settler | None = None
        self.parked: deque[asyncio.Future[None]] = deque()
        self.waking = False
        self.fetcher: asyncio.Task[Any] | None = None
        self.paused: str | None = None
        self.stranded = False  # paused because there is no connection, nor any attempt at one
        self.refused: str | None = None  # why the queue cannot be consumed, as long as it cannot
        self.closing = False
        self._queue = queue
        self._connection = connection
        self._driver: Driver | None = None
        self._generation = 0  # of the connection that the session belongs to
        self._counters = counters
        self._facts = facts
        self._clock = clock
        self._owner = owner
        self._prefetch = prefetch
        self._interruptible = False
        self._interrupted = False
        # Those that are to come again later, and when; where order is kept, lanes know it too.
        self._waiting: dict[Delivery, tuple[Timer, float]] = {}
        # Those that came again while they still run here, and have to see how that ends.
        self._behind: dict[Delivery, None] = {}
        self._since: dict[Delivery, float] = {}  # when those first waited that may wait again
        self._overdue: list[Delivery] = []  # of those, which one that runs alone holds up
        self._not_before: dict[str, float] = {}  # when those are due that were given back
        self._returning = 0
        self._solo: Slot | None = None
        self._quiet: asyncio.Future[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether a runner should be woken to fetch."""
        return self.fetcher is None and bool(self.parked) and not self.waking

    async def fetch(self, slot: Slot, wait: float = WAIT) -> bool:
        """Receive for all runners; False when there is nothing to be done now but wait."""
        if self._solo is not None:
            if self._solo is not slot:
                self.hush()
                return False
            self.unclaim(slot)  # its message is settled
        if self.fetcher is not None or self.held_back:
            return False
        settler = self.settler
        if settler is not None and settler.held >= self._prefetch:
            return False
        self.fetcher = task = asyncio.current_task()
        assert task is not None
        before, others = task.cancelling(), False
        try:
            try:
                if settler is None:
                    settler = await self._join()
                    if settler is not None and self.paused is not None and not self.closing:
                        # What some brokers send ahead: it was not there when all was given back.
                        await settler.release(())
                if settler is not None and not self.held_back:
                    self._interruptible = True
                    got = await settler.subscription.receive(self._prefetch - settler.held, wait)
                    self._interruptible = False
                    if got and not settler.void:  # else an ack found the connection lost meanwhile
                        self._admit(settler, got)
            except Exception as error:
                self._interruptible = False
                await self._recover(settler, error)
        except asyncio.CancelledError:
            if not self._interrupted:
                raise
        finally:
            if self._interrupted:
                others = task.uncancel() > before
            self._interruptible = self._interrupted = False
            self.fetcher = None
            if self.parked and not self.waking:
                self.wake()
        if others and not self.closing:  # on closing, the runner comes to its end by itself
            raise asyncio.CancelledError  # two calls in the same turn were one exception
        return True

    async def park(self) -> None:
        """Wait until there may be something to do."""
        if self.closing:
            return
        future = asyncio.get_running_loop().create_future()
        self.parked.append(future)
        try:
            await future
        finally:
            self.waking = False
            if future in self.parked:
                self.parked.remove(future)

    async def park_for(self, seconds: float) -> None:
        """The same, but for so many seconds at most."""
        timer = self._clock.call_later(seconds, self.wake_all)
        try:
            await self.park()
        finally:
            timer.cancel()

    def wake_all(self) -> None:
        """Let every parked runner look for work."""
        for future in self.parked:
            _wake(future)

    def wake(self) -> None:
        """Let one parked runner look for work."""
        while self.parked:
            future = self.parked.popleft()
            if not future.done():
                future.set_result(None)
                self.waking = True
                return

    def put(self, delivery: Delivery) -> None:
        """Something held back may run now."""
        self.buffer.append(delivery)
        self.nudge()

    def nudge(self) -> None:
        """Get a runner to look into the buffer: if none is parked, the one that fetches."""
        if self.parked:
            self.wake()
        else:
            self._interrupt()

    def stir(self) -> None:
        """Let every runner that waits see whether it is to wait any longer."""
        self.wake_all()
        self._interrupt()

    def leave(self, delivery: Delivery, *, settled: bool = True) -> None:
        """A delivery is done with; the next of its key may run."""
        lanes = self.lanes
        if lanes is not None and (following := lanes.leave(delivery, settled=settled)) is not None:
            self._first_in_lane(following)

    def wait(self, delivery: Delivery, due: float) -> None:
        """Let a delivery run again when it is due; where order is kept, its key waits for it."""
        now = self._clock.monotonic()
        timer = self._clock.call_later(due - now, partial(self._again, delivery))
        self._waiting[delivery] = (timer, due)
        self._since.setdefault(delivery, now)
        if len(self._since) > 2 * self._prefetch:  # most of them are handled by now
            self._since = {each: self._since[each] for each in self._waiting}

    def wait_behind(self, delivery: Delivery) -> None:
        """Let a delivery that still runs here wait for the end of that run."""
        self._behind[delivery] = None

    def waits_behind(self, delivery: Delivery) -> bool:
        """Whether it still does, now that the run has ended: it is not ours any more if not."""
        return self._behind.pop(delivery, self) is None

    def waited(self, delivery: Delivery) -> float:
        """Seconds since a delivery was first let wait; 0 if it never was."""
        now = self._clock.monotonic()
        return now - self._since.get(delivery, now)

    def take_back(self, running: Iterable[Delivery]) -> list[Delivery]:
        """Everything that no handler has begun on. Nothing is received until it is `returned`:
        what is behind it in the queue must not come first."""
        if self.lanes is None:
            # Not what waits behind a run, which may do for it.
            rest = [*self._waiting, *self.buffer]
        else:
            rest = self.lanes.clear(running)
            self._behind.clear()
        self.buffer.clear()
        self._forget_waiting()
        self.returning()
        return rest

    def drop(self, gone: Set[Delivery]) -> list[Delivery]:
        """Those of these that no handler has begun on: nobody will."""
        first: list[Delivery] = []
        if self.lanes is None:
            unbegun = (*self._behind, *self._waiting, *self.buffer)
            rest = [each for each in unbegun if each in gone]
        else:
            rest, first = self.lanes.drop(gone)
        if rest:
            stays = [each for each in self.buffer if each not in gone]
            self.buffer.clear()  # runners hold on to the buffer itself
            self.buffer.extend(stays)
            for timer, _ in (self._waiting.pop(each) for each in rest if each in self._waiting):
                timer.cancel()
            for each in rest:
                self._behind.pop(each, None)
            self._overdue = [each for each in self._overdue if each not in gone]
        for delivery in first:
            self._first_in_lane(delivery)
        if first:
            self.nudge()
        return rest

    def returning(self) -> None:
        """Something is about to go back to its queue."""
        self._returning += 1

    def returned(self) -> None:
        """What was taken back is in its queue again."""
        self._returning -= 1
        self.wake()

    def pause(self, reason: str) -> None:
        """Receive no more until resumed."""
        self.paused = reason
        self.stir()  # also who waits for more of a batch
        _wake(self._quiet)

    def resume(self) -> None:
        """Receive again."""
        self.paused = None
        if self.stranded:
            self._interrupt()  # whoever waits for a connection asks for one now
        self.wake()

    def close(self) -> None:
        """Receive no more, for good; runners that find nothing to do end."""
        self.closing = True
        self._interrupt()
        _wake(self._quiet)
        self.wake_all()

    def end(self, settler: Settler, running: Iterable[Delivery]) -> None:
        """The session is over: what was received through it is void. What runs still leads the
        lane of its key, and its redelivery waits behind it."""
        settler.end()
        self.buffer.clear()
        self._behind.clear()
        self._forget_waiting()
        if self.lanes is not None:
            self.lanes.clear(running)
        if self.settler is settler:
            self.settler = None
        _wake(self._quiet)
        self.wake()

    def lost(self, error: QueueError) -> None:
        """Tell the connection that it broke, unless there is a new one by now."""
        if (
            isinstance(error, ConnectionLost)
            and self._driver is not None
            and self._generation == self._connection.generation
        ):
            self._connection.lost(self._driver, error)

    def part(self, delivery: Delivery, *, settled: bool = True) -> None:
        """A delivery that was handled with others of its key before it is done with."""
        if self.lanes is not None:
            self.lanes.part(delivery, settled=settled)

    # -- one message without neighbours --------------------------------------------------------

    @property
    def claimed(self) -> bool:
        """Whether a message is to run without neighbours."""
        return self._solo is not None

    @property
    def stopped(self) -> bool:
        """Whether nothing is to begin, for now or for good."""
        return self.closing or self.paused is not None

    @property
    def held_back(self) -> bool:
        """Whether nothing is to be received now."""
        return self.closing or self.paused is not None or self._returning > 0

    def claim(self, slot: Slot) -> bool:
        """Keep all other runners from starting anything; False when one has claimed before."""
        if self._solo is not None:
            return False
        self._solo = slot
        self.stir()
        return True

    def unclaim(self, slot: Slot) -> None:
        """Let the others go on."""
        if self._solo is slot:
            self._solo = None
            overdue, self._overdue = self._overdue, []
            for delivery in overdue:
                self._again(delivery)
            self.wake()

    async def quiet(self, seconds: float) -> None:
        """Until a runner has come to rest, or so many seconds have passed."""
        self._quiet = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(seconds, partial(_wake, self._quiet))
        try:
            await self._quiet
        finally:
            timer.cancel()
            self._quiet = None

    def hush(self, _: object = None) -> None:
        """Something else that was waited for has come to rest."""
        _wake(self._quiet)

    # -- inside --------------------------------------------------------------------------------

    def _first_in_lane(self, delivery: Delivery) -> None:
        assert self.lanes is not None
        if (due := self.lanes.due(delivery)) > self._clock.monotonic():
            self.wait(delivery, due)
        else:
            self.buffer.appendleft(delivery)

    def _admit(self, settler: Settler, got: Sequence[Delivery]) -> None:
        settler.held += len(got)
        self._counters.received += len(got)
        if self._facts.wants(MessagesDelivered):
            self._facts.emit(MessagesDelivered(worker=self._owner.name, deliveries=got))
        lanes, known = self.lanes, self._not_before
        if lanes is None and not known:
            self.buffer.extend(got)
            return
        now = self._clock.monotonic()
        for delivery in got if lanes is None else lanes.admit(got):
            due = known.pop(name_of(delivery), now) if lanes is None else lanes.due(delivery)
            if due > now:  # given back while it waited
                self.wait(delivery, due)
            else:
                self.buffer.append(delivery)

    async def _join(self) -> Settler | None:
        """Subscribe, as soon as there is a connection; None when that must be tried again."""
        self._interruptible = True
        await asyncio.sleep(0)  # what the last session leaves behind is put in order first
        driver = await self._connection.ready()
        self._interruptible = False
        generation = self._connection.generation
        try:
            await driver.declare(self._queue)
            subscription = await driver.subscribe(self._queue, prefetch=self._prefetch)
        except ConnectionLost as error:
            if generation == self._connection.generation:
                self._connection.lost(driver, error)
            return None
        self.refused = None
        self._driver = driver
        self._generation = generation
        self.settler = settler = Settler(
            subscription,
            self._queue,
            self._owner,
            self._counters,
            self._facts,
            self._clock,
            ordered=self.lanes is not None,
        )
        subscription.on_leaving = partial(self._owner.leaving, settler)
        subscription.on_left = partial(self._owner.left, settler)
        return settler

    async def _recover(self, settler: Settler | None, error: Exception) -> None:
        """Receiving failed: begin again with another session."""
        ended = self._connection.state in ("disconnected", "closing", "closed")
        # On a connection that stands, a `ConfigError` is about the queue: no reconnect mends it.
        if isinstance(error, ConnectionLost) or (ended and isinstance(error, ConfigError)):
            if settler is not None:
                self._owner.session_lost(settler, error)
            elif ended:
                await self._strand(error)
            return
        self.refused = f"cannot consume: {error}"
        expected = isinstance(error, QueueError)  # the queue is gone, or is not what it should be
        self._facts.log.error(
            "cannot consume %s: %s; trying again",
            self._queue.name,
            error if expected else repr(error),
            exc_info=None if expected else error,
        )
        if settler is not None:
            self._owner.session_lost(settler, QueueError(str(error)))
            try:
                await settler.subscription.close()
            except Exception as failure:
                self._facts.log.debug("leaving %s: %r", self._queue.name, failure)
        self._interruptible = True
        await self._clock.sleep(REJOIN)

    async def _strand(self, error: Exception) -> None:
        """There will be no connection, unless somebody asks for one: stand still until then."""
        if self.stopped:
            return
        self._owner.pause(str(error))
        self._interruptible = self.stranded = True
        try:
            await self._connection.opened()
        finally:
            self._interruptible = self.stranded = False
        self._owner.resume()

    def _interrupt(self) -> None:
        # Only where nothing can be half done: waiting for a connection or for a message.
        if self.fetcher is not None and self._interruptible and not self._interrupted:
            self._interrupted = True
            self.fetcher.cancel()

    def _again(self, delivery: Delivery) -> None:
        if self._solo is not None:
            self._overdue.append(delivery)
        else:
            del self._waiting[delivery]
            self.put(delivery)

    def _forget_waiting(self) -> None:
        now = self._clock.monotonic()
        known = {name: due for name, due in self._not_before.items() if due > now}
        for delivery, (timer, due) in self._waiting.items():
            timer.cancel()
            if self.lanes is None:
                known[name_of(delivery)] = due
        self._not_before = known
        self._waiting.clear()
        self._since.clear()
        self._overdue.clear()


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
