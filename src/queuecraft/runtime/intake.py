"""Getting deliveries: one subscription at a time, for all runners of a consumer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from queuecraft.clock import Clock
from queuecraft.drivers.base import ConnectionLost, Delivery, Driver, Queue
from queuecraft.model.errors import QueueError
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.counters import Counters
from queuecraft.runtime.facts import Facts, MessagesDelivered
from queuecraft.runtime.lanes import Lanes
from queuecraft.runtime.settle import Owner, Settler
from queuecraft.runtime.slot import Slot

WAIT = 30.0  # seconds one receive waits; only a bound, a message wakes it
REJOIN = 1.0  # seconds before asking again for a queue that cannot be had


class Intake:
    """What was received and not begun, and the runners waiting for more.

    The runner that finds nothing to do fetches for all; the others park, and are woken one by
    one while there is more to take than runners at work. `settler` is the present session: it
    goes with the connection, and everything received through it goes too.
    """

    def __init__(
        self,
        queue: Queue,
        connection: Connection,
        counters: Counters,
        facts: Facts,
        clock: Clock,
        owner: Owner,
        *,
        prefetch: int,
        ordered: bool,
    ) -> None:
        self.buffer: deque[Delivery] = deque()
        self.lanes = Lanes() if ordered else None
        self.settler: Settler | None = None
        self.parked: deque[asyncio.Future[None]] = deque()
        self.waking = False
        self.paused: str | None = None
        self.closing = False
        self._queue = queue
        self._connection = connection
        self._driver: Driver | None = None
        self._counters = counters
        self._facts = facts
        self._clock = clock
        self._owner = owner
        self._prefetch = prefetch
        self._fetcher: asyncio.Task[Any] | None = None
        self._interruptible = False
        self._interrupted = False
        self._solo: Slot | None = None
        self._quiet: asyncio.Future[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether a runner should be woken to fetch."""
        return self._fetcher is None and bool(self.parked) and not self.waking

    async def fetch(self, slot: Slot) -> bool:
        """Receive for all runners; False when there is nothing to be done now but wait."""
        if self._solo is not None:
            if self._solo is not slot:
                if self._quiet is not None and not self._quiet.done():
                    self._quiet.set_result(None)
                return False
            self._solo = None  # its message is settled: the others may go on
            self.wake()
        if self._fetcher is not None or self._held_back():
            return False
        settler = self.settler
        if settler is not None and settler.held >= self._prefetch:
            return False
        self._fetcher = asyncio.current_task()
        try:
            if settler is None:
                settler = await self._join()
            if settler is not None and not self._held_back():
                self._interruptible = True
                got = await settler.subscription.receive(self._prefetch - settler.held, WAIT)
                if got:
                    self._admit(settler, got)
        except ConnectionLost as error:
            if settler is not None:
                self._owner.session_lost(settler, error)
            elif self._connection.state in ("disconnected", "closing", "closed"):
                self.pause(str(error))  # there will be no connection again
        except QueueError as error:  # the queue itself is gone: make it again
            self._facts.log.error("receiving from %s failed: %s", self._queue.name, error)
            if settler is not None:
                self.end(settler)
                await settler.subscription.close()
        except asyncio.CancelledError:
            if not self._interrupted or slot.task is None:
                raise
            slot.task.uncancel()
        finally:
            self._interruptible = self._interrupted = False
            self._fetcher = None
            if self.parked and not self.waking:
                self.wake()
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

    def wake(self) -> None:
        """Let one parked runner look for work."""
        while self.parked:
            future = self.parked.popleft()
            if not future.done():
                future.set_result(None)
                self.waking = True
                return

    def leave(self, delivery: Delivery) -> None:
        """A delivery is done; the next of its key may run."""
        if self.lanes is not None and (following := self.lanes.leave(delivery)) is not None:
            self.buffer.appendleft(following)

    async def give_back(self, running: Iterable[Delivery]) -> None:
        """Release everything that no handler has begun on."""
        waiting = list(self.buffer) if self.lanes is None else self.lanes.clear(running)
        self.buffer.clear()
        if self.settler is not None and waiting:
            await self.settler.release(waiting)

    def pause(self, reason: str) -> None:
        """Receive no more until resumed."""
        self.paused = reason
        self._interrupt()

    def resume(self) -> None:
        """Receive again."""
        self.paused = None
        self.wake()

    def close(self) -> None:
        """Receive no more, for good; runners that find nothing to do end."""
        self.closing = True
        self._interrupt()
        for future in self.parked:
            if not future.done():
                future.set_result(None)

    def end(self, settler: Settler) -> None:
        """The session is over: what was received through it is void."""
        settler.void = True
        self.buffer.clear()
        if self.lanes is not None:
            self.lanes.clear(())
        if self.settler is settler:
            self.settler = None
        self.wake()

    def lost(self, error: QueueError) -> None:
        """Tell the connection that it broke."""
        if self._driver is not None:
            self._connection.lost(self._driver, error)

    # -- one message without neighbours --------------------------------------------------------

    def claim(self, slot: Slot) -> bool:
        """Keep all other runners from starting anything; False when one has claimed before."""
        if self._solo is not None:
            return False
        self._solo = slot
        self._interrupt()
        return True

    async def quiet(self) -> None:
        """Until a runner has come to rest."""
        self._quiet = asyncio.get_running_loop().create_future()
        await self._quiet

    # -- inside --------------------------------------------------------------------------------

    def _held_back(self) -> bool:
        return self.closing or self.paused is not None

    def _admit(self, settler: Settler, got: Sequence[Delivery]) -> None:
        settler.held += len(got)
        self._counters.received += len(got)
        if self._facts.wants(MessagesDelivered):
            self._facts.emit(MessagesDelivered(worker=self._owner.name, deliveries=got))
        self.buffer.extend(got if self.lanes is None else self.lanes.admit(got))

    async def _join(self) -> Settler | None:
        """Subscribe, as soon as there is a connection; None when that must be tried again."""
        self._interruptible = True
        driver = await self._connection.ready()
        self._interruptible = False
        try:
            await driver.declare(self._queue)
            subscription = await driver.subscribe(self._queue, prefetch=self._prefetch)
        except ConnectionLost as error:
            self._connection.lost(driver, error)
            return None
        except QueueError as error:
            name = self._queue.name
            self._facts.log.error("cannot consume %s: %s; trying again", name, error)
            self._interruptible = True
            await self._clock.sleep(REJOIN)
            return None
        self._driver = driver
        self.settler = Settler(
            subscription, self._queue, self._owner, self._counters, self._facts, self._clock
        )
        return self.settler

    def _interrupt(self) -> None:
        # Only where nothing can be half done: waiting for a connection or for a message.
        if self._fetcher is not None and self._interruptible and not self._interrupted:
            self._interrupted = True
            self._fetcher.cancel()
