"""Delayed messages as an application sees them: add, list, cancel, count, clean up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, overload

from queuecraft.model.errors import ConfigError, ConnectionLost, PublishError, QueueError, QueueFull
from queuecraft.model.event import Event
from queuecraft.model.policy import is_whole
from queuecraft.model.queue import Queue
from queuecraft.model.types import Headers, T
from queuecraft.runtime.delayed.choice import place_for
from queuecraft.runtime.delayed.cleanup import Cleanup, Progress
from queuecraft.runtime.delayed.delivery import Delivery
from queuecraft.runtime.delayed.message import DelayedMessage, DelayedPage, read, written
from queuecraft.runtime.delayed.monitor import Monitor
from queuecraft.runtime.delayed.service import Service
from queuecraft.runtime.delayed.stats import CleanupResult, DelayedStats
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.options import Details, PublishOptions
from queuecraft.runtime.recipe import Recipes
from queuecraft.runtime.registration import Given
from queuecraft.stores.base import DelayedStore, Waiting

MOST = 10_000  # messages on one page


class Delayed:
    """Messages that wait for their time where they can be seen, limited and cancelled:
    `qc.delayed`.

    They are delivered by the service, which runs in some process: `queuecraft serve`, workers
    with the setting `delayed.service`, or `async with qc.delayed.running()`.

    >>> import asyncio
    >>> from queuecraft import QueueCraft
    >>> async def main() -> None:
    ...     async with QueueCraft("local://") as qc:
    ...         await qc.admin.declare("billing", "order.*")
    ...         id = await qc.delayed.add("order.placed", {"id": "o-1"}, delay=3600)
    ...         for message in await qc.delayed.list():
    ...             print(message.target, message.preview)
    ...         print((await qc.delayed.stats()).size, await qc.delayed.cancel(id))
    >>> asyncio.run(main())
    order.placed {"id":"o-1"}
    1 True
    """

    def __init__(self, engine: Engine) -> None:
        settings, clock, facts = engine.settings, engine.clock, engine.facts
        self._engine = engine
        self._settings = settings.delayed
        self._place = place_for(settings, engine.connection, clock)
        self._recipes = Recipes(engine.connection, engine.codec, settings, clock)
        self._monitor = Monitor(self._settings, clock, facts)
        drop = settings.unroutable == "drop"
        delivery = Delivery(engine.connection, clock, facts, drop_unroutable=drop)
        self._cleanup = Cleanup(self._settings, delivery, self._monitor, clock, facts)
        self._service = Service(
            self._settings, self._place, delivery, self._cleanup, self._monitor, clock, facts
        )

    # -- messages ------------------------------------------------------------------------------

    @overload
    async def add(
        self,
        target: Event[T] | Queue[T],
        payload: Given[T],
        *,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        headers: Headers | None = None,
        message_id: str | None = None,
        key: str | None = None,
        correlation_id: str | None = None,
    ) -> str: ...
    @overload
    async def add(
        self,
        target: str,
        payload: object,
        *,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        headers: Headers | None = None,
        message_id: str | None = None,
        key: str | None = None,
        correlation_id: str | None = None,
    ) -> str: ...
    async def add(
        self,
        target: Event[Any] | Queue[Any] | str,
        payload: object,
        *,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        headers: Headers | None = None,
        message_id: str | None = None,
        key: str | None = None,
        correlation_id: str | None = None,
    ) -> str:
        """Keep a message until it is due; returns its id once it is stored. A plain name is that
        of an event; a `Queue` sends to one queue alone.

        An event goes to the queues that are bound to it when it is due. Raises `QueueFull` when
        as many wait as the setting `delayed.limit` allows. An id that waits already is added but
        once: whoever is not sure whether an addition came through can repeat it.
        """
        if delay is None and deliver_at is None:
            raise ConfigError("say when it is due: delay= in seconds, or deliver_at=")
        options = PublishOptions()
        if delay is not None:
            options["delay"] = delay
        if deliver_at is not None:
            options["deliver_at"] = deliver_at
        if headers is not None:
            options["headers"] = headers
        if message_id is not None:
            options["message_id"] = message_id
        if key is not None:
            options["key"] = key
        if correlation_id is not None:
            options["correlation_id"] = correlation_id
        return await self._engine.publishing.around(self._add)(target, payload, options)

    async def _add(self, target: object, payload: object, options: PublishOptions) -> str:
        now = self._engine.clock.now()
        details = Details.of(options, now, self._engine.connection.traits)
        recipe = self._recipes.of(target)
        message = recipe.make_with(payload, details)
        deliver_at = options.get("deliver_at")
        due = now + options.get("delay", 0.0) if deliver_at is None else deliver_at.timestamp()
        await self._keep(Waiting(message, due, now, recipe.exchange))
        return message.id

    async def list(self, limit: int = 100, after: str | None = None) -> DelayedPage:
        """What waits, the next due first. `after` is the `next` of the page before."""
        if not is_whole(limit) or not 0 < limit <= MOST:
            raise ConfigError(f"list(limit={limit!r}): expected a whole number from 1 to {MOST}")
        cursor = read(after)
        decode = self._engine.codec.decoder()
        shown: list[DelayedMessage] = []
        async with self._store() as store:
            # One more than asked for, to know whether there is more; large ones come in parts.
            while some := await store.page(limit + 1 - len(shown), cursor):
                if len(shown) + len(some) > limit:
                    some = some[: limit - len(shown)]
                    place = written(some[-1].cursor if some else cursor)
                    return DelayedPage(
                        (*shown, *(DelayedMessage.of(e, decode) for e in some)), place
                    )
                shown += (DelayedMessage.of(each, decode) for each in some)
                cursor = some[-1].cursor
        return DelayedPage(tuple(shown))

    async def cancel(self, id: str) -> bool:
        """Forget a message. False when none of this id waits, or it is being delivered now."""
        async with self._store() as store:
            return await store.cancel(id, self._engine.clock.now())

    # -- watching ------------------------------------------------------------------------------

    async def stats(self) -> DelayedStats:
        """How many wait, how that changes, and how the cleanups went, in all processes."""
        async with self._store() as store:
            return await self._monitor.sample(store)

    async def cleanup(self, *, on_progress: Progress | None = None) -> CleanupResult:
        """Take out what is overdue, by the policy that is set: delivered late, kept as dead
        letters in `delayed.dlq`, or dropped. Done every five minutes by the service as well.

        >>> import asyncio
        >>> from queuecraft import QueueCraft
        >>> async def main() -> int:
        ...     async with QueueCraft("local://") as qc:
        ...         await qc.admin.declare("billing", "order.*")
        ...         await qc.delayed.add("order.placed", {"id": "o-1"}, delay=0)
        ...         return (await qc.delayed.cleanup()).cleaned
        >>> asyncio.run(main())
        1
        """
        try:
            self._check_open()
            store = await self._place.ready(patient=False)
        except QueueError as error:
            self._cleanup.failed(error)
            raise
        try:
            return await self._cleanup.run(store, on_progress)
        except ConnectionLost as error:
            await self._place.lost(store, error)
            raise

    # -- the service ---------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the service runs in this process."""
        return self._service.is_running

    def check(self) -> None:
        """Raise `ConfigError` if there is no place where messages could wait."""
        self._place.check()

    async def start(self) -> None:
        """Start the service: messages are moved when they are due, what is overdue is cleaned up,
        the size is watched. It runs until `stop`, or until the QueueCraft is shut down."""
        self._check_open()
        self._place.check()
        self._service.start()

    async def stop(self, timeout: float | None = None) -> None:
        """Stop the service, once what is being moved has arrived."""
        limit = self._engine.settings.shutdown_timeout if timeout is None else timeout
        await self._service.stop(limit)

    async def run(self) -> None:
        """Run the service until `stop` is called, or the task is cancelled."""
        async with self.running():
            await self._service.wait()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Delayed]:
        """Run the service while the block does.

        >>> import asyncio
        >>> from queuecraft import Event, QueueCraft
        >>> reminded = Event("user.reminded", str)
        >>> async def main() -> None:
        ...     async with QueueCraft("local://") as qc:
        ...         stream = qc.subscribe("reminders", reminded)
        ...         await stream.open()
        ...         async with qc.delayed.running(), stream:
        ...             await qc.delayed.add(reminded, "water the plants", delay=0.01)
        ...             async for message in stream:
        ...                 print(message.payload)
        ...                 break
        >>> asyncio.run(main())
        water the plants
        """
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    async def close(self, timeout: float | None = None) -> None:
        """Stop, and let go of the store. A QueueCraft does this when it is shut down."""
        await self.stop(timeout)
        await self._place.close()

    # -- inside --------------------------------------------------------------------------------

    @asynccontextmanager
    async def _store(self, *, patient: bool = False) -> AsyncGenerator[DelayedStore]:
        self._check_open()
        async with self._place.store(patient=patient) as store:
            yield store

    def _check_open(self) -> None:
        if self._engine.connection.state in ("closing", "closed"):
            raise ConnectionLost(
                "this QueueCraft is shut down; make a new one", operation="delayed"
            )

    async def _keep(self, waiting: Waiting) -> None:
        engine, id = self._engine, waiting.message.id
        patient = engine.settings.on_outage == "wait"
        attempted = False
        try:
            async with asyncio.timeout(engine.settings.publish_timeout):
                async with self._store(patient=patient) as store:
                    attempted = True
                    added = await store.add(waiting, self._settings.limit)
        except (ConnectionLost, TimeoutError) as error:
            raise self._not_kept(error, id, attempted=attempted) from error
        self._service.added(waiting.due)
        try:
            await self._monitor.see(store, added.size)
        except ConnectionLost as error:  # the message is kept all the same
            await self._place.lost(store, error)
        if not added.accepted:
            raise QueueFull(
                f"{added.size} delayed messages wait already; try again later, or raise "
                f"delayed.limit={self._settings.limit}",
                operation="delayed.add",
                message_id=id,
            )

    def _not_kept(self, error: Exception, id: str, *, attempted: bool) -> PublishError:
        timeout = self._engine.settings.publish_timeout
        why = error.message if isinstance(error, QueueError) else f"no answer within {timeout:g} s"
        hint = "; it may be stored: add it again with the same message_id" if attempted else ""
        return PublishError(
            f"the delayed message was not stored: {why}{hint}",
            outcome="unknown" if attempted else "rejected",
            operation="delayed.add",
            message_id=id,
        )
