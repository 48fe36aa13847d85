"""Dead letters: see them, understand them, send them back or forget them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, TypeAlias

import typer

from queuecraft.admin import UnknownQueue
from queuecraft.app import QueueCraft
from queuecraft.cli.broker import Url, connected, run
from queuecraft.cli.command import Command
from queuecraft.cli.command import Group as CommandGroup
from queuecraft.cli.completion import QueueName, queue_names
from queuecraft.cli.confirmation import Yes, confirm
from queuecraft.cli.duration import ago, seconds
from queuecraft.cli.letters import cause, found, shortened, whole_error
from queuecraft.cli.messages import MOST, body_fields, tell_body, tell_headers
from queuecraft.cli.output import (
    AsJson,
    note,
    on_terminal,
    say,
    say_json,
    show,
    show_lines,
)
from queuecraft.cli.redrives import carry_out
from queuecraft.runtime.dead_letters import (
    LOOK,
    DeadLetters,
    DeadMessage,
    FailureGroup,
    Filter,
    Redrive,
)
from queuecraft.runtime.dead_message import moment

app = typer.Typer(
    no_args_is_help=True,
    cls=CommandGroup,
    help="Dead letters: list, groups, show, redrive, delete.",
)

WIDEST = {"event": 28, "id": 24}  # columns, on a terminal

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
    list[str] | None,
    typer.Option(
        "--id", metavar="ID", help="Only this message, or the start of its id; repeatable."
    ),
]
OlderThan: TypeAlias = Annotated[
    float | None,
    typer.Option("--older-than", parser=seconds, metavar="TIME", help="Failed longer ago, as 2h."),
]
NewerThan: TypeAlias = Annotated[
    float | None,
    typer.Option("--newer-than", parser=seconds, metavar="TIME", help="Failed since then, as 10m."),
]


@app.command(name="list", cls=Command)
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
        int,
        typer.Option("--limit", "-n", min=1, max=MOST, metavar="COUNT", help="At most so many."),
    ] = 100,
    exact: Exact = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the dead letters of a queue, oldest first.

    Example: queuecraft dlq list billing --error Timeout --newer-than 1h
    """
    where = _filter(error, event, reason, group, older_than, newer_than)

    async def look() -> tuple[list[tuple[DeadMessage, object]], int]:
        async with connected(url) as qc:
            engine = await _engine(qc, queue, exact=exact)
            chosen = await _with_ids(engine, queue, where, id)
            letters = await engine.list(queue, where=chosen, limit=limit)
            read = qc.admin.payload_of if as_json else lambda letter: None
            return [(letter, read(letter)) for letter in letters], await engine.count(queue)

    letters, total = run(look())
    filtered = where is not None or bool(id)
    _tell_list(queue, letters, filtered=filtered, as_json=as_json)
    _say_how_many(len(letters), total, limit, filtered=filtered, as_json=as_json)


def _tell_list(
    queue: str,
    letters: Sequence[tuple[DeadMessage, object]],
    *,
    filtered: bool,
    as_json: bool,
) -> None:
    if as_json:
        for letter, payload in letters:
            say_json(letter_fields(letter, payload))
        return
    if not letters and on_terminal():
        say("No dead letter was chosen." if filtered else f"{queue!r} has no dead letters.", "dim")
        return
    if on_terminal():
        names = shortened([letter.id for letter, _ in letters])
        rows = [
            (name, ago(letter.failed_at), letter.event, letter.failures, cause(letter))
            for name, (letter, _) in zip(names, letters, strict=True)
        ]
        show_lines(("id", "failed", "event", "failures", "error"), rows, WIDEST)
        return
    show(
        ("id", "event", "reason", "error", "failures", "failed at", "group"),
        [
            (
                letter.id,
                letter.event,
                letter.reason,
                whole_error(letter),
                letter.failures,
                letter.failed_at,
                letter.fingerprint,
            )
            for letter, _ in letters
        ],
    )


@app.command(cls=Command)
def groups(
    queue: QueueName,
    *,
    error: Error = None,
    event: EventPattern = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    exact: Exact = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Sum the dead letters of a queue up: groups of like failures, the largest first.

    Example: queuecraft dlq groups billing
    """
    where = _filter(error, event, reason, None, older_than, newer_than)

    async def look() -> list[FailureGroup]:
        async with connected(url) as qc:
            engine = await _engine(qc, queue, exact=exact)
            return await engine.groups(queue, where=where, limit=max(1, await engine.count(queue)))

    told = run(look())
    if as_json:
        for each in told:
            say_json(
                {
                    "group": each.fingerprint,
                    "count": each.count,
                    "first_failed_at": each.first,
                    "last_failed_at": each.last,
                    "example_id": each.example,
                    "event": each.event,
                    "reason": each.reason,
                    "error_type": each.error_type,
                    "error": each.error,
                }
            )
    elif not told and on_terminal():
        say("No dead letter was chosen." if where else f"{queue!r} has no dead letters.", "dim")
    elif on_terminal():
        rows = [
            (each.fingerprint, each.count, ago(each.first), ago(each.last), cause(each))
            for each in told
        ]
        show_lines(("group", "count", "first", "last", "error"), rows, WIDEST)
    else:
        show(
            ("group", "count", "first failed at", "last failed at", "error"),
            [
                (each.fingerprint, each.count, each.first, each.last, whole_error(each))
                for each in told
            ],
        )


@app.command(name="show", cls=Command)
def show_(
    queue: QueueName,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id, or its start.")],
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
            letters = {each.id: each for each in await engine.list(queue, limit=every)}
            (meant,) = found([id], letters, queue)
            return letters[meant], qc.admin.payload_of(letters[meant])

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
        ("error", whole_error(letter)),
    ):
        say(f"{name:<10} {value}")
    if len(letter.attempts) > 1:
        say("attempts")
        for each in letter.attempts:
            when = moment(each.at)
            told = "" if when is None else when.isoformat(timespec="milliseconds")
            say(f"  {each.attempt:<4} {told}  {each.error}", "dim")
    if letter.traceback:
        say("traceback")
        for line in letter.traceback.rstrip().split("\n"):
            say(f"  {line}", "dim")
    if letter.headers:
        say("headers")
        tell_headers(letter.headers)
    say("body")
    tell_body(letter.body, payload)


@app.command(cls=Command)
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
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="At most so many.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="COUNT", help="At most so many a second.")
    ] = None,
    canary: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="COUNT", help="So many first; the rest only if none of them dies again."
        ),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(parser=seconds, metavar="TIME", help="Wait so long for the canary, at most."),
    ] = 30.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    exact: Exact = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters back to the queue that failed them. Ctrl-C stops it, and loses nothing.

    Example: queuecraft dlq redrive billing --error Timeout --canary 5 --rate 50
    """
    where = _filter(error, event, reason, group, older_than, newer_than)

    async def work(note: Callable[[Redrive], object]) -> Redrive:
        async with connected(url) as qc:
            engine = await _engine(qc, queue, exact=exact)
            if to is not None:
                await qc.admin.inspect(to)
            return await engine.redrive(
                queue,
                where=await _with_ids(engine, queue, where, id),
                limit=limit,
                rate=rate,
                canary=canary,
                patience=patience,
                dry_run=dry_run,
                to=to,
                on_progress=note,
            )

    carry_out(
        f"redriving {queue}",
        work,
        dry_run=dry_run,
        as_json=as_json,
        filtered=where is not None or bool(id),
        verb="redrive",
    )


@app.command(cls=Command)
def delete(
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
        int | None, typer.Option(min=1, metavar="COUNT", help="At most so many.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Yes = False,
    exact: Exact = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Forget some dead letters of a queue, for good; the rest stays where it is.

    Example: queuecraft dlq delete billing --group 4f0c1e5b77aa
    """
    where = _filter(error, event, reason, group, older_than, newer_than)
    if where is None and not id and limit is None:
        raise typer.BadParameter(
            "say which, as with --group, --id or --error; queuecraft dlq purge forgets them all",
            param_hint="--group",
        )

    async def count() -> tuple[Filter | None, int]:
        async with connected(url) as qc:
            engine = await _engine(qc, queue, exact=exact)
            chosen = await _with_ids(engine, queue, where, id)
            plan = await engine.delete(queue, where=chosen, limit=limit, dry_run=True)
            return chosen, plan.moved

    chosen, there = run(count())
    if there and not dry_run:
        confirm(f"forget {_letters(there)} of {queue!r} for good", yes=yes)

    async def work(note: Callable[[Redrive], object]) -> Redrive:
        async with connected(url) as qc:
            engine = await _engine(qc, queue, exact=exact)
            return await engine.delete(
                queue, where=chosen, limit=limit, dry_run=dry_run, on_progress=note
            )

    carry_out(
        f"deleting of {queue}",
        work,
        dry_run=dry_run,
        as_json=as_json,
        filtered=where is not None or bool(id),
        verb="delete",
    )


@app.command(cls=Command)
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

    there = run(count())
    if there:
        confirm(f"forget {_letters(there)} of {queue!r} for good", yes=yes)
    purged = run(forget()) if there else 0
    if as_json:
        say_json({"queue": queue, "purged": purged})
    elif there:
        say(f"Purged {_letters(purged)} of {queue!r}.")
    else:
        say(f"{queue!r} has no dead letters.")


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
        "attempts": [
            {"at": moment(each.at), "attempt": each.attempt, "error": each.error}
            for each in letter.attempts
        ],
        "group": letter.fingerprint,
        "key": letter.key,
        "content_type": letter.content_type,
        "headers": dict(letter.headers),
        **body_fields(letter.body, payload),
    }


def _letters(count: int) -> str:
    return f"{count:,} dead letter{'' if count == 1 else 's'}"


def _say_how_many(shown: int, total: int, limit: int, *, filtered: bool, as_json: bool) -> None:
    """Say so where a list is not everything there is."""
    looked = max(limit, LOOK)
    if shown == limit and total > limit:
        what = "the first that were chosen are shown" if filtered else "are shown"
        note(f"{shown:,} of {total:,} {what}; --limit shows more", as_json=as_json)
    elif filtered and total > looked:
        note(
            f"only the first {looked:,} of {total:,} were looked at; a higher --limit looks at "
            "more",
            as_json=as_json,
        )


async def _with_ids(
    engine: DeadLetters, queue: str, where: Filter | None, ids: list[str] | None
) -> Filter | None:
    """The filter with the ids that were meant, which must be there."""
    if not ids:
        return where
    every = await engine.list(queue, limit=max(1, await engine.count(queue)))
    return replace(where or Filter(), ids=found(ids, {each.id for each in every}, queue))


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
    older_than: float | None,
    newer_than: float | None,
) -> Filter | None:
    where = Filter(
        error=error,
        event=event,
        reason=reason,
        fingerprint=group,
        older_than=older_than,
        newer_than=newer_than,
    )
    return None if where == Filter() else where
