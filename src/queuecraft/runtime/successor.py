"""The message that takes the place of a delivery: a retry, a dead letter, or the original again."""

from __future__ import annotations

import msgspec

from queuecraft.codec.attempts import Attempt, and_one_more
from queuecraft.codec.headers import (
    ATTEMPTS,
    DEAD_LETTER,
    DEAD_RETRY_COUNT,
    ERROR,
    ERROR_TYPE,
    FAILED_AT,
    MAX_ERROR,
    MAX_HEADERS,
    MAX_TRACEBACK,
    ORIGINAL_QUEUE,
    ORIGINAL_ROUTING_KEY,
    REASON,
    REDELIVERIES,
    REPLAY_ID,
    RETRY_COUNT,
    TRACEBACK,
    count,
    size,
    strip_broker_owned,
    trim,
)
from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.model.outcome import CRASH_LOOP, EXPIRED, Failure
from queuecraft.model.queue import DeadLetterTarget
from queuecraft.model.types import HeaderValue


def retry_of(
    delivery: Delivery, attempt: int, due_at: float, failed: Attempt | None = None
) -> Outgoing:
    """The message that brings a delivery back to its own queue, one failure older."""
    headers = strip_broker_owned(delivery.sent.headers)
    counter = _counter(delivery)
    headers[counter] = attempt
    if failed is not None and counter == RETRY_COUNT:
        headers[ATTEMPTS] = and_one_more(headers, failed)
        if size(headers) > MAX_HEADERS:
            del headers[ATTEMPTS]
    return msgspec.structs.replace(
        delivery.sent, exchange="", queue=delivery.queue, due_at=due_at, headers=headers
    )


def dead_letter_of(
    delivery: Delivery,
    target: DeadLetterTarget,
    attempt: int,
    reason: str,
    failure: Failure | None,
    now: float,
) -> Outgoing:
    """The message kept in place of one that could not be handled: the same, with its story."""
    sent = delivery.sent
    headers = strip_broker_owned(sent.headers)
    first = headers.get(ORIGINAL_ROUTING_KEY)
    story: dict[str, HeaderValue] = {
        ORIGINAL_QUEUE: delivery.queue,
        ORIGINAL_ROUTING_KEY: first if isinstance(first, str) else sent.routing_key,
        REASON: trim(str(reason), MAX_ERROR),  # a handler may have given anything
        RETRY_COUNT: attempt - 1 if reason in (EXPIRED, CRASH_LOOP) else attempt,  # failures
        FAILED_AT: int(now * 1000),
    }
    earlier = headers if _counter(delivery) == RETRY_COUNT else {}  # in this queue
    if reason not in (EXPIRED, CRASH_LOOP):
        kind, text = (failure.error_type, failure.error) if failure is not None else ("", reason)
        story[ATTEMPTS] = and_one_more(earlier, Attempt.of(now, attempt, kind, str(text)))
    elif ATTEMPTS in earlier:
        story[ATTEMPTS] = earlier[ATTEMPTS]
    if failure is not None:
        story[ERROR] = trim(failure.error, MAX_ERROR)
        story[ERROR_TYPE] = trim(failure.error_type, MAX_ERROR)
        story[TRACEBACK] = trim(failure.traceback, MAX_TRACEBACK, tail=True)
    headers = {name: value for name, value in headers.items() if name not in DEAD_LETTER}
    headers.update(story)
    _fit(headers)
    return msgspec.structs.replace(
        sent,
        exchange=target.exchange,
        routing_key=target.routing_key,
        queue=None,
        due_at=now,  # a time to live starts anew, also when it is sent back
        expires_at=None,
        headers=headers,
    )


def redrive_of(
    delivery: Delivery, queue: str, now: float, *, replay_id: str | None = None
) -> Outgoing:
    """The message that a dead letter was, for the queue that failed it. It counts its attempts
    anew: with a `replay_id` they can be told from those before."""
    sent = delivery.sent
    key = sent.headers.get(ORIGINAL_ROUTING_KEY)
    headers = {
        name: value
        for name, value in strip_broker_owned(sent.headers).items()
        if name not in DEAD_LETTER and name != REDELIVERIES
    }
    if replay_id is not None:
        headers[REPLAY_ID] = replay_id
    return msgspec.structs.replace(
        sent,
        exchange="",
        routing_key=key if isinstance(key, str) else sent.routing_key,
        queue=queue,
        due_at=now,
        headers=headers,
    )


def failures(delivery: Delivery) -> int:
    """How many failures in this queue are recorded with a message."""
    headers = delivery.sent.headers
    return count(headers, _counter(delivery)) if headers else 0


def _counter(delivery: Delivery) -> str:
    """The header that counts the failures in this queue: a dead letter failed in another first."""
    origin = delivery.sent.headers.get(ORIGINAL_QUEUE)
    return RETRY_COUNT if origin is None or origin == delivery.queue else DEAD_RETRY_COUNT


def _fit(headers: dict[str, HeaderValue]) -> None:
    """Shorten the story until all headers are within the limit; the user's own stay as they are."""
    if size(headers) > MAX_HEADERS:
        headers.pop(ATTEMPTS, None)
    for name in (TRACEBACK, ERROR, ERROR_TYPE, REASON):
        excess = size(headers) - MAX_HEADERS
        if excess <= 0:
            return
        text = headers.pop(name, "")
        if isinstance(text, str) and (room := len(text.encode()) - excess) > 0:
            headers[name] = trim(text, room, tail=name == TRACEBACK)


def without_traceback(message: Outgoing) -> Outgoing:
    """A dead letter with the longest part of its story left out."""
    headers = {name: value for name, value in message.headers.items() if name != TRACEBACK}
    return msgspec.structs.replace(message, headers=headers)
