"""Looking at a virtual host: by the management interface where there is one, else by AMQP alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pamqp import commands

from queuecraft.drivers.base import (
    Binding,
    ConnectionLost,
    ConsumerInfo,
    Exchange,
    Queue,
    QueueInfo,
    Topology,
)
from queuecraft.drivers.partial import Partial
from queuecraft.drivers.rabbitmq import crashes, delays
from queuecraft.drivers.rabbitmq.arrivals import Arrivals
from queuecraft.drivers.rabbitmq.census import Counts, census
from queuecraft.drivers.rabbitmq.management import (
    BindingState,
    ExchangeState,
    Management,
    QueueState,
    Unanswered,
)
from queuecraft.drivers.rabbitmq.methods import QueueDeclare, QueueDelete
from queuecraft.drivers.rabbitmq.presence import EXCHANGE
from queuecraft.drivers.rabbitmq.remembered import FEW, Remembered
from queuecraft.drivers.rabbitmq.topology import of_dead_letters, throwaway
from queuecraft.drivers.rabbitmq.wire import Wire
from queuecraft.model.errors import ConfigError, QueueError, UnsupportedFeature
from queuecraft.model.naming import PAUSES
from queuecraft.model.queue import EXCHANGE_TYPES

FRESH: Final = 5_000  # queues that are counted by AMQP: what the interface tells is seconds old
log: Final = logging.getLogger("queuecraft")
_LACKING: Final = (
    "RabbitMQ tells which queues it has by its management interface alone ({}); enable its plugin "
    "(rabbitmq-plugins enable rabbitmq_management) and, if it is not at its usual port, say where "
    "it is (?management=http://host:15672 in the URL), or name the queues you want"
)


class Inspection:
    """What exists and how it is. Without the interface, only what this driver has declared can be
    listed, and what AMQP does not tell is left open."""

    def __init__(
        self,
        wire: Wire,
        management: Management | None,
        *,
        given: bool,
        queues: Mapping[str, Queue],
        exchanges: Mapping[str, Exchange],
    ) -> None:
        self._wire = wire
        self._management = management
        self._given = given  # in the URL, as against a place where it usually is
        self._proven = given
        self._warned = False
        self._why = "the URL does not say where that is"  # so that there is no complete list
        self._queues = queues
        self._exchanges = exchanges
        self._listed: Remembered[dict[str, QueueState]] = Remembered()
        self._ways: dict[str, Remembered[Arrivals]] = {}

    async def queues(self, names: Sequence[str] | None) -> list[QueueInfo]:
        """The state of the named queues, or of all; without the interface, of those made here."""
        states = await self._states(names)
        whole = names is not None or states is not None
        if names is None:
            # What was made here is there, though the interface may not have told of it yet.
            listed = dict.fromkeys([*(states or ()), *self._queues])
            names = [name for name in listed if not is_internal(name)]
        states = states or {}
        dead = await self._dead_letters(names, states)
        if len(names) > FRESH and states:
            counts = {name: _told(state) for name, state in states.items()}
        else:
            letters = (each for those in dead.values() for each in those)
            counts = await census(self._wire, [*names, *letters])
        found: list[QueueInfo] = []
        for name in names:
            if name not in counts:
                continue
            ready, consumers = counts[name]
            state = states.get(name)
            dying = [counts[each][0] for each in dead.get(name, ()) if each in counts]
            found.append(
                QueueInfo(
                    name=name,
                    ready=ready,
                    in_flight=_held(state, consumers),
                    dead=_sum(dying),
                    consumers=consumers,
                    rates=None if state is None else state.rates,
                )
            )
        why = self._why.replace("; ", ", ")  # what to do comes after the only semicolon
        return found if whole else Partial(found, _LACKING.format(why))

    async def is_brief(self, name: str) -> bool:
        """Whether a queue may go with its last consumer: what nobody tells of is taken for one."""
        if (known := self._queues.get(name)) is not None:
            return known.auto_delete
        state = (await self._states([name]) or {}).get(name)
        return state is None or state.auto_delete is not False

    async def topology(self) -> Topology:
        """Exchanges, queues, bindings, consumers."""
        management = await self._interface()
        if management is not None:
            try:
                return await self._by_management(management)
            except Unanswered as error:
                self._do_without(error)
        return Topology(
            exchanges=tuple(self._exchanges.values()),
            queues=tuple(name for name in self._queues if not is_internal(name)),
            bindings=tuple((each, q.name) for q in self._queues.values() for each in q.bindings),
            dead_letters=tuple(
                (name, queue.dead_letters.queue)
                for name, queue in self._queues.items()
                if queue.dead_letters is not None
            ),
        )

    async def management(self) -> Management:
        """The interface; raises `UnsupportedFeature` if there is none to be had."""
        management = await self._interface()
        if management is None:
            raise UnsupportedFeature(
                "this needs RabbitMQ's management interface, which is not where it usually is; "
                "enable its plugin, and say where it is: amqp://…?management=http://host:15672",
                broker="rabbitmq",
            )
        return management

    # -- by the interface ----------------------------------------------------------------------

    async def _interface(self) -> Management | None:
        if self._management is not None and not self._proven:
            try:
                self._proven = await self._is_ours(self._management)
                self._why = f"what answers at {self._management.url} speaks of another broker"
            except QueueError as error:
                if isinstance(error, ConnectionLost) and self._wire.lost is not None:
                    raise
                self._why = error.message
            if not self._proven:
                self._management = None  # asked once
        return self._management

    async def _is_ours(self, management: Management) -> bool:
        """Whether it speaks of the broker we are connected to. What answers at the usual port may
        be another: behind a tunnel or a container, names and ports say little."""
        async with throwaway(self._wire) as channel:
            mark = await channel.ask(
                QueueDeclare(queue="", exclusive=True, auto_delete=True), commands.Queue.DeclareOk
            )
            name = mark.queue or ""
            try:
                return await management.queue(name) is not None
            finally:
                await channel.ask(QueueDelete(queue=name), commands.Queue.DeleteOk)

    async def _states(self, names: Sequence[str] | None) -> dict[str, QueueState] | None:
        management = await self._interface()
        if management is None:
            return None
        try:
            if names is None or len(names) > FEW:
                return await self._listed.get(lambda: _every(management))
            found = [await management.queue(name) for name in names]
        except Unanswered as error:
            self._do_without(error)
            return None
        return {state.name: state for state in found if state is not None}

    async def _dead_letters(
        self, names: Sequence[str], states: Mapping[str, QueueState]
    ) -> dict[str, list[str]]:
        """The queues that hold the dead letters of each, as far as that is known."""
        dead: dict[str, list[str]] = {}
        ways: dict[str, Arrivals] = {}
        for name in names:
            target = None if (state := states.get(name)) is None else state.dead_letters
            known = self._queues.get(name)
            if target is not None and self._management is not None:
                try:
                    dead[name] = await self._arrivals(self._management, *target, ways)
                except Unanswered as error:
                    self._do_without(error)
            elif known is not None and (state is None or of_dead_letters(known)):
                dead[name] = [known.dead_letters.queue] if known.dead_letters else []
        return dead

    async def _arrivals(
        self,
        management: Management,
        exchange: str,
        routing_key: str | None,
        ways: dict[str, Arrivals],
    ) -> list[str]:
        """The queues that an exchange gives a dead letter to."""
        if not exchange:
            return [] if routing_key is None else [routing_key]
        if exchange not in ways:
            known = self._ways.setdefault(exchange, Remembered())
            ways[exchange] = await known.get(lambda: _way(management, exchange))
        return ways[exchange].of(routing_key)

    async def _by_management(self, management: Management) -> Topology:
        exchanges: dict[str, Exchange] = {}
        for told in await management.exchanges():
            if (exchange := _exchange(told)) is not None:
                exchanges[exchange.name] = exchange
        queues = {
            state.name: state.dead_letters
            for state in await management.queue_targets()
            if not is_internal(state.name)
        }
        bindings: list[tuple[Binding, str]] = []
        bound = await management.bindings()
        for each in bound:
            exchange = exchanges.get(each.source)
            if (
                exchange is None
                or each.destination_type != "queue"
                or each.destination not in queues
            ):
                continue
            if (binding := _binding(exchange, each)) is not None:
                bindings.append((binding, each.destination))
        consumers = [
            ConsumerInfo(each.queue.name, each.consumer_tag, each.prefetch_count)
            for each in await management.consumers()
            if each.queue.name in queues
        ]
        return Topology(
            tuple(exchanges.values()),
            tuple(queues),
            tuple(bindings),
            tuple(consumers),
            tuple(_letters(queues, exchanges, bound)),
        )

    def _do_without(self, error: Unanswered) -> None:
        self._why = error.message
        if self._given and not self._warned:
            self._warned = True
            log.warning("%s; what AMQP alone tells has to do", error.message)


def is_internal(name: str) -> bool:
    """Whether a name is the broker's or ours, and of no interest to anyone.

    >>> is_internal("amq.topic"), is_internal("qc.delay.03"), is_internal("billing")
    (True, True, False)
    """
    ours = ("", delays.UNDELIVERED.name, EXCHANGE, PAUSES)
    return name in ours or name.startswith(("amq.", f"{delays.PREFIX}.", crashes.PREFIX))


async def _every(management: Management) -> tuple[dict[str, QueueState], int]:
    found = {state.name: state for state in await management.queues()}
    return found, len(found)


async def _way(management: Management, exchange: str) -> tuple[Arrivals, int]:
    kind = await management.exchange(exchange)
    bindings = [] if kind is None else await management.bindings(exchange)
    return Arrivals("" if kind is None else kind.type, bindings), len(bindings)


def _letters(
    targets: Mapping[str, tuple[str, str | None] | None],
    exchanges: Mapping[str, Exchange],
    bound: Sequence[BindingState],
) -> Iterator[tuple[str, str]]:
    """Each queue with those that its dead letters are meant for."""
    by_source: dict[str, list[BindingState]] = {}
    for each in bound:
        by_source.setdefault(each.source, []).append(each)
    ways: dict[str, Arrivals] = {}
    for queue, target in targets.items():
        if target is None:
            continue
        name, routing_key = target
        if not name and routing_key is not None:
            yield queue, routing_key
        elif name in exchanges:
            if name not in ways:
                ways[name] = Arrivals(exchanges[name].type, by_source.get(name, ()))
            for to in ways[name].meant_for(routing_key):
                yield queue, to


def _told(state: QueueState) -> Counts:
    return state.messages_ready, state.consumers


def _held(state: QueueState | None, consumers: int | None) -> int | None:
    """What is in hand. What the interface tells is seconds old: where nobody consumes any more, it
    may be back already, and would be counted twice."""
    told = None if state is None else state.messages_unacknowledged
    return None if told and consumers == 0 else told


def _sum(numbers: Sequence[int | None]) -> int | None:
    told = [number for number in numbers if number is not None]
    return sum(told) if told and len(told) == len(numbers) else None


def _exchange(state: ExchangeState) -> Exchange | None:
    """None for what nobody can publish to, and for types of which QueueCraft knows nothing."""
    if is_internal(state.name) or state.internal or state.type not in EXCHANGE_TYPES:
        return None
    arguments: dict[str, Any] = state.arguments if isinstance(state.arguments, dict) else {}
    try:
        return Exchange(state.name, state.type, state.durable, state.auto_delete, arguments)
    except ConfigError:
        return None


def _binding(exchange: Exchange, state: BindingState) -> Binding | None:
    wanted: dict[str, Any] = state.arguments if isinstance(state.arguments, dict) else {}
    try:
        return Binding(exchange, state.routing_key, wanted)
    except ConfigError:  # an x-match that only newer brokers know
        return None
