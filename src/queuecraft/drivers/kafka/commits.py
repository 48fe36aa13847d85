"""What Kafka is told of what is finished, and told again until it has heard it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from queuecraft.drivers.kafka.holding import Holding
from queuecraft.drivers.kafka.place import Place, marks
from queuecraft.drivers.kafka.refusals import TOO_LATE, told
from queuecraft.failpoints import failpoint

if TYPE_CHECKING:
    from queuecraft.drivers.kafka.driver import KafkaDriver

log: Final = logging.getLogger("queuecraft")
AGAIN: Final = 0.2  # seconds until a commit that failed is tried again
LOUD: Final = 25  # failures in a row, after which somebody should know
_TOO_LONG: Final = (KafkaError.OFFSET_METADATA_TOO_LARGE, KafkaError.INVALID_COMMIT_OFFSET_SIZE)


class Commits:
    """Those of one member; made in its thread."""

    def __init__(
        self, driver: KafkaDriver, queue: str, consumer: Consumer, holding: Holding
    ) -> None:
        self._driver = driver
        self._queue = queue
        self._consumer = consumer
        self._holding = holding
        self._mentioned: list[Place] = []  # in a commit that was not answered yet
        self._words: list[object] = []  # of that one
        self._covers = 0  # so many of what is acked
        self._noting = True  # Kafka takes our notes
        self._failures = 0  # in a row
        self._dirty: set[Place] = set()  # not committed as far as they are finished
        self._again = 0.0  # when a commit that failed may be tried again

    @property
    def behind(self) -> bool:
        """Whether more is finished than Kafka is known to know."""
        return bool(self._holding.finished or self._dirty or self._mentioned)

    @property
    def refused(self) -> bool:
        """Whether the last one failed, and is not to be tried again yet."""
        return monotonic() < self._again

    def add(self, place: Place) -> None:
        """More of it is finished, without anybody having worked on it."""
        self._dirty.add(place)

    def forget(self, places: Iterable[Place]) -> None:
        """Others have these by now."""
        self._dirty.difference_update(places)

    def flush(self) -> None:
        """Commit what has changed; what cannot be committed now is tried again a little later."""
        if self.behind:
            self._try(self._say)

    def announce(self, places: Iterable[Place]) -> bool:
        """Commit what is in hand of these, with all that has changed; whether that was heard."""
        self._dirty.update(places)
        return self._try(self._announce)

    def _try(self, say: Callable[[Collection[Place]], None]) -> bool:
        if self.refused:
            return False
        self._catch_up()
        self._words = []  # what was mentioned is said once more
        try:
            say(self._changed())
        except KafkaException as error:
            self._refused(error.args[0])
            return _is_gone(error.args[0])
        self._heard(self._holding.noted)
        return True

    def mention(self) -> None:
        """Commit what has changed, and do not wait for the answer: there is more to be had."""
        if self._mentioned or not (self._holding.finished or self._dirty) or self.refused:
            return
        self._catch_up()
        if offsets := marks(self._changed(), noting=self._noting):
            failpoint("commit.before")
            self._words, self._covers = _words(offsets), self._holding.noted
            try:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException as error:
                self._refused(error.args[0])
        else:
            self._heard(self._holding.noted)

    def answer(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """What Kafka says to that."""
        if not self._words or (offsets and _words(offsets) != self._words):
            return  # all of it was said once more since
        self._words = []
        problem = error or _problem(offsets)
        if problem is None:
            failpoint("commit.after")
            self._heard(self._covers)
        else:
            self._refused(problem)

    def say_last(self, places: Sequence[Place], deadline: float) -> None:
        """Commit before others begin, while there is time and it is of use."""
        self._catch_up()
        failpoint("revoke.before_commit")
        self._insist(places, deadline)
        failpoint("revoke.after_commit")

    def _insist(self, places: Sequence[Place], deadline: float) -> None:
        while True:
            try:
                self._say(places)
                return
            except KafkaException as error:
                late = monotonic() + AGAIN > deadline or self._driver.lost is not None
                if late or error.args[0].code() in TOO_LATE:
                    log.warning(
                        "kafka: %s: what was handled last may be handled again: %s",
                        self._queue,
                        told(error.args[0]),
                    )
                    return
            sleep(AGAIN)

    def _heard(self, acked: int) -> None:
        """Kafka knows what was mentioned, and with it so many of what is acked."""
        self._failures = 0
        self._holding.told = max(self._holding.told, acked)
        self._mentioned = []

    def _refused(self, problem: KafkaError) -> None:
        """A commit has to be tried again a little later. Until then no more is handed over than may
        be handled twice."""
        self._again = monotonic() + AGAIN
        self._dirty.update(place for place in self._mentioned if not place.gone)
        self._mentioned = []
        if _is_gone(problem):
            self._heard(self._holding.noted)  # what is gone does not come again
        elif problem.code() in _TOO_LONG:
            self._noting = False
        self._failures += 1
        log.log(
            logging.WARNING if self._failures == LOUD else logging.DEBUG,
            "kafka: %s: could not commit yet, and takes no more than `prefetch` until it can: %s",
            self._queue,
            told(problem),
        )

    def _changed(self) -> list[Place]:
        """What is to be committed now."""
        self._mentioned = [place for place in self._dirty if not place.gone]
        self._dirty.clear()  # not before: we are `behind` all the time
        return self._mentioned

    def _catch_up(self) -> None:
        """Note what was acked meanwhile."""
        with self._holding.changed:  # as above
            finished = self._holding.note()
            self._dirty.update(self._mentioned, *finished)  # nobody knows whether that was heard
        for each in finished:
            for place, offsets in each.items():
                place.finish(offsets)

    def _say(self, places: Collection[Place]) -> None:
        """Commit how far we are, and wait for the answer."""
        if offsets := marks(places, noting=self._noting):
            failpoint("commit.before")
            self._commit(offsets)
            failpoint("commit.after")

    def _announce(self, places: Collection[Place]) -> None:
        """The same, for the sake of what is in hand."""
        if offsets := marks(places, noting=self._noting):
            failpoint("announce.before")
            self._commit(offsets)
            failpoint("announce.after")

    def _commit(self, offsets: list[TopicPartition]) -> None:
        problem = _problem(self._consumer.commit(offsets=offsets, asynchronous=False))
        if problem is not None:
            raise KafkaException(problem)


def _words(offsets: Iterable[TopicPartition]) -> list[object]:
    """What a commit says, to know its answer by."""
    return [(each.topic, each.partition, each.offset, each.metadata or "") for each in offsets]


def _problem(offsets: Iterable[TopicPartition]) -> KafkaError | None:
    """What is wrong with a commit; that a topic is gone is the least."""
    errors = [each.error for each in offsets if each.error is not None]
    return min(errors, key=_is_gone, default=None)


def _is_gone(problem: KafkaError) -> bool:
    """Whether it is no more than that a topic is not there any more."""
    return problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
