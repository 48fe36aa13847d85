"""The topics of a queue or an event: which partitions there are, and from where to where."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from queuecraft.drivers.kafka.names import Names
from queuecraft.drivers.kafka.refusals import no_queue
from queuecraft.drivers.kafka.topology import Reach, Reader
from queuecraft.model.errors import QueueError
from queuecraft.pipeline.source.shares import Spot, Spots

EARLIEST, LATEST = -2, -1  # in the place of a time


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition has of a queue or an event: the records from `first` on, before `end`."""

    since: int
    """Where it begins to be of the queue, whether records are still there or not."""
    low: int
    high: int
    until: int | None = None

    @property
    def first(self) -> int:
        """The first record there is."""
        return max(self.low, self.since)

    @property
    def end(self) -> int:
        """The offset after the last record there is."""
        return max(self.first, self.high if self.until is None else min(self.high, self.until))


class Topics:
    """Asks the cluster. Blocks: not for the loop."""

    def __init__(
        self,
        consumer: Consumer,
        settings: Mapping[str, Any],
        names: Names,
        name: str,
        *,
        event: bool,
        refresh: float,
        within: float,
    ) -> None:
        self.reaches: dict[str, Reach] = {}
        """Those there are, and which part of them is meant."""
        self._consumer = consumer
        self._settings = settings
        self._names = names
        self._name = name
        self._event = event
        self._refresh = refresh
        self._within = within
        self._partitions: dict[str, int] = {}
        self._stale = 0.0  # when to look again
        self._reader: Reader | None = None
        self._origins: dict[str, tuple[str, str]] = {}

    @property
    def of_event(self) -> str:
        """The topic of the event of that name."""
        return self._names.event(self._names.exchange, self._name)

    def __contains__(self, spot: Spot) -> bool:
        """Whether there is such a partition, as far as is known."""
        return spot[1] < self._partitions.get(spot[0], 0)

    def look(self) -> None:
        """Learn which topics there are. Raises if what is named is not."""
        if self._event:
            topic = self.of_event
            self._partitions = self._told(topic)
            self.reaches = {topic: Reach(self._names.exchange)} if self._partitions else {}
        else:
            there = self._told()
            self.reaches = self._of_queue(there)
            self._partitions = {topic: there[topic] for topic in self.reaches}
        self._stale = time.monotonic() + self._refresh

    def origin(self, topic: str) -> tuple[str, str]:
        """The exchange and the event that the records of a topic are of, unless they say more."""
        found = self._origins.get(topic)
        if found is None:
            reach = self.reaches.get(topic)
            exchange = "" if reach is None else reach.exchange
            event = self._names.routing_key(exchange, topic) if exchange else None
            found = self._origins[topic] = (exchange, event or "")
        return found

    def refusal(self) -> QueueError:
        """What to say of an event that has no topic."""
        return QueueError(
            f"there is no topic of the event {self._name!r}; publish it, or declare a queue that "
            "is bound to it",
            broker="kafka",
            operation="read",
        )

    def bounds(self) -> dict[Spot, Bounds]:
        """Of each partition, from where to where its records go. Those of transactions that are
        still open are not there yet."""
        if time.monotonic() >= self._stale:
            self.look()
        lows, highs = self._at(EARLIEST), self._at(LATEST)
        found: dict[Spot, Bounds] = {}
        for spot, high in highs.items():
            reach = self.reaches[spot[0]]
            found[spot] = Bounds(reach.start(spot[1]), lows[spot], high, reach.end(spot[1]))
        return found

    def since(self, moment: float) -> Spots:
        """Of each partition, the first record that is not older; none if all are."""
        found = self._at(round(moment * 1000))
        return {spot: at for spot, at in found.items() if at >= 0}

    def close(self) -> None:
        """Ask no more."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _told(self, topic: str | None = None) -> dict[str, int]:
        asked = self._consumer.list_topics
        told = asked(timeout=self._within) if topic is None else asked(topic, timeout=self._within)
        return {name: len(each.partitions) for name, each in told.topics.items() if each.partitions}

    def _of_queue(self, there: Mapping[str, int]) -> dict[str, Reach]:
        if self._names.topology not in there:
            raise no_queue(self._name, "read")
        if self._reader is None:
            self._reader = Reader(self._settings, self._names)
        registry = self._reader.read()
        if self._name in registry.queues:
            return registry.topics(self._name, there)
        error = no_queue(self._name, "read")
        if self.of_event in there:
            error = QueueError(
                f"{error.message}; an event of that name is read with "
                f".option('event', {self._name!r})",
                broker="kafka",
                operation="read",
                queue=self._name,
            )
        raise error

    def _at(self, when: int) -> Spots:
        """By a time in milliseconds: each partition's first record that is not older."""
        spots = [
            TopicPartition(topic, number, when)
            for topic, count in self._partitions.items()
            for number in range(count)
        ]
        if not spots:
            return {}
        try:
            told = self._consumer.offsets_for_times(spots, timeout=self._within)
        except KafkaException:
            self._stale = 0.0  # a topic may be gone
            raise
        for each in told:
            if each.error is not None:
                self._stale = 0.0
                raise KafkaException(each.error)
        return {(each.topic, each.partition): each.offset for each in told}
