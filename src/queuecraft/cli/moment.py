"""Moments as people type them: a date, a time, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

from queuecraft.cli.duration import seconds

_AGO = re.compile(r"\d+(?:\.\d+)?\s*(?:ms|[smhdw])", re.IGNORECASE | re.ASCII)


def moment(text: str | datetime, now: datetime | None = None) -> datetime:
    """A moment from `2030-01-01`, `2030-01-01T09:00+01:00`, or from `2h`, which is two hours ago.
    Without a zone it is UTC.

    >>> moment("2030-01-01T09:00").isoformat()
    '2030-01-01T09:00:00+00:00'
    >>> moment("2h", now=datetime(2030, 1, 1, 12, tzinfo=UTC)).isoformat()
    '2030-01-01T10:00:00+00:00'
    """
    if isinstance(text, datetime):
        return text
    given = text.strip()
    try:
        if _AGO.fullmatch(given):
            return (now or datetime.now(UTC)) - timedelta(seconds=seconds(given))
        found = datetime.fromisoformat(given)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is no moment; write 2h or 7d for so long ago, 2030-01-01, or "
            "2030-01-01T09:00Z"
        ) from None
