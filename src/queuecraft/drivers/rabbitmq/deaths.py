"""What RabbitMQ notes when it dead-letters a message by itself, told in the headers of ours.

A queue does so with what has waited too long, what does not fit any more, what somebody rejects,
and what was delivered too often. Its notes are `x-death`: a table for each queue and reason, the
latest first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from queuecraft.codec.headers import (
    DEATH,
    EVENT,
    FAILED_AT,
    MAX_COUNT,
    ORIGINAL_QUEUE,
    ORIGINAL_ROUTING_KEY,
    REASON,
    RETRY_COUNT,
    count,
    strip_broker_owned,
)
from queuecraft.drivers.rabbitmq import delays
from queuecraft.model.outcome import CRASH_LOOP, EXPIRED, NACK

REJECTED: Final = "rejected"
UNDELIVERED: Final = "undelivered"  # due, and nobody was bound to it
_REASONS: Final = {
    "expired": EXPIRED,
    REJECTED: NACK,
    "delivery_limit": CRASH_LOOP,
    "maxlen": "queue-full",
}
_LATEST: Final = 253_402_300_799  # the last second that a datetime can tell


def retold(headers: Mapping[str, Any], queue: str) -> dict[str, Any]:
    """The headers of a message in `queue`, with the notes of the broker in our words.

    What waited in a level of delay was dead-lettered too: of that nobody need know. What came
    back to a queue that rejected it, by somebody's own way of retrying, has failed so often.

    >>> note = {"queue": "billing", "reason": "expired", "count": 1, "routing-keys": ["order.paid"]}
    >>> dead = retold({"x-death": [note]}, "billing.dlq")
    >>> dead["x-original-queue"], dead["x-original-routing-key"], dead["x-reason"]
    ('billing', 'order.paid', 'expired')
    >>> retold({"x-death": [{**note, "reason": "rejected"}]}, "billing")["x-retry-count"]
    1
    >>> retold({"x-death": [{**note, "queue": "qc.delay.03"}], "tenant": "t1"}, "billing")
    {'tenant': 't1'}
    """
    deaths = _deaths(headers.get(DEATH))
    if not deaths:  # but those of a delay
        told = strip_broker_owned(headers)
        meant_for = told.pop(delays.DELAYED_FOR, None)
        if queue == delays.UNDELIVERED_QUEUE:
            told[REASON] = UNDELIVERED
            if isinstance(meant_for, str):
                told[ORIGINAL_QUEUE] = meant_for
        return told
    here = [each for each in deaths if each["queue"] == queue]
    if here:
        told = dict(headers)
        told.pop(delays.DELAYED_FOR, None)
        rejections = sum(count(each, "count") for each in here if each.get("reason") == REJECTED)
        if rejections:
            told.setdefault(RETRY_COUNT, min(rejections, MAX_COUNT))
        return told
    told = strip_broker_owned(headers)
    told.pop(delays.DELAYED_FOR, None)
    if ORIGINAL_QUEUE in told:
        return told
    last = deaths[0]
    told[ORIGINAL_QUEUE] = last["queue"]
    reason = last.get("reason")
    told[REASON] = _REASONS.get(reason, reason) if isinstance(reason, str) else ""
    keys = last.get("routing-keys")
    if EVENT not in told and isinstance(keys, list) and keys and isinstance(keys[0], str):
        told[ORIGINAL_ROUTING_KEY] = keys[0]
    when = last.get("time")
    if isinstance(when, int) and 0 <= when <= _LATEST:
        told[FAILED_AT] = 1000 * when
    return told


def _deaths(notes: Any) -> list[dict[str, Any]]:
    """Those of queues that are not ours; anyone may have written anything there."""
    if not isinstance(notes, list):
        return []
    return [
        each
        for each in notes
        if isinstance(each, dict)
        and isinstance(name := each.get("queue"), str)
        and not name.startswith(f"{delays.PREFIX}.")
    ]
