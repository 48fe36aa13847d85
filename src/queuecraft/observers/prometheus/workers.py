"""What is shown of the workers of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from queuecraft.observers.prometheus.families import Families, Sample
from queuecraft.runtime.counters import Counters


class Working(Protocol):
    """What is asked of a worker."""

    @property
    def counters(self) -> Counters: ...
    @property
    def queue_name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def paused(self) -> str | None: ...
    @property
    def at_once(self) -> int: ...


def shown(workers: Sequence[Working], families: Families) -> Iterator[Any]:
    """Who is at work, how many at once, and when something last went well."""

    def each(value: Callable[[Working], float]) -> list[Sample]:
        return [((worker.queue_name,), value(worker)) for worker in workers]

    yield families.gauge(
        "workers_running",
        "Workers of this process that consume, paused or not.",
        ("queue",),
        each(lambda worker: worker.state in ("running", "paused")),
    )
    yield families.gauge(
        "workers_paused",
        "Workers of this process that are paused.",
        ("queue",),
        each(lambda worker: worker.paused is not None),
    )
    yield families.gauge(
        "worker_concurrency",
        "Handlers that may run at once in this process.",
        ("queue",),
        each(lambda worker: worker.at_once),
    )
    yield families.counter(
        "messages_stale",
        "Messages settled too late: the broker had given them to others.",
        ("queue",),
        each(lambda worker: worker.counters.stale),
    )
    last: list[Sample] = [
        ((worker.queue_name,), worker.counters.last_success)
        for worker in workers
        if worker.counters.last_success is not None
    ]
    if last:
        yield families.gauge(
            "last_success_timestamp_seconds",
            "When a message was last handled without an error.",
            ("queue",),
            last,
            merge=max,
        )
