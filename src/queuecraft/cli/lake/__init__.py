"""The lake: the life of messages, captured, ingested, understood and sent back."""

from __future__ import annotations

import typer

from queuecraft.cli.command import Command, Group
from queuecraft.cli.lake import capture, compact, expire, ingest, replay, replays, triage

app = typer.Typer(
    no_args_is_help=True, cls=Group, help="The life of messages, in a folder that Spark can read."
)
app.command(cls=Command)(capture.capture)
app.command(cls=Command)(ingest.ingest)
app.command(cls=Command)(compact.compact)
app.command(cls=Command)(expire.expire)
app.command(cls=Command)(triage.triage)
app.command(cls=Command)(replay.replay)
app.command(cls=Command)(replays.replays)
