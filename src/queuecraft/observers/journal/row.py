"""A row of the journal: one publish, or one delivery and what came of it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

VERSION = 1
"""Of the columns below. New ones are added at the end and raise it; none change their meaning."""

Kind: TypeAlias = Literal["published", "delivered", "captured", "unreadable"]
Outcome: TypeAlias = Literal["succeeded", "retried", "dead-lettered", "dropped", "expired"]


class Row(msgspec.Struct, frozen=True, gc=False, eq=False, omit_defaults=True):
    """What is known of it; the names are those of the lake's columns.

    Times are seconds since the epoch. `at` is when the broker had confirmed a publish, when a
    delivery was settled, or when a message was captured. `attempt` counts from 1 for deliveries
    and is 0 otherwise. A message whose time to live is over is `dead-lettered`, with the reason
    `expired`, if it is kept, and `expired` if it is gone. `headers` are those with a text for a
    value; the others stand in `typed_headers`, as a JSON object, bytes as `{"base64": …}`. A
    payload that is no UTF-8 is in `payload_base64`. A line that cannot be read becomes a row of
    kind `unreadable`, with the line as its payload and the reason as its error.

    >>> msgspec.json.encode(Row(kind="published", at=1.5, message_id="m-1", event="order.placed"))
    b'{"kind":"published","at":1.5,"message_id":"m-1","event":"order.placed"}'
    """

    kind: Kind
    at: float
    message_id: str | None = None
    queue: str | None = None
    exchange: str | None = None
    event: str | None = None
    key: str | None = None
    attempt: int = 0
    redeliveries: int = 0
    outcome: Outcome | None = None
    reason: str | None = None
    error_type: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    duration: float | None = None
    delay: float | None = None
    published_at: float | None = None
    due_at: float | None = None
    expires_at: float | None = None
    size: int = 0
    content_type: str | None = None
    content_encoding: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    priority: int = 0
    headers: dict[str, str] | None = None
    typed_headers: str | None = None
    payload: str | None = None
    payload_base64: str | None = None
    replay_id: str | None = None
    service: str | None = None
    host: str | None = None
    process: int = 0
    version: int = VERSION
