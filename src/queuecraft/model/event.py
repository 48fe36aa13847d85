"""Something that happened: a name and the type of what it carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from queuecraft.model.errors import ConfigError
from queuecraft.model.naming import check_name
from queuecraft.model.types import T

if TYPE_CHECKING:
    from queuecraft.model.queue import Exchange


class Event(Generic[T]):
    """Names a routing key and the type of its payload; `publish` and `on` are checked against it.

    `key` gives each message the key that `ordering="key"` keeps in order.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Order:
    ...     id: str
    ...     total: float
    >>> order_placed = Event("order.placed", Order, key=lambda order: order.id)
    >>> order_placed
    Event('order.placed', Order)
    """

    __slots__ = ("exchange", "key", "name", "type")

    def __init__(
        self,
        name: str,
        type: type[T] | None = None,
        *,
        key: Callable[[T], str] | None = None,
        exchange: Exchange | str | None = None,
    ) -> None:
        check_name("event", name)
        if "*" in name.split(".") or "#" in name.split("."):
            msg = f"event {name!r} has a wildcard; pass patterns to worker.on() as plain strings"
            raise ConfigError(msg)
        self.name = name
        self.type: Any = Any if type is None else type
        self.key = key
        self.exchange = exchange

    def __repr__(self) -> str:
        if self.type is Any:
            return f"Event({self.name!r})"
        return f"Event({self.name!r}, {getattr(self.type, '__name__', self.type)})"
