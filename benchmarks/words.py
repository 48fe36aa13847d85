"""How each contender of the throughput groups is set up, what that promises, and which case of
ours does the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.pairs.entries import BARE, FETCHED, NO_LOOP, OURS, TAKEN

ONE, HUNDRED = "publish, one at a time", "publish, 100 in flight"
BY_TOPIC = "publish by topic, 100 in flight"
PIPELINED = "publish, pipelines of 500"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Of one contender in one group; what differs from case to case is given by its name."""

    setting: str
    weaker: str = ""
    weaker_in: Mapping[str, str] = field(default_factory=dict[str, str])
    against: Mapping[str, str] = field(default_factory=dict[str, str])
    """Case of theirs to case of ours; the same name where it is not told."""
    differs: str = ""
    """What it does otherwise than ours that may put it ahead."""


CONFIRMED = "durable classic queue, persistent, mandatory, confirmed"
ACKED = "prefetch 100, acked when handled"
SYNCED = "the server syncs to the disk before it answers"

WORDS: dict[tuple[str, str], Words] = {
    # memory
    ("memory", OURS): Words(
        setting="typed, routed, acked when handled, retries and dead letters on"
    ),
    ("memory", "Taskiq"): Words(
        setting="`InMemoryBroker`, typed by pydantic, its fastest",
        weaker="no queue, nothing acknowledged, nothing retried",
        against={
            "one at a time, in place": ONE,
            "one at a time, as tasks": ONE,
            "100 gathered, in place": "publish, 100 gathered",
            "100 gathered, as tasks": "publish, 100 gathered",
        },
    ),
    ("memory", "Dramatiq"): Words(
        setting="`StubBroker`, its broker for tests; default middleware, retries among it",
        against={"send, 8 threads": ONE},
    ),
    ("memory", "Kombu"): Words(
        setting="memory transport, acked by the callback; what Celery uses for `memory://`",
        weaker="nothing retried",
        against={"publish 500, then drain": "publish_many, concurrency 1"},
    ),
    ("memory", "asyncio.Queue"): Words(
        setting=f"put and get between two tasks; {BARE}",
        weaker="nothing acknowledged, nothing retried",
        against={"the limit": ONE},
        differs="a bare queue only passes an object on: the limit",
    ),
    # file
    ("file", OURS): Words(
        setting="on the disk before a publish returns, acked when handled, the worker beside it"
    ),
    ("file", "sqlite3"): Words(
        setting=f"insert, claim, delete with the same pragmas; {BARE}",
        weaker="one consumer: what it claimed before it died is not given to another",
        against={
            "batches of 500": "publish_many, batches of 500",
            "batches of 100": HUNDRED,
            "one at a time": ONE,
        },
        differs="no codec, no routing, no claims for others: the limit of the file itself",
    ),
    ("file-publish", OURS): Words(setting="on the disk before a publish returns"),
    ("file-publish", "sqlite3"): Words(
        setting=f"one INSERT, or a transaction of so many, `synchronous=FULL`; {BARE}",
        against={"publish, batches of 500": "publish_many, batches of 500"},
        differs="it inserts a body into one table: no routing, no headers, no queues to wake",
    ),
    ("file-consume", OURS): Words(setting="claimed in batches, acked when handled"),
    ("file-consume", "sqlite3"): Words(
        setting=f"claim up to 500, decode, delete, in two transactions; {BARE}",
        weaker="one consumer: what it claimed before it died is not given to another",
        against={"consume, batches of 500": "consume, 1 handler"},
        differs="its loop calls the handler in line; no headers, no retries",
    ),
    # RabbitMQ
    ("rabbitmq-publish", OURS): Words(setting=f"{CONFIRMED}; by topic as events, else by queue"),
    ("rabbitmq-publish", "the broker"): Words(
        setting=f"bytes made beforehand, {CONFIRMED}",
        differs="no client at all: what the broker itself takes on this machine",
    ),
    ("rabbitmq-publish", "aiormq"): Words(
        setting=f"{CONFIRMED}; {BARE}",
        against={f"{HUNDRED}, wait=False": HUNDRED, f"{BY_TOPIC}, wait=False": BY_TOPIC},
    ),
    ("rabbitmq-publish", "aio-pika"): Words(setting=f"robust connection, {CONFIRMED}; {BARE}"),
    ("rabbitmq-publish", "pika"): Words(
        setting=f"blocking, `confirm_delivery`, {CONFIRMED}; {BARE}", differs=NO_LOOP
    ),
    ("rabbitmq-publish", "FastStream"): Words(setting=f"`persist=True`, {CONFIRMED}"),
    ("rabbitmq-publish", "Celery"): Words(
        setting=f"`confirm_publish`, `mandatory`, no results; {CONFIRMED}",
    ),
    ("rabbitmq-publish", "Dramatiq"): Words(setting=f"`confirm_delivery=True`; {CONFIRMED}"),
    ("rabbitmq-publish", "Taskiq"): Words(setting=f"taskiq-aio-pika; {CONFIRMED}"),
    ("rabbitmq-consume", OURS): Words(setting=f"{ACKED}, retries and dead letters on"),
    ("rabbitmq-consume", "aiormq"): Words(
        setting=f"{ACKED}, one by one; {BARE}",
        against={
            "consume": "consume, 100 handlers",
            "consume, wait=False": "consume, 100 handlers",
        },
    ),
    ("rabbitmq-consume", "aio-pika"): Words(
        setting=f"`message.process()`, {ACKED}; {BARE}",
        against={"consume": "consume, 100 handlers"},
    ),
    ("rabbitmq-consume", "pika"): Words(
        setting=f"blocking, a callback, {ACKED}; {BARE}",
        against={"consume": "consume, 1 handler"},
        differs=NO_LOOP,
    ),
    ("rabbitmq-consume", "FastStream"): Words(
        setting=f"`MsgSpecSerializer`, {ACKED}, its log off",
        against={"consume": "consume, 100 handlers"},
    ),
    ("rabbitmq-consume", "Celery"): Words(
        setting="`acks_late`, solo pool, no gossip, mingle or heartbeat, 100 ahead",
        against={"consume, solo": "consume, 1 handler"},
    ),
    ("rabbitmq-consume", "Dramatiq"): Words(
        setting="8 threads, 100 ahead, default middleware, retries among it",
        against={"consume, 8 threads": "consume, 8 handlers"},
    ),
    ("rabbitmq-consume", "Taskiq"): Words(
        setting=f"`Receiver` with 100 tasks at once, {ACKED}",
        against={"consume": "consume, 100 handlers"},
    ),
    # Redis
    ("redis-publish", OURS): Words(setting=f"routed and stored by a script; {SYNCED}"),
    ("redis-publish", "redis-py"): Words(
        setting=f"RPUSH; {SYNCED}; {BARE}",
        against={PIPELINED: "publish_many, batches of 500"},
        differs="a bare RPUSH routes nothing and keeps nothing beside the message",
    ),
    ("redis-publish", "FastStream"): Words(
        setting=f"to a list; {SYNCED}",
        differs="its RPUSH routes nothing and keeps nothing beside the message",
    ),
    ("redis-publish", "Celery"): Words(setting=f"to a list, no results; {SYNCED}"),
    ("redis-publish", "Dramatiq"): Words(setting=f"to a list, by a script; {SYNCED}"),
    ("redis-publish", "Taskiq"): Words(setting=f"`ListQueueBroker`; {SYNCED}"),
    ("redis-consume", OURS): Words(setting="kept on the server until handled; 100 ahead"),
    ("redis-consume", "redis-py"): Words(
        setting=f"a loop that reads, handles and acknowledges; {BARE}",
        weaker_in={"consume lists, BLPOP": TAKEN},
        against={
            "consume lists, BLPOP": "consume lists, 1 handler",
            "consume lists, LMOVE of 100": "consume lists, 1 handler",
            "consume streams, XREADGROUP of 100": "consume streams, 1 handler",
        },
        differs="a bare client: no types, no routing, no retries, and nobody else is given what it "
        "held when it died unless somebody writes that",
    ),
    ("redis-consume", "FastStream"): Words(
        setting="lists one by one; streams by a group, up to 100 read, acked one by one",
        weaker_in={"consume lists": TAKEN, "consume lists, 100 handlers": TAKEN},
        against={
            "consume lists": "consume lists, 1 handler",
            "consume streams": "consume streams, 1 handler",
        },
    ),
    ("redis-consume", "Celery"): Words(
        setting="`acks_late`, kept in a hash until acked, solo pool, 100 ahead",
        against={"consume lists, solo": "consume lists, 1 handler"},
    ),
    ("redis-consume", "Dramatiq"): Words(
        setting="kept until run, 8 threads, 100 ahead, retries on",
        against={"consume lists, 8 threads": "consume lists, 100 handlers"},
    ),
    ("redis-consume", "Taskiq"): Words(
        setting="`ListQueueBroker` or `RedisStreamBroker`, 100 tasks at once",
        weaker_in={"consume lists, 100 handlers": TAKEN},
    ),
    # Kafka
    ("kafka-publish", OURS): Words(setting="`acks=all`, idempotent, four partitions"),
    ("kafka-publish", "confluent-kafka"): Words(
        setting=f"`acks=all`, idempotent, all in flight, one flush; {BARE}",
        against={"publish, produce and flush": "publish_many, batches of 500"},
        differs=NO_LOOP,
    ),
    ("kafka-publish", "aiokafka"): Words(
        setting=f"`acks=all`, idempotent, batches of 16 KiB, 256 KiB for 1000 in flight; {BARE}",
        differs="its records have no headers, ours have four",
    ),
    ("kafka-publish", "FastStream"): Words(
        setting="on confluent-kafka, `acks=all`, idempotent",
        differs="it gives each record to the client by itself; ours go in flights, which a thread "
        "waits for: one more change of threads for a single record, and none for the next hundred",
    ),
    ("kafka-publish", "Taskiq"): Words(
        setting="taskiq-aio-kafka, on aiokafka, `acks=all`, idempotent",
        differs="its records have no headers, ours have four; aiokafka works in the event loop, "
        "librdkafka in threads of its own",
    ),
    ("kafka-consume", OURS): Words(setting="committed beside the handlers, up to 1000 ahead"),
    ("kafka-consume", "confluent-kafka"): Words(
        setting=f"`consume(500)`, committed after each batch, not waited for; {BARE}",
        against={"consume(500)": "consume, 1 handler"},
        differs=NO_LOOP,
    ),
    ("kafka-consume", "aiokafka"): Words(
        setting=f"`getmany(500)`, committed and waited for after each batch; {BARE}",
        against={"consume, getmany(500)": "consume, 1 handler"},
        differs="handlers are awaited in line and offsets committed by the batch: no retries, "
        "no order of completion to watch",
    ),
    ("kafka-consume", "FastStream"): Words(
        setting="its default commits in the background what was fetched; `AckPolicy.ACK` each "
        "message or, with `batch=True`, each batch",
        weaker_in={"consume": FETCHED},
        against={
            "consume": "consume, 1 handler",
            "consume, acked when handled": "consume, 1 handler",
            "consume, batches of 500": "consume, batches of 500",
        },
    ),
    ("kafka-consume", "Taskiq"): Words(
        setting="taskiq-aio-kafka, `Receiver` with 100 tasks at once; committed in the background",
        weaker=FETCHED,
    ),
}
