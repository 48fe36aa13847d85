"""Which driver serves which URL; a driver's module is imported when its scheme is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import TypeAlias

from queuecraft.drivers.base import Driver
from queuecraft.drivers.target import Target
from queuecraft.model.errors import ConfigError
from queuecraft.model.masking import SCHEME

Factory: TypeAlias = Callable[[Target], Sequence[Driver]]
"""Makes one driver for each host of a target's URL, in the order they should be tried."""

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "local": "queuecraft.drivers.local:drivers",
        "amqp": "queuecraft.drivers.rabbitmq:drivers",
        "amqps": "queuecraft.drivers.rabbitmq:drivers",
        "redis": "queuecraft.drivers.redis:drivers",
        "rediss": "queuecraft.drivers.redis:drivers",
        "kafka": "queuecraft.drivers.kafka:drivers",
        "kafkas": "queuecraft.drivers.kafka:drivers",
    }
)

NEEDED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "amqp": ("pamqp", "rabbitmq"),
        "amqps": ("pamqp", "rabbitmq"),
        "redis": ("hiredis", "redis"),
        "rediss": ("hiredis", "redis"),
        "kafka": ("confluent_kafka", "kafka"),
        "kafkas": ("confluent_kafka", "kafka"),
    }
)
"""The module that a scheme cannot do without, and the extra that brings it."""


class Drivers:
    """The schemes an app knows. A driver of your own is added by its scheme.

    >>> "local" in Drivers().schemes
    True
    >>> Drivers().create(Target("carrier-pigeon://roof"))
    Traceback (most recent call last):
    queuecraft.ConfigError: 'carrier-pigeon://' is no known broker; use one of ...local://...
    """

    def __init__(self) -> None:
        self._factories: dict[str, str | Factory] = dict(BUILT_IN)

    @property
    def schemes(self) -> frozenset[str]:
        """Every scheme there is a driver for."""
        return frozenset(self._factories)

    def add(self, scheme: str, factory: Factory) -> None:
        """Serve URLs of this scheme with the drivers the factory makes."""
        if not SCHEME.fullmatch(scheme):
            raise ConfigError(f"scheme {scheme!r}: expected what comes before '://', as 'redis'")
        self._factories[scheme.lower()] = factory

    def create(self, target: Target) -> Sequence[Driver]:
        """The drivers for a target's URL, not yet opened: one for each host."""
        scheme, found, _ = target.url.partition("://")
        factory = self._factories.get(scheme.lower()) if found else None
        if factory is None:
            raise ConfigError(self._refusal(scheme if found else ""))
        if isinstance(factory, str):
            factory = self._factories[scheme.lower()] = _loaded(scheme.lower(), factory)
        return factory(target)

    def _refusal(self, scheme: str) -> str:
        known = ", ".join(f"{name}://" for name in sorted(self._factories))
        # Shown only if it is a scheme: anything else may hold a password.
        what = f"'{scheme}://'" if SCHEME.fullmatch(scheme) else "the url"
        return f"{what} is no known broker; use one of {known}"


def _loaded(scheme: str, place: str) -> Factory:
    module, name = place.split(":")
    try:
        loaded: Factory = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        needed, extra = NEEDED.get(scheme, ("", ""))
        if (error.name or "").partition(".")[0] != needed:
            raise
        package = needed.replace("_", "-")
        raise ConfigError(
            f"{scheme}:// needs the package {package}; run: pip install 'queuecraft[{extra}]'"
        ) from None
    return loaded
