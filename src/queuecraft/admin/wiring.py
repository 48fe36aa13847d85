"""Which exchange is meant by a name, and what binds a queue to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuecraft.drivers.base import Binding, Driver, Exchange
from queuecraft.model.errors import ConfigError, UnsupportedFeature
from queuecraft.model.naming import check_name
from queuecraft.model.queue import ExchangeType


class Wiring:
    """The exchanges of a broker, for those who bind queues by hand."""

    def __init__(self, driver: Driver, default: Exchange) -> None:
        self._driver = driver
        self._default = default

    async def exchange(
        self, given: Exchange | str | None, kind: ExchangeType | None = None
    ) -> Exchange:
        """The exchange meant: by its name the one that exists, or else one like the default, or of
        a certain type."""
        default = self._default
        name = default.name if given is None else given
        if isinstance(name, str):
            known = (await self._driver.topology()).exchanges
            like = default if name == default.name else Exchange(name, kind or default.type)
            name = next((each for each in known if each.name == name), like)
        self.check(name)
        return name

    def check(self, exchange: Exchange) -> None:
        """Raise `UnsupportedFeature` if the broker has none of this type."""
        traits = self._driver.traits
        if exchange.type not in traits.exchange_types:
            raise UnsupportedFeature(
                f"this broker has no {exchange.type} exchanges, as {exchange.name!r} is to be; "
                f"it has {', '.join(sorted(traits.exchange_types))}",
                broker=traits.name,
            )

    async def bindings(
        self,
        patterns: Sequence[str],
        given: Exchange | str | None,
        headers: Mapping[str, Any] | None,
    ) -> list[Binding]:
        """What gives a queue the events of these patterns, or with these headers."""
        exchange = await self.exchange(given, "headers" if headers else None)
        if headers and exchange.type != "headers":
            raise ConfigError(
                "only a headers exchange looks at headers, and there is "
                f"{exchange.name!r} of type {exchange.type}; name another exchange"
            )
        return bindings(exchange, patterns, headers)


def bindings(
    exchange: Exchange, patterns: Sequence[str], headers: Mapping[str, Any] | None = None
) -> list[Binding]:
    """Bindings to an exchange, if there are events, with good names. An exchange that does not ask
    for events gives all it has, as to a handler of everything.

    >>> [each.pattern for each in bindings(Exchange("news", "fanout"), ())]
    ['#']
    """
    if not patterns and exchange.type in ("headers", "fanout"):
        patterns = ("#",)
    if not patterns:
        raise ConfigError("say which events: a name as 'order.placed', or a pattern 'order.*'")
    for pattern in patterns:
        check_name("event", pattern)
    return [Binding(exchange, pattern, dict(headers or {})) for pattern in patterns]
