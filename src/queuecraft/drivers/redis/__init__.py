"""Redis, by a small client made for batches: lists, streams or pub/sub."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs

from queuecraft.drivers.base import Driver
from queuecraft.drivers.redis.address import addresses
from queuecraft.drivers.redis.driver import ForgetfulDriver, PubsubDriver, RedisDriver, StreamDriver
from queuecraft.drivers.target import Target
from queuecraft.model.errors import ConfigError

__all__ = ["ForgetfulDriver", "PubsubDriver", "RedisDriver", "StreamDriver", "drivers"]

log: Final = logging.getLogger("queuecraft")

MODES: Final[Mapping[str, type[RedisDriver]]] = {
    "list": RedisDriver,
    "pubsub": PubsubDriver,
    "stream": StreamDriver,
}
UNSAID: Final = (
    "redis: no mode is set, so events go by pub/sub, which keeps none for workers that are not "
    "running; say what you want: redis_mode='list' or mode=list in the URL ('stream', 'pubsub')"
)


class UnchosenDriver(PubsubDriver):
    """Pub/sub for those who have not said what they want. It is told to the log when the broker is
    first reached, and not before: an application has a log by then."""

    _told = False

    async def open(self) -> None:
        if not self._told:
            self._told = True
            log.warning("%s", UNSAID)
        await super().open()


def drivers(target: Target) -> Sequence[Driver]:
    """A driver for each host of a `redis://` or `rediss://` URL; with Sentinel, one."""
    mode = _mode(target)
    kind = UnchosenDriver if mode is None else MODES[mode]
    if target.settings.redis_delivery == "at-most-once":
        if mode == "stream":
            raise ConfigError(
                "redis_delivery='at-most-once' is for lists; a stream keeps what it delivers: "
                "leave it out, or use mode=list"
            )
        kind = ForgetfulDriver if mode == "list" else kind
    return [kind(target, address) for address in addresses(target.url)]


def _mode(target: Target) -> str | None:
    said = parse_qs(target.url.partition("?")[2]).get("mode", [])
    mode = said[-1] if said else target.settings.redis_mode
    if mode is None:
        warnings.warn(UNSAID, DeprecationWarning, stacklevel=_level_of_caller())
    elif mode not in MODES:
        raise ConfigError(f"mode={mode!r}: expected one of {', '.join(map(repr, MODES))}")
    return mode


def _level_of_caller() -> int:
    """How far above `_mode` the line is that is not ours: Python shows this warning for the lines
    of the program itself only, and an app is made in more than one way."""
    level, frame = 1, inspect.currentframe()
    while frame := frame and frame.f_back:
        if frame.f_globals.get("__name__", "").partition(".")[0] != "queuecraft":
            break
        level += 1
    return level
