"""Exchanges, queues and bindings, which Kafka does not know: written down in a topic of their own.

The topic is compacted: the last record of a key is what holds. Whoever changes something adds a
record, so that two who declare the same at once do no harm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from queuecraft.drivers.base import Binding, ConnectionLost, Exchange, Queue
from queuecraft.drivers.kafka.names import TIERS, Names, is_pattern
from queuecraft.model.errors import ConfigError, TopologyMismatch

WITHIN: Final = 10.0  # seconds to read it all
_PROPERTIES: Final = ("type", "durable", "auto_delete", "arguments")
_UNREADABLE: Final = (
    msgspec.MsgspecError,
    ConfigError,  # a name or a type that there is none of
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
Offsets = dict[str, list[int]]
"""Of topics, an offset for each partition."""


class Span(msgspec.Struct, omit_defaults=True):
    """From where to where a binding gives the records of topics; a topic that is not named came
    later, and is given from its beginning."""

    since: Offsets = {}
    until: Offsets | None = None
    """Set when it was unbound."""

    def anew(self, topics: Collection[str]) -> Span:
        """The same, but that these came later."""
        return Span(
            {topic: since for topic, since in self.since.items() if topic not in topics}, self.until
        )


class Kept(msgspec.Struct, omit_defaults=True):
    """A queue, and where its dead letters go: an exchange, a routing key, and so a queue."""

    dead: tuple[str, str, str] | None = None

    @property
    def dead_letters(self) -> str | None:
        """Its dead-letter queue."""
        return None if self.dead is None else self.dead[2]


@dataclass(slots=True)
class Reach:
    """What of a topic belongs to a queue, and which exchange it is of; none, if it is its own."""

    exchange: str = ""
    since: list[int] = field(default_factory=list[int])
    until: list[int] | None = None

    def start(self, partition: int) -> int:
        """Where it begins."""
        return self.since[partition] if partition < len(self.since) else 0

    def begins(self, partition: int, end: int) -> int:
        """The same, of a partition that ends there now. If that is before it begins, the topic was
        deleted and made again, and all of it came later."""
        start = self.start(partition)
        return 0 if start > end and self.until is None else start

    def end(self, partition: int) -> int | None:
        """Before what it ends; None if it goes on."""
        if self.until is None:
            return None
        return self.until[partition] if partition < len(self.until) else 0


class Registry:
    """What is written down, as of the last `read`."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Kept] = {}
        self.bindings: dict[str, dict[tuple[str, str], tuple[Binding, Span]]] = {}
        self.dead: dict[tuple[str, str], str] = {}
        """By exchange and routing key, the queues of dead letters."""

    def copy(self) -> Registry:
        """Another that can learn more."""
        other = Registry(self._names)
        other.exchanges = dict(self.exchanges)
        other.queues = dict(self.queues)
        other.bindings = {queue: dict(spans) for queue, spans in self.bindings.items()}
        other.dead = dict(self.dead)
        return other

    # -- what it says --------------------------------------------------------------------------

    def bound(self, queue: str) -> list[Binding]:
        """The bindings of a queue that hold."""
        spans = self.bindings.get(queue, {}).values()
        return [binding for binding, span in spans if span.until is None]

    def topics(self, queue: str, existing: Iterable[str]) -> dict[str, Reach]:
        """Those of the topics that exist which a queue is given, and which part of them."""
        known = set(existing)
        inbox = self._names.inbox(queue)
        found = {inbox: Reach()} if inbox in known else {}
        for binding, span in self.bindings.get(queue, {}).values():
            for topic in self._names.bound(binding, known):
                if span.until is not None and topic not in span.until:
                    continue
                reach = Reach(
                    binding.exchange.name,
                    span.since.get(topic, []),
                    None if span.until is None else span.until[topic],
                )
                found[topic] = _wider(found[topic], reach) if topic in found else reach
        return found

    def topics_by_name(self, queues: Iterable[str]) -> list[str] | None:
        """All topics that have to do with these queues, whether they exist or not; None if only a
        list of all topics can tell."""
        found: list[str] = []
        for queue in queues:
            dead = self.queues[queue].dead_letters if queue in self.queues else None
            for each in (queue,) if dead is None else (queue, dead):
                bindings = [binding for binding, _ in self.bindings.get(each, {}).values()]
                if any(map(is_pattern, bindings)):
                    return None
                found += [self._names.event(b.exchange.name, b.pattern) for b in bindings]
                found.append(self._names.inbox(each))
            found += [self._names.retry(queue, tier) for tier in range(len(TIERS))]
        return found

    def check(self, exchange: Exchange) -> None:
        """Raise `TopologyMismatch` if it exists and is another."""
        existing = self.exchanges.get(exchange.name)
        for name in _PROPERTIES if existing is not None else ():
            have, want = getattr(existing, name), getattr(exchange, name)
            if have != want:
                raise TopologyMismatch(
                    f"exchange {exchange.name!r} exists with {name}={have!r}, {want!r} is asked "
                    "for; use another name or ask for the same",
                    broker="kafka",
                    operation="declare",
                )

    # -- what changes it -----------------------------------------------------------------------

    def learn(self, key: bytes, value: bytes | None) -> None:
        """A record, in the order they were written; what cannot be read is not ours."""
        try:
            what, *name = msgspec.json.decode(key, type=list[str])
            if what == "exchange":
                self._learn_exchange(name[0], value)
            elif what == "queue":
                self._learn_queue(name[0], value)
            elif what == "binding":
                self._learn_binding(name[0], name[1], name[2], value)
        except _UNREADABLE:
            return

    def _learn_exchange(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.exchanges.pop(name, None)
        else:
            told = msgspec.json.decode(value, type=dict[str, Any])
            self.exchanges[name] = Exchange(name, **{each: told[each] for each in _PROPERTIES})

    def _learn_queue(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.queues.pop(name, None)
            self.bindings.pop(name, None)
        else:
            queue = self.queues[name] = msgspec.json.decode(value, type=Kept)
            if queue.dead is not None:
                exchange, routing_key, target = queue.dead
                self.dead[exchange, routing_key] = target

    def _learn_binding(self, queue: str, exchange: str, pattern: str, value: bytes | None) -> None:
        bindings = self.bindings.setdefault(queue, {})
        if value is None:
            bindings.pop((exchange, pattern), None)
        else:
            span = msgspec.json.decode(value, type=Span)
            known = self.exchanges.get(exchange) or Exchange(exchange)
            bindings[exchange, pattern] = (Binding(known, pattern), span)


def described(exchange: Exchange) -> tuple[bytes, bytes]:
    """An exchange as a record."""
    told = {name: getattr(exchange, name) for name in _PROPERTIES}
    told["arguments"] = dict(exchange.arguments)
    return key_of("exchange", exchange.name), msgspec.json.encode(told)


def key_of(*names: str) -> bytes:
    """What a record is about.

    >>> key_of("queue", "billing")
    b'["queue","billing"]'
    """
    return msgspec.json.encode(names)


def kept(queue: Queue) -> bytes:
    """A queue as the value of a record."""
    to = queue.dead_letters
    return msgspec.json.encode(
        Kept(None if to is None else (to.exchange, to.routing_key, to.queue))
    )


def _wider(one: Reach, other: Reach) -> Reach:
    """Two bindings give the same topic: whatever either gives."""
    partitions = range(max(len(one.since), len(other.since)))
    since = [min(one.start(at), other.start(at)) for at in partitions]
    if one.until is None or other.until is None:
        return Reach(one.exchange, since)
    partitions = range(max(len(one.until), len(other.until)))
    return Reach(
        one.exchange, since, [max(one.end(at) or 0, other.end(at) or 0) for at in partitions]
    )


class Reader:
    """Reads the topic; each time from where the last one ended. Blocks: not for the loop."""

    def __init__(self, settings: Mapping[str, Any], names: Names) -> None:
        self.registry = Registry(names)
        self._place = TopicPartition(names.topology, 0)
        self._next = 0  # the first offset that was not read
        self._consumer = Consumer(
            {
                **settings,
                "group.id": "queuecraft.none",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # the answer to one question waits for the one before
            }
        )
        self._lock = Lock()

    def read(self) -> Registry:
        """What is written down now."""
        with self._lock:
            _, end = self._consumer.get_watermark_offsets(self._place, timeout=WITHIN)
            if self._next < end:
                self.registry = self.registry.copy()  # others may be reading the one they have
                # Not for longer: what librdkafka asks for next keeps other questions waiting.
                self._consumer.assign([TopicPartition(self._place.topic, 0, self._next)])
                try:
                    self._read_until(end)
                finally:
                    self._consumer.unassign()
            return self.registry

    def _read_until(self, end: int) -> None:
        while self._next < end:
            record = self._consumer.poll(WITHIN)
            if record is None:
                raise ConnectionLost(
                    f"topic {self._place.topic!r} could not be read within {WITHIN:g} s",
                    broker="kafka",
                    operation="declare",
                )
            error = record.error()
            if error is None:
                self.registry.learn(record.key() or b"", record.value())
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            self._next = max(self._next, (record.offset() or 0) + (error is None))

    def close(self) -> None:
        """Read no more."""
        self._consumer.close()
