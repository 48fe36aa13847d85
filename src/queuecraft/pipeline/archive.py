"""Messages as the lake keeps them, and the way back: nothing of a message is lost on either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from queuecraft.codec.headers import FAILED_AT, ORIGINAL_QUEUE, REPLAY_ID, strip_broker_owned
from queuecraft.codec.typed import of_json, to_json
from queuecraft.model.envelope import NO_HEADERS, Delivery, Outgoing
from queuecraft.model.errors import PayloadError
from queuecraft.observers.journal.row import Row
from queuecraft.pipeline.arrow import require_arrow
from queuecraft.runtime.dead_message import DeadMessage

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST = 2**31 - 1


def archived(deliveries: Sequence[Delivery], at: float, *, apart: int = 0) -> pa.RecordBatch:
    """Messages as rows of a segment, of kind `captured`; `at` is when they were taken, each so many
    microseconds after the one before.

    >>> rows = archived([Delivery(Outgoing(b"{}", "m-1", routing_key="order.placed"), "tap")], 1.5)
    >>> rows.column("event")[0].as_py(), rows.column("payload")[0].as_py()
    ('order.placed', b'{}')
    """
    require_arrow()
    from queuecraft.pipeline.columns import Entry, fitting_batch_of

    first = round(1e6 * at)
    entries: list[Entry] = [
        (_row_of(each, (first + number * apart) / 1e6), bytes(each.sent.body))
        for number, each in enumerate(deliveries)
    ]

    def tamed(number: int, reason: str) -> Entry:
        row, payload = entries[number]
        return _tamed(row, reason), payload

    return fitting_batch_of(entries, tamed)


def row_of(delivery: Delivery, at: float) -> Row:
    """All that is known of a message but its payload. A dead letter tells its story in the columns
    as well.

    >>> row_of(Delivery(Outgoing(b"", "m-1", headers={"tenant": "t1", "n": 5}), "tap"), 1.5).headers
    {'tenant': 't1'}
    """
    sent = delivery.sent
    texts: dict[str, str] | None = None
    typed: str | None = None
    replay_id: str | None = None
    letter: DeadMessage | None = None
    if sent.headers:
        texts, typed = split(sent.headers)
        if texts is not None:
            replay_id = texts.pop(REPLAY_ID, None)
        if ORIGINAL_QUEUE in sent.headers and FAILED_AT in sent.headers:
            letter = DeadMessage.of(delivery)
    return Row(
        kind="captured",
        at=at,
        message_id=sent.id,
        queue=delivery.queue,
        exchange=sent.exchange or None,
        event=sent.routing_key or None,
        key=sent.key,
        redeliveries=delivery.redeliveries,
        reason=None if letter is None else letter.reason or None,
        error_type=None if letter is None else letter.error_type or None,
        error=None if letter is None else letter.error or None,
        fingerprint=None if letter is None else letter.fingerprint,
        published_at=sent.timestamp,
        due_at=sent.due_at,
        expires_at=sent.expires_at,
        size=len(sent.body),
        content_type=sent.content_type,
        content_encoding=sent.content_encoding,
        correlation_id=sent.correlation_id,
        reply_to=sent.reply_to,
        priority=sent.priority,
        headers=texts or None,
        typed_headers=typed,
        replay_id=replay_id,
    )


def _row_of(delivery: Delivery, at: float) -> Row:
    """The same, whatever a foreign sender has put into the headers."""
    try:
        return row_of(delivery, at)
    except (RecursionError, ValueError, TypeError, OverflowError) as error:
        sent = delivery.sent
        texts = {name: value for name, value in sent.headers.items() if isinstance(value, str)}
        bare = msgspec.structs.replace(sent, headers=texts)
        row = row_of(msgspec.structs.replace(delivery, sent=bare), at)
        return msgspec.structs.replace(row, error=f"not all headers fit the archive: {error}")


def outgoing_of(row: Mapping[str, Any], *, queue: str | None = None) -> Outgoing:
    """The message of a row, as it was; to a queue, or to the exchange it was published to.

    A row is what Arrow's `to_pylist` gives, or `asDict` of a row of Spark's: its columns by name.
    What a broker has noted in the headers about its own doings is left out. Whether a message was
    to outlive a restart of its broker is not in the archive: from there, it does.

    Raises `PayloadError` when the row has no payload: it comes from a journal that keeps none.

    >>> row = {
    ...     "message_id": "m-1",
    ...     "event": "order.placed",
    ...     "payload": b"{}",
    ...     "headers": {"a": "b"},
    ... }
    >>> outgoing_of(row, queue="billing").headers
    {'a': 'b'}
    """
    get = row.get
    payload = get("payload")
    if payload is None:
        raise PayloadError(
            "the archive has no payload of this message; capture the queue, or let the journal "
            'keep payloads with payload="full"',
            message_id=get("message_id"),
        )
    headers = strip_broker_owned(joined(get("headers"), get("typed_headers")))
    if (replay_id := get("replay_id")) is not None:
        headers[REPLAY_ID] = replay_id
    return Outgoing(
        bytes(payload),
        get("message_id") or "",
        "" if queue is not None else get("exchange") or "",
        get("event") or "",
        _seconds(get("published_at")),
        get("content_type"),
        get("content_encoding"),
        get("key"),
        queue,
        headers or NO_HEADERS,
        _seconds(get("due_at")),
        _seconds(get("expires_at")),
        get("priority") or 0,
        True,
        get("correlation_id"),
        get("reply_to"),
    )


def split(headers: Mapping[str, Any]) -> tuple[dict[str, str] | None, str | None]:
    """Headers in two: those with a text for a value, and the others as a JSON object.

    >>> split({"tenant": "t1", "pages": 2, "raw": b"\\xff"})
    ({'tenant': 't1'}, '{"pages":2,"raw":{"base64":"/w=="}}')
    """
    texts = {name: value for name, value in headers.items() if isinstance(value, str)}
    if len(texts) == len(headers):
        return texts or None, None
    others = {name: value for name, value in headers.items() if name not in texts}
    return texts or None, to_json(others)


def joined(texts: Mapping[str, str] | Sequence[Any] | None, typed: str | None) -> dict[str, Any]:
    """The headers that were split; a map may come as the pairs that Arrow makes of it.

    >>> joined([("tenant", "t1")], '{"raw":{"base64":"/w=="}}')
    {'tenant': 't1', 'raw': b'\\xff'}
    """
    headers: dict[str, Any] = dict(texts or {})
    if typed:
        headers.update(of_json(typed))
    return headers


def _seconds(moment: Any) -> float | None:
    return moment.timestamp() if isinstance(moment, datetime) else moment


def _tamed(row: Row, reason: str) -> Row:
    """A row that fits in any case, and says what did not: a foreign sender may put in anything."""
    changes: dict[str, Any] = {"error": f"not all of it fits the archive: {reason}"}
    for name in ("published_at", "due_at", "expires_at"):
        changes[name] = None
    for name in ("priority", "redeliveries"):
        changes[name] = max(-_LARGEST, min(getattr(row, name), _LARGEST))
    for name in Row.__struct_fields__:
        value = getattr(row, name)
        if isinstance(value, str):
            changes.setdefault(name, _text(value))
    if row.headers is not None:
        changes["headers"] = {_text(name): _text(value) for name, value in row.headers.items()}
    return msgspec.structs.replace(row, **changes)


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()
