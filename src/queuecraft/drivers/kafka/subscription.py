"""A consumer of a queue: a member of its group, and the records it holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from queuecraft.drivers.base import (
    ConnectionLost,
    Delivery,
    Move,
    Outgoing,
    Receipt,
    Subscription,
)
from queuecraft.drivers.kafka.envelope import message_of
from queuecraft.drivers.kafka.offsets import Progress, noted
from queuecraft.drivers.kafka.origin import traced
from queuecraft.drivers.kafka.refusals import failure
from queuecraft.drivers.kafka.topology import Reach
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import QueueError

if TYPE_CHECKING:
    from queuecraft.drivers.kafka.driver import KafkaDriver

log: Final = logging.getLogger("queuecraft")
SLICE: Final = 0.1  # seconds after which a thread that waits looks whether it is still wanted
IDLE: Final = 0.5  # seconds without `receive` after which we tell Kafka that we are still here
MOST_AHEAD: Final = 20_000  # records of a partition taken while an older one is not finished
JOINED_WITHIN: Final = 3.0  # seconds to become a member, for one who wants records or to leave
AGAIN: Final = 0.2  # seconds until a commit that failed is tried again


class Place:
    """A partition while it is ours."""

    __slots__ = (
        "ahead",
        "event",
        "gone",
        "handed",
        "leaving",
        "partition",
        "progress",
        "reach",
        "topic",
    )

    def __init__(
        self, topic: str, partition: int, reach: Reach, event: str, progress: Progress
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.reach = reach
        self.event = event  # that its records are of, unless they say otherwise
        self.progress = progress
        self.handed = 0  # records that somebody may be working on
        self.ahead = False  # it waits for an older record, and is paused
        self.leaving = False  # nothing of it is handed over any more
        self.gone = False  # others have it


class KafkaSubscription(Subscription):
    """One member of a group. Kafka is spoken to in one thread, so that who commits or subscribes
    never has to wait for another who polls. What that thread and the loop use is guarded by one
    lock, for moments only."""

    def __init__(
        self,
        driver: KafkaDriver,
        queue: str,
        prefetch: int,
        settings: Mapping[str, Any],
        drain_timeout: float,
    ) -> None:
        self.queue = queue
        self._driver = driver
        self._prefetch = prefetch
        self._drain_timeout = drain_timeout
        self._loop = asyncio.get_running_loop()
        self._changed = Condition()  # guards all places
        self._places: dict[tuple[str, int], Place] = {}
        self._reaches: dict[str, Reach] = {}
        self._topics: list[str] | None = None  # to follow, which Kafka has not been told yet
        self._held: dict[Delivery, None] = {}
        self._ready: list[tuple[Place, int, Outgoing]] = []
        self._dirty: set[Place] = set()
        self._polling = ThreadPoolExecutor(1, "queuecraft-kafka-poll")
        self._fetching: asyncio.Future[None] | None = None
        self._commit: asyncio.Task[None] | None = None
        self._keeping: asyncio.TimerHandle | None = None
        self._asked = monotonic()  # when somebody last wanted records
        self._again = 0.0  # when a commit that failed may be tried again
        self._paused = False
        self._joining = False  # the group does not know us yet, or we not what it knows
        self._closing = False
        self._failed: Exception | None = None
        self._consumer = Consumer(
            {
                **settings,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "queued.min.messages": 10_000,
                "fetch.error.backoff.ms": 50,
                "fetch.queue.backoff.ms": 5,  # a second by default, when enough has been fetched
                "error_cb": self._on_error,
            }
        )

    # -- what it is given ----------------------------------------------------------------------

    async def follow(self, reaches: Mapping[str, Reach]) -> None:
        """Be given these topics from now on."""
        if self._closing:
            return
        with self._changed:
            before, self._reaches = set(self._reaches), dict(reaches)
            for place in self._places.values():
                place.reach = reaches.get(place.topic, place.reach)
            if before != set(reaches):
                self._topics = sorted(reaches)
        if self._keeping is None:
            self._keep_alive()

    def _subscribe(self) -> None:
        """Tell Kafka which topics we follow, if they are others."""
        with self._changed:
            topics, self._topics = self._topics, None
        if topics is None:
            return
        if not topics:
            self._consumer.unsubscribe()
            return
        self._joining = True
        self._consumer.subscribe(
            topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    # -- the seam ------------------------------------------------------------------------------

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        deadline = self._loop.time() + wait
        patience = self._loop.time() + (JOINED_WITHIN if wait > 0 else 0)
        while True:
            self._check()
            if self._ready and (taken := self._hand_over(limit)):
                return taken
            left = deadline - self._loop.time()
            room = min(limit, self._prefetch - len(self._held))
            self._asked = monotonic()
            if room <= 0:
                if left <= 0:
                    return []
                await asyncio.sleep(min(left, SLICE / 10))
                continue
            joining = self._joining or self._topics is not None
            if self._fetching is None:
                self._fetch(room, max(0.0, left))
            if self._fetching is not None:
                await asyncio.wait([self._fetching], timeout=max(0.001, left))
            if joining and self._loop.time() < patience:
                # Until the group has given us our share, nothing says that there is nothing.
                deadline = self._loop.time() + wait
            if self._loop.time() >= deadline and not self._ready:
                self._check()
                return []

    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        failpoint("ack.before")
        self._check_lost()
        stale: list[Delivery] = []
        finished: dict[Place, list[int]] = {}
        for delivery in dict.fromkeys(deliveries):
            if delivery in self._held:
                del self._held[delivery]
                place, offset = delivery.token
                if not place.gone:
                    finished.setdefault(place, []).append(offset)
                    continue
            stale.append(delivery)
        if finished:
            with self._changed:
                for place, offsets in finished.items():
                    place.progress.finish(offsets)
                    place.handed -= len(offsets)
                    self._dirty.add(place)
                self._changed.notify_all()
            self._start_commit()
            failpoint("ack.after")
        return stale

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        back: list[tuple[Place, int, Outgoing]] = []
        with self._changed:
            for delivery in dict.fromkeys(deliveries):
                if delivery in self._held:
                    del self._held[delivery]
                    place, offset = delivery.token
                    place.handed -= 1
                    if not place.leaving:
                        back.append((place, offset, delivery.sent))
            self._changed.notify_all()
        self._ready[:0] = back

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        return await self._driver.send(messages)

    async def move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        return await super().move([traced(each) for each in moves])

    async def close(self) -> None:
        if self._closing:
            return
        self._driver.forget(self)
        self._closing = True
        with self._changed:
            self._changed.notify_all()
        if self._keeping is not None:
            self._keeping.cancel()
        if self._fetching is not None:
            await asyncio.wait([self._fetching])
        if self._commit is not None:
            await asyncio.wait([self._commit])
        self._held.clear()
        self._ready.clear()
        await self._loop.run_in_executor(self._polling, self._leave)
        self._polling.shutdown(wait=False)

    # -- handing over --------------------------------------------------------------------------

    def _hand_over(self, limit: int) -> list[Delivery]:
        room = min(limit, self._prefetch - len(self._held))
        taken: list[Delivery] = []
        queue = self.queue
        with self._changed:
            if any(place.leaving for place, _, _ in self._ready):
                self._ready = [each for each in self._ready if not each[0].leaving]
            if room <= 0:
                return taken
            for place, offset, message in self._ready[:room]:
                delivery = Delivery(message, queue, 0, (place, offset))
                place.handed += 1
                self._held[delivery] = None
                taken.append(delivery)
            del self._ready[:room]
        return taken

    def _check(self) -> None:
        if self._closing:
            raise ConnectionLost(
                "the subscription is closed", broker="kafka", operation="receive", queue=self.queue
            )
        self._check_lost()
        if self._failed is not None:
            raise self._failed.with_traceback(None)

    def _check_lost(self) -> None:
        if (lost := self._driver.lost) is not None:
            raise lost.with_traceback(None)

    # -- polling -------------------------------------------------------------------------------

    def _fetch(self, limit: int, wait: float) -> None:
        work = self._loop.run_in_executor(self._polling, self._poll, limit, wait)
        self._fetching = asyncio.ensure_future(self._fetched(work))

    async def _fetched(self, work: asyncio.Future[list[tuple[Place, int, Outgoing]]]) -> None:
        try:
            self._ready += await work
        except KafkaException as error:
            self._failed = failure(error.args[0], "receive", self.queue)
        except Exception as error:
            self._failed = error
        finally:
            self._fetching = None

    def _poll(self, limit: int, wait: float) -> list[tuple[Place, int, Outgoing]]:
        """Wait for a record, and take what has come with it."""
        consumer = self._consumer
        deadline = monotonic() + wait
        if self._paused:
            self._paused = False
            self._go_on(self._places.values())
        while not self._closing:
            self._subscribe()
            self._flush()
            left = deadline - monotonic()
            # What is being handled is acked soon, and should not wait to be committed.
            pause = SLICE / 5 if self._held else SLICE
            record = consumer.poll(min(pause, left) if left > 0 else 0)
            if record is not None:
                records = [record]
                if limit > 1:
                    records += consumer.consume(limit - 1, 0)
                if taken := self._take(records):
                    return taken
            elif left <= 0:
                break
        return []

    def _take(self, records: Iterable[Message]) -> list[tuple[Place, int, Outgoing]]:
        taken: list[tuple[Place, int, Outgoing]] = []
        pause: list[Place] = []
        spot: tuple[str, int] | None = None
        place: Place | None = None
        end: int | None = None
        with self._changed:
            for record in records:
                if (error := record.error()) is not None:
                    self._look_at(error)
                    continue
                if spot != (there := (record.topic() or "", record.partition() or 0)):
                    spot = there
                    place = self._places.get(spot)
                    end = None if place is None else place.reach.end(place.partition)
                offset = record.offset() or 0
                if place is None or not place.progress.take(offset):
                    continue  # taken from us meanwhile, or had before
                if end is not None and offset >= end:  # it was unbound before this was published
                    place.progress.finish([offset])
                    self._dirty.add(place)
                    continue
                message = message_of(record, place.reach.exchange, place.event)
                taken.append((place, offset, message))
                if not place.ahead and place.progress.gap > MOST_AHEAD:
                    place.ahead = True
                    pause.append(place)
        if pause:
            self._consumer.pause([TopicPartition(each.topic, each.partition) for each in pause])
        return taken

    def _look_at(self, error: KafkaError) -> None:
        """Something else than a record: most of it librdkafka sees to by itself."""
        if error.code() in (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART):
            return
        if error.fatal() or error.code() in (
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        ):
            raise KafkaException(error)

    def _keep_alive(self) -> None:
        """While handlers are busy with what they have, Kafka must still hear from us."""
        if self._closing:
            return
        if monotonic() - self._asked > IDLE and self._fetching is None:
            work = self._loop.run_in_executor(self._polling, self._idle)
            self._fetching = asyncio.ensure_future(self._fetched(work))
        self._keeping = self._loop.call_later(IDLE / 2, self._keep_alive)

    def _idle(self) -> list[tuple[Place, int, Outgoing]]:
        with self._changed:
            ours = [TopicPartition(topic, number) for topic, number in self._places]
        if not self._paused and ours:
            self._consumer.pause(ours)
        self._paused = True
        self._subscribe()
        self._flush()
        record = self._consumer.poll(0)
        return self._take([record]) if record is not None else []

    def _go_on(self, places: Iterable[Place]) -> None:
        with self._changed:
            there = [
                TopicPartition(each.topic, each.partition) for each in places if not each.ahead
            ]
        if there:
            self._consumer.resume(there)

    # -- partitions come and go: in the polling thread -----------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._joining = False
        if self._closing or not partitions:
            consumer.incremental_assign(partitions)
            return
        try:
            there = consumer.committed(partitions, timeout=10.0)
        except KafkaException as error:  # nothing may leave this callback
            self._failed = failure(error.args[0], "receive", self.queue)
            return
        starts: list[TopicPartition] = []
        with self._changed:
            for each in there:
                reach = self._reaches.get(each.topic) or Reach()
                mark, finished = -1, list[int]()
                if each.offset >= reach.start(each.partition):
                    mark, finished = each.offset, noted(each.offset, each.metadata)
                elif each.partition < len(reach.since):
                    mark = reach.start(each.partition)
                event = self._driver.event_of(reach.exchange, each.topic)
                self._places[each.topic, each.partition] = Place(
                    each.topic, each.partition, reach, event, Progress(mark, finished)
                )
                starts.append(
                    TopicPartition(
                        each.topic, each.partition, mark if mark >= 0 else OFFSET_BEGINNING
                    )
                )
        consumer.incremental_assign(starts)
        if self._paused and starts:
            consumer.pause(starts)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Let handlers finish, say how far they came, and forget what is not begun."""
        places = self._given_up(partitions)
        deadline = monotonic() + self._drain_timeout
        with self._changed:
            while any(place.handed for place in places) and not self._closing:
                left = deadline - monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
        try:
            self._say(places)
        except KafkaException as error:
            log.warning(
                "kafka: %s: what was handled last may be handled again: %s", self.queue, error
            )
        self._forget(places)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The group has gone on without us."""
        self._forget(self._given_up(partitions))

    def _given_up(self, partitions: list[TopicPartition]) -> list[Place]:
        with self._changed:
            found = [self._places.pop((each.topic, each.partition), None) for each in partitions]
            places = [place for place in found if place is not None]
            for place in places:
                place.leaving = True
        return places

    def _forget(self, places: Sequence[Place]) -> None:
        with self._changed:
            unfinished = any(place.handed for place in places)
            self._dirty.difference_update(places)
            for place in places:
                place.gone = True
        if unfinished and not self._closing:
            # Others begin on it now: whoever still has it waiting here must not.
            self._failed = QueueError(
                "partitions went to another process before their handlers had ended",
                broker="kafka",
                operation="receive",
                queue=self.queue,
            )

    # -- committing ----------------------------------------------------------------------------

    def _start_commit(self) -> None:
        if self._commit is None and not self._closing:
            self._commit = self._loop.create_task(self._commit_all())

    async def _commit_all(self) -> None:
        """See that it is done, also while nobody wants records."""
        try:
            while self._dirty and self._driver.lost is None and not self._closing:
                await self._loop.run_in_executor(self._polling, self._flush)
                if monotonic() < self._again:
                    await asyncio.sleep(AGAIN)
        finally:
            self._commit = None

    def _flush(self) -> None:
        """Commit what has changed; what cannot be committed now is tried again a little later."""
        if not self._dirty or monotonic() < self._again:
            return
        with self._changed:
            places = [place for place in self._dirty if not place.gone]
            self._dirty.clear()
        try:
            self._say(places)
        except KafkaException as error:
            log.debug("kafka: %s: could not commit yet: %s", self.queue, error)
            self._again = monotonic() + AGAIN
            with self._changed:
                self._dirty.update(place for place in places if not place.gone)

    def _say(self, places: Iterable[Place]) -> None:
        """Commit how far we are; not in the loop."""
        failpoint("commit.before")
        resume: list[Place] = []
        with self._changed:
            offsets = [
                TopicPartition(
                    each.topic, each.partition, each.progress.mark, metadata=each.progress.note()
                )
                for each in places
                if each.progress.mark >= 0 and not each.gone
            ]
            for each in places:
                if each.ahead and each.progress.gap < MOST_AHEAD // 2:
                    each.ahead = False
                    resume.append(each)
        if offsets:
            for told in self._consumer.commit(offsets=offsets, asynchronous=False):
                if told.error is not None:
                    raise KafkaException(told.error)
        if resume and not self._paused:
            self._go_on(resume)
        failpoint("commit.after")

    def _leave(self) -> None:
        with self._changed:
            places = [place for place in self._dirty if not place.gone]
            self._dirty.clear()
        if self._driver.lost is None:
            try:
                self._say(places)
            except KafkaException:
                pass  # they will be handled again
            # Who leaves before he has come is waited for by the others until he is missed.
            deadline = monotonic() + JOINED_WITHIN
            while self._joining and monotonic() < deadline:
                self._consumer.poll(SLICE / 10)
        self._consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._loop.call_soon_threadsafe(self._driver.lose, error)
