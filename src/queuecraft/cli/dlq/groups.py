"""`queuecraft dlq groups`: dead letters that failed alike, summed up."""

from __future__ import annotations

from queuecraft.cli.broker import Url, run
from queuecraft.cli.completion import QueueName
from queuecraft.cli.dlq.choice import (
    Choice,
    Error,
    EventPattern,
    Exact,
    NewerThan,
    OlderThan,
    Reason,
    opened,
)
from queuecraft.cli.duration import ago
from queuecraft.cli.letters import cause, none_of, whole_error
from queuecraft.cli.output import AsJson, on_terminal, say, say_json, show, show_lines
from queuecraft.runtime.dead_letters import FailureGroup


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
    choice = Choice(
        error=error, event=event, reason=reason, older_than=older_than, newer_than=newer_than
    )

    async def look() -> list[FailureGroup]:
        async with opened(queue, url, exact=exact) as (_, engine):
            where = await choice.among(engine, queue)
            return await engine.groups(queue, where=where, limit=max(1, await engine.count(queue)))

    told = run(look())
    if as_json:
        for each in told:
            say_json(_fields(each))
    elif not told and on_terminal():
        say(none_of(queue, filtered=bool(choice)), "dim")
    elif on_terminal():
        rows = [
            (each.fingerprint, each.count, ago(each.first), ago(each.last), cause(each))
            for each in told
        ]
        show_lines(("group", "count", "first", "last", "error"), rows, {})
    else:
        show(
            ("group", "count", "first failed at", "last failed at", "error"),
            [
                (each.fingerprint, each.count, each.first, each.last, whole_error(each))
                for each in told
            ],
        )


def _fields(group: FailureGroup) -> dict[str, object]:
    return {
        "group": group.fingerprint,
        "count": group.count,
        "first_failed_at": group.first,
        "last_failed_at": group.last,
        "example_id": group.example,
        "event": group.event,
        "reason": group.reason,
        "error_type": group.error_type,
        "error": group.error,
    }
