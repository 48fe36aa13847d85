"""Putting the small files of a lake together."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from queuecraft.cli.cluster import Master, Remote, session, waiting
from queuecraft.cli.output import AsJson, say, say_json
from queuecraft.model.errors import ConfigError


def compact(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of the lake.")],
    *,
    master: Master = None,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """Put the small files of a lake together, where they are ingested already. Nothing is lost or
    doubled, whenever it is killed.

    Example: queuecraft lake compact ./lake
    """
    from queuecraft.pipeline.jobs.compact import compact as work
    from queuecraft.pipeline.lake import Lake

    if not path.is_dir():
        raise ConfigError(f"there is no lake at {str(path)!r}; is the path right?")
    spark = session(master, remote)
    with waiting("putting files together") as tell:
        done = work(spark, Lake.at(path), progress=lambda what: tell(f"putting together {what}"))
    if as_json:
        say_json(asdict(done))
    elif done.segments or done.tables:
        say(
            f"Put together {done.segments:,} segments into {done.segments_after:,}, and "
            f"{done.tables:,} files of tables into {done.tables_after:,}."
        )
    else:
        say(f"There are few small files in {path}; nothing to put together.")
