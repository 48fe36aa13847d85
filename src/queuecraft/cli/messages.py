"""Looking at messages, which stay where they are."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from queuecraft.admin import PeekedMessage
from queuecraft.cli.broker import Url, connected, run
from queuecraft.cli.completion import QueueName
from queuecraft.cli.duration import ago
from queuecraft.cli.letters import shortened
from queuecraft.cli.output import (
    AsJson,
    Cell,
    on_terminal,
    say,
    say_json,
    show,
    show_lines,
    stamp,
)
from queuecraft.codec.headers import FAILED_AT, TRACEBACK

MOST = 1_000_000  # messages looked at by one command
LONGEST = 2000  # characters of one body on a terminal


def peek(
    queue: QueueName,
    *,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MOST, metavar="COUNT", help="How many.")
    ] = 10,
    body: Annotated[bool, typer.Option("--body", help="Show what is in them.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Look even where that marks messages as redelivered."),
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Look at the next messages of a queue, which stay where they are.

    Example: queuecraft peek billing --limit 3 --body
    """

    async def look() -> list[PeekedMessage]:
        async with connected(url) as qc:
            return await qc.admin.peek(queue, limit, force=force)

    messages = run(look())
    if as_json:
        for message in messages:
            say_json(message_fields(message))
        return
    names = ["id", "event", "published", "attempt", "redeliveries", "bytes"]
    rows: list[list[Cell]] = [
        [each.id, each.routing_key, each.published_at, each.attempt, each.redeliveries, each.size]
        for each in messages
    ]
    if not on_terminal():
        if body:
            names.append("body")
            for row, message in zip(rows, messages, strict=True):
                row.append(readable(message.body, message.payload))
        show(names, rows)
        return
    if not messages:
        say(f"Nothing is ready in {queue!r}.", "dim")
        return
    short = shortened([each.id for each in messages])
    lines = [
        (name, ago(each.published_at), each.size, each.attempt, each.redeliveries, each.routing_key)
        for name, each in zip(short, messages, strict=True)
    ]
    show_lines(("id", "published", "bytes", "attempt", "redeliveries", "event"), lines, {"id": 24})
    if body:
        for message in messages:
            say("")
            say(message.id, "bold")
            tell_headers(message.headers)
            if message.unreadable is not None:
                say(f"  unreadable: {message.unreadable}", "yellow")
            tell_body(message.body, message.payload)


def message_fields(message: PeekedMessage) -> dict[str, object]:
    """A message as JSON; the keys are always the same."""
    return {
        "id": message.id,
        "queue": message.queue,
        "event": message.routing_key,
        "key": message.key,
        "priority": message.priority,
        "published_at": message.published_at,
        "due_at": message.due_at,
        "expires_at": message.expires_at,
        "attempt": message.attempt,
        "redeliveries": message.redeliveries,
        "correlation_id": message.correlation_id,
        "reply_to": message.reply_to,
        "content_type": message.content_type,
        "content_encoding": message.content_encoding,
        "headers": dict(message.headers),
        "size": message.size,
        **body_fields(message.body, message.payload),
        "unreadable": message.unreadable,
    }


def body_fields(body: bytes, payload: object) -> dict[str, object]:
    """The payload, where it can be written as JSON; and the body, as text or else in base64."""
    text = _text(body)
    return {
        "payload": _as_json_value(payload),
        "body": text,
        "body_base64": None if text is not None else base64.b64encode(body).decode(),
    }


def readable(body: bytes, payload: object) -> str:
    """The body as a person reads it, in one line."""
    if payload is not None and (value := _as_json_value(payload)) is not None:
        return json.dumps(value, ensure_ascii=False)
    text = _text(body)
    return f"<{len(body)} bytes> {body.hex()}" if text is None else text


def tell_headers(headers: Mapping[str, object]) -> None:
    """Headers, a line each."""
    for name, value in headers.items():
        if name == TRACEBACK and isinstance(value, str):
            say(f"  {name}:", "dim")
            for line in value.rstrip().split("\n"):
                say(f"    {line}", "dim")
        elif name == FAILED_AT and (when := _moment(value)) is not None:
            say(f"  {name}: {stamp(when)}", "dim")
        else:
            say(f"  {name}: {value}", "dim")


def tell_body(body: bytes, payload: object) -> None:
    """The body on a terminal, cut if it is very long."""
    text = readable(body, payload)
    say("  " + text[:LONGEST])
    if len(text) > LONGEST:
        say(f"  … {len(body):,} bytes in all; --json prints everything", "dim")


def _moment(value: object) -> datetime | None:
    """The time in a header, in milliseconds, if it can be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return datetime.fromtimestamp(value / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # whoever sent it may have put in anything
        return None


def _text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _as_json_value(payload: object) -> object:
    """The payload as plain JSON values; None where it has no such form."""
    try:
        return json.loads(msgspec.json.encode(payload))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return None
