"""The connection to the broker: opened when first needed, lost and found again, in one place."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence

from queuecraft.clock import Clock
from queuecraft.drivers.base import Driver, Exchange, Queue, Traits
from queuecraft.model.errors import ConfigError, ConnectionLost, QueueError, TopologyMismatch
from queuecraft.model.settings import Settings
from queuecraft.runtime.facts import (
    ConnectionState,
    ConnectionStateChanged,
    Disconnected,
    Facts,
    Reconnected,
    ReconnectFailed,
    Reconnecting,
)

MAX_DELAY = 30.0
FREE = 5  # connections in a row that may break at once before the next is waited for


class Connection:
    """Supervises the drivers of one URL, one for each host, and says which is open.

    Whoever meets a `ConnectionLost` reports it with `lost`; from then on `current` is None and
    `ready` waits until a host answers again and everything declared before stands there too.
    One task does all the connecting, so that no driver is ever opened twice at a time.
    """

    def __init__(
        self, drivers: Sequence[Driver], settings: Settings, clock: Clock, facts: Facts
    ) -> None:
        if not drivers:
            raise ConfigError("there is no driver to connect with; drivers= is empty")
        self.current: Driver | None = None
        self.generation = 0
        """Counts the connections there have been: what belongs to an older one is void."""
        self.traits: Traits = drivers[0].traits
        self.state: ConnectionState = "disconnected"
        self.last_error: str | None = None
        self.lost_at: float | None = None
        self._drivers = drivers
        self._host = 0
        self._settings = settings
        self._clock = clock
        self._facts = facts
        self._exchanges: dict[str, Exchange] = {}
        self._queues: dict[str, Queue] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failed: ConnectionLost | None = None  # for good, unless `connect` is called
        self._rounds = 0  # over all hosts, in vain
        self._refusal: ConnectionLost | None = None  # how the last of them ended, if it was in vain
        self._broken: Driver | None = None  # lost, and not yet closed
        self._opened_at = 0.0
        self._brief = 0  # connections in a row that broke at once

    # -- getting a driver ----------------------------------------------------------------------

    @property
    def down(self) -> bool:
        """Whether there is an outage, as against a connection that nobody has asked for yet."""
        trying = self.state == "connecting" and self._refusal is not None
        return trying or self.state == "reconnecting"

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no messages, if it says so."""
        return None if self.current is None else self.current.blocked

    async def connect(self) -> None:
        """Connect now, trying each host once; raises `ConnectionLost` if none answers, and
        `ConfigError` if trying again would not help."""
        self._failed = None  # asked for by hand, it is tried again
        if self.current is None and self._task is None and self.state == "disconnected":
            self._start(once=True)
        await self.ready(patient=False)

    async def ready(self, *, patient: bool = True) -> Driver:
        """An open driver; waits for one as long as reconnecting goes on, or, if not patient,
        until each host has been tried once more. Raises `ConnectionLost` when there is none to be
        had, `ConfigError` when trying again would be of no use."""
        rounds = self._rounds
        patient = patient and self._settings.auto_reconnect
        while self.current is None:
            if self.state in ("closing", "closed"):
                raise ConnectionLost(
                    "this QueueCraft is shut down; make a new one", broker=self.traits.name
                )
            if self._failed is not None:
                raise _again(self._failed)
            if self._refusal is not None and self._rounds > rounds and not patient:
                raise _again(self._refusal)
            if self._task is None:
                self._start(once=not self._settings.auto_reconnect)
            self._changed.clear()
            await self._changed.wait()
        return self.current

    async def opened(self) -> None:
        """Wait for a connection without asking for one."""
        while self.current is None:
            self._changed.clear()
            await self._changed.wait()

    async def given_up(self) -> QueueError:
        """Wait until there is no connection and nobody tries to make one; how it came to that."""
        while self.state != "disconnected" or (error := self._failed or self._refusal) is None:
            self._changed.clear()
            await self._changed.wait()
        return _again(error)

    def lost(self, driver: Driver, error: QueueError) -> None:
        """The connection broke under somebody; the first to say so starts the reconnecting."""
        if driver is not self.current or self.state != "connected":
            return
        self.current = None
        self.lost_at = self._clock.now()
        lasted = self._clock.monotonic() - self._opened_at
        self._brief = self._brief + 1 if lasted < self._settings.reconnect_delay else 0
        self._change("reconnecting", error)
        if self._facts.wants(Disconnected):
            self._facts.emit(Disconnected(error=str(error)))
        self._broken = driver
        self._task = asyncio.get_running_loop().create_task(self._reconnect(driver, error))

    # -- what must exist on the broker ---------------------------------------------------------

    def prepared(self, exchange: Exchange) -> bool:
        """Whether the exchange is known to exist as it is asked for."""
        return self._exchanges.get(exchange.name) == exchange

    async def prepare(self, exchange: Exchange) -> None:
        """Make an exchange, now and after each reconnect."""
        while not self.prepared(exchange):
            driver = await self.ready()
            if await self._stands(driver, driver.prepare([exchange])):
                self._exchanges[exchange.name] = exchange

    async def declare(self, queue: Queue) -> None:
        """Make a queue with all that belongs to it, now and after each reconnect."""
        while True:
            driver = await self.ready()
            if await self._stands(driver, driver.declare(queue)):
                self._queues[queue.name] = queue
                return

    def forget(self, queue: str) -> None:
        """A queue was deleted, or goes with its worker: it is not made again after a reconnect, to
        fill with nobody who consumes it."""
        self._queues.pop(queue, None)

    async def _stands(self, driver: Driver, work: Awaitable[None]) -> bool:
        """Whether the work was done and is still good: the next host knows nothing of it."""
        generation = self.generation
        try:
            await work
        except ConnectionLost as error:
            if self.generation == generation:
                self.lost(driver, error)
            return False
        return self.current is driver and self.generation == generation

    # -- the end -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the driver and give up any reconnecting."""
        if self.state == "closed":
            return
        if self.state != "disconnected":
            self._change("closing")
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        driver, self.current = self.current or self._broken, None
        if driver is not None:
            await self._close_quietly(driver)
        self._change("closed")

    # -- inside --------------------------------------------------------------------------------

    def _start(self, *, once: bool) -> None:
        self._refusal = None
        self._change("connecting")
        self._task = asyncio.get_running_loop().create_task(self._connect(once=once))

    async def _connect(self, *, once: bool) -> None:
        """The first connection, or another one asked for by hand."""
        limit = len(self._drivers) if once else self._settings.reconnect_attempts
        try:
            error, attempts = await self._find_host(limit)
            if error is None:
                return
            if once:
                self._change("disconnected", error)
            else:
                self._fail(error, attempts)
        finally:
            self._finish()

    async def _reconnect(self, broken: Driver, error: QueueError) -> None:
        since = self._clock.monotonic()
        try:
            await self._close_quietly(broken)
            self._broken = None
            if not self._settings.auto_reconnect:
                self._fail(error, 0)
                return
            if self._brief > FREE:  # it connects, and breaks at once: do not hammer the broker
                await self._pause(self._brief - FREE, self._brief, error)
            failure, attempts = await self._find_host(self._settings.reconnect_attempts)
            if failure is not None:
                self._fail(failure, attempts)
            elif self._facts.wants(Reconnected):
                downtime = self._clock.monotonic() - since
                self._facts.emit(Reconnected(attempt=attempts + 1, downtime=downtime))
        finally:
            self._finish()

    def _finish(self) -> None:
        if self._task is asyncio.current_task():
            self._task = None
        self._changed.set()

    async def _find_host(self, limit: int | None) -> tuple[ConnectionLost | None, int]:
        """Walk the hosts until one answers; how it failed if none did, and how many tries."""
        attempt = 0
        while (error := await self._try_open()) is not None:
            attempt += 1
            self._host += 1
            # The hosts are walked without a pause; the wait grows with each full round.
            rounds, place = divmod(attempt, len(self._drivers))
            if place == 0:
                self._rounds += 1
                self._refusal = error
                self._changed.set()
            if self._is_hopeless(error) or (limit is not None and attempt >= limit):
                return error, attempt
            await self._pause(rounds if place == 0 else 0, attempt, error)
        return None, attempt

    def _is_hopeless(self, error: QueueError) -> bool:
        """Whether no further attempt can end otherwise. What worked before may work again: a disk
        that is away is not a mistake of the configuration."""
        mistaken = isinstance(error.__cause__, ConfigError)
        return mistaken and len(self._drivers) == 1 and not self.generation

    async def _pause(self, rounds: int, attempt: int, error: QueueError) -> None:
        delay = 0.0
        if rounds:
            longest = self._settings.reconnect_delay * 2.0 ** min(rounds - 1, 30)
            delay = min(longest, MAX_DELAY) * random.uniform(0.5, 1.0)
        self._facts.emit(Reconnecting(attempt=attempt, delay=delay, error=str(error)))
        if delay:
            await self._clock.sleep(delay)

    async def _try_open(self) -> ConnectionLost | None:
        driver = self._drivers[self._host % len(self._drivers)]
        try:
            await self._in_time(driver.open())
            await self._restore(driver)
        except (Exception, asyncio.CancelledError) as error:
            await self._close_quietly(driver)
            if isinstance(error, asyncio.CancelledError) and being_cancelled():
                raise
            return self._as_lost(error)  # in no local: its cause may hold this frame
        self.current = driver
        self.generation += 1
        self.traits = driver.traits
        self._refusal = None
        self._opened_at = self._clock.monotonic()
        self._change("connected")
        return None

    async def _restore(self, driver: Driver) -> None:
        """Make everything on this host that was made before, on it or on another."""
        exchanges = tuple(self._exchanges.values())
        try:
            if exchanges:
                await self._in_time(driver.prepare(exchanges))
        except TopologyMismatch:
            for exchange in exchanges:
                await self._remake(driver.prepare([exchange]))
        for name in tuple(self._queues):
            if (queue := self._queues.get(name)) is not None:  # else forgotten meanwhile
                await self._remake(driver.declare(queue))

    async def _remake(self, work: Awaitable[None]) -> None:
        try:
            await self._in_time(work)
        except TopologyMismatch as error:  # no attempt mends it, and the rest is not to blame
            self._facts.log.error("not as it was before the connection was lost: %s", error)

    async def _in_time(self, work: Awaitable[None]) -> None:
        async with asyncio.timeout(self._settings.timeout):
            await work

    async def _close_quietly(self, driver: Driver) -> None:
        try:
            await self._in_time(driver.close())
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and being_cancelled():
                raise
            # The connection is gone already; how it ends is no matter.
            self._facts.log.debug("closing a lost connection: %r", error)

    def _as_lost(self, error: BaseException) -> ConnectionLost:
        if isinstance(error, ConnectionLost):
            self.last_error = error.message
            return error.with_traceback(None)  # it is kept: a client would stay with its frames
        if isinstance(error, TimeoutError):
            reason = f"no answer within {self._settings.timeout:g} s"
        elif isinstance(error, QueueError):
            reason = error.message
        else:
            reason = str(error) or repr(error)
        lost = ConnectionLost(f"cannot connect: {reason}", broker=self.traits.name)
        lost.__cause__ = error
        self.last_error = lost.message
        return lost

    def _fail(self, error: QueueError, attempts: int) -> None:
        tries = "one attempt" if attempts == 1 else f"{attempts} attempts"
        what = f"gave up after {tries} to connect" if attempts else "not connected"
        text = f"{what}: {error.message}; open() tries again"
        if self._is_hopeless(error):
            text = error.message
        self._failed = ConnectionLost(text, broker=self.traits.name)
        self._failed.__cause__ = error
        self._change("disconnected", error)
        self._facts.emit(ReconnectFailed(attempts=attempts, error=str(error)))

    def _change(self, state: ConnectionState, error: QueueError | None = None) -> None:
        old, self.state = self.state, state
        if error is not None:
            self.last_error = error.message
        self._changed.set()
        if old != state and self._facts.wants(ConnectionStateChanged):
            text = None if error is None else str(error)
            self._facts.emit(ConnectionStateChanged(old=old, new=state, error=text))


def _again(error: ConnectionLost) -> QueueError:
    """The same error for one more caller: raised again and again, one object would grow."""
    cause = error.__cause__
    if isinstance(cause, ConnectionLost):
        cause = cause.__cause__
    if isinstance(cause, ConfigError):  # nothing to wait for: it says what is to be changed
        return ConfigError(cause.message, broker=cause.broker, operation=cause.operation)
    again = ConnectionLost(error.message, broker=error.broker, operation=error.operation)
    again.__cause__ = error.__cause__
    return again


def being_cancelled() -> bool:
    """Whether the task itself is to end, as against a driver that lets a `CancelledError` out."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
