"""Trouble on purpose, for tests: handlers that fail, and messages that come twice."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

from queuecraft.model.errors import ConfigError
from queuecraft.model.message import Message
from queuecraft.model.outcome import Postponed
from queuecraft.model.policy import is_number
from queuecraft.runtime.handler import Handle


class InducedFailure(Exception):
    """What `RandomFail` raises unless told otherwise."""


class RandomFail:
    """Lets a share of all messages fail before their handler sees them.

    >>> from queuecraft import QueueCraft
    >>> QueueCraft().use(RandomFail(0.1, seed=7))
    """

    def __init__(
        self,
        rate: float,
        error: Callable[[], Exception] = InducedFailure,
        *,
        seed: int | None = None,
    ) -> None:
        self._rate = _share("RandomFail", rate)
        self._error = error
        self._random = random.Random(seed)

    def __call__(self, handle: Handle) -> Handle:
        def failing(message: Message[Any]) -> Awaitable[object]:
            if self._random.random() < self._rate:
                raise self._error()
            return handle(message)

        return failing


class Duplicator:
    """Handles a share of all messages twice, as every broker does after a lost connection.

    >>> from queuecraft import QueueCraft
    >>> QueueCraft().use(Duplicator(0.1, seed=7))
    """

    def __init__(self, rate: float = 1.0, *, seed: int | None = None) -> None:
        self._rate = _share("Duplicator", rate)
        self._random = random.Random(seed)

    def __call__(self, handle: Handle) -> Handle:
        async def doubling(message: Message[Any]) -> object:
            twice = self._random.random() < self._rate
            result = await handle(message)
            if twice:
                # One that is put off now was handled: coming again, it would be handled twice more.
                with contextlib.suppress(Postponed):
                    return await handle(message)
            return result

        return doubling


def _share(name: str, rate: float) -> float:
    if not is_number(rate) or not 0 <= rate <= 1:
        raise ConfigError(f"{name}({rate!r}): expected a share from 0 to 1")
    return rate
