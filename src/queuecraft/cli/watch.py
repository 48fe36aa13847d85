"""The queues, looked at again and again: on the whole screen, or line by line in a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.text import Text

from queuecraft.cli.exits import sentence
from queuecraft.cli.health import Limits
from queuecraft.cli.output import complain, on_terminal, say_json, show, show_rows, table
from queuecraft.cli.partial import Hint
from queuecraft.cli.partial import sentence as hint_of
from queuecraft.cli.queue_rows import COLUMNS, info_fields, rows
from queuecraft.drivers.base import QueueInfo
from queuecraft.drivers.partial import lacking
from queuecraft.model.errors import ConnectionLost
from queuecraft.observers.log import printable

FRAME = 2  # lines of the screen that are not for a queue: header and footer
WIDE = 66  # columns of a screen that has room for every number
NARROW = [COLUMNS.index(name) for name in ("queue", "ready", "dead")]

Look: TypeAlias = Callable[[], Awaitable[Sequence[QueueInfo]]]
"""Asks the broker."""


async def watch(look: Look, every: float, *, as_json: bool) -> None:
    """Look again and again, until somebody ends it."""
    if as_json or not on_terminal():
        await _print(look, every, as_json=as_json)
    else:
        await _draw(look, every)


class Screen:
    """As many queues as there is room for, those in trouble first."""

    def __init__(self) -> None:
        self.infos: Sequence[QueueInfo] = ()
        self.caption = Text()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or console.height
        width, why = options.max_width, lacking(self.infos)
        hints = [] if why is None else [Text(printable(hint_of(why)), "yellow")]
        room = max(1, height - FRAME - sum(len(each.wrap(console, width)) for each in hints))
        infos = trouble_first(self.infos)
        left = 0
        if len(infos) > room:
            room = max(1, room - 1)
            left = len(infos) - room
        shown = rows(infos[:room])
        kept = range(len(COLUMNS)) if width >= WIDE else NARROW
        drawn = table(
            [COLUMNS[at] for at in kept], [[row[at] for at in kept] for row in shown], one_line=True
        )
        more = [Text(f"+{left:,} more; name those you want", "dim", no_wrap=True)] if left else []
        yield Group(drawn, *more, *hints, self.caption)


def trouble_first(infos: Sequence[QueueInfo]) -> list[QueueInfo]:
    """Queues with dead letters, or with messages nobody consumes, before all others.

    >>> ill = QueueInfo(name="mail", dead=3)
    >>> [each.name for each in trouble_first([QueueInfo(name="audit", dead=0), ill])]
    ['mail', 'audit']
    """
    limits = Limits()
    return sorted(infos, key=lambda info: (not limits.problems(info), info.name))


async def _print(look: Look, every: float, *, as_json: bool) -> None:
    hint = Hint(as_json=as_json)
    if not as_json:
        show(("time", *COLUMNS), [])
    while True:
        now = datetime.now(UTC)
        try:
            infos = await look()
            hint.say(lacking(infos))
            if as_json:
                for info in infos:
                    say_json({**info_fields(info), "at": now})
            else:
                show_rows((now, *row) for row in rows(infos))
            sys.stdout.flush()
        except ConnectionLost as error:
            complain(sentence(error), label="connection lost")
        await asyncio.sleep(every)


async def _draw(look: Look, every: float) -> None:
    screen = Screen()
    with Live(screen, console=Console(), screen=True, auto_refresh=False) as live:
        while True:
            try:
                screen.infos = await look()
                when = f"{datetime.now(UTC):%H:%M:%S} UTC"
                screen.caption = Text(f"{when}, every {every:g} s; Ctrl-C ends", "dim")
            except ConnectionLost as error:
                screen.infos = ()
                text = f"connection lost: {printable(sentence(error))}"
                screen.caption = Text(text, "red", no_wrap=True, overflow="ellipsis")
            live.refresh()
            await asyncio.sleep(every)
