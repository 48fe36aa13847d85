"""Pausing a queue for all workers there are, and letting them go on."""

from __future__ import annotations

import getpass
from typing import Annotated, TypeAlias

import typer

from queuecraft.cli.broker import Url, connected, run
from queuecraft.cli.completion import QueueName
from queuecraft.cli.output import AsJson, note, say, say_json

By: TypeAlias = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", help="Who wants it; you, unless you say otherwise."),
]


def pause(
    queue: QueueName,
    *,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why, for those who wonder.")
    ] = "",
    by: By = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Let no worker consume a queue, in any process, until it is resumed. What runs is finished,
    messages wait; workers that are started later wait too.

    Example: queuecraft pause billing --reason 'the bank is down'
    """
    who = _name(by)

    async def work() -> None:
        async with connected(url) as qc:
            await qc.admin.pause(queue, reason=reason, by=who)

    run(work())
    if as_json:
        say_json({"paused": queue, "reason": reason, "by": who})
    else:
        say(f"Queue {queue!r} is paused; workers see it within seconds.")


def resume(
    queue: QueueName,
    *,
    by: By = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Let workers consume a paused queue again.

    Example: queuecraft resume billing
    """

    async def work() -> bool:
        async with connected(url) as qc:
            known = queue in await qc.admin.pauses()
            await qc.admin.resume(queue, by=_name(by))
            return known

    was_paused = run(work())
    if as_json:
        say_json({"resumed": queue, "was_paused": was_paused})
        return
    if was_paused:
        say(f"Queue {queue!r} is resumed; its workers see it within seconds.")
    else:
        note(f"queue {queue!r} was not paused")


def _name(given: str | None) -> str:
    if given is not None:
        return given
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in a container
        return ""
