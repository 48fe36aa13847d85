"""`queuecraft dlq list`: the dead letters of a queue, a line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from queuecraft.cli.broker import Url, run
from queuecraft.cli.completion import QueueName
from queuecraft.cli.dlq.choice import Choice, Exact, choosing, opened
from queuecraft.cli.dlq.letter import letter_fields
from queuecraft.cli.duration import ago
from queuecraft.cli.letters import cause, none_of, shortened, whole_error
from queuecraft.cli.messages import MOST
from queuecraft.cli.output import AsJson, note, on_terminal, say, say_json, show, show_lines
from queuecraft.runtime.dead_letters import LOOK, DeadMessage

WIDEST: Final = {"event": 28, "id": 24}  # columns, on a terminal


@choosing
def list_(
    queue: QueueName,
    *,
    choice: Choice,
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

    async def look() -> tuple[list[tuple[DeadMessage, object]], int]:
        async with opened(queue, url, exact=exact) as (qc, engine):
            where = await choice.among(engine, queue)
            letters = await engine.list(queue, where=where, limit=limit)
            read = qc.admin.payload_of if as_json else lambda letter: None
            return [(letter, read(letter)) for letter in letters], await engine.count(queue)

    letters, total = run(look())
    if as_json:
        for letter, payload in letters:
            say_json(letter_fields(letter, payload))
    elif not letters and on_terminal():
        say(none_of(queue, filtered=bool(choice)), "dim")
    else:
        _tell([letter for letter, _ in letters])
    _say_how_many(len(letters), total, limit, filtered=bool(choice), as_json=as_json)


def _tell(letters: Sequence[DeadMessage]) -> None:
    if on_terminal():
        names = shortened([letter.id for letter in letters])
        rows = [
            (name, ago(letter.failed_at), letter.event, letter.failures, cause(letter))
            for name, letter in zip(names, letters, strict=True)
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
            for letter in letters
        ],
    )


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
