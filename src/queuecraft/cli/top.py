"""Everything at a glance on a terminal, again and again: `queuecraft top`."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from queuecraft.admin import Watch
from queuecraft.admin.overview import Overview
from queuecraft.cli.broker import Url, connected, run
from queuecraft.cli.duration import seconds
from queuecraft.cli.glance import COLUMNS, SORTS, Glance, Sort, cells, overview_fields, shown
from queuecraft.cli.keys import pressed
from queuecraft.cli.output import AsJson, complain, on_terminal, say_json, show, show_rows
from queuecraft.cli.partial import Hint

SHORTEST = 1.0  # seconds between two looks: the broker is asked no more often
HINT = "q ends  s sorts by {next}  / filters"


def top(
    *,
    every: Annotated[
        float, typer.Option(parser=seconds, metavar="TIME", help="Look again so often.")
    ] = 2.0,
    sort: Annotated[Sort, typer.Option(help="Which queues come first.")] = "drain",
    only: Annotated[
        str, typer.Option("--filter", metavar="TEXT", help="Only queues with this in their name.")
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Watch everything at a glance: queues and how fast they drain, workers, what fails.

    Example: queuecraft top --sort dead
    """
    if every < SHORTEST:
        raise typer.BadParameter(
            f"{every:g}: expected {SHORTEST:g} second or more", param_hint="--every"
        )

    async def work() -> None:
        async with connected(url) as qc, qc.admin.watch() as watch:
            if as_json or not on_terminal():
                await _print(watch, every, sort, only, once=once, as_json=as_json)
            elif once:
                glance = Glance(await watch.look(), sort=sort, only=only)
                console = Console()
                # As high as it needs to be: it scrolls.
                rows = len(shown(glance.overview.queues, sort, only))
                console.print(glance, height=rows + 40)
            else:
                await _draw(watch, every, sort, only)

    run(work())


async def _print(
    watch: Watch, every: float, sort: Sort, only: str, *, once: bool, as_json: bool
) -> None:
    """Lines for a program: an overview each, or a line for each queue."""
    hint = Hint(as_json=as_json)
    if not as_json:
        show(("time", *COLUMNS), [])
    while True:
        seen = await watch.look()
        hint.say(seen.lacking)
        if as_json:
            say_json(overview_fields(seen))
        else:
            show_rows((seen.at, *cells(row)) for row in shown(seen.queues, sort, only))
            if seen.asked_in is None:
                complain(*seen.reasons[:1], label="critical")
        sys.stdout.flush()
        if once:
            return
        await asyncio.sleep(every)


async def _draw(watch: Watch, every: float, sort: Sort, only: str) -> None:
    glance = Glance(await watch.look(), sort=sort, only=only)
    _hint(glance)
    async with pressed() as keys:
        looking = asyncio.ensure_future(_look_again(watch, every))
        key = asyncio.ensure_future(keys.get())
        try:
            with Live(glance, console=Console(), screen=True, auto_refresh=False) as live:
                while True:
                    live.refresh()
                    await asyncio.wait([looking, key], return_when=asyncio.FIRST_COMPLETED)
                    if looking.done():
                        glance.overview = looking.result()
                        looking = asyncio.ensure_future(_look_again(watch, every))
                    if key.done():
                        if not obeyed(glance, key.result()):
                            return
                        key = asyncio.ensure_future(keys.get())
        finally:
            looking.cancel()
            key.cancel()


async def _look_again(watch: Watch, every: float) -> Overview:
    await asyncio.sleep(every)
    return await watch.look()


def obeyed(glance: Glance, key: str) -> bool:
    """Do what a key says; False if it says to end."""
    if glance.typing:
        _type(glance, key)
    elif key == "q":
        return False
    elif key == "s":
        glance.sort = _after(glance.sort)
    elif key == "/":
        glance.typing, glance.only = True, ""
    elif key == "\x1b":
        glance.only = ""
    _hint(glance)
    return True


def _type(glance: Glance, key: str) -> None:
    if key in "\r\n":
        glance.typing = False
    elif key == "\x1b":
        glance.typing, glance.only = False, ""
    elif key in "\x7f\b":
        glance.only = glance.only[:-1]
    elif key.isprintable():
        glance.only += key


def _hint(glance: Glance) -> None:
    hint = HINT.format(next=_after(glance.sort))
    glance.footer = f"{hint} (now {glance.only!r})" if glance.only else hint


def _after(sort: Sort) -> Sort:
    return SORTS[(SORTS.index(sort) + 1) % len(SORTS)]
