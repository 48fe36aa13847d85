"""`queuecraft dlq show`: one dead letter with its whole story."""

from __future__ import annotations

from typing import Annotated

import typer

from queuecraft.cli.broker import Url, run
from queuecraft.cli.completion import QueueName
from queuecraft.cli.dlq.choice import Exact, opened
from queuecraft.cli.letters import found, whole_error
from queuecraft.cli.messages import body_fields, tell_body, tell_headers
from queuecraft.cli.output import AsJson, say, say_json
from queuecraft.runtime.dead_letters import DeadMessage
from queuecraft.runtime.dead_message import moment


def show(
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
        async with opened(queue, url, exact=exact) as (qc, engine):
            every = max(1, await engine.count(queue))  # it may be the last of many
            letters = {each.id: each for each in await engine.list(queue, limit=every)}
            (meant,) = found([id], letters, queue)
            return letters[meant], qc.admin.payload_of(letters[meant])

    letter, payload = run(look())
    if as_json:
        say_json(letter_fields(letter, payload))
    else:
        _tell(letter, payload)


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


def _tell(letter: DeadMessage, payload: object) -> None:
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
