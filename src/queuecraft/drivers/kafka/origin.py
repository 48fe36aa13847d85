"""Which record a message was first: a dead letter says so, whatever topics it waited in."""

from __future__ import annotations

from typing import Any

import msgspec

from queuecraft.codec.headers import (
    ORIGINAL_OFFSET,
    ORIGINAL_PARTITION,
    ORIGINAL_QUEUE,
    ORIGINAL_TOPIC,
    RETRY_COUNT,
)
from queuecraft.drivers.base import Move

_WHERE = (ORIGINAL_TOPIC, ORIGINAL_PARTITION, ORIGINAL_OFFSET)


def traced(move: Move) -> Move:
    """The same; a retry and a dead letter say which record they were when they first came."""
    to, before = move.to, move.delivery.sent.headers
    follows = RETRY_COUNT in to.headers or ORIGINAL_QUEUE in to.headers
    if not follows or ORIGINAL_QUEUE in before:  # else it is told already, or is sent back
        return move
    if all(name in before for name in _WHERE):
        where: dict[str, Any] = {name: before[name] for name in _WHERE}
    else:
        place, offset = move.delivery.token
        where = dict(zip(_WHERE, (place.topic, place.partition, offset), strict=True))
    return Move(move.delivery, msgspec.structs.replace(to, headers={**to.headers, **where}))
