"""Dead letters in a lake: what went wrong, and what to do next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queuecraft.cli.cluster import Master, Remote, waiting
from queuecraft.cli.duration import ago
from queuecraft.cli.letters import counted
from queuecraft.cli.messages import body_fields, tell_body, tell_headers
from queuecraft.cli.output import AsJson, Cell, note, on_terminal, say, say_json, show, stamp
from queuecraft.cli.report import Events, LakePath, NoIngest, Queues, Since, Until, opened

if TYPE_CHECKING:
    from queuecraft.pipeline.jobs.triage import Example, Trouble

MOST = 1000
COLUMNS = (
    *("group", "count", "recovered", "queue", "event", "reason", "error"),
    *("first seen", "last seen", "messages"),
)


def triage(
    path: LakePath,
    *,
    since: Since = None,
    until: Until = None,
    queue: Queues = None,
    event: Events = None,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", min=1, max=MOST, metavar="COUNT", help="Groups at most."),
    ] = 20,
    no_ingest: NoIngest = False,
    master: Master = None,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """Group the dead letters in a lake by their cause, the newest trouble first, with an example of
    each and how to send them back.

    Example: queuecraft lake triage ./lake --queue billing --since 1d
    """
    from queuecraft.pipeline.report.scope import Scope

    scope = Scope(since=since, until=until, queues=tuple(queue or ()), events=tuple(event or ()))
    spark, lake = opened(path, master, remote, ingest_first=not no_ingest, quick=True)
    from queuecraft.pipeline.jobs.triage import triage as look

    with waiting("reading dead letters"):
        found = look(spark, lake, scope, limit=limit)
    if as_json:
        for each in found.troubles:
            say_json(_fields(each, path))
    elif not found.troubles:
        within = f" ({scope})" if scope.parts else ""
        say(f"There are no dead letters in the lake{within}.", "dim")
    elif on_terminal():
        for each in found.troubles:
            _tell(each, path)
    else:
        show(COLUMNS, map(_row, found.troubles))
    left = found.groups - len(found.troubles)
    if left > 0:
        note(f"{left:,} more groups, older ones; --limit shows more", as_json=as_json)


def next_steps(trouble: Trouble, path: Path) -> list[str]:
    """Commands that send the dead letters of a group back: from the broker, where they still are,
    and from the archive, if their payloads are in it."""
    group = trouble.group
    if not group.queue or not group.fingerprint or not trouble.open:
        return []
    queue, fingerprint = shlex.quote(group.queue), shlex.quote(group.fingerprint)
    steps = [f"queuecraft dlq redrive {queue} --group {fingerprint}"]
    if trouble.example is not None and trouble.example.payload is not None:
        # Other queues may have failed alike, and theirs are not to come here.
        chosen = f"--fingerprint {fingerprint} --queue {queue}"
        if group.event:
            chosen += f" --event {shlex.quote(group.event)}"
        steps.append(f"queuecraft lake replay {shlex.quote(str(path))} {chosen}")
    return steps


def _tell(trouble: Trouble, path: Path) -> None:
    group = trouble.group
    say(f"{group.queue or 'unknown queue'}: {counted(group.count)}", "bold")
    say(f"  {_cause(trouble)}", "red")
    for name, told in (
        ("group", group.fingerprint),
        ("event", group.event),
        ("reason", group.reason),
        ("first seen", _seen(group.first_seen)),
        ("last seen", _seen(group.last_seen)),
        ("recovered", f"{trouble.recovered:,}" if trouble.recovered else None),
        ("messages", ", ".join(group.message_ids)),
    ):
        if told:
            say(f"  {name:<11}{told}")
    if trouble.example is not None:
        _tell_example(trouble.example)
    for place, step in enumerate(next_steps(trouble, path)):
        say(f"  {'or' if place else 'next':<11}{step}", "green")
    say("")


def _tell_example(example: Example) -> None:
    say(f"  {'example':<11}{example.message_id}")
    tell_headers(example.headers)
    if example.typed_headers:
        say(f"  {example.typed_headers}", "dim")
    if example.payload is None:
        say("  its payload was not archived", "dim")
    else:
        tell_body(example.payload, None)


def _row(trouble: Trouble) -> Sequence[Cell]:
    group = trouble.group
    return (
        *(group.fingerprint, group.count, trouble.recovered, group.queue, group.event),
        *(group.reason, _cause(trouble), group.first_seen, group.last_seen),
        ",".join(group.message_ids),
    )


def _fields(trouble: Trouble, path: Path) -> dict[str, object]:
    group, example = trouble.group, trouble.example
    return {
        "group": group.fingerprint,
        "count": group.count,
        "recovered": trouble.recovered,
        "queue": group.queue,
        "event": group.event,
        "reason": group.reason,
        "error_type": group.error_type,
        "error": group.error,
        "first_seen": group.first_seen,
        "last_seen": group.last_seen,
        "message_ids": list(group.message_ids),
        "example": None if example is None else _example_fields(example),
        "next": next_steps(trouble, path),
    }


def _example_fields(example: Example) -> dict[str, object]:
    body = example.payload
    return {
        "id": example.message_id,
        "key": example.key,
        "headers": {**dict(example.headers), **_typed(example.typed_headers)},
        "content_type": example.content_type,
        "size": example.size,
        **({"body": None, "body_base64": None} if body is None else _body(body)),
    }


def _body(body: bytes) -> dict[str, object]:
    fields = body_fields(body, None)
    return {name: fields[name] for name in ("body", "body_base64")}


def _typed(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _cause(trouble: Trouble) -> str:
    group = trouble.group
    return ": ".join(filter(None, (group.error_type, group.error))) or group.reason or "unknown"


def _seen(moment: datetime | None) -> str | None:
    return None if moment is None else f"{stamp(moment)}, {ago(moment)}"
