"""Delayed messages: add, see and cancel them, count them, clean up what is overdue."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from queuecraft.cli.broker import Url, connected, craft, entered, run
from queuecraft.cli.command import Command, Group
from queuecraft.cli.completion import queue_names
from queuecraft.cli.duration import seconds, spoken
from queuecraft.cli.exits import ExitCode, UnknownMessage
from queuecraft.cli.outgoing import (
    CorrelationId,
    EventName,
    Given,
    HeaderPairs,
    Id,
    Key,
    sorted_out,
)
from queuecraft.cli.output import (
    AsJson,
    Cell,
    note,
    on_terminal,
    say,
    say_json,
    show,
    show_lines,
)
from queuecraft.cli.pairs import pairs
from queuecraft.cli.payload import read
from queuecraft.cli.progress import progress
from queuecraft.model.errors import ConfigError
from queuecraft.model.queue import Queue
from queuecraft.runtime.delayed import CleanupResult, DelayedMessage, DelayedPage, DelayedStats
from queuecraft.runtime.delayed.delayed import MOST

app = typer.Typer(
    no_args_is_help=True, cls=Group, help="Delayed messages: add, list, stats, cleanup, cancel."
)

STYLES = {"healthy": "bold green", "warning": "bold yellow", "critical": "bold red"}


@app.command(cls=Command)
def add(
    event: EventName = None,
    payload: Given = None,
    *,
    delay: Annotated[
        float | None, typer.Option(parser=seconds, metavar="TIME", help="How much later, as 5m.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="When, as 2030-01-01T09:00Z or with +01:00."),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE",
            help="For this queue alone; then there is no EVENT.",
            autocompletion=queue_names,
        ),
    ] = None,
    header: HeaderPairs = None,
    key: Key = None,
    id: Id = None,
    correlation_id: CorrelationId = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Keep a message until it is due. It is delivered by whoever runs the service then, such as
    queuecraft serve.

    Example: queuecraft delayed add order.reminder '{"id": "o-1"}' --delay 2h
    """
    event, payload = sorted_out(event, payload, queue)
    if (delay is None) == (at is None):
        raise ConfigError("say when it is due: --delay or --at, one of them")
    qc = craft(url, creates=True)
    value = read(payload, qc.settings.max_message_bytes)

    async def work() -> str:
        async with entered(qc):
            if queue is not None:
                await qc.admin.inspect(queue)  # which says what may have been meant
            return await qc.delayed.add(
                (event or "") if queue is None else Queue(queue),
                value,
                delay=delay,
                deliver_at=None if at is None else moment(at),
                headers=pairs("--header", header) or None,
                message_id=id,
                key=key,
                correlation_id=correlation_id,
            )

    added = run(work())
    if as_json:
        say_json({"id": added})
    else:
        say(added)


@app.command(name="list", cls=Command)
def list_(
    *,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", min=1, max=MOST, metavar="COUNT", help="At most so many."),
    ] = 100,
    after: Annotated[
        str | None, typer.Option(metavar="PLACE", help="Go on where another list has ended.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List what waits, the next due first.

    Example: queuecraft delayed list --limit 20
    """

    async def look() -> DelayedPage:
        async with connected(url) as qc:
            return await qc.delayed.list(limit, after)

    page = run(look())
    if as_json:
        for message in page:
            say_json(_fields(message))
    elif not len(page) and on_terminal():
        say("No delayed message waits.", "dim")
    elif on_terminal():
        now = datetime.now(UTC)
        rows: list[list[Cell]] = [
            [each.id, _due(each, now), each.target, each.failures, each.preview] for each in page
        ]
        show_lines(("id", "due", "for", "refused", "payload"), rows, {"id": 34, "for": 28})
    else:
        show(
            ("id", "due at", "for", "kind", "added at", "bytes", "refused", "payload"),
            [
                (
                    each.id,
                    each.due_at,
                    each.target,
                    each.kind,
                    each.added_at,
                    each.size,
                    each.failures,
                    each.preview,
                )
                for each in page
            ],
        )
    if page.next is not None:
        note(f"there are more; go on with --after {page.next}", as_json=as_json)


@app.command(cls=Command)
def stats(*, url: Url = None, as_json: AsJson = False) -> None:
    """Say how many wait, how that changes, and how the cleanups went.

    Exit code 0: healthy or warning. 1: as many wait as may.
    """

    async def look() -> DelayedStats:
        async with connected(url) as qc:
            return await qc.delayed.stats()

    found = run(look())
    if as_json:
        told = asdict(found)
        told["history"] = [{"minute": minute, "size": size} for minute, size in found.history]
        told["cleanup"]["success_rate"] = found.cleanup.success_rate
        say_json(told)
    else:
        _tell(found)
    raise typer.Exit(ExitCode.NO if found.status == "critical" else ExitCode.DONE)


@app.command(cls=Command)
def cleanup(*, url: Url = None, as_json: AsJson = False) -> None:
    """Take out what is overdue, by the policy that the setting delayed.policy names: delivered
    late, kept as dead letters in delayed.dlq, or dropped."""

    async def work() -> CleanupResult:
        async with connected(url) as qc:
            total = (await qc.delayed.stats()).overdue
            with progress("cleaning up", total) as draw:
                return await qc.delayed.cleanup(
                    on_progress=lambda done: draw(done, max(done, total))
                )

    result = run(work())
    if as_json:
        say_json(asdict(result))
        return
    deed = {"deliver": "Delivered", "dead_letter": "Dead-lettered", "drop": "Dropped"}
    refused = f", {result.refused:,} refused by their queue" if result.refused else ""
    say(
        f"{deed[result.policy]} {result.cleaned:,} overdue messages in {result.seconds:.2g} s"
        f"{refused}; {result.size:,} wait."
    )


@app.command(cls=Command)
def cancel(
    id: Annotated[str, typer.Argument(metavar="ID", help="Of the message, as list shows it.")],
    *,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Forget a message that waits.

    Exit code 4: none of this id waits, or it is being delivered now.
    """

    async def work() -> bool:
        async with connected(url) as qc:
            return await qc.delayed.cancel(id)

    if not run(work()):
        raise UnknownMessage(
            f"no delayed message {id!r} waits; it was delivered or cancelled, or is on its way",
            message_id=id,
        )
    if as_json:
        say_json({"id": id, "cancelled": True})
    else:
        say(f"Cancelled {id}.")


def moment(text: str) -> datetime:
    """A moment as people type it; it has to say its time zone.

    >>> moment("2030-01-01T09:00+01:00").astimezone(UTC).hour
    8
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        found = None
    if found is None or found.utcoffset() is None:
        raise ConfigError(
            f"--at {text!r} is no moment with a time zone; write 2030-01-01T09:00Z, or +01:00 at "
            "the end"
        )
    return found


def _fields(message: DelayedMessage) -> dict[str, object]:
    """A message as JSON; the keys are always the same."""
    return {
        "id": message.id,
        "target": message.target,
        "kind": message.kind,
        "due_at": message.due_at,
        "added_at": message.added_at,
        "size": message.size,
        "key": message.key,
        "correlation_id": message.correlation_id,
        "headers": dict(message.headers),
        "failures": message.failures,
        "preview": message.preview,
    }


def _due(message: DelayedMessage, now: datetime) -> str:
    left = (message.due_at - now).total_seconds()
    return f"in {spoken(left)}" if left >= 0 else f"{spoken(-left)} late"


def _tell(found: DelayedStats) -> None:
    if on_terminal():
        say(found.status, STYLES[found.status])
    unusual = " (unusual)" if found.abnormal_growth else ""
    cleanup = found.cleanup
    rows: list[tuple[str, Cell]] = [
        ("status", found.status),
        ("waiting", found.size),
        ("limit", found.limit),
        ("most ever", found.max_size),
        ("average", found.average_size),
        ("overdue", found.overdue),
        ("next due", found.oldest_due),
        ("growth a minute", f"{found.growth_per_minute:.1f}{unusual}"),
        ("cleanups", cleanup.runs),
        ("of them failed", cleanup.failures),
        ("cleaned in all", cleanup.cleaned_total),
        ("cleaned last", cleanup.cleaned_last),
        ("last cleanup", cleanup.last_run_at),
        ("last error", cleanup.last_error),
    ]
    show(("delayed messages", ""), rows[1:] if on_terminal() else rows)
