"""In one file on disk: from publishing a typed order to its handler having run.

The limit is a bare loop over the standard library's `sqlite3`, with the same journal and
synchronisation: insert a batch, claim it, delete it, each in a transaction. It has one queue, no
types, no codec, no delays, nobody to wake, and nobody else to leave anything to.

A publish is on the disk before it returns, on both sides; an ack may be lost with the power.
"""

from __future__ import annotations

from benchmarks.harness import Contender, Group, TimesFaster
from benchmarks.rabbitmq import Half

LIMIT = ("sqlite3: batches of 500",)

GROUP = Group(
    name="file",
    title="In a file, publish to handled",
    contenders=(
        Contender("QueueCraft", "benchmarks.file.ours"),
        Contender("sqlite3", "benchmarks.file.bare_table"),
    ),
    reference=LIMIT,
    claims=(
        TimesFaster(
            text="publish_many, batches of 500, against a bare sqlite3 loop in batches of 500",
            subject="QueueCraft: publish_many, batches of 500",
            peers=LIMIT,
            times=0.55,
        ),
        TimesFaster(
            text="publish, 100 in flight, against a bare sqlite3 loop in batches of 500",
            subject="QueueCraft: publish, 100 in flight",
            peers=LIMIT,
            times=0.35,
        ),
    ),
)

APART = (
    Contender("QueueCraft", "benchmarks.file.ours_apart"),
    Contender("sqlite3", "benchmarks.file.bare_apart"),
)

PUBLISHING = Half(
    name="file-publish",
    title="In a file, publish to stored",
    verb="publish",
    contenders=APART,
    reference=("sqlite3: publish, batches of 500",),
    claims=(),
)

CONSUMING = Half(
    name="file-consume",
    title="In a file, from a full queue to handled and acked",
    verb="consume",
    contenders=APART,
    reference=("sqlite3: consume, batches of 500",),
    claims=(),
)
