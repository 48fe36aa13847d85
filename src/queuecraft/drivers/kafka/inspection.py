"""What is in a queue: how much, what comes next, and how it is emptied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from queuecraft.drivers.base import Delivery, QueueInfo, Rewound
from queuecraft.drivers.kafka.cluster import Cluster, Spot
from queuecraft.drivers.kafka.envelope import message_of
from queuecraft.drivers.kafka.names import FORWARDERS, TIERS, Names
from queuecraft.drivers.kafka.offsets import noted
from queuecraft.drivers.kafka.topology import Registry
from queuecraft.model.errors import QueueError

WITHIN: Final = 10.0  # seconds for the next record


@dataclass(frozen=True, slots=True)
class Stretch:
    """What of a partition a queue has before it."""

    start: int
    end: int
    finished: Sequence[int] = ()

    def __len__(self) -> int:
        return max(0, self.end - self.start - len(self.finished))


class Inspection:
    """One look at the queues of a registry."""

    def __init__(self, cluster: Cluster, names: Names, registry: Registry) -> None:
        self._cluster = cluster
        self._names = names
        self._registry = registry

    async def infos(self, queues: Sequence[str] | None) -> list[QueueInfo]:
        """The state of those that exist."""
        known = self._registry.queues
        names = sorted(known) if queues is None else [each for each in queues if each in known]
        members = await self._cluster.members(map(self._names.group, names))
        waiting = await self._waiting(names)
        infos: list[QueueInfo] = []
        for name in names:
            dead = known[name].dead_letters
            infos.append(
                QueueInfo(
                    name=name,
                    ready=await self._depth(name),
                    delayed=waiting[name],
                    dead=await self._depth(dead) if dead in known else None,
                    consumers=len(members[self._names.group(name)]),
                )
            )
        return infos

    async def peek(self, queue: str, limit: int, settings: Mapping[str, Any]) -> list[Delivery]:
        """What comes next, read without the group."""
        ahead = {spot: each for spot, each in (await self._ahead(queue)).items() if len(each)}
        if not ahead or limit <= 0:
            return []
        records = await self._cluster.call("peek", lambda: _read(settings, ahead, limit))
        topics = self._registry.topics(queue, self._cluster.topics)
        deliveries: list[Delivery] = []
        for record in records[:limit]:
            exchange = topics[record.topic() or ""].exchange
            event = self._names.routing_key(exchange, record.topic() or "") if exchange else None
            deliveries.append(Delivery(message_of(record, exchange, event or ""), queue))
        return deliveries

    async def purge(self, queue: str) -> int:
        """Let the group go on from the ends; delete what nobody else could read."""
        group = self._names.group(queue)
        ahead = await self._ahead(queue)
        await self._check_alone(queue, "purge")
        ends = [TopicPartition(*spot, each.end) for spot, each in ahead.items()]
        await self._cluster.move(group, ends, "purge")
        inbox = self._names.inbox(queue)
        await self._cluster.cut([each for each in ends if each.topic == inbox and each.offset > 0])
        return sum(map(len, ahead.values()))

    async def rewind(self, queue: str, to: datetime, *, dry_run: bool) -> list[Rewound]:
        """Let the group go on from what was stored then, where that is before what comes next;
        and no further back than the queue was bound."""
        await self._check_alone(queue, "rewind")
        ahead = await self._ahead(queue)
        topics = self._registry.topics(queue, self._cluster.topics)
        bounds = await self._cluster.bounds(topics)
        found = await self._cluster.since(ahead, to)
        rewound: list[Rewound] = []
        starts: list[TopicPartition] = []
        for spot, each in sorted(ahead.items()):
            (topic, number), (low, _) = spot, bounds.get(spot, (0, 0))
            start = max(found.get(spot, each.start), low, topics[topic].start(number))
            if start < each.start:
                count = each.start - start + len(each.finished)
                rewound.append(Rewound(f"{topic}/{number}", count))
                starts.append(TopicPartition(topic, number, start))
        if not dry_run:
            await self._cluster.move(self._names.group(queue), starts, "rewind")
        return rewound

    async def _check_alone(self, queue: str, operation: str) -> None:
        group = self._names.group(queue)
        if (await self._cluster.members([group]))[group]:
            raise QueueError(
                "the queue has workers, and Kafka moves the offsets of a group only without; stop "
                "them first",
                broker="kafka",
                operation=operation,
                queue=queue,
            )

    async def _depth(self, queue: str | None) -> int:
        return 0 if queue is None else sum(map(len, (await self._ahead(queue)).values()))

    async def _ahead(self, queue: str) -> dict[Spot, Stretch]:
        """Of each partition, what the group of a queue has before it."""
        topics = self._registry.topics(queue, self._cluster.topics)
        bounds = await self._cluster.bounds(topics)
        committed = await self._cluster.committed(self._names.group(queue))
        ahead: dict[Spot, Stretch] = {}
        for spot, (low, high) in bounds.items():
            topic, number = spot
            reach = topics[topic]
            start, limit = max(low, reach.start(number)), reach.end(number)
            end = high if limit is None else min(high, limit)
            ahead[spot] = _stretch(start, end, committed.get(spot))
        return ahead

    async def _waiting(self, queues: Sequence[str]) -> dict[str, int]:
        """How many messages of each queue wait for their time."""
        tiers = {
            self._names.retry(queue, tier): queue for queue in queues for tier in range(len(TIERS))
        }
        there = [topic for topic in tiers if topic in self._cluster.topics]
        waiting = dict.fromkeys(queues, 0)
        if there:
            bounds = await self._cluster.bounds(there)
            committed = await self._cluster.committed(self._names.group(FORWARDERS))
            for spot, (low, high) in bounds.items():
                waiting[tiers[spot[0]]] += len(_stretch(low, high, committed.get(spot)))
        return waiting


def _stretch(start: int, end: int, committed: TopicPartition | None) -> Stretch:
    if committed is None or committed.offset < start:
        return Stretch(start, max(start, end))
    start = committed.offset
    finished = [each for each in noted(start, committed.metadata) if each < end]
    return Stretch(start, max(start, end), finished)


def _read(settings: Mapping[str, Any], ahead: Mapping[Spot, Stretch], limit: int) -> list[Message]:
    """The oldest records of these, at most so many of each partition; blocks."""
    consumer = Consumer(
        {
            **settings,
            "group.id": "queuecraft.none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found: list[Message] = []
    taken = dict.fromkeys(ahead, 0)
    left = dict(ahead)
    try:
        consumer.assign([TopicPartition(*spot, each.start) for spot, each in ahead.items()])
        while left and (record := consumer.poll(WITHIN)) is not None:
            spot, offset = (record.topic() or "", record.partition() or 0), record.offset() or 0
            error = record.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            stretch = left.get(spot)
            if stretch is None:
                continue
            if error is None and offset < stretch.end and offset not in stretch.finished:
                found.append(record)
                taken[spot] += 1
            if error is not None or offset >= stretch.end - 1 or taken[spot] >= limit:
                del left[spot]
    finally:
        consumer.close()
    return sorted(found, key=lambda each: (each.timestamp()[1], each.offset() or 0))
