"""A message as drivers see it: bytes, where they go, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from queuecraft.model.types import Headers
else:
    Headers = Mapping[str, Any]  # msgspec decodes no field that may be text or bytes

NO_HEADERS: Final[Headers] = MappingProxyType({})


class Outgoing(msgspec.Struct, frozen=True, gc=False, eq=False, array_like=True):
    """What is given to a broker: to an exchange by routing key, or straight to a `queue`.

    Times are seconds since the epoch. With `queue` set, `routing_key` still travels and comes
    back in the delivery, so that a retried event finds its handler. New fields go to the end:
    messages are stored as arrays of them.

    >>> Outgoing(b"{}", "m-1", "events", "order.placed").routing_key
    'order.placed'
    """

    body: bytes
    id: str
    exchange: str = ""
    routing_key: str = ""
    timestamp: float | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    key: str | None = None
    queue: str | None = None
    headers: Headers = NO_HEADERS
    due_at: float | None = None
    expires_at: float | None = None
    priority: int = 0
    persistent: bool = True
    correlation_id: str | None = None
    reply_to: str | None = None


class Delivery(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What a broker hands over: the message as it was sent, and this queue's hold on it.

    `redeliveries` counts crashes and lost connections. `token` is the driver's own; a delivery
    belongs to the subscription that received it and is void once that is closed.

    >>> Delivery(Outgoing(b"{}", "m-1"), "billing").redeliveries
    0
    """

    sent: Outgoing
    queue: str
    redeliveries: int = 0
    token: Any = None
