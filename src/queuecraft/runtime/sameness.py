"""Which deliveries are of one message."""

from __future__ import annotations

from queuecraft.codec.headers import REPLAY_ID
from queuecraft.model.envelope import Delivery


def name_of(delivery: Delivery) -> str:
    """What a message is known by when it comes again; empty if it has no id, and cannot be told
    from others. One that is sent back is not the one it was: perhaps it is to be handled again
    although it was handled. Nor is another that somebody gave the same id.

    >>> from queuecraft.model.envelope import Outgoing
    >>> paid, shipped = (
    ...     Delivery(Outgoing(b"", "order-1", routing_key=event), "audit")
    ...     for event in ("order.paid", "order.shipped")
    ... )
    >>> name_of(paid) == name_of(shipped)
    False
    """
    sent = delivery.sent
    if not sent.id:
        return ""
    replay = sent.headers.get(REPLAY_ID) if sent.headers else None
    return f"{sent.id}\0{sent.routing_key}\0{sent.key}\0{sent.timestamp}\0{replay!r}"
