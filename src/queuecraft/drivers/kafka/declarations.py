"""What is declared, written down in the topic of exchanges, queues and bindings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec

from queuecraft.drivers.base import Binding, ConsumerInfo, Exchange, Queue, Topology
from queuecraft.drivers.kafka.cluster import Cluster
from queuecraft.drivers.kafka.names import TIERS, Names, is_pattern
from queuecraft.drivers.kafka.producing import Producing
from queuecraft.drivers.kafka.refusals import failure, no_queue
from queuecraft.drivers.kafka.topology import Reader, Registry, Span, described, kept, key_of
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import QueueError

log: Final = logging.getLogger("queuecraft")
_FOR_EVER: Final = {"retention.ms": "-1"}  # a dead letter stays until somebody has seen to it
Note: TypeAlias = tuple[bytes, bytes | None]
"""A change of what is written down: about what, and how it is from now on."""


class Declarations:
    """Reads what is written down, and adds to it; makes the topics that it speaks of."""

    def __init__(
        self, settings: Mapping[str, Any], names: Names, cluster: Cluster, producing: Producing
    ) -> None:
        self.registry = Registry(names)
        self._names = names
        self._cluster = cluster
        self._producing = producing
        self._reader = Reader(settings, names)

    async def read(self, operation: str) -> Registry:
        """Which exchanges, queues and bindings there are now."""
        await self._cluster.make(self._names.topology, 1, **{"cleanup.policy": "compact"})
        self.registry = await self._cluster.call(operation, self._reader.read)
        return self.registry

    async def known(self, queue: str, operation: str) -> Registry:
        """The same; raises if there is no such queue."""
        registry = await self.read(operation)
        if queue not in registry.queues:
            raise no_queue(queue, operation)
        return registry

    async def close(self) -> None:
        """Read no more."""
        await asyncio.to_thread(self._reader.close)

    # -- what a driver does --------------------------------------------------------------------

    async def prepare(self, exchanges: Sequence[Exchange]) -> None:
        """Have these exchanges."""
        registry = await self.read("prepare")
        await self._write(_new_exchanges(registry, exchanges))

    async def declare(self, queue: Queue) -> None:
        """Have a queue, its dead-letter queue and its bindings."""
        registry = await self.read("declare")
        notes = _new_exchanges(registry, [each.exchange for each in queue.bindings])
        to = queue.dead_letters
        dead = () if to is None else (Queue(to.queue, arguments=_FOR_EVER),)
        inboxes = {self._names.inbox(each.name): _kept_for(each) for each in (queue, *dead)}
        await self._cluster.make_all({**self._events(queue.bindings), **inboxes})
        for each in (queue, *dead):
            value = kept(each)
            known = registry.queues.get(each.name)
            if known is None or (each is queue and dead and msgspec.json.encode(known) != value):
                notes.append((key_of("queue", each.name), value))
        notes += await self._bindings(registry, queue.name, queue.bindings)
        await self._write(notes)

    async def bind(self, queue: str, bindings: Sequence[Binding]) -> None:
        """Give a queue more, from now on."""
        registry = await self.known(queue, "bind")
        notes = _new_exchanges(registry, [each.exchange for each in bindings])
        notes += await self._bindings(registry, queue, bindings)
        await self._write(notes)

    async def unbind(self, queue: str, bindings: Sequence[Binding]) -> None:
        """Give a queue less, from now on."""
        registry = await self.known(queue, "unbind")
        notes: list[Note] = []
        for binding in bindings:
            there = (binding.exchange.name, binding.pattern)
            found = registry.bindings.get(queue, {}).get(there)
            if found is not None and found[1].until is None:
                known, span = found
                ends = await self._cluster.ends(self._names.bound(known, self._cluster.topics))
                value = msgspec.json.encode(Span(span.since, ends))
                notes.append((key_of("binding", queue, *there), value))
        await self._write(notes)

    async def renew(self, queue: str, topics: Collection[str]) -> None:
        """Give a queue all of these topics, which were deleted and made again since it was
        bound."""
        registry = await self.read("subscribe")
        spans = registry.bindings.get(queue, {})
        await self._write(
            [
                (key_of("binding", queue, *there), msgspec.json.encode(span.anew(topics)))
                for there, (_, span) in spans.items()
                if span.until is None and not span.since.keys().isdisjoint(topics)
            ]
        )

    async def delete(self, queue: str) -> None:
        """Have a queue no more, nor the topics that are only its own."""
        registry = await self.known(queue, "delete")
        bindings = [key_of("binding", queue, *each) for each in registry.bindings.get(queue, {})]
        await self._write([(each, None) for each in (*bindings, key_of("queue", queue))])
        with suppress(QueueError):  # it has members, who will find that it is gone
            await self._cluster.forget(self._names.group(queue))
        tiers = (self._names.retry(queue, tier) for tier in range(len(TIERS)))
        private = {self._names.inbox(queue), *tiers}
        await self._cluster.remove(sorted(private & self._cluster.topics.keys()))

    async def topology(self) -> Topology:
        """All there is, and who is a member of it."""
        registry = await self.read("topology")
        groups = {self._names.group(queue): queue for queue in sorted(registry.queues)}
        members = await self._cluster.members(groups)
        return Topology(
            exchanges=tuple(registry.exchanges.values()),
            queues=tuple(groups.values()),
            bindings=tuple(
                (binding, queue) for queue in groups.values() for binding in registry.bound(queue)
            ),
            consumers=tuple(
                ConsumerInfo(groups[group], member)
                for group, found in members.items()
                for member in found
            ),
            dead_letters=tuple(
                (queue, to)
                for queue in groups.values()
                if (to := registry.queues[queue].dead_letters) is not None
            ),
        )

    # -- inside --------------------------------------------------------------------------------

    async def _bindings(
        self, registry: Registry, queue: str, bindings: Sequence[Binding]
    ) -> list[Note]:
        """The notes of those that do not hold yet: they do from now on. What holds for a topic
        that was deleted and made again holds for all of it."""
        notes: list[Note] = []
        known = registry.bindings.get(queue, {})
        await self._cluster.make_all(self._events(bindings))
        held = {there: span for there, (_, span) in known.items() if span.until is None}
        anew = await self._anew(held.values())
        for binding in bindings:
            there = (binding.exchange.name, binding.pattern)
            span = held.get(there)
            if span is None:
                if is_pattern(binding):
                    await self._cluster.look("declare")  # what is there by now came before
                since = await self._cluster.ends(self._names.bound(binding, self._cluster.topics))
                notes.append((key_of("binding", queue, *there), msgspec.json.encode(Span(since))))
            elif not span.since.keys().isdisjoint(anew):
                value = msgspec.json.encode(span.anew(anew))
                notes.append((key_of("binding", queue, *there), value))
        return notes

    async def _anew(self, spans: Iterable[Span]) -> set[str]:
        """The topics of these that end before they should begin."""
        since = [
            (topic, number, offset)
            for span in spans
            for topic, offsets in span.since.items()
            for number, offset in enumerate(offsets)
            if offset > 0 and number < self._cluster.topics.get(topic, 0)
        ]
        # Those that do not tell now may not keep a worker from the others.
        ends = await self._cluster.highs_told(list({(topic, number) for topic, number, _ in since}))
        anew = {topic for topic, number, at in since if at > ends.get((topic, number), at)}
        for topic in sorted(anew):
            log.warning(
                "kafka: topic %r was deleted and made again: who is bound to it is given all", topic
            )
        return anew

    def _events(self, bindings: Iterable[Binding]) -> dict[str, dict[str, str]]:
        """The topics that these ask for by name, which have no settings of their own."""
        named = (each for each in bindings if not is_pattern(each))
        return {self._names.event(each.exchange.name, each.pattern): {} for each in named}

    async def _write(self, notes: Sequence[Note]) -> None:
        if not notes:
            return
        topic = self._names.topology
        failpoint("declare.before_commit")
        errors = await self._producing.send([(topic, value, key, []) for key, value in notes])
        failpoint("declare.after_commit")
        for error in errors.values():
            raise failure(error, "declare")
        await self.read("declare")


def _new_exchanges(registry: Registry, exchanges: Iterable[Exchange]) -> list[Note]:
    """The notes of those that are not known; raises for one that is known as another."""
    notes: list[Note] = []
    for exchange in dict.fromkeys(exchanges):
        registry.check(exchange)
        if exchange.name not in registry.exchanges:
            notes.append(described(exchange))
    return notes


def _kept_for(queue: Queue) -> dict[str, str]:
    """How long what is sent to a queue is kept, if it says so; else as the cluster does."""
    usual = _FOR_EVER if queue.name.endswith(".dlq") else {}
    kept = queue.arguments.get("retention.ms")
    return usual if kept is None else {"retention.ms": str(kept)}
