"""Messages that are alike as one line, which costs less than half of a line for each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.observers.journal.line import Each, Line


def publishes(same: Line, at: float, messages: Sequence[Outgoing]) -> Line | None:
    """The line of messages that are alike; None if they are not. `same` is what all lines share."""
    return _line(same, at, messages, messages[0].queue, None)


def deliveries(
    same: Line, at: float, found: Sequence[Delivery], durations: Sequence[float]
) -> Line | None:
    """The line of deliveries that are alike and have no failure behind them; else None."""
    queue = found[0].queue
    messages = [each.sent for each in found if each.queue == queue and not each.redeliveries]
    if len(messages) < len(found) or len(durations) != len(found):
        return None
    return _line(same, at, messages, queue, durations)


def _line(
    same: Line,
    at: float,
    messages: Sequence[Outgoing],
    queue: str | None,
    durations: Sequence[float] | None,
) -> Line | None:
    first, last = messages[0], messages[-1]
    event, exchange, target = first.routing_key, first.exchange, first.queue
    content, encoding, key, time = (
        first.content_type,
        first.content_encoding,
        first.key,
        first.timestamp,
    )
    keyed, timed = last.key != key, last.timestamp != time
    # Spelt out, and in one go: this is what the journal costs.
    ids = [
        each.id
        for each in messages
        if not each.headers
        and each.routing_key == event
        and each.exchange == exchange
        and each.content_type == content
        and each.due_at is None
        and each.expires_at is None
        and each.correlation_id is None
        and each.reply_to is None
        and not each.priority
        and each.queue == target
        and each.content_encoding == encoding
        and (keyed or each.key == key)
        and (timed or each.timestamp == time)
    ]
    if len(ids) < len(messages):
        return None
    return msgspec.structs.replace(
        same,
        at=at,
        queue=queue,
        exchange=exchange or None,
        event=event,
        key=None if keyed else key,
        published_at=None if timed else time,
        content_type=content,
        content_encoding=encoding,
        each=Each(
            ids,
            [len(each.body) for each in messages],
            [each.key for each in messages] if keyed else None,
            durations,
            [each.timestamp for each in messages] if timed else None,
        ),
    )
