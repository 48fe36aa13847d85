"""Dead letters as a person sees them: a line each, and found by the start of an id."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from queuecraft.cli.exits import UnknownMessage
from queuecraft.model.errors import ConfigError
from queuecraft.runtime.dead_letters import DeadMessage, FailureGroup

SHORT = 8  # characters of an id on a terminal, unless two begin alike
NAMED = 5  # ids told where several are possible


def cause(letter: DeadMessage | FailureGroup) -> str:
    """Why it failed, as short as it can be said.

    >>> cause(DeadMessage(id="m", queue="q", event="e", error_type="shop.NoMoney", error="0 left"))
    'NoMoney: 0 left'
    >>> cause(DeadMessage(id="m", queue="q", event="e", reason="expired"))
    'expired'
    """
    kind = letter.error_type.rpartition(".")[2]
    said = ": ".join(filter(None, (kind, " ".join(letter.error.split()))))
    return said or letter.reason


def whole_error(letter: DeadMessage | FailureGroup) -> str:
    """The error with its full type."""
    return f"{letter.error_type}: {letter.error}" if letter.error_type else letter.error


def counted(letters: int) -> str:
    """So many of them.

    >>> counted(1), counted(1200)
    ('1 dead letter', '1,200 dead letters')
    """
    return f"{letters:,} dead letter{'' if letters == 1 else 's'}"


def none_of(queue: str, *, filtered: bool = False) -> str:
    """That there is nothing to be seen.

    >>> none_of("billing")
    "'billing' has no dead letters."
    """
    return "No dead letter was chosen." if filtered else f"{queue!r} has no dead letters."


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
