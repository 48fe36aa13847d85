"""In one process, nothing on disk: from publishing a typed order to its handler having run.

Every contender gets the same 225-byte order, typed in the way that is fastest for it, and is set
up as its documentation says for use inside one process. The clock runs from the first publish
until the last handler has returned; brokers, workers and payloads are made before. Each run
counts what was handled and refuses to give a figure if that is not what was published.

What each one does for a message differs, and its module says so. In short: QueueCraft encodes,
routes, decodes and validates, acknowledges after the handler, and would retry and dead-letter.
Kombu encodes, routes and acknowledges. Dramatiq does that and retries, over threads. Taskiq
encodes, decodes, validates and calls the handler, without a queue in between. `asyncio.Queue`
encodes, decodes and validates, and promises nothing: the limit.
"""

from __future__ import annotations

from benchmarks.harness import Contender, CostsAtMost, Group, TimesFaster

TASKIQ_ONE_AT_A_TIME = (
    "Taskiq: one at a time, in place",
    "Taskiq: one at a time, as tasks",
)
TASKIQ_GATHERED = ("Taskiq: 100 gathered, in place", "Taskiq: 100 gathered, as tasks")

GROUP = Group(
    name="memory",
    title="In memory, publish to handled",
    contenders=(
        Contender("QueueCraft", "benchmarks.memory.ours"),
        Contender("Taskiq", "benchmarks.memory.taskiq_broker", needs=("taskiq", "pydantic")),
        Contender("Dramatiq", "benchmarks.memory.dramatiq_stub", needs=("dramatiq",)),
        Contender("Kombu", "benchmarks.memory.kombu_transport", needs=("kombu",)),
        Contender("asyncio.Queue", "benchmarks.memory.bare_queue"),
    ),
    reference=TASKIQ_ONE_AT_A_TIME,
    claims=(
        TimesFaster(
            text="publish_many, concurrency 1, against Taskiq one at a time",
            subject="QueueCraft: publish_many, concurrency 1",
            peers=TASKIQ_ONE_AT_A_TIME,
            times=12,
        ),
        TimesFaster(
            text="publish_many, concurrency 8, against Taskiq one at a time",
            subject="QueueCraft: publish_many, concurrency 8",
            peers=TASKIQ_ONE_AT_A_TIME,
            times=12,
        ),
        TimesFaster(
            text="single awaited publish against Taskiq one at a time",
            subject="QueueCraft: publish, one at a time",
            peers=TASKIQ_ONE_AT_A_TIME,
            times=5,
        ),
        TimesFaster(
            text="100 gathered against Taskiq 100 gathered",
            subject="QueueCraft: publish, 100 gathered",
            peers=TASKIQ_GATHERED,
            times=4,
        ),
        CostsAtMost(
            text="five middlewares that do nothing, their cost, publish_many, concurrency 1",
            subject="QueueCraft: publish_many, five middlewares",
            plain="QueueCraft: publish_many, concurrency 1",
            percent=25,
        ),
    ),
)
