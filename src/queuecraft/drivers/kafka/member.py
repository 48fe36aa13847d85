"""A member of a group: what it is given, and what it takes of that. It lives in its own thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from queuecraft.drivers.base import Delivery
from queuecraft.drivers.kafka import remade
from queuecraft.drivers.kafka.cluster import Spot
from queuecraft.drivers.kafka.commits import Commits
from queuecraft.drivers.kafka.envelope import stored
from queuecraft.drivers.kafka.holding import Holding
from queuecraft.drivers.kafka.offsets import Progress, noted
from queuecraft.drivers.kafka.place import Place
from queuecraft.drivers.kafka.refusals import failure
from queuecraft.drivers.kafka.suspects import Suspects, is_in_hand
from queuecraft.drivers.kafka.topology import Reach

if TYPE_CHECKING:
    from queuecraft.drivers.kafka.driver import KafkaDriver

SLICE: Final = 0.1  # seconds after which a thread that waits looks whether it is still wanted
MOST_AHEAD: Final = 20_000  # records of a partition taken while an older one is not finished
WITHIN: Final = 10.0  # seconds for what has to be known of a partition that is given to us
ENDS_WITHIN: Final = 3.0  # seconds to learn where it ends; without an answer it is as it was
JOINED_WITHIN: Final = 3.0  # seconds to become a member, for one who wants records or to leave
_LEADERLESS: Final = (KafkaError._UNKNOWN_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)


class Member:
    """Kafka is spoken to in one thread, so that who commits or subscribes never has to wait for
    another who polls: all that is not said to be of the loop is called in that thread."""

    def __init__(
        self,
        driver: KafkaDriver,
        queue: str,
        settings: Mapping[str, Any],
        drain_timeout: float,
        holding: Holding,
        most: int | None,
        leaving: Callable[[], None],
        left: Callable[[], None],
    ) -> None:
        self.plenty = False  # the last time we asked, there was all we asked for
        self.thinned = False  # some that were taken may be of places that others get
        self.given_up = 0  # how often places were
        self.closing = False
        self.failed: Exception | None = None
        self.spared: frozenset[str] = frozenset()  # topics of which nothing is wanted for now
        self.silent: set[Place] = set()  # that records came of, and Kafka does not know we have any
        self.suspecting: set[Place] = set()  # that somebody died with, and not all is finished
        self._driver = driver
        self._queue = queue
        self._drain_timeout = drain_timeout
        self._most = most  # in hand at once; None if nobody is to be suspected
        self._leaving = leaving  # called in the loop again and again while handlers are waited for
        self._left = left  # and after it, if they were not done in time
        self._loop = asyncio.get_running_loop()
        self._holding = holding
        self._changed = holding.changed  # guards all places
        self._places: dict[tuple[str, int], Place] = {}
        self._reaches: dict[str, Reach] = {}
        self._topics: list[str] | None = None  # to follow, which Kafka has not been told yet
        self._ahead: set[Place] = set()  # paused until older records are finished
        self._paused = False
        self._joining = False  # the group does not know us yet, or we not what it knows
        self._consumer = Consumer(
            {
                **settings,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,  # once, not for each record
                "queued.min.messages": 10_000,
                "fetch.error.backoff.ms": 50,
                "fetch.queue.backoff.ms": 5,  # a second by default, when enough has been fetched
                "on_commit": self._on_commit,
                "error_cb": self._on_error,
            }
        )
        self.commits = Commits(driver, queue, self._consumer, holding)

    # -- in the loop ---------------------------------------------------------------------------

    @property
    def joining(self) -> bool:
        """Whether the group has not given us our share yet."""
        return self._joining or self._topics is not None

    @property
    def topics(self) -> Collection[str]:
        """Those it is to be given."""
        return self._reaches.keys()

    def follow(self, reaches: Mapping[str, Reach]) -> None:
        """Be given these topics from now on."""
        with self._changed:
            before, self._reaches = set(self._reaches), dict(reaches)
            for place in self._places.values():
                place.follow(reaches.get(place.topic, place.reach))
            if before != set(reaches):
                self._topics = sorted(reaches)

    # -- records -------------------------------------------------------------------------------

    def poll(self, limit: int, wait: float) -> list[Delivery]:
        """Wait for a record, and take what has come with it."""
        consumer, commits = self._consumer, self.commits
        deadline = monotonic() + wait
        if self._paused:
            self._paused = False
            self._resume(self._places.values())
        while not (self.closing or self.failed or self._driver.lost):
            self._subscribe()
            self._let_on()
            left = deadline - monotonic()
            # What is being handled is acked soon, and should not wait to be committed.
            pause = SLICE / 5 if self._holding.held else SLICE
            record = consumer.poll(0)
            if record is None:
                self.plenty = False
                commits.flush()
                if left <= 0:
                    break
                record = consumer.poll(min(pause, left))
            if record is not None:
                if record.error() is not None:
                    self._take([record])  # at once: its partition may be given away in `consume`
                    continue
                records = [record, *consumer.consume(limit - 1, 0)]
                self.plenty = len(records) == limit
                if self.plenty:
                    commits.mention()
                else:
                    commits.flush()
                if taken := self._take(records):
                    return taken
        return []

    def idle(self) -> list[Delivery]:
        """Be heard of, while nobody wants records."""
        with self._changed:
            ours = [TopicPartition(topic, number) for topic, number in self._places]
        if not self._paused and ours:
            self._consumer.pause(ours)
        self._paused = True
        self._subscribe()
        self.commits.flush()
        record = self._consumer.poll(0)
        return self._take([record]) if record is not None else []

    def leave(self) -> None:
        """Be no member any more."""
        consumer = self._consumer
        try:
            if self._driver.lost is None:
                # Who leaves before he has come is waited for by the others until he is missed.
                self._poll_while(lambda: self._joining)
            # Closed while the group is being shared out anew, it waits for ever, and if it tells us
            # of a revocation then, so does every other thread: revoke all we have first. What is
            # finished is said then.
            consumer.unsubscribe()
            self._poll_while(lambda: bool(consumer.assignment()))
        finally:
            consumer.close()

    def announce(self, *, exactly: bool) -> bool:
        """Let Kafka know what we have in hand, as it has to before somebody works on it; whether it
        has heard."""
        with self._changed:
            places = [each for each in self._places.values() if each.progress.mark >= 0]
            hands = self._holding.hands() if exactly else {}
            for place in places:
                held = frozenset(hands.get(place, ()))
                place.suspects.hand = held if exactly else self._most or 0
                place.suspects.forget_below(place.progress.mark)
            self.suspecting = {each for each in self.suspecting if each.suspects.counts}
        if not self.commits.announce(places):
            return False
        for place in places:
            place.announced = not exactly
        self.silent.difference_update(places)
        return True

    def _poll_while(self, condition: Callable[[], bool]) -> None:
        """At least once, so that what librdkafka has already to say is heard."""
        deadline = monotonic() + JOINED_WITHIN
        self._consumer.poll(SLICE / 10)
        while condition() and monotonic() < deadline:
            self._consumer.poll(SLICE / 10)

    def _take(self, records: list[Message]) -> list[Delivery]:
        taken: list[Delivery] = []
        queue, dating = self._queue, self._most is None
        topic: str | None = None
        partition: int | None = None
        place: Place | None = None
        end: int | None = None
        counts: dict[int, int] = {}
        seen: list[Place] = []
        records.reverse()
        while records:
            record = records.pop()  # so that what is made of its headers ends with it, uncollected
            if (error := record.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._at_end(record)
                else:
                    _look_at(error)
                continue
            if record.partition() != partition or record.topic() != topic:
                topic, partition = record.topic(), record.partition()
                place = self._places.get((topic or "", partition or 0))
                if place is not None:
                    end = place.reach.end(place.partition)
                    counts = place.suspects.counts
                    seen.append(place)
            offset = record.offset() or 0
            if place is None or not place.progress.take(offset):
                continue  # taken from us meanwhile, or had before
            if end is not None and offset >= end:  # it was unbound before this was published
                place.progress.finish([offset])
                self.commits.add(place)
                continue
            times = counts.get(offset, 0) if counts else 0
            token = (place, offset, stored(record)) if dating else (place, offset)
            taken.append(Delivery(place.opener.open(record), queue, times, token))
        for each in seen:
            if not each.announced and self._most is not None:
                self.silent.add(each)
        self._hold_up(each for each in seen if each.progress.gap > MOST_AHEAD)
        return taken

    def _at_end(self, record: Message) -> None:
        """A partition was read to its end, which is beyond its last record if that was of a
        transaction, or if more were that were aborted."""
        if self.failed is not None:
            return  # records that came with the failure may have been lost here
        place = self._places.get((record.topic() or "", record.partition() or 0))
        if place is not None and place.progress.read_to(record.offset() or 0):
            self.commits.add(place)

    def _hold_up(self, places: Iterable[Place]) -> None:
        """Take no more of these for now."""
        waiting = [each for each in places if not each.ahead]
        for each in waiting:
            each.ahead = True
        if waiting:
            self._ahead.update(waiting)
            self._consumer.pause([TopicPartition(each.topic, each.partition) for each in waiting])

    def _let_on(self) -> None:
        """Go on with partitions that had to wait for an older record, unless they are spared."""
        spared = self.spared
        if spared:
            self._hold_up(each for each in self._places.values() if each.topic in spared)
        resume = [
            each
            for each in self._ahead
            if each.progress.gap < MOST_AHEAD // 2 and each.topic not in spared
        ]
        for each in resume:
            each.ahead = False
            self._ahead.discard(each)
        self._resume(resume)

    def _resume(self, places: Iterable[Place]) -> None:
        with self._changed:
            there = [
                TopicPartition(each.topic, each.partition) for each in places if not each.ahead
            ]
        if there:
            self._consumer.resume(there)

    # -- partitions come and go ----------------------------------------------------------------

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

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._joining = False
        if self.closing or not partitions:
            consumer.incremental_assign(partitions)
            return
        try:
            there = consumer.committed(partitions, timeout=WITHIN)
            ends = [self._suspected_up_to(each) for each in there]
            there, beyond = self._beyond(there)
        except KafkaException as error:
            self.failed = failure(error.args[0], "receive", self._queue)
            return
        except Exception as error:  # nothing may leave this callback
            self.failed = error.with_traceback(None)
            return
        with self._changed:
            starts = [self._begin(each, end, beyond) for each, end in zip(there, ends, strict=True)]
        consumer.incremental_assign(starts)
        if self._paused:
            consumer.pause(starts)
        else:  # what was lost while it was paused is still paused when it is ours again
            consumer.resume(starts)

    def _suspected_up_to(self, committed: TopicPartition) -> int:
        """Where a partition ends now, if somebody may have died with records of it."""
        if self._most is None or not is_in_hand(committed.metadata):
            return 0
        try:
            return self._consumer.get_watermark_offsets(committed, timeout=WITHIN)[1]
        except KafkaException as error:
            if error.args[0].code() in _LEADERLESS:
                return 0  # nobody can tell, and the other partitions must not wait for that
            raise

    def _beyond(self, there: list[TopicPartition]) -> tuple[list[TopicPartition], Set[Spot]]:
        """Where to go on, and the partitions that begin anew, as they end before that."""
        starts = remade.starts(there, self._reaches)
        short = remade.short(starts, self._driver.ends_soon(starts, ENDS_WITHIN) if starts else {})
        if not short:
            return there, short.keys()
        lows = self._driver.lows_soon(short, ENDS_WITHIN)
        cut = remade.cut(there, self._reaches, short, lows)
        remade.tell(self._queue, starts, short, cut)
        there = [
            each
            if (end := cut.get((each.topic, each.partition))) is None
            else TopicPartition(each.topic, each.partition, end)
            for each in there
        ]
        beyond = short.keys() - cut.keys()
        topics = {topic for topic, _ in beyond}
        if any(self._reach(topic).since for topic in topics):
            # Before anything is committed there: that would be below where the binding begins, and
            # not count for who comes next.
            renewing = self._driver.renew(self._queue, topics)
            asyncio.run_coroutine_threadsafe(renewing, self._loop).result(WITHIN)
        return there, beyond

    def _reach(self, topic: str) -> Reach:
        return self._reaches.get(topic) or Reach()

    def _begin(self, committed: TopicPartition, end: int, beyond: Set[Spot]) -> TopicPartition:
        """Have a partition from now on; where it is read from."""
        topic, partition, offset = committed.topic, committed.partition, committed.offset
        reach = self._reach(topic)
        if any(topic == each for each, _ in beyond):
            reach = Reach(reach.exchange)
        if (topic, partition) in beyond:
            offset = OFFSET_INVALID
        mark, finished, suspects = -1, list[int](), Suspects()
        if offset >= reach.start(partition):
            mark, finished = offset, noted(offset, committed.metadata)
            if self._most is not None:
                suspects = Suspects.found(offset, finished, end, committed.metadata or "")
        elif partition < len(reach.since):
            mark = reach.start(partition)
        event = self._driver.event_of(reach.exchange, topic)
        progress = Progress(mark, finished)
        place = Place(topic, partition, reach, event, progress, suspects)
        self._places[topic, partition] = place
        if suspects.counts:
            self.suspecting.add(place)
        return TopicPartition(topic, partition, mark if mark >= 0 else OFFSET_BEGINNING)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Let handlers finish, say how far they came, and forget what is not begun."""
        places = self._given_up(partitions)
        if self._driver.lost is not None:  # there is nobody to say it to
            self._forget(places)
            return
        deadline = monotonic() + self._drain_timeout
        self._drain(places, deadline)
        for place in places:
            place.suspects.hand = 0  # nobody has died
        self.commits.say_last(places, deadline)
        self._forget(places)

    def _drain(self, places: Sequence[Place], deadline: float) -> None:
        while not self.closing:
            with self._changed:
                left = deadline - monotonic()
                if left <= 0 or not self._holding.handed(places):
                    return
                self._tell(self._leaving)  # again: what has failed since is to wait elsewhere
                self._changed.wait(min(left, SLICE))
            self.commits.flush()  # that may take long, and what is not said is done twice if we die

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The group has gone on without us."""
        self._forget(self._given_up(partitions))

    def _given_up(self, partitions: list[TopicPartition]) -> list[Place]:
        with self._changed:
            found = [self._places.pop((each.topic, each.partition), None) for each in partitions]
            places = [place for place in found if place is not None]
            for place in places:
                place.leaving = True
            self.thinned = True
            self.given_up += 1
            self.suspecting.difference_update(places)
        self.silent.difference_update(places)
        self._ahead.difference_update(places)
        return places

    def _forget(self, places: Sequence[Place]) -> None:
        with self._changed:
            unfinished = self._holding.handed(places)
            self.commits.forget(places)
            for place in places:
                place.gone = True
        if unfinished and not self.closing:
            self._tell(self._left)

    def _tell(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody holds anything
            self._loop.call_soon_threadsafe(call)

    # -- what librdkafka says by itself --------------------------------------------------------

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        self.commits.answer(error, offsets)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._loop.call_soon_threadsafe(self._driver.lose, error)


def _look_at(error: KafkaError) -> None:
    """Something else than a record: most of it librdkafka sees to by itself."""
    if error.code() in (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART):
        return
    if error.fatal() or error.code() in (
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    ):
        raise KafkaException(error)
