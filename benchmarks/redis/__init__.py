"""On Redis: publishing typed orders until they are stored, and handling a queue full of them.

Every contender gets the same 225-byte order, typed in the way that is fastest for it, on the same
server, under a prefix of its own. The server writes every change to the disk before it answers
(`appendonly yes`, `appendfsync always`): what is confirmed survives its crash. Publishing is timed
from the first call to the last answer, consuming from the first message in a handler to the last,
from a queue that was filled before. Each run counts what was handled and asks the server what is
left, and refuses to give a figure if a message is missing, doubled or not acknowledged.
Syncing favours whoever sends and acks in batches; QUEUECRAFT_TEST_REDIS names a server that does
it less often, for a look at the rest.

What each one does for a message differs, and its module says so. QueueCraft, Celery and Dramatiq
keep a message on the server until it was handled. A BLPOP, FastStream's list subscriber and
Taskiq's list broker do not: what a process has taken dies with it. Streams are acknowledged by all.
"""

from __future__ import annotations

from benchmarks.harness import Contender, TimesFaster
from benchmarks.rabbitmq import Half

TOGETHER = "publish, 100 in flight"
ALONE = "publish, one at a time"
LISTS = "consume lists, 100 handlers"
STREAMS = "consume streams, 100 handlers"

CONTENDERS = (
    Contender("QueueCraft", "benchmarks.redis.ours", needs=("hiredis",)),
    Contender("redis-py", "benchmarks.redis.redis_client", needs=("redis",)),
    Contender(
        "FastStream",
        "benchmarks.redis.faststream_app",
        needs=("faststream", "fast_depends", "redis"),
    ),
    Contender("Celery", "benchmarks.redis.celery_app", needs=("celery", "redis")),
    Contender("Dramatiq", "benchmarks.redis.dramatiq_actor", needs=("dramatiq", "redis")),
    Contender(
        "Taskiq", "benchmarks.redis.taskiq_task", needs=("taskiq", "taskiq_redis", "pydantic")
    ),
)

PUBLISHING = Half(
    name="redis-publish",
    title="On Redis, publish to stored",
    verb="publish",
    messages=5_000,
    contenders=CONTENDERS,
    reference=(f"redis-py: {ALONE}",),
    claims=(
        TimesFaster(
            text=f"{TOGETHER}, against FastStream",
            subject=f"QueueCraft: {TOGETHER}",
            peers=(f"FastStream: {TOGETHER}",),
            times=5,
        ),
        TimesFaster(
            text=f"{ALONE}, against a bare RPUSH",
            subject=f"QueueCraft: {ALONE}",
            peers=(f"redis-py: {ALONE}",),
            times=0.75,
        ),
    ),
)

CONSUMING = Half(
    name="redis-consume",
    title="On Redis, from a full queue to handled and acked",
    verb="consume",
    messages=10_000,
    contenders=CONTENDERS,
    reference=("redis-py: consume lists, BLPOP",),
    claims=(
        TimesFaster(
            text=f"{LISTS}, against FastStream",
            subject=f"QueueCraft: {LISTS}",
            peers=("FastStream: consume lists", f"FastStream: {LISTS}"),
            times=12,
        ),
        TimesFaster(
            text=f"{LISTS}, against a BLPOP loop",
            subject=f"QueueCraft: {LISTS}",
            peers=("redis-py: consume lists, BLPOP",),
            times=5,
        ),
        TimesFaster(
            text=f"{LISTS}, against the fastest of Celery, Dramatiq, Taskiq",
            subject=f"QueueCraft: {LISTS}",
            peers=(
                "Celery: consume lists, solo",
                "Dramatiq: consume lists, 8 threads",
                f"Taskiq: {LISTS}",
                f"Taskiq: {STREAMS}",
            ),
            times=1,
        ),
        TimesFaster(
            text=f"{STREAMS}, against FastStream",
            subject=f"QueueCraft: {STREAMS}",
            peers=("FastStream: consume streams", f"FastStream: {STREAMS}"),
            times=15,
        ),
    ),
)
