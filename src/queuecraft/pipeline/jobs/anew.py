"""A lake that starts over: what was compacted is to be read again."""

from __future__ import annotations

from queuecraft.failpoints import failpoint
from queuecraft.pipeline.jobs.stream import COMPACTED, checkpoint
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.segments import new_place, sync


def begin_anew(lake: Lake) -> None:
    """While the stream has no checkpoint, it has read nothing that a compacted segment was made of:
    give such segments names that it does not pass over. Killed in the middle, the next job goes
    on."""
    if checkpoint(lake).exists():
        return
    compacted = sorted(lake.segments.glob(f"date=*/{COMPACTED}*.parquet"))
    taken = {path.name for path in lake.segments.glob("date=*/*.parquet")}
    for path in compacted:
        name = path.name.removeprefix(COMPACTED)
        if name in taken:
            name = new_place("compacted").name
        taken.add(name)
        path.rename(path.with_name(name))
        failpoint("anew.after_rename")
    # Before the stream begins: a name that a power cut brings back would be passed over then.
    for folder in {path.parent for path in compacted}:
        sync(folder)
