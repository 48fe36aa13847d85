"""Messages that stay where they are when they have been read, each at an offset of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

from queuecraft.drivers.base import Delivery
from queuecraft.model.errors import ConfigError, UnsupportedFeature
from queuecraft.model.settings import Settings

Offset: TypeAlias = dict[str, Any]
"""How far a query has read; Spark keeps it in its checkpoint, as JSON."""

EARLIEST, LATEST = "earliest", "latest"

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "redis": "queuecraft.pipeline.source.redis:RedisLog",
        "rediss": "queuecraft.pipeline.source.redis:RedisLog",
        "kafka": "queuecraft.pipeline.source.kafka:KafkaLog",
        "kafkas": "queuecraft.pipeline.source.kafka:KafkaLog",
    }
)
"""Which brokers have such messages, by the scheme of their URLs; loaded when it is first used."""


class Log(ABC):
    """The log of one queue or event. The checkpoint of a query is all that remembers where it is:
    nothing is acknowledged, and reading the same range again gives the same messages."""

    events: ClassVar[bool] = False
    """Whether events are kept by themselves, apart from the queues that they are for."""

    def __init__(
        self, settings: Settings, name: str, *, event: bool = False, strict: bool = True
    ) -> None:
        self.settings = settings
        self.name = name
        self.event = event
        """Whether it is the log of an event; else that of a queue."""
        self.strict = strict
        """Whether messages that were deleted before they were read are an error."""

    @abstractmethod
    async def open(self) -> None:
        """Connect; may be called again after a `ConnectionLost`."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""

    @abstractmethod
    async def at(self, where: str) -> Offset:
        """The offset that a user has named: `earliest`, `latest`, or one of the log's own."""

    @abstractmethod
    async def after(self, start: Offset, rows: int | None, until: Offset | None) -> Offset:
        """Where a batch ends that begins after `start` and has no more than so many rows; never
        beyond `until`. The same as `start` if there is nothing new."""

    @abstractmethod
    def ranges(self, start: Offset, end: Offset) -> Sequence[tuple[Offset, Offset]]:
        """What lies between two offsets, in parts that can be read each by itself."""

    @abstractmethod
    def read(self, start: Offset, end: Offset) -> AsyncGenerator[Sequence[Delivery]]:
        """The messages after `start`, up to and with `end`, some at a time."""

    @abstractmethod
    def moment(self, delivery: Delivery) -> float:
        """When a message came into the log, which is always the same."""


def log_of(settings: Settings, name: str, *, event: bool = False, strict: bool = True) -> Log:
    """The log of that name at a broker, not yet open.

    >>> log_of(Settings(url="redis://cache/0?mode=stream"), "billing").name
    'billing'
    >>> log_of(Settings(url="amqp://rabbit"), "billing")
    Traceback (most recent call last):
    queuecraft.UnsupportedFeature: amqp:// keeps no messages that ...
    """
    scheme = settings.url.partition("://")[0].lower()
    if scheme not in BUILT_IN:
        raise UnsupportedFeature(
            f"{scheme}:// keeps no messages that were read, so a query could not begin where it "
            "stopped; capture the queue into a lake, and read that: queuecraft lake capture",
            queue=name,
        )
    module, name_of_kind = BUILT_IN[scheme].split(":")
    try:
        kind: type[Log] = getattr(import_module(module), name_of_kind)
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise ConfigError(
            "kafka:// needs the package confluent-kafka; run: pip install 'queuecraft[kafka]'"
        ) from None
    if event and not kind.events:
        raise UnsupportedFeature(
            f"{scheme}:// keeps events only in the queues that are bound to them; name one: "
            ".option('stream', …)"
        )
    return kind(settings, name, event=event, strict=strict)
