"""What the end of a handler says of whatever it has called: that works, it fails, or neither."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from queuecraft.model.errors import QueueError
from queuecraft.model.message import Message
from queuecraft.model.outcome import Postponed, UnreadablePayload

Verdict: TypeAlias = Exception | Literal["works", "unknown"]
"""The failure, if it has failed."""

BY_HAND: Final = ("nack", "retry", "requeue")  # what a handler calls when it could not do its work


def verdict_on(message: Message[Any], error: BaseException | None) -> Verdict:
    """What is to be concluded from a handler that has returned, or raised an error.

    >>> from queuecraft.testing import message_of
    >>> verdict_on(message_of({"id": "o-1"}), None)
    'works'
    >>> verdict_on(message_of({"id": "o-1"}), ValueError("no such account"))
    ValueError('no such account')
    """
    if message.lapsed:  # what hangs is down as well
        return TimeoutError("the ack timeout has passed")
    if isinstance(error, Exception):
        # Put off, or poison: that was decided before anything was called, or beside it.
        return "unknown" if isinstance(error, Postponed | UnreadablePayload) else error
    if error is not None:  # a worker that stops
        return "unknown"
    settled = message.settled
    if settled in BY_HAND:
        return QueueError(f"its handler has called {settled}()", queue=message.queue)
    return "unknown" if settled == "dead_letter" else "works"
