"""Looking: which queues there are, and how they are connected."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from queuecraft.cli.broker import Url, connected, run
from queuecraft.cli.duration import seconds, spoken
from queuecraft.cli.exits import sentence
from queuecraft.cli.output import (
    AsJson,
    Cell,
    complain,
    on_terminal,
    say,
    say_json,
    show,
    table,
)
from queuecraft.drivers.base import QueueInfo
from queuecraft.model.errors import ConnectionLost
from queuecraft.observers.log import printable

SHORTEST = 0.1  # seconds between two looks
COLUMNS = ("queue", "ready", "in flight", "delayed", "dead", "consumers", "oldest")


def queues(
    *,
    watch: Annotated[
        float | None,
        typer.Option(parser=seconds, metavar="TIME", help="Look again so often, until Ctrl-C."),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the queues: what is ready, in flight, delayed and dead, and who consumes.

    Example: queuecraft queues --watch 2
    """
    if watch is not None and watch < SHORTEST:
        raise typer.BadParameter(f"--watch {watch:g}: expected {SHORTEST:g} seconds or more")
    if watch is None:
        _show(run(_look(url)), as_json=as_json)
    else:
        run(_watch(url, watch, as_json=as_json))


def topology(*, url: Url = None, as_json: AsJson = False) -> None:
    """Show exchanges, which queues are bound to them, and who consumes.

    Example: queuecraft topology
    """

    async def look() -> dict[str, Any]:
        async with connected(url) as qc:
            told = await qc.admin.topology()
        return {
            "exchanges": [asdict(each) for each in told.exchanges],
            "queues": list(told.queues),
            "bindings": [
                {
                    "exchange": binding.exchange.name,
                    "pattern": binding.pattern,
                    "headers": dict(binding.headers),
                    "queue": queue,
                }
                for binding, queue in told.bindings
            ],
            "consumers": [asdict(each) for each in told.consumers],
        }

    told = run(look())
    if as_json:
        say_json(told)
        return
    types = {each["name"]: each["type"] for each in told["exchanges"]}
    bound = sorted(
        (
            each["exchange"],
            types.get(each["exchange"], ""),
            each["pattern"],
            ", ".join(f"{name}={value}" for name, value in each["headers"].items()),
            each["queue"],
        )
        for each in told["bindings"]
    )
    show(("exchange", "type", "pattern", "headers", "queue"), bound)
    if told["consumers"] and on_terminal():
        say("")
        rows = [(each["queue"], each["name"], each["prefetch"]) for each in told["consumers"]]
        show(("queue", "consumer", "prefetch"), rows)


# -- the list of queues ----------------------------------------------------------------------------


async def _look(url: str | None) -> list[QueueInfo]:
    async with connected(url) as qc:
        return await qc.admin.queues()


def _show(infos: Sequence[QueueInfo], *, as_json: bool) -> None:
    if as_json:
        for info in infos:
            say_json(info_fields(info))
    elif not infos and on_terminal():
        say("There are no queues yet; a worker declares its queue when it starts.", "dim")
    else:
        show(COLUMNS, _rows(infos))


async def _watch(url: str | None, every: float, *, as_json: bool) -> None:
    async with connected(url) as qc:
        if as_json or not on_terminal():
            while True:
                try:
                    _show(await qc.admin.queues(), as_json=as_json)
                    sys.stdout.flush()
                except ConnectionLost as error:
                    complain(sentence(error), label="connection lost")
                await asyncio.sleep(every)
        with Live(console=Console(), auto_refresh=False) as live:
            while True:
                caption = Text(f"{datetime.now(UTC):%H:%M:%S} UTC, every {every:g} s", "dim")
                try:
                    drawn = table(COLUMNS, _rows(await qc.admin.queues()))
                except ConnectionLost as error:
                    caption = Text(f"connection lost: {printable(sentence(error))}", "red")
                    drawn = table(COLUMNS, [])
                live.update(Group(drawn, caption), refresh=True)
                await asyncio.sleep(every)


def info_fields(info: QueueInfo) -> dict[str, object]:
    """The state of a queue as JSON."""
    return {
        "name": info.name,
        "ready": info.ready,
        "in_flight": info.in_flight,
        "delayed": info.delayed,
        "dead": info.dead,
        "consumers": info.consumers,
        "oldest_age": info.oldest_age,
        "rates": None if info.rates is None else dict(info.rates),
    }


def _rows(infos: Sequence[QueueInfo]) -> list[tuple[Cell, ...]]:
    drawn = on_terminal()
    return [
        (
            info.name,
            info.ready,
            info.in_flight,
            info.delayed,
            info.dead,
            info.consumers,
            spoken(info.oldest_age) if drawn and info.oldest_age is not None else info.oldest_age,
        )
        for info in infos
    ]
