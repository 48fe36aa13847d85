"""The one object behind the command line, HTTP and tests: everything an operator may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from queuecraft.admin.broker import Broker
from queuecraft.admin.moving import Moving
from queuecraft.admin.peeked import PeekedMessage
from queuecraft.admin.private import is_hidden
from queuecraft.admin.watch import Watch
from queuecraft.admin.wiring import bindings
from queuecraft.drivers.base import (
    Delivery,
    Exchange,
    Queue,
    QueueInfo,
    Rewound,
    Topology,
)
from queuecraft.drivers.partial import Partial, lacking
from queuecraft.model.errors import (
    ConfigError,
    ConnectionLost,
    PayloadError,
    QueueError,
)
from queuecraft.model.naming import check_name
from queuecraft.model.pause import Pause
from queuecraft.model.presence import Presence
from queuecraft.runtime.dead_letters import DeadLetters, DeadMessage
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.plan import Plan, WorkerOptions
from queuecraft.runtime.presence import NAME
from queuecraft.runtime.redrive import Redrive, Sweep


class Admin:
    """Queues, exchanges and bindings of the broker, and the messages in them: `qc.admin`.

    Nothing needs a worker. A queue that does not exist is an `UnknownQueue` that names those
    that may have been meant.

    >>> import asyncio
    >>> from queuecraft import QueueCraft
    >>> async def main() -> None:
    ...     async with QueueCraft("local://") as qc:
    ...         await qc.admin.declare("billing", "order.*")
    ...         await qc.publish("order.placed", {"id": "o-1"})
    ...         for queue in await qc.admin.queues():
    ...             print(queue.name, queue.ready)
    ...         for message in await qc.admin.peek("billing"):
    ...             print(message.routing_key, message.payload)
    >>> asyncio.run(main())
    billing 1
    billing.dlq 0
    order.placed {'id': 'o-1'}
    """

    def __init__(
        self,
        engine: Engine,
        dead_letters: DeadLetters,
        holds_dead_letters: Callable[[str], bool],
    ) -> None:
        self._engine = engine
        self._dead_letters = dead_letters
        self._holds_dead_letters = holds_dead_letters

    # -- seeing --------------------------------------------------------------------------------

    async def queues(self, *names: str) -> list[QueueInfo]:
        """The state of every queue, by name, or of those that are named, as far as they exist.
        What the broker cannot tell is None.

        >>> import asyncio
        >>> from queuecraft import QueueCraft
        >>> async def main() -> list[str]:
        ...     async with QueueCraft("local://") as qc:
        ...         await qc.admin.declare("billing")
        ...         return [queue.name for queue in await qc.admin.queues("billing", "audit")]
        >>> asyncio.run(main())
        ['billing']
        """
        for name in names:
            check_name("queue", name)
        async with self._broker() as broker:
            found = await broker.driver.inspect(list(dict.fromkeys(names)) or None)
        kept = [info for info in found if names or not is_hidden(info.name)]
        kept.sort(key=lambda info: info.name)
        why = lacking(found)
        return kept if why is None else Partial(kept, why)

    async def inspect(self, queue: str) -> QueueInfo:
        """The state of one queue: ready, in flight, delayed, dead, consumers, oldest age.

        >>> import asyncio
        >>> from queuecraft import QueueCraft
        >>> async def main() -> None:
        ...     async with QueueCraft("local://") as qc:
        ...         await qc.admin.declare("billing")
        ...         print((await qc.admin.inspect("billing")).ready)
        ...         await qc.admin.inspect("biling")
        >>> asyncio.run(main())
        Traceback (most recent call last):
        queuecraft.UnknownQueue: there is no queue 'biling'; did you mean ...
        """
        async with self._broker() as broker:
            return await broker.info(queue, "inspect")

    async def topology(self) -> Topology:
        """Exchanges, queues, bindings and consumers, as far as the broker tells."""
        async with self._broker() as broker:
            told = await broker.driver.topology()
        return replace(
            told,
            queues=tuple(each for each in told.queues if not is_hidden(each)),
            bindings=tuple(each for each in told.bindings if not is_hidden(each[1])),
            consumers=tuple(each for each in told.consumers if not is_hidden(each.queue)),
            dead_letters=tuple(each for each in told.dead_letters if not is_hidden(each[0])),
        )

    async def peek(
        self, queue: str, limit: int = 10, *, force: bool = False
    ) -> list[PeekedMessage]:
        """The next messages of a queue, which stay where they are.

        Some brokers mark what was peeked at as delivered before. There it is refused on a work
        queue with consumers, because it would count against the messages; `force=True` insists.
        """
        _check_above_zero("peek", limit=limit)
        decode = self._engine.codec.decoder()
        async with self._broker() as broker:
            deliveries = await broker.peek(queue, limit, force=force)
        return [PeekedMessage.of(delivery, decode) for delivery in deliveries]

    def watch(self) -> Watch:
        """Everything at a glance, as often as you like: queues with their rates, workers, what
        failed alike, what happened, and in a word whether all is well.

        >>> import asyncio
        >>> from queuecraft import QueueCraft
        >>> async def main() -> None:
        ...     async with QueueCraft("local://") as qc:
        ...         await qc.admin.declare("billing", "order.*")
        ...         await qc.publish("order.placed", {"id": "o-1"})
        ...         async with qc.admin.watch() as watch:
        ...             overview = await watch.look()
        ...         print(overview.status, *overview.reasons)
        >>> asyncio.run(main())
        critical 'billing' has messages waiting, and nobody consumes it.
        """
        return Watch(
            self._engine,
            queues=self._everything,
            workers=self.workers,
            pauses=self.pauses,
            holds_dead_letters=self._holds_dead_letters,
        )

    @property
    def dead_letters(self) -> DeadLetters:
        """Dead letters: list, groups, find, redrive, delete; the same as `qc.dead_letters`."""
        return self._dead_letters

    @property
    def dead_letters_by_name(self) -> DeadLetters:
        """The same where no worker tells which queue holds them: a queue that is named is taken
        for a dead-letter queue, whatever it is called."""
        return DeadLetters(self._engine.connection, self._engine.clock, lambda queue: queue)

    def payload_of(self, letter: DeadMessage) -> Any:
        """What a dead letter carries, decoded; None where it cannot be read.

        >>> from queuecraft import DeadMessage, QueueCraft
        >>> letter = DeadMessage(id="m-1", queue="billing", event="order.placed", body=b"[1]")
        >>> QueueCraft("local://").admin.payload_of(letter)
        [1]
        """
        decode = self._engine.codec.decoder()
        try:
            return decode(letter.body, letter.content_type, letter.content_encoding)
        except (PayloadError, ConfigError):
            return None

    # -- making --------------------------------------------------------------------------------

    async def declare(
        self,
        queue: str | Queue[Any],
        *patterns: str,
        exchange: Exchange | str | None = None,
        dead_letters: bool = True,
    ) -> None:
        """Make a queue as a worker of that name would: with its dead-letter queue, and bound to
        the events of these patterns. A fanout or headers exchange needs no pattern. Making it again
        only adds.

        >>> import asyncio
        >>> from queuecraft import QueueCraft
        >>> async def main() -> list[str]:
        ...     async with QueueCraft("local://") as qc:
        ...         await qc.admin.declare("billing", "order.placed", "order.paid")
        ...         await qc.admin.declare("scratch", dead_letters=False)
        ...         return [queue.name for queue in await qc.admin.queues()]
        >>> asyncio.run(main())
        ['billing', 'billing.dlq', 'scratch']
        """
        engine = self._engine
        async with self._broker() as broker:
            options: WorkerOptions = {"exchange": await broker.wiring.exchange(exchange)}
            plan = Plan.of(queue, options, engine.settings)
            plan.check(broker.driver.traits)
            made = queue if isinstance(queue, Queue) else Queue[Any](queue)
            target = made.dead_letters
            of_dead_letters = made.holds_dead_letters or self._holds_dead_letters(made.name)
            plain = of_dead_letters or not dead_letters  # what expires there would be gone
            default = replace(engine.policy, ttl=None) if plain else engine.policy
            policy = plan.policy_over(default)
            if target is None and not plain:
                target = plan.dead_letters(made.name, policy, broker.driver.traits)
            asked = patterns or exchange is not None
            more = bindings(plan.exchange, patterns) if asked else ()
            await broker.driver.declare(
                replace(
                    made,
                    policy=policy,
                    bindings=(*made.bindings, *more),
                    dead_letters=target,
                    holds_dead_letters=of_dead_letters,
                )
            )

    async def declare_exchange(self, exchange: Exchange | str) -> None:
        """Make an exchange; a plain name makes one of the type that `exchange_type` sets."""
        if not isinstance(exchange, Exchange):
            exchange = Exchange(exchange, self._engine.settings.exchange_type)
        async with self._broker() as broker:
            broker.wiring.check(exchange)
            await broker.driver.prepare([exchange])

    async def bind(
        self,
        queue: str,
        *patterns: str,
        exchange: Exchange | str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """Give a queue the events of these patterns from now on, through the default exchange or
        another. For a headers exchange, `headers` says what is wanted.

        >>> import asyncio
        >>> from queuecraft import QueueCraft
        >>> async def main() -> int | None:
        ...     async with QueueCraft("local://") as qc:
        ...         await qc.admin.declare("audit")
        ...         await qc.admin.bind("audit", "order.*", "user.created")
        ...         await qc.publish("user.created", {"id": "u-1"})
        ...         await qc.admin.unbind("audit", "user.created")
        ...         return (await qc.admin.inspect("audit")).ready
        >>> asyncio.run(main())
        1
        """
        async with self._broker() as broker:
            await broker.info(queue, "bind")
            more = await broker.wiring.bindings(patterns, exchange, headers)
            await broker.driver.bind(queue, more)

    async def unbind(
        self,
        queue: str,
        *patterns: str,
        exchange: Exchange | str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """Give a queue the events of these patterns no more. What it has it keeps; what it was
        not bound to is ignored. A worker that is started binds its queue again."""
        async with self._broker() as broker:
            await broker.info(queue, "unbind")
            bindings = await broker.wiring.bindings(patterns, exchange, headers)
            await broker.driver.unbind(queue, bindings)

    async def virtual_hosts(self) -> list[str]:
        """The virtual hosts of the broker that the user may see. On RabbitMQ, through its
        management interface; elsewhere there are none, and this is an `UnsupportedFeature`."""
        async with self._broker() as broker:
            return await broker.divided.virtual_hosts()

    async def make_virtual_host(self, name: str) -> None:
        """Make a virtual host in which the user may do everything: a place of its own for each
        tenant. Needs a user who is an administrator."""
        check_name("virtual host", name)
        async with self._broker() as broker:
            await broker.divided.make_virtual_host(name)

    # -- removing and moving -------------------------------------------------------------------

    async def purge(self, queue: str) -> int:
        """Forget what is ready in a queue, for good; says how many. What is in flight or delayed
        stays."""
        async with self._broker() as broker:
            await broker.info(queue, "purge")
            return await broker.driver.purge(queue)

    async def delete(self, queue: str) -> None:
        """Remove a queue with its bindings and all its messages. Its dead-letter queue stays. A
        worker that consumes it, or is started later, makes it again."""
        async with self._broker() as broker:
            await broker.info(queue, "delete")
            await broker.driver.delete(queue)
            self._engine.connection.forget(queue)

    async def rewind(self, queue: str, to: datetime, *, dry_run: bool = False) -> list[Rewound]:
        """Let a queue have again what it was given since a moment; says how much of each
        partition. Only on Kafka, which keeps what was consumed, and while no worker consumes. A
        dry run only counts."""
        if to.tzinfo is None:
            raise ConfigError(
                f"rewind({queue!r}, {to!r}): say in which time zone, as with tzinfo=UTC"
            )
        async with self._broker() as broker:
            await broker.info(queue, "rewind")
            return list(await broker.rewinding.rewind(queue, to, dry_run=dry_run))

    async def move(
        self,
        source: str,
        target: str,
        *,
        limit: int | None = None,
        where: Callable[[PeekedMessage], bool] | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        on_progress: Callable[[Redrive], object] | None = None,
    ) -> Redrive:
        """Take what is ready in one queue to another, in order, with id, headers and times kept.

        All that was there at the start, or what `where` chooses, at most `limit`, at most `rate`
        a second; a dry run only counts. Cancel the task to stop it: what has moved has moved, the
        rest stays where it was. However it is interrupted, nothing is lost; the last batch of up
        to 100 messages, or with a rate the last message, may be there twice. `stopped` says so if
        the broker gave out no more before all were looked at.

        >>> import asyncio
        >>> from queuecraft import QueueCraft
        >>> async def main() -> None:
        ...     async with QueueCraft("local://") as qc:
        ...         await qc.admin.declare("billing", "order.*")
        ...         await qc.admin.declare("parked")
        ...         await qc.publish_many("order.placed", [{"n": n} for n in range(5)])
        ...         report = await qc.admin.move(
        ...             "billing", "parked", where=lambda message: message.payload["n"] > 1
        ...         )
        ...         print(report.moved, report.kept)
        >>> asyncio.run(main())
        3 2
        """
        _check_above_zero("move", limit=limit, rate=rate)
        if source == target:
            raise ConfigError(f"move({source!r}, {target!r}): that is one queue; name two")
        meant = self._chooser(where)
        async with self._broker() as broker:
            await broker.info(target, "move")
            total = (await broker.info(source, "move")).counted()
            if where is None and limit is not None:
                total = min(total, limit)
            moving = Moving(
                self._engine.clock,
                state=Redrive(total=total, dry_run=dry_run),
                target=target,
                meant=meant,
                limit=limit,
                rate=rate,
                on_progress=on_progress,
            )
            if dry_run:
                peeked = await broker.peek(source, total) if total else ()
                await moving.rehearse(peeked)
                return moving.state

            def lost(error: QueueError) -> None:
                self._engine.connection.lost(broker.driver, error)

            async def sweep(left: int) -> Sweep:
                # As many may be held as there are: what is not meant is kept back until the end.
                subscription = await broker.driver.subscribe(Queue(source), prefetch=max(left, 1))
                partitioned = broker.driver.traits.partitioned
                return Sweep(subscription, left, lost, partitioned=partitioned)

            await moving.walk(sweep, partial(moving.judge, driver=broker.driver, queue=source))
            return moving.state

    # -- workers and pauses --------------------------------------------------------------------

    async def workers(self, *, listen: float = 0.0) -> list[Presence] | None:
        """The processes with workers that have given a sign of life, and how they are; None where
        the broker has no place for that. RabbitMQ keeps none: there it is what was heard since
        this was first asked, or what is heard now, if it is to `listen` for so many seconds.

        >>> import asyncio
        >>> from queuecraft import QueueCraft
        >>> async def main() -> None:
        ...     async with QueueCraft("local://") as qc:
        ...         await qc.worker("billing").on("order.*", print).start()
        ...         while not (processes := await qc.admin.workers()):
        ...             await asyncio.sleep(0.01)
        ...         for process in processes:
        ...             print(process.state, [worker.queue for worker in process.workers])
        >>> asyncio.run(main())
        connected ['billing']
        """
        async with self._broker() as broker:
            notes = await broker.driver.announced()
            if listen > 0 and notes is not None and not broker.driver.traits.keeps_notes:
                await asyncio.sleep(listen)
                notes = await broker.driver.announced()
        if notes is None:
            return None
        told = [Presence.read(note) for name, note in notes.items() if name.startswith(NAME)]
        found = [each for each in told if each is not None]
        return sorted(found, key=lambda each: (each.host, each.started_at, each.pid))

    async def pause(self, queue: str, *, reason: str = "", by: str = "") -> None:
        """Let no worker consume a queue, in no process, until it is resumed; also not one that is
        started later. Running workers see it within a few seconds, by the setting `presence`.

        >>> import asyncio
        >>> from queuecraft import QueueCraft
        >>> async def main() -> None:
        ...     async with QueueCraft("local://") as qc:
        ...         billing = qc.worker("billing").on("order.*", print)
        ...         await billing.start()
        ...         await qc.admin.pause("billing", reason="the bank is down", by="ada")
        ...         print(billing.paused)
        ...         await qc.admin.resume("billing")
        ...         print(billing.paused)
        >>> asyncio.run(main())
        paused by ada: the bank is down
        None
        """
        async with self._broker() as broker:
            await broker.info(queue, "pause")
            await self._engine.pauses.say(broker.driver, queue, paused=True, reason=reason, by=by)

    async def resume(self, queue: str, *, by: str = "") -> None:
        """Let workers consume a queue again that was paused by `pause`. A worker that stands still
        for another reason goes on doing so."""
        async with self._broker() as broker:
            pauses = self._engine.pauses
            await pauses.look(broker.driver)
            if queue not in pauses.paused:
                await broker.info(queue, "resume")
            await pauses.say(broker.driver, queue, paused=False, by=by)

    async def pauses(self) -> Mapping[str, Pause]:
        """The queues that are paused by `pause`: since when, by whom and why."""
        async with self._broker() as broker:
            await self._engine.pauses.look(broker.driver)
        return self._engine.pauses.paused

    # -- inside --------------------------------------------------------------------------------

    async def _everything(self) -> Sequence[QueueInfo]:
        """Every queue there is, those that are not listed as well."""
        async with self._broker() as broker:
            return await broker.driver.inspect()

    @asynccontextmanager
    async def _broker(self) -> AsyncGenerator[Broker]:
        """An open driver; a connection lost there is reported."""
        connection = self._engine.connection
        driver = await connection.ready()
        try:
            yield Broker(driver, self._engine.settings.default_exchange, self._holds_dead_letters)
        except ConnectionLost as error:
            connection.lost(driver, error)
            raise

    def _chooser(self, where: Callable[[PeekedMessage], bool] | None) -> Callable[[Delivery], bool]:
        if where is None:
            return lambda delivery: True
        decode = self._engine.codec.decoder()
        return lambda delivery: where(PeekedMessage.of(delivery, decode))


def _check_above_zero(operation: str, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not value > 0:
            raise ConfigError(f"{operation}({name}={value!r}): expected a number above 0")
