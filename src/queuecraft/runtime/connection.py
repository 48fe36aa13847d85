"""The connection to the broker: opened when first needed, lost and found again, in one place."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence

from queuecraft.clock import Clock
from queuecraft.drivers.base import Driver, Exchange, Queue, Traits
from queuecraft.model.errors import ConnectionLost, QueueError
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


class Connection:
    """Supervises the drivers of one URL, one for each host, and says which is open.

    Whoever meets a `ConnectionLost` reports it with `lost`; from then on `current` is None and
    `ready` waits until a host answers again and everything declared before stands there too.
    """

    def __init__(
        self, drivers: Sequence[Driver], settings: Settings, clock: Clock, facts: Facts
    ) -> None:
        self.current: Driver | None = None
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
        self._failed: ConnectionLost | None = None

    # -- getting a driver ----------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect now, trying each host once; raises `ConnectionLost` if none answers."""
        if self.current is not None:
            return
        if self._task is not None:
            await self.ready()
            return
        self._change("connecting")
        error: ConnectionLost | None = None
        for _ in self._drivers:
            error = await self._try_open()
            if error is None:
                return
            self._host += 1
        assert error is not None
        self._change("disconnected", error)
        raise error

    async def ready(self) -> Driver:
        """An open driver; waits for one as long as reconnecting goes on."""
        while self.current is None:
            if self.state in ("closing", "closed"):
                raise ConnectionLost("this QueueCraft is shut down", broker=self.traits.name)
            if self._failed is not None:
                raise self._failed
            if self._task is None:
                if self.state == "disconnected":
                    self._change("connecting")
                self._task = asyncio.get_running_loop().create_task(self._reconnect())
            self._changed.clear()
            await self._changed.wait()
        return self.current

    def lost(self, driver: Driver, error: QueueError) -> None:
        """The connection broke under somebody; the first to say so starts the reconnecting."""
        if driver is not self.current or self.state != "connected":
            return
        self.current = None
        self.lost_at = self._clock.now()
        self._change("reconnecting", error)
        if self._facts.wants(Disconnected):
            self._facts.emit(Disconnected(error=str(error)))
        if self._settings.auto_reconnect:
            self._task = asyncio.get_running_loop().create_task(self._reconnect(driver))
        else:
            self._fail(error, 0)

    # -- what must exist on the broker ---------------------------------------------------------

    def prepared(self, exchange: Exchange) -> bool:
        """Whether the exchange is known to exist."""
        return exchange.name in self._exchanges

    async def prepare(self, exchange: Exchange) -> None:
        """Make an exchange, now and after each reconnect."""
        if not self.prepared(exchange):
            driver = await self.ready()
            try:
                await driver.prepare([exchange])
            except ConnectionLost as error:
                self.lost(driver, error)
                raise
            self._exchanges[exchange.name] = exchange

    async def declare(self, queue: Queue) -> None:
        """Make a queue with all that belongs to it, now and after each reconnect."""
        while True:
            driver = await self.ready()
            try:
                await driver.declare(queue)
            except ConnectionLost as error:
                self.lost(driver, error)
                continue
            self._queues[queue.name] = queue
            return

    # -- the end -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the driver and give up any reconnecting."""
        if self.state == "closed":
            return
        if self.state != "disconnected":
            self._change("closing")
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        driver, self.current = self.current, None
        if driver is not None:
            await self._close_quietly(driver)
        self._change("closed")

    # -- inside --------------------------------------------------------------------------------

    async def _reconnect(self, broken: Driver | None = None) -> None:
        if broken is not None:
            await self._close_quietly(broken)
        attempt = 0
        limit = self._settings.reconnect_attempts
        since = self._clock.monotonic()
        while (error := await self._try_open()) is not None:
            attempt += 1
            self._host += 1
            if limit is not None and attempt >= limit:
                self._fail(error, attempt)
                return
            # The hosts are walked without a pause; the wait grows with each full round.
            rounds, place = divmod(attempt, len(self._drivers))
            delay = 0.0
            if place == 0:
                longest = min(
                    self._settings.reconnect_delay * 2.0 ** min(rounds - 1, 30), MAX_DELAY
                )
                delay = longest * random.uniform(0.5, 1.0)
            self._facts.emit(Reconnecting(attempt=attempt, delay=delay, error=str(error)))
            if delay:
                await self._clock.sleep(delay)
        self._task = None
        if broken is not None and self._facts.wants(Reconnected):
            downtime = self._clock.monotonic() - since
            self._facts.emit(Reconnected(attempt=attempt + 1, downtime=downtime))

    async def _try_open(self) -> ConnectionLost | None:
        driver = self._drivers[self._host % len(self._drivers)]
        try:
            async with asyncio.timeout(self._settings.timeout):
                await driver.open()
                if self._exchanges:
                    await driver.prepare(tuple(self._exchanges.values()))
                for queue in tuple(self._queues.values()):
                    await driver.declare(queue)
        except (QueueError, OSError, TimeoutError) as error:
            await self._close_quietly(driver)
            if isinstance(error, ConnectionLost):
                self.last_error = str(error)
                return error
            lost = ConnectionLost(
                f"cannot connect: {str(error) or 'no answer in time'}", broker=self.traits.name
            )
            lost.__cause__ = error
            self.last_error = str(lost)
            return lost
        self.current = driver
        self.traits = driver.traits
        self._failed = None
        self._change("connected")
        return None

    async def _close_quietly(self, driver: Driver) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout):
                await driver.close()
        except Exception as error:  # the connection is gone already; how it ends is no matter
            self._facts.log.debug("closing a lost connection: %s", error)

    def _fail(self, error: QueueError, attempts: int) -> None:
        self._task = None
        self._failed = ConnectionLost(
            f"gave up after {attempts} attempts to reconnect: {error}", broker=self.traits.name
        )
        self._failed.__cause__ = error
        self._change("disconnected", error)
        self._facts.emit(ReconnectFailed(attempts=attempts, error=str(error)))

    def _change(self, state: ConnectionState, error: QueueError | None = None) -> None:
        old, self.state = self.state, state
        if error is not None:
            self.last_error = str(error)
        self._changed.set()
        if old != state and self._facts.wants(ConnectionStateChanged):
            text = None if error is None else str(error)
            self._facts.emit(ConnectionStateChanged(old=old, new=state, error=text))
