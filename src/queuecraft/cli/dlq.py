"""Dead letters: see them, understand them, send them back or forget them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

import typer

from queuecraft.admin import UnknownQueue
from queuecraft.app import QueueCraft
from queuecraft.cli.broker import Url, connected, run
from queuecraft.cli.completion import QueueName, queue_names
from queuecraft.cli.confirmation import Yes, confirm
from queuecraft.cli.duration import seconds
from queuecraft.cli.exits import UnknownMessage
from queuecraft.cli.messages import MOST, body_fields, tell_body, tell_headers
from queuecraft.cli.output import (
    AsJson,
    complain,
    complain_json,
    on_terminal,
    say,
    say_json,
    show,
)
from queuecraft.cli.redrives import carry_out
from queuecraft.runtime.dead_letters import LOOK, DeadLetters, DeadMessage, Filter, Redrive

app = typer.Typer(no_args_is_help=True, help="Dead letters: list, show, redrive, purge.")

Exact: TypeAlias = Annotated[
    bool,
    typer.Option("--exact", help="QUEUE is the dead-letter queue itself, whatever it is called."),
]
Error: TypeAlias = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Found in the error's type or text.")
]
EventPattern: TypeAlias = Annotated[
    str | None, typer.Option("--event", metavar="PATTERN", help="Only these events, as 'order.*'.")
]
Reason: TypeAlias = Annotated[
    str | None, typer.Option("--reason", metavar="REASON", help="As handler-error or expired.")
]
Group: TypeAlias = Annotated[
    str | None,
    typer.Option("--group", metavar="FINGERPRINT", help="Only this group of like failures."),
]
Ids: TypeAlias = Annotated[
    list[str] | None, typer.Option("--id", metavar="ID", help="Only this message; repeatable.")
]
OlderThan: TypeAlias = Annotated[
    float | None,
    typer.Option("--older-than", parser=seconds, metavar="TIME", help="Failed before, as 2h ago."),
]
NewerThan: TypeAlias = Annotated[
    float | None,
    typer.Option("--newer-than", parser=seconds, metavar="TIME", help="Failed since, as 10m ago."),
]


@app.command(name="list")
def list_(
    queue: QueueName,
    *,
    error: Error = None,
    event: EventPattern = None,
    reason: Reason = None,
    group: Group = None,
    id: Ids = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MOST, help="At most so many.")
    ] = 100,
    exact: Exact = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the dead letters of a queue, oldest first.

    Example: queuecraft dlq list billing --error Timeout --newer-than 1h
    """
    where = _filter(error, event, reason, group, id, older_than, newer_than)

    async def look() -> list[tuple[DeadMessage, object]]:
        async with connected(url) as qc:
            engine = await _engine(qc, queue, exact=exact)
            letters = await engine.list(queue, where=where, limit=limit)
            looked, total = max(limit, LOOK), await engine.count(queue)
            if where is not None and len(letters) < limit and total > looked:
                _note(f"only the first {looked:,} of {total:,} were looked at", as_json=as_json)
            read = qc.admin.payload_of if as_json else lambda letter: None
            return [(letter, read(letter)) for letter in letters]

    letters = run(look())
    if as_json:
        for letter, payload in letters:
            say_json(letter_fields(letter, payload))
        return
    if not letters and on_terminal():
        say(f"No dead letters of {queue!r} are meant." if where else f"{queue!r} has none.", "dim")
        return
    show(
        ("id", "event", "reason", "error", "failures", "failed at", "group"),
        [
            (
                letter.id,
                letter.event,
                letter.reason,
                f"{letter.error_type}: {letter.error}" if letter.error_type else letter.error,
                letter.failures,
                letter.failed_at,
                letter.fingerprint,
            )
            for letter, _ in letters
        ],
    )


@app.command(name="show")
def show_(
    queue: QueueName,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the message.")],
    *,
    exact: Exact = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter with its whole story: error, traceback, headers, body.

    Example: queuecraft dlq show billing 4f0c…
    """

    async def look() -> tuple[DeadMessage, object]:
        async with connected(url) as qc:
            engine = await _engine(qc, queue, exact=exact)
            every = max(1, await engine.count(queue))  # it may be the last of many
            for letter in await engine.list(queue, where=Filter(ids=frozenset({id})), limit=every):
                return letter, qc.admin.payload_of(letter)
        raise UnknownMessage(
            f"there is no dead letter {id!r}; queuecraft dlq list shows those there are",
            queue=queue,
        )

    letter, payload = run(look())
    if as_json:
        say_json(letter_fields(letter, payload))
        return
    for name, value in (
        ("id", letter.id),
        ("event", letter.event),
        ("queue", letter.queue or "unknown"),
        ("reason", letter.reason),
        ("failures", str(letter.failures)),
        ("failed at", "" if letter.failed_at is None else letter.failed_at.isoformat()),
        ("group", letter.fingerprint),
        ("error", f"{letter.error_type}: {letter.error}" if letter.error_type else letter.error),
    ):
        say(f"{name:<10} {value}")
    if letter.traceback:
        say("traceback")
        for line in letter.traceback.rstrip().split("\n"):
            say(f"  {line}", "dim")
    if letter.headers:
        say("headers")
        tell_headers(letter.headers)
    say("body")
    tell_body(letter.body, payload)


@app.command()
def redrive(
    queue: QueueName,
    *,
    error: Error = None,
    event: EventPattern = None,
    reason: Reason = None,
    group: Group = None,
    id: Ids = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE",
            help="There, not to the queue that failed it.",
            autocompletion=queue_names,
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    rate: Annotated[float | None, typer.Option(help="At most so many a second.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    exact: Exact = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters back to the queue that failed them. Ctrl-C stops it, and loses nothing.

    Example: queuecraft dlq redrive billing --error Timeout --rate 50
    """
    where = _filter(error, event, reason, group, id, older_than, newer_than)

    async def work(note: Callable[[Redrive], object]) -> Redrive:
        async with connected(url) as qc:
            engine = await _engine(qc, queue, exact=exact)
            if to is not None:
                await qc.admin.inspect(to)
            return await engine.redrive(
                queue,
                where=where,
                limit=limit,
                rate=rate,
                dry_run=dry_run,
                to=to,
                on_progress=note,
            )

    carry_out(f"redriving {queue}", work, dry_run=dry_run, as_json=as_json)


@app.command()
def purge(
    queue: QueueName,
    *,
    yes: Yes = False,
    exact: Exact = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Forget all dead letters of a queue, for good.

    Example: queuecraft dlq purge billing --yes
    """

    async def count() -> int:
        async with connected(url) as qc:
            return await (await _engine(qc, queue, exact=exact)).count(queue)

    async def forget() -> int:
        async with connected(url) as qc:
            return await (await _engine(qc, queue, exact=exact)).purge(queue)

    confirm(f"forget {run(count()):,} dead letters of {queue!r} for good", yes=yes)
    purged = run(forget())
    if as_json:
        say_json({"queue": queue, "purged": purged})
    else:
        say(f"Purged {purged:,} dead letters of {queue!r}.")


def letter_fields(letter: DeadMessage, payload: object) -> dict[str, object]:
    """A dead letter as JSON; the keys are always the same."""
    return {
        "id": letter.id,
        "queue": letter.queue,
        "event": letter.event,
        "reason": letter.reason,
        "error_type": letter.error_type,
        "error": letter.error,
        "traceback": letter.traceback,
        "failures": letter.failures,
        "failed_at": letter.failed_at,
        "group": letter.fingerprint,
        "key": letter.key,
        "content_type": letter.content_type,
        "headers": dict(letter.headers),
        **body_fields(letter.body, payload),
    }


def _note(text: str, *, as_json: bool) -> None:
    text += "; a higher --limit looks at more"
    if as_json:
        complain_json(note=text)
    else:
        complain(text, label="note")


async def _engine(qc: QueueCraft, queue: str, *, exact: bool) -> DeadLetters:
    """The engine for the dead letters of a queue, which must exist."""
    if exact:
        await qc.admin.inspect(queue)
        return qc.admin.dead_letters_by_name
    names = [info.name for info in await qc.admin.queues()]
    if queue in names and not queue.endswith(".dlq") and f"{queue}.dlq" not in names:
        raise UnknownQueue(
            f"queue {queue!r} has no dead-letter queue {queue + '.dlq'!r}; if its dead letters "
            "are elsewhere, name that queue with --exact",
            queue=queue,
        )
    if queue not in names and f"{queue}.dlq" not in names:
        await qc.admin.inspect(queue)  # which says what may have been meant
    return qc.admin.dead_letters


def _filter(
    error: str | None,
    event: str | None,
    reason: str | None,
    group: str | None,
    ids: list[str] | None,
    older_than: float | None,
    newer_than: float | None,
) -> Filter | None:
    where = Filter(
        error=error,
        event=event,
        reason=reason,
        fingerprint=group,
        ids=frozenset(ids) if ids else None,
        older_than=older_than,
        newer_than=newer_than,
    )
    return None if where == Filter() else where
