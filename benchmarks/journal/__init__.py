"""What the journal costs: from publishing a typed order to its handler having run, on and off.

Two rows a message, `payload="headers"` as by default, at saturation: the loop never rests, so that
whatever the journal does is missing elsewhere. Runs are long enough for files to be filled, synced
and closed meanwhile, on the disk of the temporary folder; a run that drops a row gives no figure.

The cases in CPU time count what all threads of the process take, the kernel's part of writing
included. They are steadier on a machine with other work.
"""

from __future__ import annotations

from benchmarks.harness import Contender, CostsAtMost, Group

IN_MEMORY = "QueueCraft: in memory"
IN_A_FILE = "QueueCraft: in a file"

GROUP = Group(
    name="journal",
    title="The journal, publish to handled",
    contenders=(Contender("QueueCraft", "benchmarks.journal.ours"),),
    reference=(IN_MEMORY,),
    claims=(
        CostsAtMost(
            text="the journal's cost in memory, publish_many, concurrency 1",
            subject=f"{IN_MEMORY}, journal",
            plain=IN_MEMORY,
            percent=25,
        ),
        CostsAtMost(
            text="the journal's cost in a file, publish_many, concurrency 1",
            subject=f"{IN_A_FILE}, journal",
            plain=IN_A_FILE,
            percent=10,
        ),
    ),
)
