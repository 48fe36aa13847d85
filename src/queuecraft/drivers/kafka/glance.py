"""Records that are looked at without a group, and stay where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.kafka.cluster import Spot

WITHIN: Final = 10.0  # seconds for the next record


@dataclass(frozen=True, slots=True)
class Stretch:
    """What of a partition a queue has before it."""

    start: int
    end: int
    finished: Sequence[int] = ()

    def __len__(self) -> int:
        return max(0, self.end - self.start - len(self.finished))

    def after(self, low: int) -> Stretch:
        """What is left of it, now that the partition begins there.

        >>> len(Stretch(0, 10).after(4)), len(Stretch(5, 10, [7]).after(4))
        (6, 4)
        """
        return self if low <= self.start else Stretch(low, max(low, self.end))


class Glance:
    """One client for all looks: a new one takes longer to connect and to end than to read. It is
    made for the first. Blocks: not for the loop."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._consumer: Consumer | None = None
        self._lock = Lock()
        self._closed = False

    def read(self, ahead: Mapping[Spot, Stretch], limit: int) -> list[Message]:
        """The oldest records of these, at most so many of each partition."""
        with self._lock:
            if self._closed:  # one that is made now would never end
                raise ConnectionLost("the connection is closed", broker="kafka", operation="peek")
            consumer = self._consumer = self._consumer or self._made()
            for topic in {topic for topic, _ in ahead}:
                consumer.list_topics(topic, WITHIN)  # it would ask by itself, but not at once
            consumer.assign([TopicPartition(*spot, each.start) for spot, each in ahead.items()])
            try:
                found = _taken(consumer, ahead, limit)
            finally:
                consumer.unassign()
        return sorted(found, key=lambda each: (each.timestamp()[1], each.offset() or 0))

    def close(self) -> None:
        """Look no more."""
        with self._lock:
            self._closed = True
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                consumer.close()

    def _made(self) -> Consumer:
        return Consumer(
            {
                **self._settings,
                "group.id": "queuecraft.none",  # needs one; never joined
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # the answer to one question waits for the one before
                "queued.min.messages": 1000,  # it would read far more than is looked at
                "fetch.queue.backoff.ms": 1,
            }
        )


def _taken(consumer: Consumer, ahead: Mapping[Spot, Stretch], limit: int) -> list[Message]:
    found: list[Message] = []
    left = dict(ahead)
    taken = dict.fromkeys(ahead, 0)
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
    return found
