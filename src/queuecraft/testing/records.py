"""All that was published in a test, to be asked for by event or queue."""

from __future__ import annotations

from typing import Any, overload

from queuecraft.model.event import Event
from queuecraft.model.queue import Queue
from queuecraft.model.routing import topic_matches
from queuecraft.model.types import T
from queuecraft.testing.record import Record


class Records(list[Record]):
    """Everything published and sent, in order.

    >>> Records().published("order.*")
    []
    """

    @overload
    def published(self, event: Event[T]) -> list[T]: ...
    @overload
    def published(self, event: str) -> list[Any]: ...
    def published(self, event: Event[Any] | str) -> list[Any]:
        """The payloads published as this event, in order; a string may have wildcards."""
        if isinstance(event, str):
            return [
                record.payload
                for record in self
                if record.queue is None and topic_matches(event, record.event)
            ]
        return [
            record.payload_as(event.type)
            for record in self
            if record.queue is None and record.event == event.name
        ]

    @overload
    def sent(self, queue: Queue[T]) -> list[T]: ...
    @overload
    def sent(self, queue: str) -> list[Any]: ...
    def sent(self, queue: Queue[Any] | str) -> list[Any]:
        """The payloads sent to this queue, in order."""
        name, kind = (queue, None) if isinstance(queue, str) else (queue.name, queue.type)
        return [record.payload_as(kind) for record in self if record.queue == name]
