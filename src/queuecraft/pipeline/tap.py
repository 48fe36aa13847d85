"""A tap: a queue that is consumed to its end, whatever becomes of the connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from queuecraft.clock import Clock
from queuecraft.drivers.base import (
    ConnectionLost,
    Delivery,
    Driver,
    Queue,
    QueueInfo,
    Subscription,
    Traits,
)
from queuecraft.model.errors import (
    ConfigError,
    QueueError,
    TopologyMismatch,
    UnsupportedFeature,
)
from queuecraft.runtime.connection import Connection

AT_ONCE: Final = 1000  # messages received, and acknowledged, in one call
AGAIN: Final = 1.0  # seconds before a queue that cannot be consumed is asked for again
LASTING: Final = (ConfigError, TopologyMismatch, UnsupportedFeature)  # however often it is tried


class Tap:
    """A queue that is consumed, through lost connections and lost places in a group."""

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
        self.log = log
        self._driver: Driver | None = None
        self._subscription: Subscription | None = None
        self._generation = 0
        self._stood = False  # there was a subscription: if there cannot be one now, that may pass
        self._not_before = 0.0

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery] | None:
        """Messages, or none within so many seconds; None when the connection or the subscription
        was lost. What was held is not ours any more, and most often comes again: not if the queue
        was made anew, the broker came back without it, or it keeps nothing. Raises `QueueError` if
        the queue is gone or trying again is of no use."""
        try:
            if self._subscription is None:
                await self._join()
            elif self._generation != self._connection.generation:  # somebody else met the loss
                self._subscription = None
            if self._subscription is None:
                return None
            return await self._subscription.receive(min(limit, AT_ONCE), wait)
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
        return not any(info.ready != 0 or self._is_held(info, driver.traits) for info in infos)

    def _is_held(self, info: QueueInfo, traits: Traits) -> bool:
        """Whether another may hold some of it: where the broker does not say how much, whoever
        consumes it may."""
        if info.in_flight is None and traits.tells_held:
            return (info.consumers or 0) > (self._subscription is not None)
        return bool(info.in_flight)

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
            await undisturbed(self._close(subscription))
        if not self._stood or isinstance(error, LASTING):
            raise error
        if await self._is_gone():
            raise QueueError(
                f"queue {self._queue.name!r} exists no more: {error.message}",
                operation="capture",
                queue=self._queue.name,
            ) from error
        self.log.warning("cannot capture %s: %s; trying again", self._queue.name, error)

    async def _close(self, subscription: Subscription) -> None:
        try:
            await subscription.close()
        except Exception as error:  # it is of no use any more, whatever it says
            self.log.debug("leaving %s: %r", self._queue.name, error)

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
            self.log.debug("looking for %s: %r", self._queue.name, error)
        return False

    def _lost(self, error: ConnectionLost) -> None:
        self._subscription = None
        if self._driver is None or self._connection.state in ("disconnected", "closing", "closed"):
            raise error  # there will be no connection again
        if self._generation == self._connection.generation:
            self._connection.lost(self._driver, error)


async def undisturbed(work: Coroutine[Any, Any, None]) -> None:
    """Do something to its end, also when this task is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task])
        raise
