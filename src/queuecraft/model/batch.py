"""How a handler of batches says which of its messages have failed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from queuecraft.model.errors import ConfigError
from queuecraft.model.message import Message

Named = TypeVar("Named", bound="int | Message[Any]")


class BatchFailed(Exception):
    """Raise it in a handler of batches to fail some of its messages and no others.

    What failed is named by its place in the list, or by its message, each with its own error.

    >>> raise BatchFailed({0: ValueError("no money"), 7: TimeoutError("the bank does not answer")})
    Traceback (most recent call last):
    queuecraft.BatchFailed: 2 messages of a batch failed; the first: ValueError('no money')
    """

    def __init__(self, errors: Mapping[Named, BaseException]) -> None:
        given: object = errors
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"BatchFailed takes errors by place or message, as {{0: error}}, not {given!r}"
            )
        named: dict[int | Message[Any], BaseException] = {}
        for which, error in errors.items():
            if not isinstance(error, BaseException):
                raise ConfigError(f"BatchFailed({{{which!r}: {error!r}}}): expected an exception")
            named[which] = error
        super().__init__(named)
        self.errors: Mapping[int | Message[Any], BaseException] = MappingProxyType(named)
        """What failed, and why."""

    def __str__(self) -> str:
        count = "1 message" if len(self.errors) == 1 else f"{len(self.errors)} messages"
        first = next(iter(self.errors.values()), None)
        return f"{count} of a batch failed" + ("" if first is None else f"; the first: {first!r}")


BatchFailed.__module__ = "queuecraft"  # as its user imports it
