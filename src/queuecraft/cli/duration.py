"""Lengths of time as people type them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import typer

UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw]?)", re.IGNORECASE | re.ASCII)


def seconds(text: str | float) -> float:
    """Seconds from `90`, `1.5h`, `2d`; a default is a number already.

    >>> seconds("90"), seconds("1.5h"), seconds("2d")
    (90.0, 5400.0, 172800.0)
    """
    if not isinstance(text, str):
        return text
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no length of time; write 30, 30s, 5m, 2h or 7d")
    return float(found[1]) * UNITS[found[2].lower()]


def spoken(age: float) -> str:
    """A length of time in its two largest units.

    >>> spoken(0.4), spoken(75), spoken(7300), spoken(200000)
    ('0s', '1m 15s', '2h 1m', '2d 7h')
    """
    left = int(age)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def ago(moment: datetime | None, now: datetime | None = None) -> str | None:
    """How long ago that was, in its largest unit.

    >>> noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    >>> ago(datetime(2030, 1, 1, 11, 57, 2, tzinfo=UTC), noon), ago(None)
    ('2m ago', None)
    """
    if moment is None:
        return None
    age = ((now or datetime.now(UTC)) - moment).total_seconds()
    return f"{spoken(max(0.0, age)).partition(' ')[0]} ago"
