"""The replays of a lake, as a person sees them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queuecraft.cli.output import AsJson, Cell, on_terminal, say, say_json, show
from queuecraft.model.errors import ConfigError

if TYPE_CHECKING:
    from queuecraft.pipeline.replay.plan import Plan

EXAMPLE = 60  # characters of a payload


def replays(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of the lake.")],
    *,
    as_json: AsJson = False,
) -> None:
    """List the replays of a lake: what was asked, how far each has come, why it is paused.

    Example: queuecraft lake replays ./lake
    """
    from queuecraft.pipeline.lake import Lake
    from queuecraft.pipeline.replay.state import replays as found

    if not path.is_dir():
        raise ConfigError(f"there is no lake at {str(path)!r}; is the path right?")
    each = found(Lake.at(path))
    if as_json:
        for replay in each:
            say_json({**plan_fields(replay.plan), **_fields(replay)})
        return
    if not each and on_terminal():
        say(f"There are no replays in {path}; queuecraft lake replay {path} --dry-run plans one.")
        return
    columns = ("id", "state", "messages", "sent", "refused", "expired", "failed", "asked", "reason")
    rows: list[tuple[Cell, ...]] = [
        (
            *(replay.plan.id, replay.state, replay.plan.messages, replay.sent, replay.refused),
            *(replay.expired, replay.failed, str(replay.plan.question), replay.reason),
        )
        for replay in each
    ]
    show(columns, rows)


def tell_plan(plan: Plan) -> None:
    """What would be done, for a person."""
    rows: list[tuple[Cell, ...]] = [
        (
            *(line.event, target(line.queue, line.exchange), line.messages, line.size),
            *(line.first, line.last, line.expired),
        )
        for line in plan.lines
    ]
    show(("event", "to", "messages", "bytes", "first", "last", "expired"), rows)
    if on_terminal():
        say("")
    for example in plan.examples:
        payload = " ".join(example.payload.split())
        shown = payload if len(payload) <= EXAMPLE else payload[:EXAMPLE] + "…"
        say(f"  {example.message_id}  {example.event}  {shown}", "dim")
    messages = f"{plan.messages:,} message{'' if plan.messages == 1 else 's'}"
    chunks = f"{len(plan.chunks):,} chunk{'' if len(plan.chunks) == 1 else 's'}"
    say(f"Plan {plan.id}: {messages}, {plan.size:,} bytes, in {chunks}.")
    if plan.missing:
        say(f"{plan.missing:,} more are meant, but the archive has no payload of them.", "yellow")
    if plan.expired:
        say(f"{plan.expired:,} have run out of time; --expired sends them too.", "yellow")


def target(queue: str | None, exchange: str | None) -> str:
    """Where messages go, in words.

    >>> target("billing", None), target(None, "events"), target(None, None)
    ('queue billing', 'exchange events', 'the exchange of the connection')
    """
    if queue is not None:
        return f"queue {queue}"
    return "the exchange of the connection" if exchange is None else f"exchange {exchange}"


def plan_fields(plan: Plan) -> dict[str, Any]:
    """A plan for a program."""
    return {
        **asdict(plan),
        "messages": plan.messages,
        "size": plan.size,
        "expired": plan.expired,
        "first": plan.first,
        "last": plan.last,
        "chunks": len(plan.chunks),
    }


def _fields(replay: Any) -> dict[str, Any]:
    fields = asdict(replay)
    del fields["plan"]
    return fields
