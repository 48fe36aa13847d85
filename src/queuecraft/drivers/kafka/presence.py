"""Notes over Kafka: one topic that is kept for minutes, read from where the last look has ended.

It has a producer of its own, for while a partition has no leader, everything that the same producer
was given has to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.kafka.cluster import Cluster
from queuecraft.drivers.kafka.envelope import headers_of
from queuecraft.drivers.notes import Notes
from queuecraft.model.errors import QueueError

KEPT: Final = 300  # seconds that a note is kept: none is up for longer
WITHIN: Final = 10.0  # seconds for the next note
AT_ONCE: Final = 1000
FAREWELL: Final = 0.5  # seconds for the last notes when a connection is closed
TTL: Final = "x-ttl"


class Noticeboard:
    """The notes of one application."""

    def __init__(
        self, settings: Mapping[str, Any], cluster: Cluster, topic: str, now: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._topic = topic
        self._now = now
        self._notes = Notes(now)
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._next: int | None = None  # the first offset that was not read
        self._reading = asyncio.Lock()
        self._using = Lock()  # the consumer, in a thread
        self._closed = False
        self._refused = False  # a user who may make no topics: tried once

    async def put(self, name: str, note: bytes, ttl: float) -> None:
        """Store a note, sooner or later. Nobody waits for that, and nobody hears if it fails."""
        if self._topic not in self._cluster.topics:
            if not note or self._refused:
                return
            kept = str(1000 * KEPT)
            config = {"retention.ms": kept, "segment.ms": kept}
            # One clock for all: that of who announces may be wrong.
            config["message.timestamp.type"] = "LogAppendTime"
            try:
                await self._cluster.make(self._topic, 1, **config)
            except QueueError as error:
                self._refused = not isinstance(error, ConnectionLost)
                raise
        self._cluster.check()
        if self._producer is None:
            own = {"acks": 1, "linger.ms": 5, "queue.buffering.max.messages": 1000}
            within = {"message.timeout.ms": round(1000 * WITHIN)}
            self._producer = Producer({**self._settings, **own, **within})
        headers: dict[str, str | bytes | None] = {TTL: str(max(1, round(1000 * ttl)))}
        try:
            self._producer.produce(self._topic, note, name.encode(), headers=headers)
        except (BufferError, KafkaException):
            pass  # no broker has taken the last thousand: it is a pity, and no more
        self._producer.poll(0)

    async def up(self) -> Mapping[str, bytes]:
        """Those whose time is not over. Who only asks does not make the topic."""
        async with self._reading:
            await self._cluster.look_for([self._topic], "announced")
            if self._topic not in self._cluster.topics:
                return {}
            if self._next is None:
                moment = datetime.fromtimestamp(self._now() - KEPT, UTC)
                found = await self._cluster.since([(self._topic, 0)], moment)
                if (self._topic, 0) not in found:  # all that there is is older
                    return self._notes.up()
                self._next = found[self._topic, 0]
            await self._cluster.call("announced", self._read)
        return self._notes.up()

    async def close(self) -> None:
        """Store what is left, if that can be done at once."""
        self._closed = True
        producer, self._producer = self._producer, None
        if producer is not None and len(producer):
            await asyncio.to_thread(producer.flush, FAREWELL)
            producer.purge()
        await asyncio.to_thread(self._end)

    # -- in a thread ---------------------------------------------------------------------------

    def _end(self) -> None:
        with self._using:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                consumer.close()

    def _read(self) -> None:
        with self._using:
            if self._closed:  # a consumer that is made now would never end
                raise ConnectionLost("it is closed", broker="kafka", operation="announced")
            self._read_on()

    def _read_on(self) -> None:
        """Everything since the last look."""
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    **self._settings,
                    "group.id": "queuecraft.none",  # needs one; never joined
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 10,
                }
            )
        place = TopicPartition(self._topic, 0)
        low, end = self._consumer.get_watermark_offsets(place, timeout=WITHIN)
        self._next = max(self._next or 0, low)
        if self._next >= end:
            return
        place.offset = self._next
        self._consumer.assign([place])
        try:
            while self._next < end and not self._closed:
                first = self._consumer.poll(WITHIN)
                if first is None:
                    raise ConnectionLost(
                        f"topic {self._topic!r} could not be read within {WITHIN:g} s",
                        broker="kafka",
                        operation="announced",
                    )
                for record in (first, *self._consumer.consume(AT_ONCE, 0)):
                    self._learn(record)
                    self._next = (record.offset() or 0) + 1
        finally:
            self._consumer.unassign()

    def _learn(self, record: Message) -> None:
        if (error := record.error()) is not None:
            raise KafkaException(error)
        told = dict(headers_of(record) or ()).get(TTL)
        _, stored = record.timestamp()
        if isinstance(told, bytes) and told.isdigit() and len(told) < 12:
            until = stored / 1000 + min(int(told) / 1000, KEPT)
            name = (record.key() or b"").decode("utf-8", "replace")
            self._notes.put(name, record.value() or b"", until=until)
