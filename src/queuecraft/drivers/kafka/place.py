"""A partition of a topic, while it is ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from confluent_kafka import TopicPartition

from queuecraft.drivers.kafka.envelope import Opener
from queuecraft.drivers.kafka.offsets import MARK, Progress
from queuecraft.drivers.kafka.suspects import Suspects
from queuecraft.drivers.kafka.topology import Reach


class Place:
    """Where it is, what of it is the queue's, and how far we are."""

    __slots__ = (
        "ahead",
        "announced",
        "event",
        "gone",
        "leaving",
        "opener",
        "partition",
        "progress",
        "reach",
        "suspects",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        reach: Reach,
        event: str,
        progress: Progress,
        suspects: Suspects,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.reach = reach
        self.event = event  # that its records are of, unless they say otherwise
        self.opener = Opener(reach.exchange, event)
        self.progress = progress
        self.suspects = suspects
        self.announced = False  # Kafka knows that we have of it what we want
        self.ahead = False  # of it no more is wanted for now, and it is paused
        self.leaving = False  # nothing of it is handed over any more
        self.gone = False  # others have it

    def follow(self, reach: Reach) -> None:
        """More of it is the queue's now, or less."""
        if reach.exchange != self.reach.exchange:
            self.opener = Opener(reach.exchange, self.event)
        self.reach = reach

    def finish(self, offsets: Sequence[int]) -> None:
        """These need not come again."""
        self.progress.finish(offsets)
        if self.suspects.counts:
            self.suspects.clear(offsets)

    def note(self) -> str:
        """What Kafka keeps beside the mark for who has the partition next."""
        note, suspects = self.progress.note(), self.suspects.text(self.progress.mark)
        return f"{note or MARK}{suspects}" if suspects else note


def marks(places: Iterable[Place], *, noting: bool = True) -> list[TopicPartition]:
    """How far these are, as Kafka wants to hear it; `noting` what is finished beyond."""
    return [
        TopicPartition(
            each.topic,
            each.partition,
            each.progress.mark,
            metadata=each.note() if noting else "",
        )
        for each in places
        if each.progress.mark >= 0 and not each.gone
    ]
