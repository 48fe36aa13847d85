"""What a value may be, and how a wrong one is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import inf, isfinite
from typing import Any

from queuecraft.model.errors import ConfigError
from queuecraft.model.masking import masked
from queuecraft.model.naming import check_name
from queuecraft.model.policy import is_number, is_whole

LONGEST = 60
"""Characters of a wrong value that are shown."""

MOST = 20
"""Wrong values that are listed, so that a file of another kind does not fill the screen."""

_NOTHING = ("", "none", "None", "NONE")


@dataclass(frozen=True, slots=True)
class Check:
    """Whether a value will do, what is expected of it, and how it is read from text.

    >>> SECONDS.will_do(0)
    False
    >>> SECONDS.wants("30.0")
    'expected seconds above 0, such as 2.5 (default 30.0)'
    >>> or_none(SECONDS).wants("None", nothing="none")  # in a variable
    'expected seconds above 0, or none, such as 2.5 (default none)'
    """

    will_do: Callable[[Any], bool]
    expected: str
    example: str = ""
    read: Callable[[str], object] = str
    secret: bool = False  # a wrong value is not shown
    fault: Callable[[Any], str | None] | None = None  # more than that it is not what is expected
    optional: bool = False  # None will do too

    def wants(self, default: str, *, nothing: str = "None") -> str:
        """What to say of a value that will not do, where None is written so; empty: cannot be."""
        unset = f", or {nothing}" if self.optional and nothing else ""
        example = f", such as {self.example}" if self.example else ""
        return f"expected {self.expected}{unset}{example} (default {_default(default, nothing)})"

    def complaint(
        self, value: object, default: str, said: str, place: str = "", *, nothing: str = "None"
    ) -> str:
        """What to say of it, with the name it was given by and where that was.

        >>> SECONDS.complaint(0, "30.0", "timeout", "queuecraft.toml")
        'timeout=0 in queuecraft.toml: expected seconds above 0, such as 2.5 (default 30.0)'
        """
        where = f" in {place}" if place else ""
        if self.fault is not None:
            return f"{said}{where} {self.fault(value)} (default {_default(default, nothing)})"
        picture = "" if self.secret else f"={shown(value)}"
        return f"{said}{picture}{where}: {self.wants(default, nothing=nothing)}"


def _default(default: str, nothing: str) -> str:
    return (nothing or "none") if default == "None" else default


def refusal(problems: Sequence[str]) -> ConfigError:
    """One error that names everything that is wrong, a line each.

    >>> print(refusal(["ttl=0: expected …", "exchange='': expected …"]))
    2 settings are wrong:
      ttl=0: expected …
      exchange='': expected …
    """
    if len(problems) == 1:
        return ConfigError(problems[0])
    lines = [f"{len(problems)} settings are wrong:", *problems[:MOST]]
    if len(problems) > MOST:
        lines.append(f"and {len(problems) - MOST} more")
    return ConfigError("\n  ".join(lines))


def shown(value: object) -> str:
    """A wrong value as an error shows it: short, harmless, and without the password of a URL.

    >>> shown("many"), shown("amqp://ada:secret@host"), shown([1, 2])
    ("'many'", "'amqp://ada:***@host'", 'a list')
    """
    if isinstance(value, str):
        safe = masked(value) if "@" in value or "://" in value else value
        return repr(safe if len(safe) <= LONGEST else safe[:LONGEST] + "…")
    if isinstance(value, (bool, float, type(None))):
        return repr(value)
    if isinstance(value, int) and abs(value) < 10**LONGEST:
        return repr(value)
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def nearest(name: str, known: Iterable[str]) -> str:
    """What to say of a name there is none of.

    >>> nearest("dealy", ["delay", "ttl"]), nearest("colour", ["delay", "ttl"])
    ("did you mean 'delay'?", 'known: delay, ttl')
    """
    names = list(known)
    close = get_close_matches(name, names, 1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"


# -- the usual kinds -------------------------------------------------------------------------------


def whole(least: int, expected: str, example: str, most: int = 2**63 - 1) -> Check:
    """A count, with its bounds."""

    def will_do(value: Any) -> bool:
        return is_whole(value) and least <= value <= most

    return Check(will_do, expected, example, _number(int))


def number(least: float, expected: str, example: str, most: float = inf) -> Check:
    """A number that need not be whole, with its bounds."""

    def will_do(value: Any) -> bool:
        return _finite(value) and least <= value <= most

    return Check(will_do, expected, example, _number(float))


def one_of(*allowed: str) -> Check:
    """One of a few words."""
    return Check(
        lambda value: isinstance(value, str) and value in allowed,
        "one of " + ", ".join(map(repr, allowed)),
    )


def text(expected: str, example: str, *, secret: bool = False) -> Check:
    """Any text that can be sent to a broker, or nothing. "none" is a text like any other here:
    somebody's password may be just that."""
    return Check(
        lambda value: value is None or _is_text(value),
        expected,
        example,
        lambda text: text or None,
        secret,
    )


def instance(*kinds: type, expected: str) -> Check:
    """A value of the user's own making."""
    return Check(lambda value: isinstance(value, kinds), expected)


def or_none(check: Check) -> Check:
    """The same, or nothing."""
    return replace(
        check,
        will_do=lambda value: value is None or check.will_do(value),
        read=lambda text: None if text in _NOTHING else check.read(text),
        optional=True,
    )


def truth(text: str) -> object:
    """True or False, as people write it; the text itself if it is neither.

    >>> truth("yes"), truth("OFF"), truth("maybe")
    (True, False, 'maybe')
    """
    word = text.lower()
    if word in ("true", "1", "yes", "on"):
        return True
    return False if word in ("false", "0", "no", "off") else text


def _number(kind: Callable[[str], object]) -> Callable[[str], object]:
    def read(text: str) -> object:
        try:
            return kind(text)
        except ValueError:
            return text  # which is no number, and refused as such

    return read


def _finite(value: Any) -> bool:
    try:
        return is_number(value) and isfinite(value)
    except OverflowError:  # a whole number too large for a timer
        return False


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or not value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half a character, from an environment that is not UTF-8
        return False
    return True


def _is_name(value: object) -> bool:
    try:
        check_name("exchange", value)
    except ConfigError:
        return False
    return True


# A timer cannot be set to infinity, and no clock lives that long.
SECONDS = Check(
    lambda value: _finite(value) and value > 0, "seconds above 0", "2.5", _number(float)
)
FROM_ZERO = whole(0, "a whole number from 0 on", "5")
FROM_ONE = whole(1, "a whole number from 1 on", "8")
FLAG = Check(lambda value: isinstance(value, bool), "true or false", read=truth)
NAME = Check(_is_name, "a name of 1 to 255 bytes", "'orders'")
