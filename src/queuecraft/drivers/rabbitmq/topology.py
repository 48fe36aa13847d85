"""Declaring: exchanges, queues and bindings, in an order in which nothing can get lost between."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pamqp import commands
from pamqp.base import Frame

from queuecraft.drivers.base import Binding, Exchange, Queue
from queuecraft.drivers.rabbitmq import delays
from queuecraft.drivers.rabbitmq.address import Declaring
from queuecraft.drivers.rabbitmq.channel import Channel
from queuecraft.drivers.rabbitmq.methods import (
    ExchangeBind,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueUnbind,
)
from queuecraft.drivers.rabbitmq.refusals import NOT_FOUND, refusable, told
from queuecraft.drivers.rabbitmq.wire import Closed, Wire
from queuecraft.model.errors import QueueError


@asynccontextmanager
async def throwaway(wire: Wire) -> AsyncGenerator[Channel]:
    """A channel for a few questions: a broker that says no closes it."""
    channel = Channel(wire)
    await channel.open()
    try:
        yield channel
    finally:
        await channel.close()


class Declarer:
    """Makes on the broker what is asked for, or sees that it is there, or trusts that it is."""

    def __init__(self, wire: Wire, declaring: Declaring) -> None:
        self._wire = wire
        self._declaring = declaring
        self._deepest = -1  # level of delay that is known to be there

    async def exchanges(self, exchanges: Sequence[Exchange]) -> None:
        """See to exchanges."""
        if self._declaring != "skip":
            for exchange in exchanges:
                async with throwaway(self._wire) as channel:
                    await self._exchange(channel, exchange)

    async def queue(self, queue: Queue) -> None:
        """See to a queue: where its dead letters go first, then itself, what feeds it last."""
        if self._declaring == "skip":
            return
        async with throwaway(self._wire) as channel:
            await self._exchange(channel, delays.DUE)
            if (dead := queue.dead_letters) is not None:
                exchange = Exchange(dead.exchange)
                await self._exchange(channel, exchange)
                await self._queue(channel, Queue(dead.queue))
                if self._declaring == "assert":
                    await self._bind(channel, dead.queue, Binding(exchange, dead.routing_key))
            await self._queue(channel, queue)
            for binding in queue.bindings:
                await self._exchange(channel, binding.exchange)
                if self._declaring == "assert":  # AMQP has no way to ask for one
                    await self._bind(channel, queue.name, binding)

    async def bind(self, queue: str, bindings: Sequence[Binding]) -> None:
        """Give a queue more. Asked for by hand, it is done however queues are declared."""
        async with throwaway(self._wire) as channel:
            await self.exists(channel, queue, "bind")
            for binding in bindings:
                await self._exchange(channel, binding.exchange)
                await self._bind(channel, queue, binding)

    async def unbind(self, queue: str, bindings: Sequence[Binding]) -> None:
        """Give a queue less."""
        async with throwaway(self._wire) as channel:
            await self.exists(channel, queue, "unbind")
            for binding in bindings:
                for exchange, pattern in _ways(binding):
                    await self._ask(
                        channel,
                        QueueUnbind(
                            queue=queue,
                            exchange=exchange,
                            routing_key=pattern,
                            arguments=dict(binding.headers),
                        ),
                        commands.Queue.UnbindOk,
                        queue,
                    )

    async def delays(self, top: int) -> None:
        """See to the levels of delay up to this one."""
        if top <= self._deepest or self._declaring == "skip":
            return
        async with throwaway(self._wire) as channel:
            kept = delays.UNDELIVERED_QUEUE
            await self._exchange(channel, delays.UNDELIVERED)
            await self._queue(channel, Queue(kept), due=False)
            if self._declaring == "assert":
                await self._bind(channel, kept, Binding(delays.UNDELIVERED, ""), due=False)
            await self._exchange(channel, delays.DUE)
            for level in delays.levels(top):
                if level.number <= self._deepest:
                    continue
                await self._exchange(channel, Exchange(level.name))
                await self._queue(channel, Queue(level.name, arguments=level.arguments), due=False)
                if self._declaring == "check":
                    continue  # AMQP has no way to ask for a binding
                stay = Binding(Exchange(level.name), level.pattern(1))
                await self._bind(channel, level.name, stay, due=False)
                await self._ask(
                    channel,
                    ExchangeBind(
                        destination=level.next, source=level.name, routing_key=level.pattern(0)
                    ),
                    commands.Exchange.BindOk,
                    level.name,
                )
        self._deepest = top

    async def exists(self, channel: Channel, queue: str, operation: str) -> tuple[int, int]:
        """How many messages wait in a queue and how many consume it; raises if it is not there."""
        with refusable(operation, queue):
            try:
                answer = await channel.ask(
                    QueueDeclare(queue=queue, passive=True), commands.Queue.DeclareOk
                )
            except Closed as error:
                if error.code != NOT_FOUND or "no queue" not in told(error):  # but one that is down
                    raise
                raise QueueError(
                    f"there is no queue {queue!r}; start its worker, or declare it",
                    broker="rabbitmq",
                    operation=operation,
                    queue=queue,
                ) from None
        return answer.message_count or 0, answer.consumer_count or 0

    # -- one step each -------------------------------------------------------------------------

    async def _exchange(self, channel: Channel, exchange: Exchange) -> None:
        await self._ask(
            channel,
            ExchangeDeclare(
                exchange=exchange.name,
                exchange_type=exchange.type,
                passive=self._declaring == "check",
                durable=exchange.durable,
                auto_delete=exchange.auto_delete,
                arguments=dict(exchange.arguments),
            ),
            commands.Exchange.DeclareOk,
            exchange.name,
        )

    async def _queue(self, channel: Channel, queue: Queue, *, due: bool = True) -> None:
        await self._ask(
            channel,
            QueueDeclare(
                queue=queue.name,
                passive=self._declaring == "check",
                durable=queue.durable,
                exclusive=queue.exclusive,
                auto_delete=queue.auto_delete,
                arguments=arguments(queue),
            ),
            commands.Queue.DeclareOk,
            queue.name,
        )
        if due and self._declaring == "assert":
            arrived = delays.binding(delays.to_queue(queue.name))
            await self._bind(channel, queue.name, Binding(delays.DUE, arrived), due=False)

    async def _bind(
        self, channel: Channel, queue: str, binding: Binding, *, due: bool = True
    ) -> None:
        if due and not _by_key(binding.exchange):
            await self._stand_in(channel, binding.exchange)
        for exchange, pattern in (
            _ways(binding) if due else [(binding.exchange.name, binding.pattern)]
        ):
            await self._ask(
                channel,
                QueueBind(
                    queue=queue,
                    exchange=exchange,
                    routing_key=pattern,
                    arguments=dict(binding.headers),
                ),
                commands.Queue.BindOk,
                queue,
            )

    async def _stand_in(self, channel: Channel, exchange: Exchange) -> None:
        stand_in = delays.due_at(exchange)
        await self._exchange(channel, stand_in)
        await self._ask(
            channel,
            ExchangeBind(
                destination=stand_in.name,
                source=delays.DUE.name,
                routing_key=delays.binding(delays.to_exchange(exchange.name, "#")),
            ),
            commands.Exchange.BindOk,
            stand_in.name,
        )

    async def _ask(self, channel: Channel, command: Frame, answer: type[Frame], what: str) -> None:
        with refusable("declare", what):
            await channel.ask(command, answer)


def arguments(queue: Queue) -> dict[str, Any]:
    """What a queue is declared with, besides what AMQP has a bit for."""
    told: dict[str, Any] = dict(queue.arguments)
    if queue.max_priority is not None and told.get("x-queue-type") != "quorum":
        told["x-max-priority"] = queue.max_priority
    plain = of_dead_letters(queue)
    if (dead := queue.dead_letters) is not None and not plain:
        told["x-dead-letter-exchange"] = dead.exchange
        told["x-dead-letter-routing-key"] = dead.routing_key
    if queue.single_active:
        told["x-single-active-consumer"] = True
    if queue.policy.ttl is not None and not plain:
        told["x-message-ttl"] = round(1000 * queue.policy.ttl)
    return told


def of_dead_letters(queue: Queue) -> bool:
    """Whether a queue holds dead letters. It is declared plain, by its own worker as by that of the
    queue they come from, which knows nothing of it but the name: neither may meet what the other
    has made. Besides, a dead letter must not expire.

    >>> of_dead_letters(Queue("billing.dlq")), of_dead_letters(Queue("billing"))
    (True, False)
    """
    return queue.holds_dead_letters or queue.name.endswith(".dlq")


def _ways(binding: Binding) -> list[tuple[str, str]]:
    """The exchange of a binding, and the one through which delayed messages reach it."""
    ways = [(binding.exchange.name, binding.pattern)]
    if _by_key(binding.exchange):
        arrived = delays.binding(delays.to_exchange(binding.exchange.name, binding.pattern))
        ways.append((delays.DUE.name, arrived))
    else:
        ways.append((delays.due_at(binding.exchange).name, binding.pattern))
    return ways


def _by_key(exchange: Exchange) -> bool:
    return exchange.type in ("topic", "direct")
