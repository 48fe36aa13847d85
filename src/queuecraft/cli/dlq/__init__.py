"""Dead letters: see them, understand them, send them back or forget them."""

from __future__ import annotations

import typer

from queuecraft.cli.command import Command, Group
from queuecraft.cli.dlq import delete, groups, letter, listing, purge, redrive

app = typer.Typer(
    no_args_is_help=True, cls=Group, help="Dead letters: list, groups, show, redrive, delete."
)
app.command(name="list", cls=Command)(listing.list_)
app.command(cls=Command)(groups.groups)
app.command(cls=Command)(letter.show)
app.command(cls=Command)(redrive.redrive)
app.command(cls=Command)(delete.delete)
app.command(cls=Command)(purge.purge)
