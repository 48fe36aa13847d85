"""Which segments the streams of a lake are done with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from queuecraft.pipeline.jobs.stream import checkpoint
from queuecraft.pipeline.lake import Lake


def passed_segments(lake: Lake) -> set[str]:
    """Names of the segments that ingest, and every other stream with a checkpoint in the lake, has
    read and is done with. One that has not begun has passed none."""
    others = (place.parent for place in lake.checkpoints.glob("**/sources"))
    return set.intersection(*map(passed_by, {checkpoint(lake), *others}))


def last_batch(stream: Path) -> int:
    """The last batch that a stream with this checkpoint has finished; -1 if there is none."""
    commits = (stream / "commits").glob("*")
    return max((int(each.name) for each in commits if each.name.isdigit()), default=-1)


def passed_by(stream: Path) -> set[str]:
    """Names of the files that the stream with this checkpoint is done with."""
    last = last_batch(stream)
    return {name for name, batch in _read(stream / "sources" / "0") if batch <= last}


def _read(log: Path) -> Iterator[tuple[str, int]]:
    """The files that a stream has read, and in which batch: Spark keeps a line of JSON for each,
    after one with the version, and puts ten such files together at times."""
    for file in log.glob("*"):
        if file.name.removesuffix(".compact").isdigit():
            for line in file.read_text(encoding="utf-8").splitlines()[1:]:
                entry = json.loads(line)
                yield unquote(entry["path"].rpartition("/")[2]), int(entry["batchId"])
