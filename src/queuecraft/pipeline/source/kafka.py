"""Topics of Kafka, read by the offsets of their records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Final, NoReturn, TypeVar

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from queuecraft.drivers.base import ConnectionLost, Delivery
from queuecraft.drivers.kafka.address import address_of
from queuecraft.drivers.kafka.envelope import message_of
from queuecraft.drivers.kafka.names import Names
from queuecraft.drivers.kafka.refusals import GONE, failure
from queuecraft.drivers.target import Target
from queuecraft.model.checks import shown
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.pipeline.source.log import EARLIEST, LATEST, Log, Offset
from queuecraft.pipeline.source.shares import Spot, Spots, limited, offset_of, shares, spots_of
from queuecraft.pipeline.source.topics import Bounds, Topics

T = TypeVar("T")
BATCH: Final = 2_000  # records handed on at once
SHARE: Final = 25_000  # records of one task
AHEAD: Final = 10_000  # records that librdkafka asks for before we do: all may be too many
WAIT: Final = 1.0  # seconds of one wait for records
PATIENCE: Final = 30.0  # seconds of waiting for records that have to come
AGAIN: Final = 0.05  # seconds until a question is asked again
LATE: Final = 2.0  # seconds until what is not there is believed not to be
_END: Final = 253_402_300_799_000  # ms: the end of the year 9999
_SOON: Final = (  # a topic that was just made, or moves to another broker, has no leader
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)
_spots: Final = msgspec.json.Decoder(dict[str, dict[str, int]])


class KafkaLog(Log):
    """What a queue is given, by all its topics, or what an event's topic has; no group is joined,
    and none notices.

    An offset says of each partition which record comes next, as Spark's own source does. One that
    is not in it is new, and read from its beginning. So what begins anew, such as a topic that was
    deleted and made again, is left out of one offset.
    """

    events: ClassVar[bool] = True
    _consumer: Consumer | None = None
    _problem: KafkaError | None = None

    async def open(self) -> None:
        await self.close()
        self._problem = None
        target = Target(self.settings.url, settings=self.settings)
        address = address_of(target.url)
        settings = address.client(await target.credentials(), self.settings.timeout)
        self._names = Names(address.prefix, self.settings.exchange)
        self._consumer = Consumer(
            {
                **settings,
                "group.id": "queuecraft.none",  # needs one; never joined, nothing is committed
                "enable.auto.commit": False,
                "auto.offset.reset": "error" if self.strict else "earliest",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,  # so that an end is noticed at once
                "queued.min.messages": AHEAD,
                "fetch.queue.backoff.ms": 10,  # so that there are more when those are read
                "error_cb": self._note,
            }
        )
        self._topics = Topics(
            self._consumer,
            settings,
            self._names,
            self.name,
            event=self.event,
            refresh=address.refresh,
            within=self.settings.timeout,
        )
        await self._call(self._topics.look)
        if self.event and await self._missing([(self._topics.of_event, 0)]):
            raise self._topics.refusal()

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await asyncio.to_thread(self._topics.close)
            await asyncio.to_thread(consumer.close)

    async def at(self, where: str) -> Offset:
        if where.lstrip().startswith("{"):
            return self._given(where, await self._bounds())
        moment = None if where in (EARLIEST, LATEST) else _moment(where)
        bounds = await self._bounds()
        if where == EARLIEST:
            return offset_of({spot: each.first for spot, each in bounds.items()})
        found: Spots = {}
        if moment is not None:
            found = await self._call(lambda: self._topics.since(moment))
        return offset_of(
            {
                spot: max(each.first, min(each.end, found.get(spot, each.end)))
                for spot, each in bounds.items()
            }
        )

    async def after(self, start: Offset, rows: int | None, until: Offset | None) -> Offset:
        starts, limits = spots_of(start), None if until is None else spots_of(until)
        bounds = await self._bounds()
        if starts.keys() - bounds.keys():
            await self._missing(starts)
            bounds = await self._bounds()
        for spot in starts.keys() - bounds.keys():
            self._lose(spot, "the topic is gone", starts[spot])
        begins: Spots = {}
        ends: Spots = {}
        for spot, each in bounds.items():
            begin = starts.get(spot)
            if begin is None:
                if limits is not None and spot not in limits:
                    continue
                begin = each.first
            elif begin > each.high:
                self._lose(spot, f"the topic was made anew and ends at {each.high}", begin)
                continue
            elif begin < each.since:  # bound again: what came meanwhile was not for the queue
                continue
            elif begin < each.first:
                self._lose(spot, f"those before {each.first} were deleted", begin)
            begins[spot] = max(begin, each.first)
            end = each.end if limits is None else min(each.end, limits.get(spot, begin))
            ends[spot] = max(begins[spot], end)
        return offset_of(ends if rows is None else limited(begins, ends, rows))

    def ranges(self, start: Offset, end: Offset) -> Sequence[tuple[Offset, Offset]]:
        return shares(start, end, SHARE)

    async def read(self, start: Offset, end: Offset) -> AsyncGenerator[Sequence[Delivery]]:
        starts, left = spots_of(start), spots_of(end)
        gone = set(await self._missing(left))
        if new := left.keys() - starts.keys() - gone:
            bounds = await self._bounds()
            starts |= {spot: bounds[spot].first for spot in new & bounds.keys()}
            gone |= new - bounds.keys()
        for spot in gone:
            self._lose(spot, "the topic is gone", starts.get(spot, 0))
            del left[spot]
        left = {spot: last for spot, last in left.items() if starts[spot] < last}
        consumer = self._open()
        consumer.assign([TopicPartition(*spot, starts[spot]) for spot in left])
        loop = asyncio.get_running_loop()
        heard = loop.time()
        while left:
            records = await self._call(lambda: _some(consumer))
            if any(_spot(each) in left for each in records):
                heard = loop.time()
            elif loop.time() > heard + PATIENCE:
                raise self._silent(left)
            found: list[Delivery] = []
            for record in records:
                spot, offset = _spot(record), record.offset() or 0
                last = left.get(spot)
                if last is None:
                    continue
                error = record.error()
                if error is not None:
                    ended = await self._ended(spot, error, offset, last)
                elif offset < last:
                    if offset >= starts[spot]:  # else one of a topic that was made anew
                        found.append(self._delivery(record))
                    ended = offset == last - 1
                else:
                    ended = True
                if ended:
                    del left[spot]
                    consumer.incremental_unassign([TopicPartition(*spot)])
            if found:
                yield found
                heard = loop.time()  # whoever has them may take a while
        consumer.unassign()

    def moment(self, delivery: Delivery) -> float:
        return float(delivery.token)

    # -- inside --------------------------------------------------------------------------------

    async def _missing(self, spots: Iterable[Spot]) -> list[Spot]:
        """Those of them that are not there. Asked for a while: a broker may learn of them late."""
        self._open()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LATE
        while missing := [each for each in spots if each not in self._topics]:
            if loop.time() > deadline:
                break
            await asyncio.sleep(AGAIN)
            await self._call(self._topics.look)
        return missing

    async def _bounds(self) -> dict[Spot, Bounds]:
        self._open()
        return await self._call(self._topics.bounds)

    def _given(self, where: str, bounds: Mapping[Spot, Bounds]) -> Offset:
        """An offset that a user has written; -2 is the earliest and -1 the latest there is."""
        try:
            given = spots_of(_spots.decode(where))
        except (msgspec.MsgspecError, ValueError):
            raise _nowhere(where) from None
        if given.keys() != bounds.keys() or not all(
            -2 <= at <= bounds[spot].end for spot, at in given.items()
        ):
            ends = offset_of({spot: each.end for spot, each in bounds.items()})
            there = msgspec.json.encode(ends).decode()
            raise ConfigError(
                f"{shown(where)} has to name each partition there is, with an offset up to its "
                f"end, -2 for the earliest or -1 for the latest; now they end at {there}"
            )
        found: Spots = {}
        for spot, at in given.items():
            each = bounds[spot]
            found[spot] = {-2: each.first, -1: each.end}.get(at, max(at, each.since))
        return offset_of(found)

    async def _ended(self, spot: Spot, error: KafkaError, offset: int, last: int) -> bool:
        """Whether an error ends a partition; it raises if records are missing."""
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            if offset >= last:
                return True
            bounds = (await self._bounds()).get(spot)
            if bounds is not None and bounds.high >= last:  # it was told by a new leader, too early
                return False
            self._lose(spot, f"the topic was made anew and ends at {offset}", last)
        elif code == KafkaError._AUTO_OFFSET_RESET:
            self._lose(spot, "the next ones were deleted", offset)
        elif code in _SOON and spot not in await self._bounds():
            self._lose(spot, "the topic is gone", offset)
        elif code in _SOON or error.retriable():
            return False
        else:
            raise failure(error, "read", self.name)
        return True

    def _lose(self, spot: Spot, what: str, at: int) -> None:
        """Raise if records were deleted that have not been read: nobody can read them any more."""
        if self.strict:
            topic, number = spot
            raise QueueError(
                f"records of topic {topic!r}, partition {number}, are missing: {what}, and only "
                f"those before {at} had been read; keep them for longer (retention.ms of the "
                "topic) or read more often; .option('fail_on_data_loss', 'false') goes on with "
                "what is left",
                broker="kafka",
                operation="read",
                queue=self.name,
            )

    def _delivery(self, record: Message) -> Delivery:
        exchange, event = self._topics.origin(record.topic() or "")
        message = message_of(record, exchange, event)
        kind, stamp = record.timestamp()
        # A sender may say anything.
        moment = stamp / 1000 if kind and 0 <= stamp <= _END else 0.0
        return Delivery(message, "" if self.event else self.name, 0, moment)

    async def _call(self, work: Callable[[], T]) -> T:
        """Do what blocks, not in the loop; again, if the cluster is not ready for it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.timeout
        while True:
            try:
                return await asyncio.to_thread(work)
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                soon = problem.retriable() or problem.code() in _SOON
                if problem.code() in GONE or not soon or loop.time() > deadline:
                    await self._refuse(problem)
            await asyncio.sleep(AGAIN)

    async def _refuse(self, problem: KafkaError) -> NoReturn:
        consumer = self._consumer
        if consumer is not None and problem.code() in GONE:
            await asyncio.to_thread(consumer.poll, 0)  # librdkafka may have told the reason
        raise failure(self._problem or problem, "read", self.name) from None

    def _note(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._problem = error

    def _silent(self, left: Mapping[Spot, int]) -> ConnectionLost:
        (topic, number), last = next(iter(left.items()))
        return ConnectionLost(
            f"no records came within {PATIENCE:g} s, and those before {last} of topic {topic!r}, "
            f"partition {number}, are to be read; are all brokers there?",
            broker="kafka",
            operation="read",
            queue=self.name,
        )

    def _open(self) -> Consumer:
        if self._consumer is None:
            raise ConnectionLost("the connection is closed; open it first", broker="kafka")
        return self._consumer


def _some(consumer: Consumer) -> list[Message]:
    """What has come, or the first that comes."""
    first = consumer.poll(WAIT)
    return [] if first is None else [first, *consumer.consume(BATCH, 0)]


def _spot(record: Message) -> Spot:
    number = record.partition()
    return record.topic() or "", -1 if number is None else number


def _moment(where: str) -> float:
    try:
        moment = datetime.fromisoformat(where)
    except ValueError:
        raise _nowhere(where) from None
    if moment.tzinfo is None:
        raise ConfigError(f"{shown(where)} is a time in no zone; say which: {where}Z is in UTC")
    return moment.timestamp()


def _nowhere(where: str) -> ConfigError:
    return ConfigError(
        f"{shown(where)} is no place in topics of Kafka; expected {EARLIEST!r}, {LATEST!r}, a "
        "time, such as '2026-01-31T08:00:00Z', or offsets, such as "
        '\'{"order.placed": {"0": 5, "1": 7}}\''
    )
