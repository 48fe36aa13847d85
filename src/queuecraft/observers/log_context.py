"""Which message a line of the log is about, also where your own code writes it."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final

from queuecraft.model.message import Message
from queuecraft.model.types import Headers
from queuecraft.runtime.handler import Handle, RunMany

FIELDS: Final = (
    "queue",
    "event",
    "message_id",
    "correlation_id",
    "trace_id",
    "span_id",
    "attempt",
)

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_handled: ContextVar[Sequence[Message[Any]]] = ContextVar("what is being handled", default=())


class LogContext:
    """Middleware that lets lines logged while a handler runs know its message: `JsonFormatter` and
    `ConsoleFormatter` add the message's id, its correlation id and the like to them.

    >>> from queuecraft import LogContext, QueueCraft
    >>> QueueCraft().use(LogContext())
    """

    def __call__(self, handle: Handle) -> Handle:
        async def known(message: Message[Any]) -> object:
            before = _handled.get()
            _handled.set((message,))
            try:
                return await handle(message)
            finally:
                _handled.set(before)

        return known

    def many(self, run: RunMany) -> RunMany:
        """The same around a handler of lists: lines tell the queue, and how many messages."""

        async def known(messages: Sequence[Message[Any]]) -> object:
            before = _handled.get()
            _handled.set(messages)
            try:
                return await run(messages)
            finally:
                _handled.set(before)

        return known


class MessageFilter(logging.Filter):
    """Writes what `LogContext` knows into each record: for formatters of others, as
    `%(message_id)s`, and before a record goes to a thread of its own.

    >>> record = logging.LogRecord("shop", 20, "", 0, "charged", None, None)
    >>> MessageFilter().filter(record), record.message_id
    (True, '-')
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record, with more in it."""
        found = context_fields()
        for name in FIELDS:
            if not hasattr(record, name):
                setattr(record, name, found.get(name, "-"))
        if found:
            own: dict[str, Any] = getattr(record, "queuecraft", {})
            record.queuecraft = {**found, **own}
        return True


def context_fields() -> dict[str, Any]:
    """What is known here of the message that is being handled, and of the trace."""
    messages = _handled.get()
    found: dict[str, Any] = {}
    headers: Headers = {}
    if messages:
        first = messages[0]
        found["queue"] = first.queue
        if len(messages) == 1:
            headers = first.headers
            found["event"] = first.routing_key
            found["message_id"] = first.id
            if first.correlation_id is not None:
                found["correlation_id"] = first.correlation_id
            found["attempt"] = first.attempt
        else:
            found["messages"] = len(messages)
    trace, span = _current_trace() or trace_in(headers)
    if trace is not None:
        found["trace_id"] = trace
    if span is not None:
        found["span_id"] = span
    return found


def trace_in(headers: Headers) -> tuple[str | None, str | None]:
    """The ids of the trace that a message belongs to, and of the span that has published it.

    >>> trace_in({"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})[0] == "a" * 32
    True
    >>> trace_in({"traceparent": "nonsense"})
    (None, None)
    """
    value = headers.get("traceparent") if headers else None
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    found = _TRACEPARENT.fullmatch(value) if isinstance(value, str) else None
    return (None, None) if found is None else (found[1], found[2])


def _current_trace() -> tuple[str, str] | None:
    """The trace that OpenTelemetry knows of, if it is in use at all."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    try:
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return None
        return f"{context.trace_id:032x}", f"{context.span_id:016x}"
    except Exception:  # a line of the log is worth more than its trace
        return None
