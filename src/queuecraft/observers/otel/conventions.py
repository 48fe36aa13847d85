"""The names of OpenTelemetry for what happens to messages, and the labels of spans and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from queuecraft.model.address import bare
from queuecraft.runtime.engine import Engine

SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
GROUP: Final = "messaging.consumer.group.name"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
BATCH: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"
ADDRESS: Final = "server.address"
PORT: Final = "server.port"

EVENT: Final = "queuecraft.event"
ATTEMPT: Final = "queuecraft.attempt"
REDELIVERIES: Final = "queuecraft.redeliveries"
REASON: Final = "queuecraft.reason"
DELAY: Final = "queuecraft.delay"
STATE: Final = "queuecraft.connection.state"

OTHER: Final = "other"
REMEMBERED: Final = 1000  # names may be made of data, as in customer.4711

Value: TypeAlias = str | int | float | bool
Labels: TypeAlias = Mapping[str, Value]
Named: TypeAlias = tuple[str, Labels]
"""The name of a span, and what is known when it begins."""


class Vocabulary:
    """What spans and metrics of one QueueCraft are called. Made once for each name, and not for
    each message."""

    def __init__(self, max_names: int) -> None:
        self._max_names = max_names
        self._broker: dict[str, Value] = {SYSTEM: "queuecraft"}
        self._sent: dict[str, Named] = {}
        self._processed: dict[tuple[str, str], Named] = {}
        self._measured: dict[tuple[str, str, str | None], Labels] = {}
        self._names: set[str] = set()

    def learn(self, engine: Engine) -> None:
        """Name the broker of this engine from now on."""
        self._broker = broker(engine)
        for known in (self._sent, self._processed, self._measured, self._names):
            known.clear()

    @property
    def broker(self) -> Labels:
        """What is the same for all."""
        return self._broker

    def sent(self, name: str) -> Named:
        """Of the span of a publish."""
        found = self._sent.get(name)
        if found is None:
            found = (
                f"send {name}",
                {
                    **self._broker,
                    OPERATION_NAME: "send",
                    OPERATION_TYPE: "send",
                    DESTINATION: name,
                },
            )
            if len(self._sent) < REMEMBERED:
                self._sent[name] = found
        return found

    def processed(self, queue: str, event: str) -> Named:
        """Of the span of a handler."""
        found = self._processed.get((queue, event))
        if found is None:
            found = (
                f"process {queue}",
                {
                    **self._broker,
                    OPERATION_NAME: "process",
                    OPERATION_TYPE: "process",
                    DESTINATION: queue,
                    GROUP: queue,
                    EVENT: event,
                },
            )
            if len(self._processed) < REMEMBERED:
                self._processed[queue, event] = found
        return found

    def measured(self, operation: str, name: str, error: str | None = None) -> Labels:
        """Of a metric: few enough to count by."""
        found = self._measured.get((operation, name, error))
        if found is None:
            place = self.counted(name)
            labels: dict[str, Value] = {
                **self._broker,
                OPERATION_NAME: operation,
                OPERATION_TYPE: operation,
                DESTINATION: place,
            }
            if operation != "send":
                labels[GROUP] = place
            if error is not None:
                labels[ERROR_TYPE] = error
            found = labels
            if len(self._measured) < REMEMBERED:
                self._measured[operation, name, error] = found
        return found

    def counted(self, name: str) -> str:
        """The name, while there are not too many; then the one that the rest share."""
        if name in self._names:
            return name
        if len(self._names) >= self._max_names:
            return OTHER
        self._names.add(name)
        return name


def broker(engine: Engine) -> dict[str, Value]:
    """What spans say of a broker: its kind, and the first of its hosts."""
    labels: dict[str, Value] = {SYSTEM: engine.connection.traits.name}
    if labels[SYSTEM] == "local":
        return {SYSTEM: "queuecraft"}  # the broker is this library
    hosts = urlsplit(bare(engine.settings.url)).netloc.split(",")
    first = urlsplit(f"//{hosts[0]}")
    if first.hostname:
        labels[ADDRESS] = first.hostname
    if first.port is not None:
        labels[PORT] = first.port
    return labels


def error_type(error: BaseException) -> str:
    """How an error is counted: by its class.

    >>> error_type(ValueError("o-1"))
    'ValueError'
    """
    kind = type(error)
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"
