"""Who is measured on which broker, set up how, and what that setting promises."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TypeAlias

from benchmarks.pairs.pair import Pair

Broker: TypeAlias = str

OURS = "QueueCraft"
BARE = "neither types, routes nor retries: msgspec encodes and decodes for it"


def installed(package: str) -> bool:
    """
    >>> installed("asyncio"), installed("no_such_peer")
    (True, False)
    """
    # Kombu puts something else in its place when it is imported, which has no spec.
    return package in sys.modules or find_spec(package) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A contender on a broker."""

    broker: Broker
    contender: str
    case: str
    module: str
    pair: str
    needs: tuple[str, ...] = ()
    setting: str
    weaker: str = ""
    """What it promises less than QueueCraft; empty if nothing."""
    like: str = ""
    """The case of ours that does the same, if it has another name."""
    differs: str = ""
    """What it does otherwise than ours that may make it faster."""
    lighter: str = ""
    """What it does otherwise that may save memory."""

    @property
    def key(self) -> str:
        return f"{self.broker}/{self.contender}: {self.case}"

    @property
    def against(self) -> str:
        """The case of ours that does the same; empty for ours."""
        return "" if self.contender == OURS else self.like or self.case

    @property
    def missing(self) -> str | None:
        """The package that it needs and that is not here."""
        return next((name for name in self.needs if not installed(name)), None)

    def differs_in(self, measure: str) -> str:
        """What to say beside it where it is ahead; empty where nothing is known."""
        return {"start": IMPORTS, "pending": self.lighter}.get(measure, self.differs)

    def load(self) -> Pair:
        pair: Pair = import_module(f"benchmarks.pairs.{self.module}").PAIRS[self.pair]
        return pair


def ours(broker: Broker, case: str, setting: str, *, pair: str = "anywhere") -> Entry:
    return Entry(
        broker=broker, contender=OURS, case=case, module="ours", pair=pair, setting=setting
    )


UNTOLD = "its messages have no id, no time and no event beside the body"
ALONE = "it keeps the bytes of the order and nothing beside them"
TAKEN = "what a process has taken is lost if it dies"
FETCHED = "commits what was fetched, handled or not"
IN_LOOP = "100 handlers in an event loop, 100 messages ahead"
NO_LOOP = "a bare client: no event loop, no types, no routing, no retries"
IMPORTS = "`import queuecraft` loads the whole runtime"
LONE = "one at a time"

ENTRIES: tuple[Entry, ...] = (
    # memory
    ours(
        "memory",
        "100 in flight",
        "typed, routed, acked when handled, retried and dead-lettered; ends with the process",
        pair="memory",
    ),
    Entry(
        broker="memory",
        contender="Taskiq",
        case="InMemoryBroker",
        module="taskiq_pairs",
        pair="memory",
        needs=("taskiq", "pydantic"),
        setting="its default: `kiq` starts an asyncio task for each message",
        weaker="no queue, nothing acknowledged, nothing retried",
        like="100 in flight",
    ),
    Entry(
        broker="memory",
        contender="Dramatiq",
        case="StubBroker, 8 threads",
        module="in_process",
        pair="Dramatiq",
        needs=("dramatiq",),
        setting="its broker for tests, all default middleware, retries among it",
        like="100 in flight",
        lighter="it keeps a message as one string of bytes; ours has the id, the event, the time "
        "and the body apart",
    ),
    Entry(
        broker="memory",
        contender="Kombu",
        case="memory transport",
        module="in_process",
        pair="Kombu",
        needs=("kombu",),
        setting="published, then drained; acked by the callback; what Celery uses for `memory://`",
        weaker="nothing retried",
        like="100 in flight",
    ),
    Entry(
        broker="memory",
        contender="asyncio.Queue",
        case="bare",
        module="in_process",
        pair="asyncio.Queue",
        setting=f"put and get between two tasks; {BARE}",
        weaker="nothing acknowledged, nothing retried",
        like="100 in flight",
        differs="a bare queue does nothing but pass an object on: the limit",
        lighter=ALONE,
    ),
    # file
    ours(
        "file",
        "100 in flight",
        "on the disk before `publish` returns, acked when handled; the worker is woken by a socket",
    ),
    ours(
        "file",
        LONE,
        "the same, each publish waits for its own write to the disk",
        pair="anywhere, one at a time",
    ),
    Entry(
        broker="file",
        contender="sqlite3",
        case=LONE,
        module="file_table",
        pair="sqlite3",
        setting=f"one table, asked every millisecond, one consumer; {BARE}",
        weaker="a second consumer would handle everything twice",
        differs="one table and one consumer: it claims nothing, routes nothing, wakes nobody",
    ),
    # RabbitMQ
    ours(
        "rabbitmq",
        "100 in flight",
        f"topic exchange, persistent, mandatory, confirmed; acked when handled; {IN_LOOP}",
    ),
    ours(
        "rabbitmq",
        LONE,
        "the same, each publish waits for its confirmation",
        pair="anywhere, one at a time",
    ),
    Entry(
        broker="rabbitmq",
        contender="aio-pika",
        case="100 in flight",
        module="rabbitmq_clients",
        pair="aio-pika",
        needs=("aio_pika",),
        setting=f"persistent, mandatory, confirmed; `message.process()`; {BARE}",
        lighter=UNTOLD,
    ),
    Entry(
        broker="rabbitmq",
        contender="pika",
        case=LONE,
        module="rabbitmq_clients",
        pair="pika",
        needs=("pika",),
        setting=f"`confirm_delivery`, persistent, mandatory; acked by the callback; {BARE}",
        differs=NO_LOOP,
        lighter=UNTOLD,
    ),
    Entry(
        broker="rabbitmq",
        contender="FastStream",
        case="100 in flight",
        module="faststream_pairs",
        pair="rabbitmq",
        needs=("faststream", "fast_depends", "aio_pika"),
        setting=f"`persist=True`, confirmed, mandatory by default; acked when handled; {IN_LOOP}",
    ),
    Entry(
        broker="rabbitmq",
        contender="Celery",
        case=LONE,
        module="celery_pairs",
        pair="rabbitmq",
        needs=("celery",),
        setting="`confirm_publish`, `mandatory`, `acks_late`, no results, solo pool, 100 ahead",
    ),
    Entry(
        broker="rabbitmq",
        contender="Dramatiq",
        case=LONE,
        module="dramatiq_pairs",
        pair="rabbitmq",
        needs=("dramatiq", "pika"),
        setting="`confirm_delivery=True`; acked when run; 8 threads, 100 ahead, retries on",
    ),
    Entry(
        broker="rabbitmq",
        contender="Taskiq",
        case="100 in flight",
        module="taskiq_pairs",
        pair="rabbitmq",
        needs=("taskiq", "taskiq_aio_pika", "pydantic"),
        setting=f"confirmed, mandatory, persistent by default; acked when run; {IN_LOOP}",
    ),
    # Redis
    ours(
        "redis-lists",
        "lists, 100 in flight",
        f"stored by a script, kept on the server until handled; {IN_LOOP}",
    ),
    ours(
        "redis-lists",
        f"lists, {LONE}",
        "the same, each publish waits for its answer",
        pair="anywhere, one at a time",
    ),
    ours(
        "redis-streams",
        "streams, 100 in flight",
        f"a stream and a group, acked when handled; {IN_LOOP}",
    ),
    Entry(
        broker="redis-lists",
        contender="redis-py",
        case="lists, 100 in flight",
        module="redis_clients",
        pair="lists",
        needs=("redis",),
        setting=f"RPUSH and BLPOP; {BARE}",
        weaker=TAKEN,
        differs="it routes nothing, and keeps nothing until it is handled",
        lighter=ALONE,
    ),
    Entry(
        broker="redis-streams",
        contender="redis-py",
        case="streams, 100 in flight",
        module="redis_clients",
        pair="streams",
        needs=("redis",),
        setting=f"XADD; XREADGROUP of 100, one XACK for all; {BARE}",
        differs="it routes nothing and retries nothing, and its entries have no headers",
        lighter=ALONE,
    ),
    Entry(
        broker="redis-lists",
        contender="FastStream",
        case="lists, 100 in flight",
        module="faststream_pairs",
        pair="lists",
        needs=("faststream", "fast_depends", "redis"),
        setting="its list subscriber, `max_workers=100`",
        weaker=TAKEN,
    ),
    Entry(
        broker="redis-streams",
        contender="FastStream",
        case="streams, 100 in flight",
        module="faststream_pairs",
        pair="streams",
        needs=("faststream", "fast_depends", "redis"),
        setting="a group, up to 100 read, acked one by one when handled, `max_workers=100`",
    ),
    Entry(
        broker="redis-lists",
        contender="Celery",
        case=f"lists, {LONE}",
        module="celery_pairs",
        pair="redis",
        needs=("celery", "redis"),
        setting="`acks_late`, kept in a hash until acked, no results, solo pool, 100 ahead",
    ),
    Entry(
        broker="redis-lists",
        contender="Dramatiq",
        case=f"lists, {LONE}",
        module="dramatiq_pairs",
        pair="redis",
        needs=("dramatiq", "redis"),
        setting="stored by a script, kept until run; 8 threads, 100 ahead, retries on",
    ),
    Entry(
        broker="redis-lists",
        contender="Taskiq",
        case="lists, 100 in flight",
        module="taskiq_pairs",
        pair="lists",
        needs=("taskiq", "taskiq_redis", "pydantic"),
        setting="`ListQueueBroker`, 100 tasks at once",
        weaker=TAKEN,
    ),
    Entry(
        broker="redis-streams",
        contender="Taskiq",
        case="streams, 100 in flight",
        module="taskiq_pairs",
        pair="streams",
        needs=("taskiq", "taskiq_redis", "pydantic"),
        setting="`RedisStreamBroker`, acked when run, 100 tasks at once",
    ),
    # Kafka
    ours(
        "kafka",
        "100 in flight",
        f"`acks=all`, idempotent, four partitions; committed when handled; {IN_LOOP}",
    ),
    ours(
        "kafka",
        "1000 in flight",
        "the same",
        pair="anywhere, 1000 in flight",
    ),
    Entry(
        broker="kafka",
        contender="confluent-kafka",
        case="all in flight",
        module="kafka_clients",
        pair="confluent-kafka",
        needs=("confluent_kafka",),
        setting=f"`acks=all`, idempotent; `poll`, offsets stored when handled; {BARE}",
        like="1000 in flight",
        differs=NO_LOOP,
    ),
    Entry(
        broker="kafka",
        contender="aiokafka",
        case="100 in flight",
        module="kafka_clients",
        pair="aiokafka",
        needs=("aiokafka", "confluent_kafka"),
        setting=f"`acks=all`, idempotent; `getmany`, committed after each batch; {BARE}",
        differs="its records have no headers, handlers are awaited in line and offsets committed "
        "by the batch: no retries, no order of completion to watch",
    ),
    Entry(
        broker="kafka",
        contender="FastStream",
        case="100 in flight",
        module="faststream_pairs",
        pair="kafka",
        needs=("faststream", "fast_depends", "confluent_kafka"),
        setting="`acks=all`, idempotent; `AckPolicy.ACK`: each message committed when handled",
    ),
    Entry(
        broker="kafka",
        contender="Taskiq",
        case="100 in flight",
        module="taskiq_pairs",
        pair="kafka",
        needs=("taskiq", "taskiq_aio_kafka", "confluent_kafka"),
        setting=f"taskiq-aio-kafka, `acks=all`, idempotent; committed in the background; {IN_LOOP}",
        weaker=FETCHED,
    ),
)

BY_KEY = {entry.key: entry for entry in ENTRIES}
