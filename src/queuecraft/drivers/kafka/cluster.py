"""What is asked of the cluster itself: topics, groups, and how far each partition goes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions as GroupOffsets
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.cimpl import NewTopic

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.kafka.answers import WITHIN, answer
from queuecraft.drivers.kafka.groups import Groups
from queuecraft.drivers.kafka.refusals import failure

T = TypeVar("T")
Spot: TypeAlias = tuple[str, int]
"""A topic and the number of a partition."""

MAX_BYTES: Final = 16 * 2**20  # of a record in topics that we make; Kafka's own limit is 1 MiB
AGAIN: Final = 0.02  # seconds until a question is asked again
AT_ONCE: Final = 1000  # partitions asked about in one call: it holds up every other thread
SLICE: Final = 0.25  # seconds for the first answer, until we listen for what may be wrong
GRACE: Final = 0.5  # seconds after all brokers were down: the next address may be the right one
_SOON: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
_MISSING: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)
_LEADERLESS: Final = (KafkaError.LEADER_NOT_AVAILABLE,)
_REFUSED: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)
_UNREACHED: Final = (KafkaError._RESOLVE, KafkaError._TRANSPORT, KafkaError._TIMED_OUT)


class Cluster:
    """The brokers, asked in threads of our own: librdkafka's calls block. There are two, so that
    who asks about one queue need not wait for who asks about all."""

    def __init__(self, settings: Mapping[str, Any], partitions: int, replication: int) -> None:
        self.topics: dict[str, int] = {}
        """Those that exist, as far as we know, and how many partitions they have."""
        self.lost: ConnectionLost | None = None
        self._partitions = partitions
        self._replication = replication
        self._told = deque[KafkaError](maxlen=20)  # what librdkafka has complained of
        listening: dict[str, Any] = {**settings, "error_cb": self._told.append}
        self._admin = AdminClient(listening)
        self._threads = ThreadPoolExecutor(2, "queuecraft-kafka")
        self.groups = Groups(self._admin, self.call)

    async def open(self) -> None:
        """Reach it, and learn which topics there are. Left alone, librdkafka would try again for
        ever, and tell in passing that a password is wrong."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WITHIN
        while True:
            try:
                told = await loop.run_in_executor(self._threads, self._listed, SLICE)
            except KafkaException as error:
                problem: KafkaError = error.args[0]
            else:
                self._learn(told)
                return
            if self._told:
                deadline = min(deadline, loop.time() + GRACE)
            if loop.time() > deadline:
                raise failure(_reason(self._told) or problem, "open")
            await asyncio.sleep(AGAIN)

    async def close(self) -> None:
        """Ask nothing more. librdkafka keeps its threads and connections until its client is gone:
        nothing may hold on to that in a circle, which the garbage collector finds when it likes."""
        self._threads.shutdown(wait=False)
        self.groups = Groups(self._admin, _asked_too_late)

    def check(self) -> None:
        """Raise if no broker can be reached. Another error each time: the one we have would hold
        the frames it went through, and with them us, and the client."""
        if self.lost is not None:
            raise ConnectionLost(self.lost.message, broker="kafka", operation="connection")

    async def call(self, operation: str, work: Callable[[], T]) -> T:
        """Do what blocks, not in the loop."""
        self.check()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WITHIN
        while True:
            try:
                return await loop.run_in_executor(self._threads, work)
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                # A topic that was just made, or moves to another broker, has no leader yet.
                if not problem.retriable() and problem.code() not in _SOON:
                    raise failure(problem, operation) from None
                if loop.time() > deadline:
                    raise failure(problem, operation) from None
            await asyncio.sleep(AGAIN)
            if problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                await self.look(operation)  # somebody may have deleted it

    # -- topics --------------------------------------------------------------------------------

    async def look(self, operation: str) -> None:
        """Learn which topics there are; of thousands, that takes a tenth of a second."""
        self._learn(await self.call(operation, lambda: self._listed(WITHIN)))

    async def look_for(self, topics: Iterable[str], operation: str) -> None:
        """Learn which of these there are, if that is not known."""
        unknown = [topic for topic in topics if topic not in self.topics]
        if unknown:
            await self._look_at(unknown, operation)

    async def _look_at(self, topics: list[str], operation: str) -> set[str]:
        """Learn which of these there are; those of which all partitions have leaders."""
        found = await self.call(operation, lambda: self._described(topics))
        self.topics |= {name: len(topic.partitions) for name, topic in found.items()}
        return {
            name
            for name, topic in found.items()
            if all(each.leader is not None for each in topic.partitions)
        }

    def _described(self, topics: list[str]) -> dict[str, Any]:
        told = self._admin.describe_topics(TopicCollection(topics), request_timeout=WITHIN)
        found = {name: answer(each, fine=_MISSING) for name, each in told.items()}
        return {name: topic for name, topic in found.items() if topic is not None}

    def _listed(self, within: float) -> ClusterMetadata:
        try:
            return self._admin.list_topics(timeout=within)
        finally:
            self._admin.poll(0)

    def _learn(self, told: ClusterMetadata) -> None:
        """A partition without a leader is there all the same: who took its topic for gone would
        give those who are bound meanwhile all that is in it."""
        self.topics = {
            name: len(topic.partitions)
            for name, topic in told.topics.items()
            if topic.error is None
        }

    async def make(self, topic: str, partitions: int | None = None, **config: str) -> None:
        """See that a topic is there."""
        await self.make_all({topic: config}, partitions)

    async def make_all(
        self, topics: Mapping[str, Mapping[str, str]], partitions: int | None = None
    ) -> None:
        """See that these are there, each with its settings: at once, for one takes as long as
        many."""
        missing = [topic for topic in topics if topic not in self.topics]
        if not missing:
            return
        wanted = [
            NewTopic(
                topic,
                num_partitions=partitions or self._partitions,
                replication_factor=self._replication,
                config={"max.message.bytes": str(MAX_BYTES), **topics[topic]},
            )
            for topic in missing
        ]

        def make() -> None:
            made = self._admin.create_topics(wanted, operation_timeout=WITHIN)
            for future in made.values():
                answer(future, fine=[KafkaError.TOPIC_ALREADY_EXISTS])

        await self.call("declare", make)
        deadline = asyncio.get_running_loop().time() + WITHIN
        while missing := sorted({*missing} - await self._look_at(missing, "declare")):
            if asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(AGAIN)

    async def remove(self, topics: Sequence[str]) -> None:
        """Delete topics with all their records."""

        def remove() -> None:
            for future in self._admin.delete_topics(list(topics)).values():
                answer(future, fine=[KafkaError.UNKNOWN_TOPIC_OR_PART])

        if topics:
            await self.call("delete", remove)
            for topic in topics:
                self.topics.pop(topic, None)

    async def cut(self, ends: Sequence[TopicPartition]) -> None:
        """Delete the records before these."""

        def cut() -> None:
            for future in self._admin.delete_records(list(ends)).values():
                answer(future)

        if ends:
            await self.call("purge", cut)

    async def bounds(self, topics: Iterable[str]) -> dict[Spot, tuple[int, int]]:
        """The first and the next offset of each partition."""
        spots = self.spots(topics)
        highs = await self.highs(spots)
        lows = await self.lows(spots)
        return {spot: (lows.get(spot, 0), high) for spot, high in highs.items()}

    def spots(self, topics: Iterable[str]) -> list[Spot]:
        """All partitions of these topics, as far as we know."""
        return [(topic, n) for topic in topics for n in range(self.topics.get(topic, 0))]

    async def highs(self, spots: Sequence[Spot]) -> dict[Spot, int]:
        """The next offset of each of these partitions. Raises if one has no leader to tell it."""
        latest: Any = OffsetSpec.latest
        return await self._offsets(spots, latest())

    async def highs_told(self, spots: Sequence[Spot]) -> dict[Spot, int]:
        """The same, but of those that have."""
        latest: Any = OffsetSpec.latest
        return await self._offsets(spots, latest(), fine=_LEADERLESS)

    def ends_soon(self, spots: Iterable[Spot], within: float) -> dict[Spot, int]:
        """The next offset of those of these partitions that tell it in time. Blocks: not for the
        loop."""
        latest: Any = OffsetSpec.latest
        return self._soon(spots, latest(), within)

    def lows_soon(self, spots: Iterable[Spot], within: float) -> dict[Spot, int]:
        """The same of the first offset that is kept."""
        earliest: Any = OffsetSpec.earliest
        return self._soon(spots, earliest(), within)

    def _soon(self, spots: Iterable[Spot], spec: Any, within: float) -> dict[Spot, int]:
        wanted = {
            TopicPartition(topic, number): spec
            for topic, number in spots
            if number < self.topics.get(topic, 0)
        }
        found: dict[Spot, int] = {}
        if not wanted:
            return found
        with suppress(KafkaException):
            futures = self._admin.list_offsets(wanted, request_timeout=within)
            for each, future in futures.items():
                with suppress(KafkaException, TimeoutError):
                    found[each.topic, each.partition] = answer(future).offset
        return found

    async def lows(self, spots: Sequence[Spot]) -> dict[Spot, int]:
        """The first offset of each of these partitions that is kept."""
        earliest: Any = OffsetSpec.earliest
        return await self._offsets(spots, earliest())

    async def _offsets(
        self, spots: Sequence[Spot], spec: Any, fine: Collection[int] = ()
    ) -> dict[Spot, int]:
        found: dict[Spot, int] = {}
        for at in range(0, len(spots), AT_ONCE):
            asked = partial(self._listed_offsets, spots[at : at + AT_ONCE], spec, fine)
            found |= await self.call("inspect", asked)
        return found

    def _listed_offsets(
        self, spots: Sequence[Spot], spec: OffsetSpec, fine: Collection[int]
    ) -> dict[Spot, int]:
        """Of those that exist as far as we know by now."""
        wanted = {TopicPartition(*spot): spec for spot in spots if spot[0] in self.topics}
        if not wanted:
            return {}
        futures = self._admin.list_offsets(wanted, request_timeout=WITHIN)
        told = {(s.topic, s.partition): answer(each, fine=fine) for s, each in futures.items()}
        return {spot: each.offset for spot, each in told.items() if each is not None}

    async def since(self, spots: Iterable[Spot], moment: datetime) -> dict[Spot, int]:
        """Of each of these partitions, the first offset stored at that moment or later, if any."""
        at: Any = OffsetSpec.for_timestamp(round(1000 * moment.timestamp()))
        wanted: dict[TopicPartition, OffsetSpec] = {TopicPartition(*each): at for each in spots}

        def asked() -> dict[Spot, int]:
            futures = self._admin.list_offsets(wanted, request_timeout=WITHIN)
            found = {
                (each.topic, each.partition): answer(future).offset
                for each, future in futures.items()
            }
            return {spot: offset for spot, offset in found.items() if offset >= 0}

        return await self.call("rewind", asked) if wanted else {}

    async def ends(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """Of each topic, where the next record of each partition will be."""
        ends: dict[str, list[int]] = {}
        for (topic, _), (_, high) in sorted((await self.bounds(topics)).items()):
            ends.setdefault(topic, []).append(high)
        return ends

    # -- groups --------------------------------------------------------------------------------

    async def committed(self, group: str) -> dict[Spot, TopicPartition]:
        """How far a group is, where it has said so."""

        def asked() -> dict[Spot, TopicPartition]:
            future = self._admin.list_consumer_group_offsets([GroupOffsets(group)])[group]
            told = answer(future, fine=[KafkaError.GROUP_ID_NOT_FOUND])
            return {
                (each.topic, each.partition): each
                for each in (() if told is None else told.topic_partitions)
                if each.offset >= 0
            }

        return await self.call("inspect", asked)

    async def move(self, group: str, offsets: Sequence[TopicPartition], operation: str) -> None:
        """Say how far a group is that has no members."""

        def move() -> None:
            wanted = [GroupOffsets(group, list(offsets))]
            answer(self._admin.alter_consumer_group_offsets(wanted)[group])

        if offsets:
            await self.call(operation, move)
            self.groups.forget(group)

    async def forget(self, group: str) -> None:
        """Delete a group that has no members."""

        def forget() -> None:
            future = self._admin.delete_consumer_groups([group])[group]
            answer(future, fine=[KafkaError.GROUP_ID_NOT_FOUND])

        await self.call("delete", forget)
        self.groups.forget(group)

    async def members(self, groups: Iterable[str]) -> dict[str, list[str]]:
        """Who is in each of these groups."""
        every = list(dict.fromkeys(groups))  # Kafka refuses to be asked twice for one
        wanted = [group for group, busy in (await self.groups.at_work(every)).items() if busy]

        def asked() -> dict[str, list[str]]:
            found: dict[str, list[str]] = {group: [] for group in every}
            told = self._admin.describe_consumer_groups(wanted, request_timeout=WITHIN)
            for group, future in told.items():
                group_info = answer(future, fine=[KafkaError.GROUP_ID_NOT_FOUND])
                members = () if group_info is None else group_info.members
                found[group] = [str(each.member_id) for each in members]
            return found

        return await self.call("inspect", asked) if wanted else {group: [] for group in every}


async def _asked_too_late(operation: str, work: Callable[[], object]) -> NoReturn:
    raise ConnectionLost("the connection is closed", broker="kafka", operation=operation)


def _reason(told: deque[KafkaError]) -> KafkaError | None:
    """Why no broker can be reached: of what was said, what says most."""
    for codes in (_REFUSED, _UNREACHED):
        for error in reversed(told):
            if error.code() in codes:
                return error
    return told[-1] if told else None
