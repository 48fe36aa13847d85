"""A consumer of a queue: a member of its group, and the records it holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

import msgspec
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
from queuecraft.drivers.kafka.refusals import TOO_LATE, failure, told
from queuecraft.drivers.kafka.topology import Reach
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import QueueError

if TYPE_CHECKING:
    from queuecraft.drivers.kafka.driver import KafkaDriver

log: Final = logging.getLogger("queuecraft")
SLICE: Final = 0.1  # seconds after which a thread that waits looks whether it is still wanted
IDLE: Final = 0.5  # seconds without `receive` after which we tell Kafka that we are still here
AHEAD: Final = 1000  # records that wait here to be wanted, about
MOST_AHEAD: Final = 20_000  # records of a partition taken while an older one is not finished
JOINED_WITHIN: Final = 3.0  # seconds to become a member, for one who wants records or to leave
SOON: Final = 0.002  # seconds
AGAIN: Final = 0.2  # seconds until a commit that failed is tried again


class Place:
    """A partition while it is ours."""

    __slots__ = (
        "ahead",
        "event",
        "gone",
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
        self._held: dict[Delivery, None] = {}  # that somebody may be working on
        self._ready: list[Delivery] = []
        self._plenty = False  # the last time we asked, there was all we asked for
        self._thinned = False  # some that are ready may be of places that others get
        self._finished: list[dict[Place, list[int]]] = []  # acked, which the thread does not know
        self._acked = 0  # records, from the first on
        self._noted = 0  # so many of them the thread knows of
        self._told = 0  # and so many it has told Kafka of, or has tried to
        self._mentioned: list[Place] = []  # in a commit that was not answered yet
        self._dirty: set[Place] = set()  # not committed as far as they are finished
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
                "on_commit": self._on_commit,
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
            self._asked = monotonic()
            if self._ready and (taken := self._hand_over(limit)):
                if self._plenty and self._fetching is None and len(self._ready) < AHEAD // 2:
                    self._fetch(AHEAD, 0)  # while these are handled; who waits commits late
                return taken
            left = deadline - self._loop.time()
            if self._room(limit) <= 0:
                if left <= 0:
                    return []
                await self._make_room(min(left, SLICE / 10))
                continue
            joining = self._joining or self._topics is not None
            if self._fetching is None:
                self._fetch(AHEAD, max(0.0, left))
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
        held = self._held
        with self._changed:
            for delivery in dict.fromkeys(deliveries):
                if delivery not in held:
                    stale.append(delivery)
                    continue
                del held[delivery]
                place, offset = delivery.token
                if place.gone:
                    stale.append(delivery)
                elif place in finished:
                    finished[place].append(offset)
                else:
                    finished[place] = [offset]
            if finished:
                self._finished.append(finished)
                self._acked += sum(map(len, finished.values()))
            self._changed.notify_all()
        if finished:
            self._start_commit()
            failpoint("ack.after")
        return stale

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        back: list[Delivery] = []
        with self._changed:
            for delivery in dict.fromkeys(deliveries):
                if delivery in self._held:
                    del self._held[delivery]
                    place, _ = delivery.token
                    if not place.leaving:
                        # What is settled with the old one must not settle the new one.
                        back.append(msgspec.structs.replace(delivery))
            self._changed.notify_all()
        self._ready[:0] = back

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        return await self._driver.pass_on(messages)

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

    def _room(self, limit: int) -> int:
        """How many may be handed over now. What is acked and not committed comes again if we die,
        and counts like what is held: no more than `prefetch` are ever handled twice."""
        uncommitted = self._acked - self._told if self._behind else 0
        return max(0, min(limit, self._prefetch - len(self._held) - uncommitted))

    async def _make_room(self, seconds: float) -> None:
        self._start_commit()
        busy = [each for each in (self._commit, self._fetching) if each is not None]
        if busy:
            await asyncio.wait(busy, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(seconds)

    def _hand_over(self, limit: int) -> list[Delivery]:
        with self._changed:
            if self._thinned:
                self._thinned = False
                self._ready[:] = [each for each in self._ready if not each.token[0].leaving]
            room = self._room(limit)
            taken = self._ready[:room]
            del self._ready[:room]
            self._held.update(dict.fromkeys(taken))
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

    async def _fetched(self, work: asyncio.Future[list[Delivery]]) -> None:
        try:
            taken = await work
            self._ready += taken
        except KafkaException as error:
            self._failed = failure(error.args[0], "receive", self.queue)
        except Exception as error:
            self._failed = error
        finally:
            self._fetching = None
            if self._behind:
                self._loop.call_later(SOON, self._start_commit)  # unless more is fetched then

    def _poll(self, limit: int, wait: float) -> list[Delivery]:
        """Wait for a record, and take what has come with it."""
        consumer = self._consumer
        deadline = monotonic() + wait
        if self._paused:
            self._paused = False
            self._go_on(self._places.values())
        while not self._closing:
            self._subscribe()
            left = deadline - monotonic()
            # What is being handled is acked soon, and should not wait to be committed.
            pause = SLICE / 5 if self._held else SLICE
            record = consumer.poll(0)
            if record is None:
                self._plenty = False
                self._flush()
                if left <= 0:
                    break
                record = consumer.poll(min(pause, left))
            if record is not None:
                records = [record, *consumer.consume(limit - 1, 0)]
                self._plenty = len(records) == limit
                if self._plenty:
                    self._mention()
                else:
                    self._flush()
                if taken := self._take(records):
                    return taken
        return []

    def _take(self, records: list[Message]) -> list[Delivery]:
        taken: list[Delivery] = []
        queue = self.queue
        topic: str | None = None
        partition: int | None = None
        place: Place | None = None
        end: int | None = None
        records.reverse()
        while records:
            record = records.pop()  # so that what is made of its headers ends with it, uncollected
            if (error := record.error()) is not None:
                self._look_at(error)
                continue
            if record.partition() != partition or record.topic() != topic:
                topic, partition = record.topic(), record.partition()
                place = self._places.get((topic or "", partition or 0))
                end = None if place is None else place.reach.end(place.partition)
            offset = record.offset() or 0
            if place is None or not place.progress.take(offset):
                continue  # taken from us meanwhile, or had before
            if end is not None and offset >= end:  # it was unbound before this was published
                place.progress.finish([offset])
                self._dirty.add(place)
                continue
            message = message_of(record, place.reach.exchange, place.event)
            taken.append(Delivery(message, queue, 0, (place, offset)))
            if not place.ahead and place.progress.gap > MOST_AHEAD:
                place.ahead = True
                self._consumer.pause([TopicPartition(place.topic, place.partition)])
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

    def _idle(self) -> list[Delivery]:
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
        if self._paused:
            consumer.pause(starts)
        else:  # what was lost while it was paused is still paused when it is ours again
            consumer.resume(starts)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Let handlers finish, say how far they came, and forget what is not begun."""
        places = self._given_up(partitions)
        deadline = monotonic() + self._drain_timeout
        with self._changed:
            while self._handed(places) and not self._closing:
                left = deadline - monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
        self._catch_up()
        failpoint("revoke.before_commit")
        self._say_last(places, deadline)
        failpoint("revoke.after_commit")
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
            self._thinned = True
        return places

    def _handed(self, places: Iterable[Place]) -> bool:
        """Whether somebody may be working on a record of these."""
        return not {delivery.token[0] for delivery in self._held}.isdisjoint(places)

    def _forget(self, places: Sequence[Place]) -> None:
        with self._changed:
            unfinished = self._handed(places)
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

    @property
    def _behind(self) -> bool:
        """Whether more is finished than Kafka is known to know."""
        return bool(self._finished or self._dirty or self._mentioned)

    def _start_commit(self) -> None:
        """Whoever fetches commits as well, and if nobody does, somebody has to."""
        if self._commit is None and self._fetching is None and not self._closing:
            self._commit = self._loop.create_task(self._commit_all())

    async def _commit_all(self) -> None:
        """See that it is done, also while nobody wants records."""
        try:
            while self._behind and self._driver.lost is None and not self._closing:
                await self._loop.run_in_executor(self._polling, self._flush)
                if monotonic() < self._again:
                    await asyncio.sleep(AGAIN)
        finally:
            self._commit = None

    def _flush(self) -> None:
        """Commit what has changed; what cannot be committed now is tried again a little later."""
        if not self._behind or monotonic() < self._again:
            return
        self._catch_up()
        self._mentioned = [place for place in self._dirty if not place.gone]
        self._dirty.clear()
        try:
            self._say(self._mentioned)
        except KafkaException as error:
            self._answered(error.args[0])
        else:
            self._answered(None)

    def _mention(self) -> None:
        """Commit what has changed, and do not wait for the answer: there is more to be had."""
        if self._mentioned or not (self._finished or self._dirty) or monotonic() < self._again:
            return
        self._catch_up()
        places = [place for place in self._dirty if not place.gone]
        self._dirty.clear()
        if offsets := _marks(places):
            failpoint("commit.before")
            self._mentioned = places
            try:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException as error:
                self._on_commit(error.args[0], [])
        self._let_on(places)

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """The answer to that; in the polling thread."""
        problem = error or next((each.error for each in offsets if each.error is not None), None)
        if problem is None:
            failpoint("commit.after")
        self._answered(problem)

    def _answered(self, problem: KafkaError | None) -> None:
        """A commit is done, or has to be tried again a little later."""
        if problem is not None and self._mentioned:
            log.debug("kafka: %s: could not commit yet: %s", self.queue, told(problem))
            self._again = monotonic() + AGAIN
            self._dirty.update(place for place in self._mentioned if not place.gone)
        self._mentioned = []
        self._told = self._noted

    def _catch_up(self) -> None:
        """Note what was acked meanwhile."""
        with self._changed:
            finished, self._finished = self._finished, []
            self._noted = self._acked
        for each in finished:
            for place, offsets in each.items():
                place.progress.finish(offsets)
            self._dirty.update(each)
        self._dirty.update(self._mentioned)  # whether that has come to Kafka is not known

    def _say(self, places: Collection[Place]) -> None:
        """Commit how far we are; not in the loop."""
        if offsets := _marks(places):
            failpoint("commit.before")
            for each in self._consumer.commit(offsets=offsets, asynchronous=False):
                if each.error is not None:
                    raise KafkaException(each.error)
            failpoint("commit.after")
        self._let_on(places)

    def _let_on(self, places: Iterable[Place]) -> None:
        """Go on with partitions that had to wait for an older record."""
        resume = [each for each in places if each.ahead and each.progress.gap < MOST_AHEAD // 2]
        for each in resume:
            each.ahead = False
        if resume and not self._paused:
            self._go_on(resume)

    def _say_last(self, places: Sequence[Place], deadline: float) -> None:
        """Commit before others begin, while there is time and it is of use; not in the loop."""
        while True:
            try:
                self._say(places)
                return
            except KafkaException as error:
                late = monotonic() + AGAIN > deadline or self._driver.lost is not None
                if late or error.args[0].code() in TOO_LATE:
                    log.warning(
                        "kafka: %s: what was handled last may be handled again: %s",
                        self.queue,
                        told(error.args[0]),
                    )
                    return
            sleep(AGAIN)

    def _leave(self) -> None:
        consumer = self._consumer
        if self._driver.lost is None:
            # Who leaves before he has come is waited for by the others until he is missed.
            deadline = monotonic() + JOINED_WITHIN
            while self._joining and monotonic() < deadline:
                consumer.poll(SLICE / 10)
            # Closed while the group is being shared out anew, it waits for ever: revoke all we
            # have first. What is finished is said then.
            consumer.unsubscribe()
            deadline = monotonic() + JOINED_WITHIN
            while self._places and monotonic() < deadline:
                consumer.poll(SLICE / 10)
        consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._loop.call_soon_threadsafe(self._driver.lose, error)


def _marks(places: Iterable[Place]) -> list[TopicPartition]:
    """How far these are."""
    return [
        TopicPartition(
            each.topic, each.partition, each.progress.mark, metadata=each.progress.note()
        )
        for each in places
        if each.progress.mark >= 0 and not each.gone
    ]
