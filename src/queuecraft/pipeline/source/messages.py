"""Rows into messages, many at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from typing import Any

import msgspec
import pyarrow as pa

from queuecraft.codec import Codec
from queuecraft.codec.codec import EncodeBody
from queuecraft.codec.headers import (
    ORIGINAL_ROUTING_KEY,
    REPLAY_ID,
    RESERVED,
    RETRY_POLICY,
    check_user_headers,
    strip_broker_owned,
)
from queuecraft.drivers.base import NO_HEADERS, Outgoing, Traits
from queuecraft.model.errors import PayloadError, QueueError
from queuecraft.model.naming import MAX_NAME, check_name
from queuecraft.model.settings import Settings
from queuecraft.pipeline.archive import joined
from queuecraft.pipeline.source.form import COLUMNS, PAYLOAD, Form
from queuecraft.runtime.options import MAX_KEY, is_text

JSON = "application/json"
_OURS = RESERVED - {RETRY_POLICY}
_NOTHING = (None,) * 8
_encoder = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages go: to a queue, or as an event through an exchange."""

    queue: str | None = None
    exchange: str | None = None  # None: that of the settings
    event: str | None = None  # None: as the column says
    content_type: str | None = None  # where no column says it


class Messages:
    """Makes messages of record batches. An id that no column gives is a hash of all that the
    message says, and of `salt`: a task that is tried again makes the same ones.

    With `apart`, rows that are equal get ids that differ: by how many equal ones came before.
    """

    def __init__(
        self,
        form: Form,
        target: Target,
        settings: Settings,
        traits: Traits,
        *,
        salt: str,
        now: float,
        apart: bool = False,
    ) -> None:
        self._form = form
        self._target = target
        self._exchange = "" if target.queue is not None else target.exchange or settings.exchange
        self._traits = traits
        self._now = now
        self._limit = settings.max_message_bytes
        self._compress = _compressor(settings)
        self._salt = blake2b(salt.encode(), digest_size=16)
        self._seen: Counter[str] | None = Counter() if apart else None
        self._events: set[str] = set()
        self._row = 0

    def of(self, batch: pa.RecordBatch) -> list[Outgoing]:
        """The messages of some rows, in order."""
        bodies, kind = self._bodies(batch)
        about = self._form.about
        given = (_values(batch, name) if name in about else repeat(None) for name in COLUMNS)
        return [
            self._make(body, kind, *values) for body, *values in zip(bodies, *given, strict=False)
        ]

    def _bodies(self, batch: pa.RecordBatch) -> tuple[Sequence[Any], str | None]:
        """The payloads as bytes or text, and what they are if no column says it."""
        said = self._target.content_type
        if self._form.fields:
            return list(_objects(batch.select(list(self._form.fields)))), said or JSON
        column = batch.column(PAYLOAD)
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if text:
            column = column.cast(pa.binary() if pa.types.is_string(column.type) else "large_binary")
        return column.to_pylist(), said or (JSON if text else None)

    def _make(
        self,
        body: bytes | None,
        kind: str | None,
        id: str | None = None,
        key: str | None = None,
        event: str | None = None,
        headers: Sequence[tuple[str, str]] | None = None,
        typed: str | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        content_type: str | None = None,
        encoding: str | None = None,
        published_at: float | None = None,
        due_at: float | None = None,
        expires_at: float | None = None,
        replay_id: str | None = None,
    ) -> Outgoing:
        self._row += 1
        if id is None:
            said = (key, event, headers, typed, priority, correlation_id, due_at, replay_id)
            id = self._id(body, b"" if said == _NOTHING else repr(said).encode())
        elif not is_text(id, MAX_NAME, least=1):
            raise self._refused(f"message_id is no text of 1 to {MAX_NAME} bytes", None)
        if body is None:
            raise self._refused("the payload is null; leave such rows out", id)
        try:
            if encoding is None and self._compress is not None:
                body, encoding = self._compress(body)
            elif len(body) > self._limit:
                raise PayloadError(
                    f"the body has {len(body):,} bytes, the limit is {self._limit:,}; send less, "
                    "or raise max_message_bytes on both sides"
                )
            told: dict[str, Any] | None = None
            if headers or typed or replay_id:
                told, event = self._headers(headers, typed, replay_id, event)
        except QueueError as error:
            raise self._refused(error.message, id) from None
        if key is not None and not is_text(key, MAX_KEY):
            raise self._refused(f"key has more than {MAX_KEY:,} bytes", id)
        if correlation_id is not None and not is_text(correlation_id, MAX_NAME):
            raise self._refused(f"correlation_id has more than {MAX_NAME} bytes", id)
        if priority:
            self._check_priority(priority, id)
        if expires_at is not None and expires_at <= self._now:
            raise self._refused(
                "it expired before it was sent, and no worker would get it; drop the column "
                "expires_at, or set it anew",
                id,
            )
        if published_at is not None and due_at is None:
            due_at = self._now  # a time to live counts from here, not from when it was published
        return Outgoing(
            body,
            id,
            self._exchange,
            self._name(event, id),
            self._now if published_at is None else published_at,
            content_type or kind,
            encoding,
            key,
            self._target.queue,
            told or NO_HEADERS,
            due_at,
            expires_at,
            priority or 0,
            True,
            correlation_id,
        )

    def _id(self, body: bytes | None, about: bytes) -> str:
        digest = self._salt.copy()
        digest.update(about + b"\0")
        digest.update(body or b"")
        found = digest.hexdigest()
        if self._seen is None:
            return found
        before = self._seen[found]
        self._seen[found] += 1
        return f"{found}-{before}" if before else found

    def _name(self, event: str | None, id: str) -> str:
        """The routing key: by it a worker finds the handler, also for what is sent to a queue."""
        name = self._target.event or event or self._target.queue
        if name is None:
            raise self._refused("it has no event; say it in the column, or by the option", id)
        if name not in self._events:
            try:
                check_name(
                    "event" if self._target.queue is None else "queue", name, self._traits.max_name
                )
            except QueueError as error:
                raise self._refused(error.message, id) from None
            if len(self._events) < 10_000:
                self._events.add(name)
        return name

    def _headers(
        self,
        headers: Sequence[tuple[str, str]] | None,
        typed: str | None,
        replay_id: str | None,
        event: str | None,
    ) -> tuple[dict[str, Any], str | None]:
        """The headers of a message, as for a redrive: what a dead letter tells of its end is left
        out, and it is the event again that it was."""
        try:
            told = strip_broker_owned(joined(headers, typed))
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            raise PayloadError("typed_headers is no JSON object") from None
        first = told.get(ORIGINAL_ROUTING_KEY)
        if isinstance(first, str) and first:
            event = first
        policy = told.pop(RETRY_POLICY, None)
        told = {name: value for name, value in told.items() if name.lower() not in _OURS}
        check_user_headers(told)
        if isinstance(policy, str):
            told[RETRY_POLICY] = policy
        if replay_id is not None:
            told[REPLAY_ID] = replay_id
        return told, event

    def _check_priority(self, priority: int, id: str) -> None:
        if not 0 <= priority <= 255:
            raise self._refused(f"priority is {priority}, expected 0 to 255", id)
        if not self._traits.priority:
            raise self._refused(
                f"{self._traits.name} has no priorities here; drop the column priority", id
            )

    def _refused(self, reason: str, id: str | None) -> PayloadError:
        where = f"row {self._row} of its partition"
        return PayloadError(
            f"{where} cannot be sent: {reason}",
            operation="write",
            queue=self._target.queue,
            message_id=id,
        )


def _compressor(settings: Settings) -> EncodeBody | None:
    if not settings.compression:
        return None
    return Codec(
        compression=settings.compression,
        threshold=settings.compression_threshold,
        max_bytes=settings.max_message_bytes,
    ).encoder(bytes)


def _values(batch: pa.RecordBatch, name: str) -> Sequence[Any]:
    column = batch.column(name)
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if each is None else each / 1e6 for each in micros]


def _objects(batch: pa.RecordBatch) -> Iterator[bytes]:
    maps = [field for field in batch.schema if _has_map(field.type)]
    for row in batch.to_pylist():
        for field in maps:
            row[field.name] = _plain(row[field.name], field.type)
        try:
            yield _encoder.encode(row)
        except (TypeError, ValueError) as error:
            raise PayloadError(f"the columns are no JSON object: {error}") from None


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(at).type) for at in range(kind.num_fields))


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value with maps in it, which Arrow gives as pairs, as JSON has it."""
    if value is None or not _has_map(kind):
        return value
    if pa.types.is_map(kind):
        return {key: _plain(each, kind.item_type) for key, each in value}
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return [_plain(each, kind.value_type) for each in value]
