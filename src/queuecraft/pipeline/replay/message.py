"""A message of the archive as it is sent again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.pipeline.archive import outgoing_of
from queuecraft.runtime.successor import redrive_of


def message_of(row: Mapping[str, Any], exchange: str, now: float) -> Outgoing:
    """The message of a row of a plan: its own id, key, headers and payload, and what sets it apart,
    `x-replay-id`. Its attempts begin anew, its delay is over, and nobody waits for an answer any
    more. `exchange` is that of the connection, for a row that names none.

    >>> row = {"message_id": "m-1", "event": "order.placed", "payload": b"{}", "replay_id": "r-1"}
    >>> sent = message_of(row, "events", now=0.0)
    >>> sent.id, sent.exchange, sent.routing_key, sent.headers
    ('m-1', 'events', 'order.placed', {'x-replay-id': 'r-1'})
    """
    queue = row.get("queue")
    message = redrive_of(Delivery(outgoing_of(row, queue=queue), queue or ""), queue or "", now)
    if queue is None:
        target = row.get("exchange") or exchange
        message = msgspec.structs.replace(message, exchange=target, queue=None)
    # The plan says which event it is; what a dead letter once was it has been told already.
    return msgspec.structs.replace(message, routing_key=row.get("event") or "", reply_to=None)


def expired(message: Outgoing, now: float) -> bool:
    """Whether nobody wants it any more.

    >>> expired(Outgoing(b"", "m-1", expires_at=10.0), now=11.0)
    True
    """
    return message.expires_at is not None and message.expires_at <= now
