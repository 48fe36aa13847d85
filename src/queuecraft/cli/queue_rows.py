"""The state of a queue as a row, or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queuecraft.cli.duration import spoken
from queuecraft.cli.output import Cell, on_terminal
from queuecraft.drivers.base import QueueInfo
from queuecraft.model.naming import MAX_NAME

COLUMNS = ("queue", "ready", "in flight", "delayed", "dead", "consumers", "oldest")


def info_fields(info: QueueInfo) -> dict[str, object]:
    """The state of a queue as JSON."""
    return {
        "name": info.name,
        "ready": info.ready,
        "in_flight": info.in_flight,
        "delayed": info.delayed,
        "dead": info.dead,
        "consumers": info.consumers,
        "oldest_age": info.oldest_age,
        "rates": None if info.rates is None else dict(info.rates),
    }


def rows(infos: Sequence[QueueInfo]) -> list[tuple[Cell, ...]]:
    """A row for each queue."""
    drawn = on_terminal()
    return [
        (
            info.name,
            info.ready,
            info.in_flight,
            info.delayed,
            info.dead,
            info.consumers,
            spoken(info.oldest_age) if drawn and info.oldest_age is not None else info.oldest_age,
        )
        for info in infos
    ]


def is_idle(info: QueueInfo) -> bool:
    """Whether it is a dead-letter queue with nothing in it, which nobody needs to see.

    >>> is_idle(QueueInfo(name="mail.dlq", ready=0)), is_idle(QueueInfo(name="mail", ready=0))
    (True, False)
    """
    held = (info.ready, info.in_flight, info.delayed)
    return info.name.endswith(".dlq") and not any(held)


def with_letters(names: Iterable[str]) -> list[str]:
    """The names, each with that of its dead-letter queue, if there can be one.

    >>> with_letters(["mail", "audit.dlq"])
    ['mail', 'mail.dlq', 'audit.dlq']
    """
    told: list[str] = []
    for name in names:
        letters = f"{name}.dlq"
        fits = name and len(letters.encode()) <= MAX_NAME
        told += [name, letters] if fits and not name.endswith(".dlq") else [name]
    return list(dict.fromkeys(told))
