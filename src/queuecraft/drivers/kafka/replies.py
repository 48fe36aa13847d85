"""Replies over Kafka: one topic for all of an application, of which each caller takes its own.

A topic or a group for each caller would be dear to make and hard to get rid of. So everybody who
waits for replies reads all of them, from where the topic ended when it began to wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from queuecraft.codec.reason import reason
from queuecraft.drivers.base import ConnectionLost, Delivery, Outgoing, Receipt, Subscription
from queuecraft.drivers.kafka.cluster import Cluster
from queuecraft.drivers.kafka.envelope import message_of
from queuecraft.drivers.kafka.refusals import failure
from queuecraft.model.errors import QueueError

if TYPE_CHECKING:
    from queuecraft.drivers.kafka.driver import KafkaDriver

log: Final = logging.getLogger("queuecraft")
SLICE: Final = 0.1  # seconds after which who waits looks whether it is still wanted
AT_ONCE: Final = 500
KEPT: Final = 300_000  # milliseconds that a reply is kept at least: who lost its connection is back
_PASSING: Final = (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART)


async def make_topic(cluster: Cluster, topic: str) -> None:
    """See that the topic of replies is there."""
    settings = {"retention.ms": str(KEPT), "segment.ms": str(KEPT)}
    await cluster.make(topic, None, **settings)


class ReplySubscription(Subscription):
    """The replies for one address. It is in no group and commits nothing: `places` says where it is
    to go on, and is kept by who made it."""

    def __init__(
        self,
        driver: KafkaDriver,
        settings: Mapping[str, Any],
        topic: str,
        address: str,
        places: dict[int, int],
    ) -> None:
        self._driver = driver
        self._address = address
        self._key = address.encode()
        self._places = places
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._ready: deque[Delivery] = deque()
        self._failed: QueueError | None = None
        self._wanted = True
        self._consumer = Consumer(
            {
                **settings,
                "group.id": "queuecraft.none",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.error.backoff.ms": 50,
                "error_cb": self._on_error,
            }
        )
        self._consumer.assign([TopicPartition(topic, *place) for place in places.items()])
        self._thread = Thread(target=self._serve, name="queuecraft-kafka-replies", daemon=True)
        self._thread.start()

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        deadline = self._loop.time() + wait
        while not self._ready:
            self._check()
            left = deadline - self._loop.time()
            if left <= 0:
                return []
            self._arrived.clear()
            try:
                async with asyncio.timeout(min(left, 5 * SLICE)):
                    await self._arrived.wait()
            except TimeoutError:
                continue
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return ()  # Kafka forgets them in time

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        self._ready.extendleft(reversed(deliveries))

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        return await self._driver.pass_on(messages)

    async def close(self) -> None:
        if self._wanted:
            self._wanted = False
            self._arrived.set()
            await asyncio.shield(asyncio.to_thread(self._end))

    def _check(self) -> None:
        if self._driver.lost is not None:
            raise self._driver.lost.with_traceback(None)
        if not self._wanted:
            raise ConnectionLost("the connection is closed", broker="kafka", operation="listen")
        if self._failed is not None:
            raise self._failed.with_traceback(None)

    def _take(self, records: Sequence[tuple[int, int, Delivery | None]]) -> None:
        for partition, offset, delivery in records:
            self._places[partition] = offset + 1
            if delivery is not None:
                self._ready.append(delivery)
        self._arrived.set()

    def _fail(self, error: QueueError) -> None:
        self._failed = error
        self._arrived.set()

    # -- in the thread -------------------------------------------------------------------------

    def _serve(self) -> None:
        while self._wanted:
            try:
                first = self._consumer.poll(SLICE)
                if first is None:
                    continue
                found = [self._read(each) for each in (first, *self._consumer.consume(AT_ONCE, 0))]
                self._tell(self._take, [each for each in found if each is not None])
            except KafkaException as error:
                self._tell(self._fail, failure(error.args[0], "listen"))
                return
            except Exception as error:
                log.exception("kafka: replies could not be read")
                self._tell(self._fail, _unexpected(error))
                return

    def _read(self, record: Message) -> tuple[int, int, Delivery | None] | None:
        """A record, and where it was; most are for others."""
        error = record.error()
        if error is not None:
            if error.code() not in _PASSING:
                raise KafkaException(error)
            return None
        ours = record.key() == self._key
        delivery = Delivery(message_of(record), self._address) if ours else None
        return record.partition() or 0, record.offset() or 0, delivery

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._tell(self._driver.lose, error)

    def _tell(self, call: Any, *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed
            self._wanted = False

    def _end(self) -> None:
        self._thread.join()
        self._consumer.close()


def _unexpected(error: Exception) -> QueueError:
    text = f"replies could not be read: {reason(error)}"
    return QueueError(text, broker="kafka", operation="listen")
