"""Rows of many messages that are alike, for half of what it costs to write each in full.

What they have in common is encoded once, as if it were part of the kind: a raw value is written as
it is, and more members may follow in it. The lines are the same that a `Row` gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.observers.journal.row import Row


class Brief(msgspec.Struct, frozen=True, gc=False, eq=False, omit_defaults=True):
    """What is left to say of one of them."""

    kind: Raw
    message_id: str
    size: int
    key: str | None = None
    duration: float | UnsetType = UNSET
    published_at: float | UnsetType | None = UNSET


def brief_publishes(same: Row, at: float, messages: Sequence[Outgoing]) -> list[Brief] | None:
    """Rows of messages that are alike; None if they are not. `same` is what all rows share."""
    first = messages[0]
    event, exchange, queue = first.routing_key, first.exchange, first.queue
    content, encoding, time = first.content_type, first.content_encoding, first.timestamp
    varied = messages[-1].timestamp != time
    kind = _kind(same, at, first, queue, None if varied else time)
    try:
        return [
            Brief(
                kind, each.id, len(each.body), each.key, UNSET, each.timestamp if varied else UNSET
            )
            # Spelt out, and in one go: this is what the journal costs.
            if not each.headers
            and each.routing_key == event
            and each.exchange == exchange
            and each.content_type == content
            and each.due_at is None
            and each.expires_at is None
            and each.correlation_id is None
            and each.reply_to is None
            and not each.priority
            and each.queue == queue
            and each.content_encoding == encoding
            and (varied or each.timestamp == time)
            else _odd()
            for each in messages
        ]
    except _Odd:
        return None


def brief_deliveries(
    same: Row, at: float, deliveries: Sequence[Delivery], durations: Sequence[float]
) -> list[Brief] | None:
    """Rows of deliveries that are alike and have no failure behind them; else None."""
    first, queue = deliveries[0].sent, deliveries[0].queue
    event, exchange = first.routing_key, first.exchange
    content, encoding, time = first.content_type, first.content_encoding, first.timestamp
    varied = deliveries[-1].sent.timestamp != time
    kind = _kind(same, at, first, queue, None if varied else time)
    try:
        return [
            Brief(
                kind,
                sent.id,
                len(sent.body),
                sent.key,
                seconds,
                sent.timestamp if varied else UNSET,
            )
            if not (sent := each.sent).headers
            and sent.routing_key == event
            and sent.exchange == exchange
            and sent.content_type == content
            and sent.due_at is None
            and sent.expires_at is None
            and sent.correlation_id is None
            and sent.reply_to is None
            and not sent.priority
            and not each.redeliveries
            and each.queue == queue
            and sent.content_encoding == encoding
            and (varied or sent.timestamp == time)
            else _odd()
            for each, seconds in zip(deliveries, durations, strict=True)
        ]
    except _Odd:
        return None


class _Odd(Exception):
    """One that is not like the others."""


def _odd() -> Brief:
    raise _Odd


def _kind(same: Row, at: float, first: Outgoing, queue: str | None, time: float | None) -> Raw:
    row = msgspec.structs.replace(
        same,
        at=at,
        queue=queue,
        exchange=first.exchange or None,
        event=first.routing_key,
        content_type=first.content_type,
        content_encoding=first.content_encoding,
        published_at=time,
    )
    return Raw(msgspec.json.encode(row)[len(b'{"kind":') : -1])
