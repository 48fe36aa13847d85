"""Outbox, the facade: publish in a transaction, relay from the table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack, overload

from queuecraft.app import QueueCraft
from queuecraft.clock import Clock
from queuecraft.codec import Codec, Compressors, Serializers
from queuecraft.drivers.base import Traits
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import ConfigError
from queuecraft.model.event import Event
from queuecraft.model.policy import NoRetry, Retry
from queuecraft.model.queue import Exchange, Queue
from queuecraft.model.settings import Settings
from queuecraft.model.types import Headers, T
from queuecraft.outbox.database import Database
from queuecraft.outbox.executor import (
    Dialect,
    executor,
    is_async,
    maker_of,
    refuse_without_transaction,
    run_async,
)
from queuecraft.outbox.relay import Relay
from queuecraft.outbox.row import Refused, Stored
from queuecraft.outbox.table import NAME, OutboxTable
from queuecraft.runtime.options import Details, PublishOptions, drops
from queuecraft.runtime.recipe import Recipe
from queuecraft.runtime.registration import Given

if TYPE_CHECKING:
    from sqlalchemy import MetaData, Table

REMEMBERED = 4096  # recipes; events and names may be made on the fly, from user data

# Which broker it will be is the relay's to know.
_ANY_BROKER = Traits("outbox", priority=True)


class Outbox:
    """Messages that are published if, and only if, a transaction of your own database is
    committed.

    `publish` writes a row in that transaction. A relay, in any process, reads the rows, publishes
    them in order and deletes what the broker has confirmed: at least once, under the id that
    `publish` returned. Give it the settings of the QueueCraft it stands in for, if they are not
    the default ones: `Outbox(qc.settings)`. `headers` gives what every message carries, besides
    headers of its own: `OpenTelemetry.headers` carries the trace on.

    >>> import asyncio, sqlite3, tempfile
    >>> from queuecraft import Event, QueueCraft
    >>> from queuecraft.outbox import Outbox
    >>> order_placed = Event("order.placed", dict)
    >>> outbox = Outbox()
    >>> async def main(path: str) -> None:
    ...     shop = sqlite3.connect(path)
    ...     outbox.create(shop)
    ...     with shop:  # a transaction
    ...         shop.execute("CREATE TABLE orders (id)")
    ...         shop.execute("INSERT INTO orders VALUES ('o-1')")
    ...         outbox.publish(shop, order_placed, {"id": "o-1"})
    ...     shop.close()
    ...     async with QueueCraft("local://") as qc:
    ...         await qc.admin.declare("billing", "order.placed")
    ...         await outbox.relay(qc, f"sqlite:///{path}", once=True)
    ...         print((await qc.admin.peek("billing"))[0].payload)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(main(f"{folder}/shop.db"))
    {'id': 'o-1'}
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        table: str = NAME,
        serializers: Serializers | None = None,
        compressors: Compressors | None = None,
        headers: Callable[[], Headers] | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = settings or Settings()
        self._codec = Codec(
            serializer=settings.serializer,
            compression=settings.compression,
            threshold=settings.compression_threshold,
            max_bytes=settings.max_message_bytes,
            serializers=serializers,
            compressors=compressors,
        )
        self._table = OutboxTable(table)
        self._default = settings.default_exchange
        self._headers = headers
        self._now = (clock or Clock()).now
        self._recipes: dict[Event[Any] | Queue[Any] | str, Recipe] = {}

    # -- publishing ----------------------------------------------------------------------------

    @overload
    def publish(
        self,
        connection: Any,
        event: Event[T],
        payload: Given[T],
        **options: Unpack[PublishOptions],
    ) -> str: ...
    @overload
    def publish(
        self, connection: Any, event: str, payload: object, **options: Unpack[PublishOptions]
    ) -> str: ...
    def publish(
        self,
        connection: Any,
        event: Event[Any] | str,
        payload: object,
        **options: Unpack[PublishOptions],
    ) -> str:
        """Have an event published when the transaction of the connection is committed; returns the
        message's id.

        The connection is one of sqlite3, psycopg or Django, or a session or connection of
        SQLAlchemy. Options and errors are those of `QueueCraft.publish`, but for what only the
        broker can tell; times count from now. A payload that does not fit is a `PayloadError`
        here, in your transaction.

        >>> import sqlite3
        >>> Outbox().publish(sqlite3.connect(":memory:"), Event("n", int), "three")
        Traceback (most recent call last):
        queuecraft.PayloadError: event 'n': the payload is of type str, expected int ...
        """
        return self._write(connection, self._stored(event, payload, options))

    @overload
    def send(
        self,
        connection: Any,
        queue: Queue[T],
        payload: Given[T],
        **options: Unpack[PublishOptions],
    ) -> str: ...
    @overload
    def send(
        self, connection: Any, queue: str, payload: object, **options: Unpack[PublishOptions]
    ) -> str: ...
    def send(
        self,
        connection: Any,
        queue: Queue[Any] | str,
        payload: object,
        **options: Unpack[PublishOptions],
    ) -> str:
        """Have a payload sent to one queue alone when the transaction is committed; returns the
        message's id."""
        return self._write(connection, self._stored(_queue(queue, options), payload, options))

    @overload
    async def publish_async(
        self,
        connection: Any,
        event: Event[T],
        payload: Given[T],
        **options: Unpack[PublishOptions],
    ) -> str: ...
    @overload
    async def publish_async(
        self, connection: Any, event: str, payload: object, **options: Unpack[PublishOptions]
    ) -> str: ...
    async def publish_async(
        self,
        connection: Any,
        event: Event[Any] | str,
        payload: object,
        **options: Unpack[PublishOptions],
    ) -> str:
        """The same as `publish` on an async connection: an `AsyncSession` or `AsyncConnection` of
        SQLAlchemy or psycopg, or one of aiosqlite."""
        return await self._write_async(connection, self._stored(event, payload, options))

    @overload
    async def send_async(
        self,
        connection: Any,
        queue: Queue[T],
        payload: Given[T],
        **options: Unpack[PublishOptions],
    ) -> str: ...
    @overload
    async def send_async(
        self, connection: Any, queue: str, payload: object, **options: Unpack[PublishOptions]
    ) -> str: ...
    async def send_async(
        self,
        connection: Any,
        queue: Queue[Any] | str,
        payload: object,
        **options: Unpack[PublishOptions],
    ) -> str:
        """The same as `send` on an async connection."""
        stored = self._stored(_queue(queue, options), payload, options)
        return await self._write_async(connection, stored)

    # -- relaying ------------------------------------------------------------------------------

    async def relay(
        self,
        qc: QueueCraft,
        database: Any,
        *,
        once: bool = False,
        poll: float = 0.5,
        retry: Retry | NoRetry = Retry(max_retries=5),
    ) -> None:
        """Publish what waits, in order, until cancelled; with `once`, until nothing waits any more.

        The database is a URL (`sqlite:///shop.db`, `postgresql://…`, which needs psycopg), an
        engine of SQLAlchemy, async or not, or a function that gives a connection. An empty table
        is looked at every `poll` seconds. A message that the broker refuses is tried again as
        `retry` says, while later ones of its key wait; then it is kept aside, with an error in the
        log: see `refused`. Several relays may run: one is at work, the others stand by.
        """
        engine = qc._engine  # pyright: ignore[reportPrivateUsage]  the seam is not for applications
        found = Database.of(database)
        relay = Relay(engine, found, self._table, poll=poll, retry=retry)
        try:
            await relay.run(once=once)
        finally:
            await found.close()

    @asynccontextmanager
    async def relaying(
        self,
        qc: QueueCraft,
        database: Any,
        *,
        poll: float = 0.5,
        retry: Retry | NoRetry = Retry(max_retries=5),
    ) -> AsyncGenerator[asyncio.Task[None]]:
        """Relay while the block runs; the task it gives ends only if the relay fails."""
        task = asyncio.create_task(self.relay(qc, database, poll=poll, retry=retry))
        try:
            yield task
        finally:
            failed = task.done()
            task.cancel()
            await asyncio.wait([task])
            if failed and not task.cancelled():
                task.result()

    # -- the tables ----------------------------------------------------------------------------

    def create(self, connection: Any) -> None:
        """Make the tables, if they are not there, in the transaction of a connection or session.
        A project with migrations puts `ddl` or `table` there instead."""
        _refuse_async(connection)
        on = executor(connection)
        for statement in self._table.ddl(on.dialect):
            on.run(statement, {})

    def ddl(self, dialect: Dialect) -> str:
        """The statements that make the tables, in SQL: for migrations.

        >>> print(Outbox(table="shop_outbox").ddl("sqlite"))
        CREATE TABLE IF NOT EXISTS shop_outbox (...
        """
        return ";\n".join([*self._table.ddl(dialect), ""])

    def table(self, metadata: MetaData) -> Table:
        """The tables in a MetaData of SQLAlchemy, for `create_all` and Alembic."""
        return self._table.sqlalchemy(metadata)

    # -- operating -----------------------------------------------------------------------------

    def waiting(self, connection: Any) -> int:
        """How many messages wait for the relay."""
        return self._table.waiting(executor(connection))[0]

    def refused(self, connection: Any, limit: int = 100) -> list[Refused]:
        """Messages that were kept aside, oldest first, with the reason."""
        return self._table.refused(executor(connection), limit)

    def put_back(self, connection: Any, ids: Sequence[str] | None = None) -> int:
        """Let messages that were kept aside, these or all, be tried again; how many. Each is back
        in its old place, but later ones of its key may have been published meanwhile."""
        return self._table.put_back(executor(connection), ids)

    def discard(self, connection: Any, ids: Sequence[str] | None = None) -> int:
        """Delete messages that were kept aside, these or all; how many."""
        return self._table.discard(executor(connection), ids)

    # -- inside --------------------------------------------------------------------------------

    def _stored(
        self, target: Event[Any] | Queue[Any] | str, payload: object, options: PublishOptions
    ) -> Stored:
        if self._headers is not None:
            options["headers"] = {**self._headers(), **(options.get("headers") or {})}
        recipe = self._recipe(target)
        if (exchange := options.get("exchange")) is not None:
            recipe = recipe.through(self._exchange(exchange), prepared=False)
        drop = drops(options, otherwise=False) if options.get("unroutable") else None
        details = Details.of(options, self._now(), _ANY_BROKER)
        return Stored(recipe.make_with(payload, details), recipe.exchange, drop)

    def _recipe(self, target: Event[Any] | Queue[Any] | str) -> Recipe:
        recipe = self._recipes.get(target)
        if recipe is None:
            if len(self._recipes) >= REMEMBERED:
                self._recipes.clear()
            recipe = self._recipes[target] = self._new_recipe(target)
        return recipe

    def _new_recipe(self, target: object) -> Recipe:
        match target:
            case Queue():
                queue: Queue[Any] = target
                kind = queue.type or Any
                return Recipe(queue.name, kind, self._codec, self._now, queue=queue.name)
            case Event() | str():
                event: Event[Any] = Event(target) if isinstance(target, str) else target
                exchange = self._exchange(event.exchange)
                return Recipe(
                    event.name, event.type, self._codec, self._now, key=event.key, exchange=exchange
                )
            case _:
                given = type(target).__name__
                raise TypeError(f"publish takes an Event or the name of one, not {given}")

    def _exchange(self, given: Exchange | str | None) -> Exchange:
        if isinstance(given, Exchange):
            return given
        return self._default if given is None else Exchange(given, self._default.type)

    def _write(self, connection: Any, stored: Stored) -> str:
        _refuse_async(connection)
        on = executor(connection)
        refuse_without_transaction(connection)
        on.run(self._table.insertion, self._table.values_of(stored, self._now()))
        failpoint("outbox.after_insert")
        return stored.message.id

    async def _write_async(self, connection: Any, stored: Stored) -> str:
        if not is_async(connection):
            raise ConfigError("the connection is no async one; use publish or send, without await")
        if maker_of(connection) == "sqlalchemy":
            id: str = await connection.run_sync(lambda sync: self._write(sync, stored))
            return id
        refuse_without_transaction(connection)
        values = self._table.values_of(stored, self._now())
        await run_async(connection, self._table.insertion, values)
        failpoint("outbox.after_insert")
        return stored.message.id


def _queue(queue: Queue[Any] | str, options: PublishOptions) -> Queue[Any]:
    if "exchange" in options:
        raise ConfigError("send goes to a queue, not through an exchange; use publish")
    return Queue(queue) if isinstance(queue, str) else queue


def _refuse_async(connection: Any) -> None:
    if is_async(connection):
        raise ConfigError(
            "the connection is an async one; await publish_async or send_async, and make the "
            "tables with its run_sync(outbox.create) or a migration"
        )
