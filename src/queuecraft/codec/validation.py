"""Is this payload what its event promises? Asked before it is sent, not when it is too late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queuecraft.codec.reason import refused, shorten
from queuecraft.codec.serializer import Check, Serializer
from queuecraft.codec.shape import classes, is_protobuf, is_untyped, type_name
from queuecraft.model.errors import PayloadError


def validator(payload_type: Any, serializer: Serializer) -> Check | None:
    """A check of a payload and the body it was encoded to; None if there is nothing to check.

    The body is read back as its receiver will read it, so that nothing is sent which would be a
    poison message later. That sounds dear and is not: msgspec reads a small message in a fifth
    of a microsecond, less than comparing the types of its fields in Python takes.

    >>> from dataclasses import dataclass
    >>> from queuecraft.codec import JsonSerializer
    >>> @dataclass
    ... class Order:
    ...     id: str
    >>> check = validator(Order, JsonSerializer())
    >>> check(Order("o-1"), b'{"id":"o-1"}')
    >>> check(Order(1), b'{"id":1}')
    Traceback (most recent call last):
    queuecraft.PayloadError: the payload does not fit Order: Expected `str`, \
got `int` - at `$.id`
    """
    if is_untyped(payload_type):
        return serializer.guard(payload_type)
    kind = kind_check(payload_type)
    if is_protobuf(payload_type):
        return lambda payload, body: kind(payload)  # its fields were checked when they were set

    exact = payload_type if isinstance(payload_type, type) else None
    decode = serializer.decoder(payload_type)

    def check(payload: Any, body: bytes) -> None:
        if type(payload) is not exact:
            kind(payload)
        try:
            decode(body)
        except (PayloadError, MemoryError):
            raise
        except Exception as error:
            _explain_loss(serializer, payload, body, error)
            raise refused(f"the payload does not fit {type_name(payload_type)}", error) from error

    return _both(check, serializer.guard(payload_type))


def kind_check(payload_type: Any) -> Callable[[Any], None]:
    """A check of a payload's class alone, which the bytes cannot tell.

    >>> kind_check(int)(3)
    >>> kind_check(int)("3")
    Traceback (most recent call last):
    queuecraft.PayloadError: the payload is of type str, expected int
    """
    accepted = classes(payload_type)
    expected = type_name(payload_type)

    def check(payload: Any) -> None:
        if accepted is not None and not isinstance(payload, accepted):
            raise PayloadError(shorten(f"the payload is of type {_told(type(payload), expected)}"))

    return check


def _both(first: Check, second: Check | None) -> Check:
    if second is None:
        return first

    def check(payload: Any, body: bytes) -> None:
        first(payload, body)
        second(payload, body)

    return check


def _explain_loss(serializer: Serializer, payload: Any, body: bytes, error: Exception) -> None:
    # "got null" is no help to someone who put NaN there: the format's own check says it better.
    guard = serializer.guard(Any)
    if guard is not None:
        try:
            guard(payload, body)
        except PayloadError as better:
            raise better from error


def _told(actual: type, expected: str) -> str:
    name = type_name(actual)
    if name == expected:  # two classes of one name: say where the wrong one lives
        name = f"{actual.__module__}.{actual.__qualname__}"
    return f"{name}, expected {expected}"
