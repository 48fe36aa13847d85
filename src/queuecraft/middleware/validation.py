"""A look at each payload before its handler sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from queuecraft.model.message import Message
from queuecraft.model.outcome import Postponed, UnreadablePayload
from queuecraft.runtime.handler import Handle


class Validation:
    """Calls `check` with each payload. If it raises, the message is a dead letter at once, reason
    `invalid-payload`: no retry would make it valid.

    >>> from queuecraft import QueueCraft
    >>> def positive(order):
    ...     if order["total"] <= 0:
    ...         raise ValueError("an order must cost something")
    >>> QueueCraft().use(Validation(positive))
    """

    def __init__(self, check: Callable[[Any], object]) -> None:
        self._check = check

    def __call__(self, handle: Handle) -> Handle:
        check = self._check

        def validated(message: Message[Any]) -> Awaitable[object]:
            payload = message.payload
            try:
                check(payload)
            except Postponed:
                raise
            except Exception as error:
                raise UnreadablePayload(str(error)) from error
            return handle(message)

        return validated
