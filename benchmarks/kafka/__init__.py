"""On Kafka: producing typed orders until they are stored, and handling topics full of them.

Every contender gets the same 225-byte order, typed in the way that is fastest for it, on the same
broker, in a topic of four partitions of its own. Producers are idempotent and wait for all replicas
(`acks=all`), of which there is one. Producing is timed from the first call to the last answer,
consuming from the first message in a handler to the last, from a topic that was filled before. Each
run counts what was handled and asks the broker what is stored and committed, and refuses to give a
figure if a message is missing, doubled or not committed.

What each one does for a message differs, and its module says so. confluent-kafka and aiokafka are
bare clients: they neither type nor retry, and msgspec encodes and decodes for them. They consume
the very records that QueueCraft consumes, headers and all: what has headers is slower to read, also
for who does not look at them. Fast cases are over within a moment: `--messages 100000` makes their
figures steadier.
QUEUECRAFT_TEST_KAFKA names another broker, one that lets clients in without a name and password.
"""

from __future__ import annotations

from benchmarks.harness import Contender, TimesFaster
from benchmarks.rabbitmq import Half

HUNDRED = "publish, 100 in flight"
THOUSAND = "publish, 1000 in flight"
HANDLING = "consume, 100 handlers"
BARE = "consume(500)"

CONTENDERS = (
    Contender("QueueCraft", "benchmarks.kafka.ours", needs=("confluent_kafka",)),
    Contender("confluent-kafka", "benchmarks.kafka.confluent_client", needs=("confluent_kafka",)),
    Contender(
        "aiokafka", "benchmarks.kafka.aiokafka_client", needs=("aiokafka", "confluent_kafka")
    ),
    Contender(
        "FastStream",
        "benchmarks.kafka.faststream_app",
        needs=("faststream", "fast_depends", "confluent_kafka"),
    ),
    Contender(
        "Taskiq",
        "benchmarks.kafka.taskiq_task",
        needs=("taskiq", "taskiq_aio_kafka", "confluent_kafka"),
    ),
)

PUBLISHING = Half(
    name="kafka-publish",
    title="On Kafka, publish to stored",
    verb="publish",
    contenders=CONTENDERS,
    reference=(f"aiokafka: {HUNDRED}",),
    claims=(
        TimesFaster(
            text=f"{HUNDRED}, against FastStream",
            subject=f"QueueCraft: {HUNDRED}",
            peers=(f"FastStream: {HUNDRED}",),
            times=3,
        ),
        TimesFaster(
            text=f"{THOUSAND}, against aiokafka",
            subject=f"QueueCraft: {THOUSAND}",
            peers=(f"aiokafka: {THOUSAND}",),
            times=1,
        ),
    ),
)

CONSUMING = Half(
    name="kafka-consume",
    title="On Kafka, from a full topic to handled and committed",
    verb="consume",
    contenders=CONTENDERS,
    reference=(f"confluent-kafka: {BARE}",),
    claims=(
        TimesFaster(
            text=f"{HANDLING}, against a bare {BARE} with msgspec",
            subject=f"QueueCraft: {HANDLING}",
            peers=(f"confluent-kafka: {BARE}",),
            times=0.4,
        ),
    ),
)
