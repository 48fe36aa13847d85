"""What is in a queue: how much, what comes next, and how it is emptied."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from confluent_kafka import TopicPartition

from queuecraft.drivers.base import Delivery, QueueInfo, Rewound
from queuecraft.drivers.kafka.cluster import Cluster, Spot
from queuecraft.drivers.kafka.envelope import message_of
from queuecraft.drivers.kafka.glance import Glance, Stretch
from queuecraft.drivers.kafka.names import FORWARDERS, TIERS, Names
from queuecraft.drivers.kafka.offsets import noted
from queuecraft.drivers.kafka.topology import Reach, Registry
from queuecraft.model.errors import QueueError

TURN: Final = 20  # queues whose topics are found before others get their turn
TURN_OF_RECORDS: Final = 200  # the same for records that are read


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
        targets = ((name, known[name].dead_letters) for name in names)
        dead = {name: to for name, to in targets if to is not None and to in known}
        every = dict.fromkeys([*names, *dead.values()])
        groups = await self._cluster.groups.at_work([self._names.group(each) for each in every])
        own = (self._names.group(name) for name in names)
        members = await self._cluster.groups.members([each for each in own if groups.get(each)])
        waiting = await self._waiting(names)
        depths = await self._depths(every, groups)
        return [
            QueueInfo(
                name=name,
                ready=depths[name],
                delayed=waiting[name],
                dead=depths[dead[name]] if name in dead else None,
                consumers=members.get(self._names.group(name), 0),
            )
            for name in names
        ]

    async def peek(self, queue: str, limit: int, glance: Glance) -> list[Delivery]:
        """What comes next, read without the group."""
        ahead = {spot: each for spot, each in (await self._ahead(queue)).items() if len(each)}
        if not ahead or limit <= 0:
            return []
        records = await self._cluster.call("peek", lambda: glance.read(ahead, limit))
        topics = self._registry.topics(queue, self._cluster.topics)
        deliveries: list[Delivery] = []
        for number, record in enumerate(records[:limit], 1):
            if number % TURN_OF_RECORDS == 0:
                await asyncio.sleep(0)
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
            (topic, number), (low, high) = spot, bounds.get(spot, (0, 0))
            begins = topics[topic].begins(number, high)
            start = max(found.get(spot, each.start), low, begins)
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

    async def _depths(
        self, queues: Iterable[str], groups: Mapping[str, bool]
    ) -> dict[str, int | None]:
        """How much each queue has before it, by which groups exist and have members; None if one of
        its partitions has no leader to tell. What cannot matter is not asked for: how far a group
        is that has been given nothing, and where a partition begins that was read to its end."""
        reaches: dict[str, dict[Spot, Reach]] = {}
        for number, queue in enumerate(queues, 1):
            topics = self._registry.topics(queue, self._cluster.topics)
            reaches[queue] = {spot: topics[spot[0]] for spot in self._cluster.spots(topics)}
            if number % TURN == 0:
                await asyncio.sleep(0)
        highs = await self._cluster.highs_told(
            list({spot for some in reaches.values() for spot in some})
        )
        given: dict[str, dict[Spot, Stretch]] = {}
        untold: set[str] = set()
        for number, (queue, some) in enumerate(reaches.items(), 1):
            there = [(spot, reach) for spot, reach in some.items() if spot in highs]
            given[self._names.group(queue)] = {
                spot: _given(reach, spot[1], highs[spot]) for spot, reach in there
            }
            if len(there) < len(some) and self._untold(some, highs):
                untold.add(queue)
            if number % TURN == 0:
                await asyncio.sleep(0)

        def drained(group: str, offsets: Mapping[Spot, TopicPartition]) -> bool:
            return not any(map(len, _ahead(given[group], offsets).values()))

        asked = {
            group: busy for group, busy in groups.items() if any(map(len, given[group].values()))
        }
        committed = await self._cluster.groups.committed(asked, drained)
        ahead: dict[str, dict[Spot, Stretch]] = {}
        for number, (group, stretches) in enumerate(given.items(), 1):
            ahead[group] = _ahead(stretches, committed.get(group, {}))
            if number % TURN == 0:
                await asyncio.sleep(0)
        left = {spot for some in ahead.values() for spot, each in some.items() if len(each)}
        lows = await self._cluster.lows(list(left))
        return {
            queue: None
            if queue in untold
            else sum(
                len(each.after(lows.get(spot, 0)))
                for spot, each in ahead[self._names.group(queue)].items()
            )
            for queue in reaches
        }

    def _untold(self, spots: Iterable[Spot], highs: Mapping[Spot, int]) -> list[Spot]:
        """Those that exist, and do not tell where they end."""
        return [each for each in spots if each not in highs and each[0] in self._cluster.topics]

    async def _ahead(self, queue: str) -> dict[Spot, Stretch]:
        """Of each partition, what the group of a queue has before it."""
        topics = self._registry.topics(queue, self._cluster.topics)
        bounds = await self._cluster.bounds(topics)
        committed = await self._cluster.committed(self._names.group(queue))
        ahead: dict[Spot, Stretch] = {}
        for spot, (low, high) in bounds.items():
            given = _given(topics[spot[0]], spot[1], high)
            ahead[spot] = _stretch(given.start, given.end, committed.get(spot)).after(low)
        return ahead

    async def _waiting(self, queues: Sequence[str]) -> dict[str, int | None]:
        """How many messages of each queue wait for their time; None as in `_depths`."""
        tiers = {
            self._names.retry(queue, tier): queue for queue in queues for tier in range(len(TIERS))
        }
        there = [topic for topic in tiers if topic in self._cluster.topics]
        waiting = dict.fromkeys(queues, 0)
        untold = set[str]()
        if there:
            spots = self._cluster.spots(there)
            highs = await self._cluster.highs_told(spots)
            lows = await self._cluster.lows(list(highs))
            committed = await self._cluster.committed(self._names.group(FORWARDERS))
            for spot, high in highs.items():
                stretch = _stretch(lows.get(spot, 0), high, committed.get(spot))
                waiting[tiers[spot[0]]] += len(stretch)
            untold = {tiers[topic] for topic, _ in self._untold(spots, highs)}
        return {name: None if name in untold else count for name, count in waiting.items()}


def _given(reach: Reach, partition: int, high: int) -> Stretch:
    """What of a partition was ever given to a queue."""
    start, limit = reach.begins(partition, high), reach.end(partition)
    return Stretch(start, max(start, high if limit is None else min(high, limit)))


def _ahead(
    given: Mapping[Spot, Stretch], committed: Mapping[Spot, TopicPartition]
) -> dict[Spot, Stretch]:
    return {s: _stretch(each.start, each.end, committed.get(s)) for s, each in given.items()}


def _stretch(start: int, end: int, committed: TopicPartition | None) -> Stretch:
    if committed is None or committed.offset < start:
        return Stretch(start, max(start, end))
    start = committed.offset
    finished = [each for each in noted(start, committed.metadata) if each < end]
    return Stretch(start, max(start, end), finished)
