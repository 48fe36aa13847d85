"""The context of a trace in the headers of a message."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter, TextMapPropagator

from queuecraft.model.types import Headers

LONGEST = 16_384  # characters of a header that is looked into; anybody may have written it


class _Reading(Getter[Mapping[str, Any]]):
    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        value = carrier.get(key)
        if isinstance(value, bytes):  # a sender of Kafka's has nothing else
            value = value.decode("utf-8", "replace")
        return [value] if isinstance(value, str) and len(value) <= LONGEST else None

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        return list(carrier)


class _Writing(Setter[MutableMapping[str, Any]]):
    def set(self, carrier: MutableMapping[str, Any], key: str, value: str) -> None:
        carrier[key] = value


_READING, _WRITING = _Reading(), _Writing()


class Carrier:
    """Writes contexts into headers, and reads them, as its propagator says."""

    def __init__(self, propagator: TextMapPropagator) -> None:
        self._propagator = propagator
        self._names = frozenset(propagator.fields)
        self._read: tuple[list[Any], Context] = [], Context()

    def read(self, headers: Headers) -> Context:
        """The context that a message brings; an empty one if none. What was there before, such as
        the span in which a worker was started, is not its parent."""
        if not headers or self._names.isdisjoint(headers):
            return Context()
        given = [headers.get(name) for name in self._names]
        last, context = self._read
        if given != last:  # what was published together has the same
            context = self._propagator.extract(headers, Context(), _READING)
            self._read = given, context
        return context

    def write(self, context: Context | None = None) -> dict[str, str]:
        """The headers that carry a context on; that of the caller, if none is given."""
        headers: dict[str, str] = {}
        self._propagator.inject(headers, context, _WRITING)
        return headers

    def carries(self, headers: Headers) -> bool:
        """Whether somebody has written a context already."""
        return bool(headers) and not self._names.isdisjoint(headers)
