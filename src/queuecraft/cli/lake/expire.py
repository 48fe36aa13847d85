"""Removing what is old from a lake."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from queuecraft.cli.cluster import Master, Remote, session, waiting
from queuecraft.cli.confirmation import Yes, confirm
from queuecraft.cli.duration import seconds
from queuecraft.cli.output import AsJson, say, say_json, stamp
from queuecraft.model.errors import ConfigError

if TYPE_CHECKING:
    from queuecraft.pipeline.jobs.expire import Expired


def expire(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of the lake.")],
    *,
    older_than: Annotated[
        float, typer.Option(parser=seconds, metavar="TIME", help="What is older goes, as 90d.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go.")] = False,
    yes: Yes = False,
    master: Master = None,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """Remove what is old from a lake: segments, messages and counts. What is not ingested yet
    stays. Tells what it removes before it asks.

    Example: queuecraft lake expire ./lake --older-than 90d --dry-run
    """
    from queuecraft.pipeline.jobs.expire import expire as work
    from queuecraft.pipeline.lake import Lake

    if not path.is_dir():
        raise ConfigError(f"there is no lake at {str(path)!r}; is the path right?")
    lake = Lake.at(path)
    planned = work(None, lake, older_than=older_than, dry_run=True)
    if dry_run or not (planned.segments or planned.partitions):
        _tell(planned, path, "Would remove", as_json=as_json, dry_run=dry_run)
        return
    confirm(f"remove {_amount(planned)} of {path} for good", yes=yes)
    spark = session(master, remote)
    with waiting("removing"):
        done = work(spark, lake, older_than=older_than)
    _tell(done, path, "Removed", as_json=as_json, dry_run=False)


def _tell(done: Expired, path: Path, verb: str, *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        say_json({**asdict(done), "dry_run": dry_run})
        return
    if not done.segments and not done.partitions:
        say(f"Nothing in {path} is older than {stamp(done.before)}.")
    else:
        say(f"{verb} {_amount(done)} of {path}, from before {stamp(done.before)}.")
        for table, hours in done.partitions.items():
            say(f"  {table}: {hours:,} hour{'' if hours == 1 else 's'}")
    if done.kept:
        say(f"{done.kept:,} as old are not ingested yet, and stay.", "yellow")


def _amount(done: Expired) -> str:
    hours = max(done.partitions.values(), default=0)
    return (
        f"{done.segments:,} segment{'' if done.segments == 1 else 's'} and up to {hours:,} "
        f"hour{'' if hours == 1 else 's'} of each table ({done.size / 1e6:,.1f} MB)"
    )
