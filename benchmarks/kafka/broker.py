"""The Kafka that all contenders share, and a prefix on it for every run."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic, sleep

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.order import WrongCount
from benchmarks.rabbitmq.stretch import EVENT, QUEUE
from tests.brokers.kafka import Kafka, Value, client

PARTITIONS = 4  # as QueueCraft makes them
PATIENCE = 20.0
NOT_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)

_running: ContextVar[Kafka] = ContextVar("the broker of the benchmarks")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run has its topics and groups; they are gone when it ends."""

    url: str
    prefix: str

    @property
    def topic(self) -> str:
        """Of the orders."""
        return f"{self.prefix}{EVENT}"

    @property
    def group(self) -> str:
        """Of those who handle them."""
        return f"{self.prefix}{QUEUE}"

    @property
    def servers(self) -> str:
        return str(client(self.url)["bootstrap.servers"])

    def settings(self, **more: Value) -> dict[str, Value]:
        """For a client of librdkafka."""
        return client(self.url, **more)

    def make_topic(self) -> None:
        new = NewTopic(self.topic, num_partitions=PARTITIONS, replication_factor=-1)
        admin = AdminClient(self.settings())  # its answers end with it
        for made in admin.create_topics([new]).values():
            made.result(PATIENCE)
        self.await_topic()

    def await_topic(self) -> None:
        """A new topic can be told of before its leader knows of it, and who sends to it then has to
        send again: that is not what is measured."""
        deadline = monotonic() + PATIENCE
        while True:
            try:
                self._count()
            except KafkaException as error:
                if error.args[0].code() not in NOT_YET or monotonic() > deadline:
                    raise
            else:
                return
            sleep(0.02)

    def verify_stored(self, messages: int) -> None:
        """Refuse the run if the topic holds another number of messages."""
        verify(self._count()[0], messages, "holds")

    def verify_committed(self, messages: int) -> None:
        """Refuse the run if the group has not committed just the whole topic. Call when its members
        have left."""
        stored, committed = self._count()
        verify(stored, messages, "holds")
        verify(committed, messages, "was told of")

    def _count(self) -> tuple[int, int]:
        """Messages that are stored, and messages below what is committed."""
        consumer = Consumer(self.settings(group_id=self.group, enable_auto_commit=False))
        try:
            places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
            ends = [consumer.get_watermark_offsets(place, timeout=PATIENCE) for place in places]
            told = consumer.committed(places, timeout=PATIENCE)
        finally:
            consumer.close()
        stored = sum(high - low for low, high in ends)
        return stored, sum(max(0, place.offset) for place in told)


def verify(found: int, expected: int, verb: str) -> None:
    if found != expected:
        raise WrongCount(f"the broker {verb} {found} messages, not {expected}")


@contextmanager
def serving() -> Generator[None]:
    """Start it, or take the one that the environment names; stopped in the end, if it is ours.

    Raises `Unavailable` if there is none to be had here.
    """
    with Kafka.from_environment(lasting=True) as broker, sharing(broker):
        yield


@contextmanager
def sharing(broker: Kafka) -> Generator[None]:
    """Use this one, which somebody else starts and stops."""
    token = _running.set(broker)
    try:
        yield
    finally:
        _running.reset(token)


@contextmanager
def place() -> Generator[Place]:
    """A prefix that is there for one run."""
    with _running.get().prefix() as url:
        yield Place(url, url.rpartition("prefix=")[2])
