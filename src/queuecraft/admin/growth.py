"""Dead letters that have come between two looks."""

from __future__ import annotations

from collections.abc import Sequence

from queuecraft.admin.overview import QueueRow


def held(row: QueueRow) -> int:
    """How many messages are in a queue, also while somebody has them in hand: a redrive takes all
    and gives back what it does not mean."""
    return (row.ready or 0) + (row.in_flight or 0)


def growth(before: Sequence[QueueRow], now: Sequence[QueueRow]) -> dict[str, int]:
    """How many more there are in each queue that holds dead letters. Not told while somebody
    takes from it: not every broker says at once what is in hand.

    >>> rows = [QueueRow(name="billing.dlq", ready=n, holds_dead_letters=True) for n in (3, 5)]
    >>> growth(rows[:1], rows[1:])
    {'billing.dlq': 2}
    """
    if not before:
        return {}  # whatever there is may have been there for long
    old = {row.name: row for row in before}
    found: dict[str, int] = {}
    for row in now:
        last = old.get(row.name)
        if row.holds_dead_letters and not row.consumers and not (last and last.consumers):
            more = held(row) - (held(last) if last else 0)
            if more > 0:
                found[row.name] = more
    return found
