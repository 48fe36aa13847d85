"""An application, written down as AsyncAPI 3 wants it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from queuecraft.app import QueueCraft
from queuecraft.asyncapi.schemas import Schemas
from queuecraft.codec import Codec
from queuecraft.model.event import Event
from queuecraft.model.metadata import ConsumeMetadata
from queuecraft.model.queue import Exchange

VERSION: Final = "3.0.0"
PROTOCOLS: Final[Mapping[str, str]] = {
    "amqp": "amqp",
    "amqps": "amqps",
    "rabbitmq": "amqp",
    "redis": "redis",
    "rediss": "rediss",
    "kafka": "kafka",
    "kafkas": "kafka-secure",
}


def document(
    qc: QueueCraft,
    events: Iterable[Event[Any]] = (),
    *,
    title: str = "QueueCraft",
    version: str = "1.0.0",
    description: str | None = None,
) -> dict[str, Any]:
    """The AsyncAPI document: a channel for each event and pattern, an operation for each handler
    that receives, and one for each of the `events` that can be sent. Nothing is connected, and no
    password is told.

    >>> qc = QueueCraft()
    >>> @qc.worker("billing").on(Event("order.placed", dict[str, int]))
    ... async def charge(order: dict[str, int]) -> None:
    ...     "Charge the customer."
    >>> made = document(qc, title="Shop")
    >>> made["operations"]["billing.charge"]["summary"]
    'Charge the customer.'
    >>> made["channels"]["order.placed"]["address"]
    'order.placed'
    """
    pages = _Pages(qc)
    for event in events:
        pages.sends(event)
    for queue in qc.registry:
        for handler in queue.handlers:
            pages.receives(queue.queue, queue.exchange, handler)
    info = {"title": title, "version": version, "description": description}
    found: dict[str, Any] = {
        "asyncapi": VERSION,
        "info": {name: text for name, text in info.items() if text},
        "defaultContentType": pages.codec.content_type,
        "servers": _servers(qc.settings.url),
        "channels": pages.channels,
        "operations": pages.operations,
        "components": {"messages": pages.messages, "schemas": pages.schemas.named},
    }
    return {name: part for name, part in found.items() if part != {}}


class _Pages:
    """The parts of a document while it is written."""

    def __init__(self, qc: QueueCraft) -> None:
        settings = qc.settings
        self.codec = Codec(serializer=settings.serializer)
        self.schemas = Schemas()
        self.channels: dict[str, Any] = {}
        self.operations: dict[str, Any] = {}
        self.messages: dict[str, Any] = {}
        self._exchange = settings.default_exchange
        self._protocol = _protocol(settings.url)

    def sends(self, event: Event[Any]) -> None:
        """An event that may be published."""
        exchange = event.exchange
        name = exchange.name if isinstance(exchange, Exchange) else exchange or ""
        channel, message = self._channel(event.name, name or self._exchange.name, event.type)
        self.operations[f"publish.{channel}"] = {
            "action": "send",
            "summary": f"Publish {event.name}.",
            **_to(channel, message),
        }

    def receives(self, queue: str, exchange: str, handler: ConsumeMetadata) -> None:
        """A handler of a queue."""
        channel, message = self._channel(handler.pattern, exchange, handler.payload_type)
        name = getattr(handler.handler, "__name__", "handler")
        operation: dict[str, Any] = {"action": "receive", **_to(channel, message)}
        if told := inspect.getdoc(handler.handler):
            summary, _, more = told.partition("\n\n")
            operation["summary"] = " ".join(summary.split())
            if more:
                operation["description"] = more
        operation["tags"] = [{"name": queue}]
        if self._protocol == "kafka":
            operation["bindings"] = {"kafka": {"groupId": {"type": "string", "enum": [queue]}}}
        self.operations[_free(_key(f"{queue}.{name}"), self.operations)] = operation

    def _channel(self, pattern: str, exchange: str, payload_type: Any) -> tuple[str, str]:
        """The channel of an event or pattern, and the message on it with this payload."""
        channel = _key(pattern if exchange == self._exchange.name else f"{exchange}.{pattern}")
        found = self.channels.setdefault(channel, self._described(pattern, exchange))
        told = self._message(pattern, payload_type)
        name = _free(channel, {key: each for key, each in self.messages.items() if each != told})
        self.messages[name] = told
        found["messages"][name] = {"$ref": f"#/components/messages/{name}"}
        return channel, name

    def _described(self, pattern: str, exchange: str) -> dict[str, Any]:
        found: dict[str, Any] = {"address": pattern, "messages": {}}
        if "*" in pattern or "#" in pattern:
            found["description"] = "A pattern: `*` is one word of an event's name, `#` any number."
        if self._protocol in ("amqp", "amqps"):
            kind = self._exchange.type
            bound = {"is": "routingKey", "exchange": {"name": exchange, "type": kind}}
            found["bindings"] = {"amqp": bound}
        elif self._protocol == "kafka" and exchange == self._exchange.name:
            found["bindings"] = {"kafka": {"topic": pattern}}
        return found

    def _message(self, event: str, payload_type: Any) -> dict[str, Any]:
        return {
            "name": event,
            "contentType": self.codec.content_type_for(payload_type),
            "payload": self.schemas.of(payload_type),
        }


def _to(channel: str, message: str) -> dict[str, Any]:
    return {
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{message}"}],
    }


def _servers(url: str) -> dict[str, Any]:
    """Where the broker is, without who we are there; none for a queue in this process."""
    protocol = _protocol(url)
    if protocol is None:
        return {}
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2].split(",")
    path = parts.path.strip("/")
    return {
        f"broker-{number}" if number else "broker": {
            "host": host or "localhost",
            "protocol": protocol,
            **({"pathname": f"/{path}"} if path else {}),
        }
        for number, host in enumerate(hosts)
    }


def _protocol(url: str) -> str | None:
    return PROTOCOLS.get(url.partition("://")[0].lower())


def _key(text: str) -> str:
    """A text as the name of a part; only some letters are allowed there."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)


def _free(name: str, taken: Mapping[str, Any]) -> str:
    number = 1
    while (free := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return free
