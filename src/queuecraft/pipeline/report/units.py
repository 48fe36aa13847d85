"""Numbers as a person reads them."""

from __future__ import annotations

NOTHING = "–"


def short(count: float) -> str:
    """A count in a few characters.

    >>> short(950), short(12_345), short(2_500_000), short(0.25)
    ('950', '12.3k', '2.5M', '0.25')
    """
    for unit, size in (("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)):
        if abs(count) < 999.5 * size or unit == "T":
            value = count / size
            digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 1 else 2
            told = f"{value:,.{digits}f}"
            return (told.rstrip("0").rstrip(".") if "." in told else told) + unit
    raise AssertionError  # the last unit takes all


def seconds(value: float | None) -> str:
    """A length of time with a unit that fits.

    >>> seconds(0.00042), seconds(0.0123), seconds(1.5), seconds(90), seconds(7500)
    ('420 µs', '12 ms', '1.5 s', '1.5 min', '2.1 h')
    """
    if value is None:
        return NOTHING
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= size * 0.9995:
            return f"{_three(value / size)} {unit}"
    return f"{_three(value / 1e-6)} µs" if value else "0 s"


def percent(share: float | None) -> str:
    """A share of a hundred; what is not nothing never reads as nothing.

    >>> percent(0.0312), percent(0.5), percent(0), percent(0.00001), percent(None)
    ('3.1 %', '50 %', '0 %', '<0.1 %', '–')
    """
    if share is None:
        return NOTHING
    if 0 < share < 0.0005:
        return "<0.1 %"
    if 0.9995 < share < 1:
        return ">99.9 %"
    told = f"{share * 100:.1f}"
    return f"{told.removesuffix('.0')} %"


def plural(count: int, noun: str) -> str:
    """A count of things.

    >>> plural(1, "queue"), plural(1200, "queue"), plural(2, "delivery")
    ('1 queue', '1,200 queues', '2 deliveries')
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} " + (f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s")


def _three(value: float) -> str:
    digits = 0 if abs(value) >= 9.95 else 1
    return f"{value:,.{digits}f}".removesuffix(".0")
