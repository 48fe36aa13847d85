"""Dead letters as a person sees them: a line each, found by the start of an id, or in groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from queuecraft.cli.exits import UnknownMessage
from queuecraft.model.errors import ConfigError
from queuecraft.runtime.dead_letters import DeadMessage

SHORT = 8  # characters of an id on a terminal, unless two begin alike
NAMED = 5  # ids told where several are possible


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters that failed alike."""

    fingerprint: str
    count: int
    first: datetime | None
    last: datetime | None
    example: DeadMessage


def grouped(letters: Iterable[DeadMessage]) -> list[Group]:
    """The groups of like failures, the largest first; the last to fail is the example.

    >>> lost, late = (
    ...     DeadMessage(id=each, queue="billing", event="order.placed", error_type=each)
    ...     for each in ("KeyError", "TimeoutError")
    ... )
    >>> [(each.example.id, each.count) for each in grouped([lost, late, late])]
    [('TimeoutError', 2), ('KeyError', 1)]
    """
    found: dict[str, list[DeadMessage]] = {}
    for letter in letters:
        found.setdefault(letter.fingerprint, []).append(letter)
    groups: list[Group] = []
    for fingerprint, alike in found.items():
        times = [each.failed_at for each in alike if each.failed_at is not None]
        first, last = (min(times), max(times)) if times else (None, None)
        groups.append(Group(fingerprint, len(alike), first, last, alike[-1]))
    return sorted(groups, key=lambda group: -group.count)


def cause(letter: DeadMessage) -> str:
    """Why it failed, as short as it can be said.

    >>> cause(DeadMessage(id="m", queue="q", event="e", error_type="shop.NoMoney", error="0 left"))
    'NoMoney: 0 left'
    >>> cause(DeadMessage(id="m", queue="q", event="e", reason="expired"))
    'expired'
    """
    kind = letter.error_type.rpartition(".")[2]
    said = ": ".join(filter(None, (kind, " ".join(letter.error.split()))))
    return said or letter.reason


def whole_error(letter: DeadMessage) -> str:
    """The error with its full type."""
    return f"{letter.error_type}: {letter.error}" if letter.error_type else letter.error


def shortened(ids: Sequence[str]) -> list[str]:
    """Ids cut to where they still differ, at eight characters or later.

    >>> shortened(["4f0c1e5b77aa", "91d2c33e0baa"]), shortened(["customer-1", "customer-2"])
    (['4f0c1e5b', '91d2c33e'], ['customer-1', 'customer-2'])
    """
    length = SHORT
    different = len(set(ids))
    while len({each[:length] for each in ids}) < different:
        length += 1
    return [each[:length] for each in ids]


def found(given: Iterable[str], known: Collection[str], queue: str) -> frozenset[str]:
    """The ids that were meant, each given whole or by a beginning that only it has.

    >>> sorted(found(["4f0"], {"4f0c1e5b", "91d2c33e"}, "billing"))
    ['4f0c1e5b']
    """
    return frozenset(_one(each, known, queue) for each in given)


def _one(given: str, known: Collection[str], queue: str) -> str:
    if given in known:
        return given
    alike = sorted(each for each in known if given and each.startswith(given))
    if not alike:
        raise UnknownMessage(
            f"there is no dead letter {given!r}; queuecraft dlq list shows those there are",
            queue=queue,
            message_id=given,
        )
    if len(alike) > 1:
        more = f" and {len(alike) - NAMED:,} more" if len(alike) > NAMED else ""
        names = ", ".join(map(repr, alike[:NAMED]))
        raise ConfigError(
            f"{len(alike):,} dead letters begin with {given!r}: {names}{more}; give more of the id",
            queue=queue,
        )
    return alike[0]
