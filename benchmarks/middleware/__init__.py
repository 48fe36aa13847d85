"""What five shipped middlewares cost together: from publishing a typed order to its handler having
run, in memory, with them and without.

A timeout, a validation, a tracing hook, a rate limit that is never reached, and logging at a level
that is off, as in production. What a span or a line in the log costs depends on where it goes.
"""

from __future__ import annotations

from benchmarks.harness import Contender, CostsAtMost, Group

PLAIN = "QueueCraft: no middleware"
FIVE = "QueueCraft: five"

GROUP = Group(
    name="middleware",
    title="Middleware in memory, publish to handled",
    contenders=(Contender("QueueCraft", "benchmarks.middleware.ours"),),
    reference=(PLAIN,),
    claims=(
        CostsAtMost(
            text="five shipped middlewares together, publish_many, concurrency 1",
            subject=FIVE,
            plain=PLAIN,
            percent=40,
        ),
    ),
)
