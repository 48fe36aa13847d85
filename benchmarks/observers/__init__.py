"""What observers cost: from publishing a typed order to its handler having run, in memory, with
each of them and without.

Spans go to an exporter that does nothing, and lines of the log nowhere: what those cost further on
depends on where they go.
"""

from __future__ import annotations

from benchmarks.harness import Contender, CostsAtMost, Group

NOTHING = "QueueCraft: nothing"
ALONE = "QueueCraft: nothing, one at a time"

GROUP = Group(
    name="observers",
    title="Observers in memory, publish to handled",
    contenders=(
        Contender(
            "QueueCraft", "benchmarks.observers.ours", ("opentelemetry", "prometheus_client")
        ),
    ),
    reference=(NOTHING, ALONE),
    claims=(
        CostsAtMost(
            text="Prometheus, publish_many, concurrency 1",
            subject="QueueCraft: Prometheus",
            plain=NOTHING,
            percent=10,
        ),
        CostsAtMost(
            text="Prometheus, one publish at a time, concurrency 1",
            subject="QueueCraft: Prometheus, one at a time",
            plain=ALONE,
            percent=10,
        ),
    ),
)
