"""Looking: which queues there are, and how they are connected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer

from queuecraft.app import QueueCraft
from queuecraft.cli.broker import Url, connected, run
from queuecraft.cli.completion import queue_names
from queuecraft.cli.duration import seconds
from queuecraft.cli.output import AsJson, on_terminal, say, say_json, show
from queuecraft.cli.partial import Hint
from queuecraft.cli.queue_rows import COLUMNS, info_fields, is_idle, rows, with_letters
from queuecraft.cli.watch import watch as watch_queues
from queuecraft.drivers.base import QueueInfo
from queuecraft.drivers.partial import Partial, lacking

SHORTEST = 0.1  # seconds between two looks


def queues(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUEUE...",
            help="Only these, and their dead-letter queues.",
            autocompletion=queue_names,
        ),
    ] = None,
    *,
    watch: Annotated[
        float | None,
        typer.Option(parser=seconds, metavar="TIME", help="Look again so often, until Ctrl-C."),
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="On a terminal: dead-letter queues that are empty, too."),
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the queues: what is ready, in flight, delayed and dead, and who consumes.

    Example: queuecraft queues --watch 2
    """
    if watch is not None and watch < SHORTEST:
        raise typer.BadParameter(
            f"{watch:g}: expected {SHORTEST:g} seconds or more", param_hint="--watch"
        )
    whole = every or as_json or not on_terminal()

    async def look(qc: QueueCraft) -> list[QueueInfo]:
        given = names or ()
        infos = await qc.admin.queues(*with_letters(given))
        for name in given:
            if all(info.name != name for info in infos):
                await qc.admin.inspect(name)  # which says what may have been meant
        kept = [info for info in infos if whole or info.name in given or not is_idle(info)]
        why = lacking(infos)
        return kept if why is None else Partial(kept, why)

    async def work() -> None:
        async with connected(url) as qc:
            if watch is None:
                _show(await look(qc), as_json=as_json)
            else:
                await watch_queues(partial(look, qc), watch, as_json=as_json)

    run(work())


def topology(*, url: Url = None, as_json: AsJson = False) -> None:
    """Show exchanges, which queues are bound to them, and who consumes.

    Example: queuecraft topology
    """

    async def look() -> dict[str, Any]:
        async with connected(url) as qc:
            told = await qc.admin.topology()
            if not told.queues:
                hint = Hint(as_json=as_json)
                hint.say(lacking(await qc.admin.queues()))
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


def _show(infos: Sequence[QueueInfo], *, as_json: bool) -> None:
    Hint(as_json=as_json).say(lacking(infos))
    if as_json:
        for info in infos:
            say_json(info_fields(info))
    elif not infos and on_terminal() and lacking(infos) is None:
        say("There are no queues yet; a worker declares its queue when it starts.", "dim")
    else:
        show(COLUMNS, rows(infos))
