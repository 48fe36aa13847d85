"""On RabbitMQ: publishing typed orders until they are confirmed, and handling a queue full of them.

Every contender gets the same 225-byte order, typed in the way that is fastest for it, on the same
broker, in a virtual host of its own: a durable classic queue, persistent messages, mandatory and
confirmed, a prefetch of 100, acked after the handler. Publishing is timed from the first call to
the last confirmation, consuming from the first message in a handler to the last, from a queue that
was filled before. Each run counts what was handled and asks the broker what is left, and refuses
to give a figure if a message is missing, doubled or not acknowledged.

What each one does for a message differs, and its module says so. aiormq and pika are bare clients:
they neither type nor retry, and what little they need for this is written into the benchmark.
aiormq is run as its documentation has it and, where more than one message is under way, without
waiting for its socket to drain as well (`wait=False`); claims take the faster. Publishing straight
to a queue and through a topic exchange are compared apart, because the second costs the broker
more: `qc.send` with the one, `qc.publish` with the other. What the broker itself takes, with bytes
made beforehand, is measured beside both.
`python -m benchmarks.rabbitmq.latency` tells how long a message takes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from benchmarks.harness import Case, Contender, Group, Skipped, TimesFaster

BY_NAME = "publish, 100 in flight"  # straight to the queue
BY_TOPIC = "publish by topic, 100 in flight"  # as events
WAYS = ("", ", wait=False")
"""Of aiormq; claims take the faster."""

CONTENDERS = (
    Contender("QueueCraft", "benchmarks.rabbitmq.ours", needs=("pamqp",)),
    Contender("the broker", "benchmarks.rabbitmq.limit", needs=("pamqp",)),
    Contender("aiormq", "benchmarks.rabbitmq.aiormq_client", needs=("aiormq",)),
    Contender("aio-pika", "benchmarks.rabbitmq.aio_pika_client", needs=("aio_pika",)),
    Contender("pika", "benchmarks.rabbitmq.pika_client", needs=("pika",)),
    Contender(
        "FastStream",
        "benchmarks.rabbitmq.faststream_app",
        needs=("faststream", "fast_depends", "aio_pika"),
    ),
    Contender("Celery", "benchmarks.rabbitmq.celery_app", needs=("celery",)),
    Contender("Dramatiq", "benchmarks.rabbitmq.dramatiq_actor", needs=("dramatiq", "pika")),
    Contender(
        "Taskiq",
        "benchmarks.rabbitmq.taskiq_task",
        needs=("taskiq", "taskiq_aio_pika", "pydantic"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Half(Group):
    """Those of the contenders' cases that begin with this verb."""

    verb: str

    def load(self, only: Collection[str] = ()) -> tuple[list[Case], list[Skipped]]:
        cases, skipped = Group.load(self, only)
        return [case for case in cases if case.name.startswith(self.verb)], skipped


PUBLISHING = Half(
    name="rabbitmq-publish",
    title="On RabbitMQ, publish to confirmed",
    verb="publish",
    messages=20_000,
    contenders=CONTENDERS,
    reference=(f"aiormq: {BY_NAME}",),
    claims=tuple(
        TimesFaster(
            text=f"{route}, against {peer}",
            subject=f"QueueCraft: {route}",
            peers=tuple(f"{peer}: {route}{way}" for way in ways),
            times=times,
            limit=f"the broker: {route}",
        )
        for route in (BY_NAME, BY_TOPIC)
        for peer, times, ways in (("FastStream", 3, ("",)), ("aiormq", 1.7, WAYS))
    ),
)

CONSUMING = Half(
    name="rabbitmq-consume",
    title="On RabbitMQ, from a full queue to handled and acked",
    verb="consume",
    messages=10_000,
    contenders=CONTENDERS,
    reference=("aiormq: consume",),
    claims=(
        TimesFaster(
            text="consume, 100 handlers, against FastStream",
            subject="QueueCraft: consume, 100 handlers",
            peers=("FastStream: consume",),
            times=6,
        ),
        TimesFaster(
            text="consume, 100 handlers, against bare aiormq",
            subject="QueueCraft: consume, 100 handlers",
            peers=tuple(f"aiormq: consume{way}" for way in WAYS),
            times=3,
        ),
        TimesFaster(
            text="consume, 100 handlers, against the fastest of pika, Celery, Dramatiq, Taskiq",
            subject="QueueCraft: consume, 100 handlers",
            peers=(
                "pika: consume",
                "Celery: consume, solo",
                "Dramatiq: consume, 8 threads",
                "Taskiq: consume",
            ),
            times=1,
        ),
    ),
)
