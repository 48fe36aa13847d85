"""The failures of a message so far, a line each: in a header that stays small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from queuecraft.codec.headers import ATTEMPTS, trim

KEPT: Final = 10  # the last of them
LONGEST: Final = 120  # bytes of one


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """One that failed: when (milliseconds since 1970), the how-manieth it was, and why."""

    at: int
    attempt: int
    error: str

    @classmethod
    def of(cls, now: float, attempt: int, error_type: str, error: str) -> Attempt:
        """A failure in a line.

        >>> Attempt.of(1.5, 2, "shop.bank.Declined", "no money\\nnone at all")
        Attempt(at=1500, attempt=2, error='Declined: no money')
        """
        kind, lines = error_type.rpartition(".")[2], error.strip().splitlines()
        said = ": ".join(filter(None, (kind, *lines[:1])))
        return cls(int(now * 1000), attempt, trim(said, LONGEST))


def attempts(headers: Mapping[str, Any]) -> tuple[Attempt, ...]:
    """What a header tells; whatever somebody else put there tells nothing.

    >>> attempts({"x-attempts": '[[1500,1,"Declined"]]'}), attempts({"x-attempts": "[[]]"})
    ((Attempt(at=1500, attempt=1, error='Declined'),), ())
    """
    value = headers.get(ATTEMPTS)
    if not isinstance(value, str | bytes):
        return ()
    try:
        told = _decoder.decode(value)[-KEPT:]
    except (msgspec.MsgspecError, ValueError, RecursionError):  # also of bytes that are no text
        return ()
    return tuple(Attempt(each.at, each.attempt, trim(each.error, LONGEST)) for each in told)


def and_one_more(headers: Mapping[str, Any], attempt: Attempt) -> str:
    """The header once another has failed."""
    return _encoder.encode((*attempts(headers), attempt)[-KEPT:]).decode()


_decoder = msgspec.json.Decoder(tuple[Attempt, ...])
_encoder = msgspec.json.Encoder()
