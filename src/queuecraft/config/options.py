"""What `QueueCraft` takes when its settings come from elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

from queuecraft.clock import Clock
from queuecraft.codec import Compressors, Serializers
from queuecraft.drivers.base import Driver
from queuecraft.drivers.registry import Drivers
from queuecraft.middleware.breaker import Breaker
from queuecraft.model.settings import SettingsOptions
from queuecraft.runtime.handler import Middleware
from queuecraft.runtime.publication import PublishMiddleware


class Parts(TypedDict, total=False):
    """What a QueueCraft is made of, beside its settings."""

    drivers: Drivers | Sequence[Driver] | None
    serializers: Serializers | None
    compressors: Compressors | None
    middleware: Iterable[Middleware]
    publish_middleware: Iterable[PublishMiddleware]
    breaker: Breaker | None
    logger: logging.Logger | None
    clock: Clock | None


class Options(Parts, SettingsOptions, total=False):
    """Both, as keywords."""

    url: str | None


def parted(options: Options) -> tuple[Parts, dict[str, Any]]:
    """The parts, and the settings with the parts that they choose from.

    >>> parted({"clock": None, "ttl": 60})
    ({'clock': None}, {'ttl': 60})
    """
    parts: Any = {name: value for name, value in options.items() if name in Parts.__annotations__}
    settings = {name: value for name, value in options.items() if name not in parts}
    for name in ("serializers", "compressors"):
        if parts.get(name) is not None:
            settings[name] = parts[name]
    return parts, settings
