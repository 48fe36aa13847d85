"""A message as RabbitMQ carries it: AMQP's own properties, and headers for the rest."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from queuecraft.codec.headers import (
    DEATH,
    DUE_AT,
    EVENT,
    EXPIRES_AT,
    KEY,
    PUBLISHED_AT,
    REDELIVERIES,
    count,
)
from queuecraft.drivers.base import NO_HEADERS, Outgoing
from queuecraft.drivers.rabbitmq.confirms import Parcel
from queuecraft.drivers.rabbitmq.consuming import Arrival
from queuecraft.drivers.rabbitmq.deaths import retold
from queuecraft.drivers.rabbitmq.delays import DELAYED_FOR
from queuecraft.drivers.rabbitmq.frames import Properties, pack, pack_plain

DELIVERY_COUNT: Final = "x-delivery-count"  # a quorum queue's own
FOREIGN: Final = "foreign-"  # how an id begins that a message did not come with
_TIMES: Final = (PUBLISHED_AT, DUE_AT, EXPIRES_AT)
_LATEST: Final = 253_402_300_799  # the last second that a datetime can tell
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_THOUSANDTHS: Final = tuple(_DIGITS[n // 36] + _DIGITS[n % 36] for n in range(1000))
"""AMQP tells the time in seconds; of a plain message the rest is said by two letters as its `type`.
A header would do, and does for others, but RabbitMQ takes a quarter more of the messages whose
properties fit into 64 bytes: `application/json`, an id of ours and these just do."""
_IN_THOUSANDTHS: Final[Mapping[str | None, int]] = {
    letters: n for n, letters in enumerate(_THOUSANDTHS)
}


def parcel(message: Outgoing, exchange: str, routing_key: str, *, redeliveries: int = 0) -> Parcel:
    """The message, on its way to an exchange by a routing key, which may not be its own."""
    if (
        message.timestamp is not None
        and message.routing_key == routing_key
        and message.headers is NO_HEADERS
        and message.key is None
        and message.due_at is None
        and message.expires_at is None
        and message.content_encoding is None
        and message.correlation_id is None
        and message.reply_to is None
        and not message.priority
        and not redeliveries
    ):  # as most are
        seconds, thousandths = divmod(round(1000 * message.timestamp), 1000)
        plain = pack_plain(
            message.content_type,
            persistent=message.persistent,
            message_id=message.id,
            timestamp=seconds,
            message_type=_THOUSANDTHS[thousandths],
        )
        return exchange, routing_key, message.id, plain, message.body
    headers: dict[str, Any] = dict(message.headers) if message.headers else {}
    if message.timestamp is not None:
        headers[PUBLISHED_AT] = round(1000 * message.timestamp)
    if message.due_at is not None:
        headers[DUE_AT] = round(1000 * message.due_at)
    if message.expires_at is not None:
        headers[EXPIRES_AT] = round(1000 * message.expires_at)
    if message.key is not None:
        headers[KEY] = message.key
    if routing_key != message.routing_key and message.routing_key:
        headers[EVENT] = message.routing_key
    if redeliveries:
        headers[REDELIVERIES] = redeliveries
    if message.queue is not None and message.queue != routing_key:
        headers[DELAYED_FOR] = message.queue
    properties = Properties(
        message.content_type,
        message.content_encoding,
        headers,
        2 if message.persistent else 1,
        message.priority or None,
        message.correlation_id,
        message.reply_to,
        None,  # would fire early on a level of delay
        message.id,
    )
    return exchange, routing_key, message.id, pack(properties), message.body


def message_of(arrival: Arrival, queue: str | None = None) -> tuple[Outgoing, int | None, int]:
    """The message of an arrival in a queue; how often the broker says it was delivered before, if
    it counts that; and how often its own headers say so."""
    properties = arrival.properties
    headers = properties.headers
    event = arrival.routing_key
    published = due = expires = key = counted = None
    noted = 0
    if headers:
        dead = DEATH in headers and queue is not None
        headers = retold(headers, queue or "") if dead else dict(headers)
        published, due, expires = (_seconds(headers, name) for name in _TIMES)
        key = _text(headers, KEY)
        event = _text(headers, EVENT) or event
        noted = count(headers, REDELIVERIES)
        headers.pop(REDELIVERIES, None)
        if DELIVERY_COUNT in headers:
            counted = count(headers, DELIVERY_COUNT)
            del headers[DELIVERY_COUNT]
    stamp = properties.timestamp
    if published is None and stamp is not None and stamp <= _LATEST:
        published = (1000 * stamp + _IN_THOUSANDTHS.get(properties.message_type, 0)) / 1000
    message = Outgoing(
        arrival.body,
        properties.message_id or f"{FOREIGN}{os.urandom(8).hex()}",
        arrival.exchange,
        event,
        published,
        properties.content_type,
        properties.content_encoding,
        key,
        None,
        headers or NO_HEADERS,
        due,
        expires,
        properties.priority or 0,
        properties.delivery_mode == 2,
        properties.correlation_id,
        properties.reply_to,
    )
    return message, counted, noted


def _seconds(headers: dict[str, Any], name: str) -> float | None:
    value = headers.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None  # anyone may have written it
    if not 0 <= value <= 1000 * _LATEST:
        return None  # neither could be told, nor sent on
    del headers[name]
    return value / 1000


def _text(headers: dict[str, Any], name: str) -> str | None:
    value = headers.get(name)
    if not isinstance(value, str):
        return None
    del headers[name]
    return value


def is_counted(arguments: Mapping[str, Any]) -> bool:
    """Whether a queue counts deliveries itself."""
    return arguments.get("x-queue-type") == "quorum"
