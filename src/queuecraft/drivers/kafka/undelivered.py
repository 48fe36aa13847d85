"""Delayed messages that are due, and that their topic refuses for good: kept as dead letters."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from queuecraft.codec.headers import (
    ERROR,
    FAILED_AT,
    ORIGINAL_QUEUE,
    ORIGINAL_ROUTING_KEY,
    REASON,
)
from queuecraft.codec.reason import shorten
from queuecraft.drivers.base import ACCEPTED, ConnectionLost, Outgoing, Queue, Rejected
from queuecraft.model.errors import QueueError
from queuecraft.model.types import HeaderValue

if TYPE_CHECKING:
    from queuecraft.drivers.kafka.driver import KafkaDriver

QUEUE: Final = "qc.undelivered.dlq"
UNDELIVERED: Final = "undelivered"  # the reason
REFUSALS: Final = 4  # after so many it is kept; a topic may be missing for a moment
FIRST: Final = 1.0  # seconds until it is tried again
LONGEST: Final = 60.0
log: Final = logging.getLogger("queuecraft")


async def keep(driver: KafkaDriver, refused: Sequence[tuple[Outgoing, Rejected]]) -> list[bool]:
    """Store these as dead letters; of each, whether that has succeeded."""
    now = driver.clock.now()
    letters = [letter_of(message, rejected.error, now) for message, rejected in refused]
    try:
        await driver.declare(Queue(QUEUE))
        receipts = await driver.pass_on(letters)
    except ConnectionLost:
        raise
    except QueueError as error:
        log.warning("kafka: nothing can be kept in %s: %s", QUEUE, error)
        return [False] * len(letters)
    for (message, rejected), receipt in zip(refused, receipts, strict=True):
        if receipt is ACCEPTED:
            log.warning(
                "kafka: delayed message %s is kept in %s: %s", message.id, QUEUE, rejected.error
            )
        else:
            why = getattr(receipt, "error", None)
            log.warning(
                "kafka: delayed message %s cannot be kept in %s: %s", message.id, QUEUE, why
            )
    return [receipt is ACCEPTED for receipt in receipts]


def letter_of(message: Outgoing, error: QueueError, now: float) -> Outgoing:
    """The dead letter for a message that was due."""
    story: dict[str, HeaderValue] = {
        ORIGINAL_ROUTING_KEY: message.routing_key,
        REASON: UNDELIVERED,
        FAILED_AT: int(now * 1000),
        ERROR: shorten(str(error)),
    }
    if message.queue is not None:
        story[ORIGINAL_QUEUE] = message.queue
    return msgspec.structs.replace(
        message,
        exchange="",
        queue=QUEUE,
        due_at=now,  # a time to live starts anew when it is sent back
        expires_at=None,
        headers={**message.headers, **story},
    )


def pause(refusals: int) -> float:
    """Seconds until what was refused so often is tried again.

    >>> [pause(each) for each in (1, 2, 3, 7, 5000)]
    [1.0, 2.0, 4.0, 60.0, 60.0]
    """
    return min(LONGEST, FIRST * 2.0 ** min(refusals - 1, 10))
