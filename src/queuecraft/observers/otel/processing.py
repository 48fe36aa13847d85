"""A span around each handler, in the trace of what was published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import Token
from time import perf_counter
from typing import Any, NamedTuple

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, SpanKind, get_current_span, set_span_in_context

from queuecraft.model.batch import BatchFailed
from queuecraft.model.message import Message
from queuecraft.model.outcome import Postponed
from queuecraft.observers.otel.conventions import (
    ATTEMPT,
    BATCH,
    CONVERSATION_ID,
    MESSAGE_ID,
    REDELIVERIES,
    Vocabulary,
    error_type,
)
from queuecraft.observers.otel.endings import Endings, Handling, Key
from queuecraft.observers.otel.telemetry import Telemetry, mark_failed
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.handler import Handle, RunMany

MOST_LINKS = 128  # of one span: what the SDK keeps unless it is told otherwise


class _Begun(NamedTuple):
    handling: Handling | None  # None for a span that nobody records
    token: Token[Context]


class Processing:
    """Middleware around handlers: a span for each message, and one for each list of messages. It
    is the current span while the handler runs, so what the handler does and publishes belongs to
    it."""

    def __init__(self, telemetry: Telemetry, vocabulary: Vocabulary, *, link: bool) -> None:
        self._telemetry = telemetry
        self._vocabulary = vocabulary
        self._link = link
        self._endings = Endings(telemetry.trouble)

    def attach(self, engine: Engine) -> None:
        """Know the broker, and hear what becomes of messages."""
        self._vocabulary.learn(engine)
        self._endings.observe(engine.facts)

    def __call__(self, handle: Handle) -> Handle:
        async def traced(message: Message[Any]) -> object:
            started = perf_counter()
            begun = self._begin(message)
            try:
                result = await handle(message)
            except GeneratorExit:
                raise  # nobody is left to be told
            except BaseException as error:
                self._fail(begun, [message], perf_counter() - started, error)
                raise
            self._succeed(begun, [message], perf_counter() - started)
            return result

        return traced

    def many(self, run: RunMany) -> RunMany:
        """The same around a handler of lists."""

        async def traced(messages: Sequence[Message[Any]]) -> object:
            started = perf_counter()
            begun = self._begin_many(messages)
            try:
                result = await run(messages)
            except GeneratorExit:
                raise
            except BaseException as error:
                self._fail(begun, messages, perf_counter() - started, error)
                raise
            self._succeed(begun, messages, perf_counter() - started)
            return result

        return traced

    # -- begin ---------------------------------------------------------------------------------

    def _begin(self, message: Message[Any]) -> _Begun | None:
        try:
            context = self._telemetry.carrier.read(message.headers)
            parent, links = context, None
            if self._link:
                cause = get_current_span(context).get_span_context()
                parent, links = Context(), [Link(cause)] if cause.is_valid else None
            queue = message.queue
            name, labels = self._vocabulary.processed(queue, message.routing_key)
            span = self._telemetry.tracer.start_span(
                name, parent, kind=SpanKind.CONSUMER, attributes=labels, links=links
            )
            handling = None
            if span.is_recording():
                span.set_attribute(MESSAGE_ID, message.id)
                span.set_attribute(ATTEMPT, message.attempt)
                if (conversation := message.correlation_id) is not None:
                    span.set_attribute(CONVERSATION_ID, conversation)
                if redeliveries := message.redeliveries:
                    span.set_attribute(REDELIVERIES, redeliveries)
                handling = self._endings.begin(span, ((queue, message.id),))
            return _Begun(handling, attach(set_span_in_context(span, context)))
        except Exception as error:
            self._telemetry.trouble.tell(error)
            return None

    def _begin_many(self, messages: Sequence[Message[Any]]) -> _Begun | None:
        try:
            first = messages[0]
            causes = [
                get_current_span(self._telemetry.carrier.read(each.headers)).get_span_context()
                for each in messages[:MOST_LINKS]
            ]
            links = [
                Link(cause, {MESSAGE_ID: each.id})
                for cause, each in zip(causes, messages, strict=False)
                if cause.is_valid
            ]
            name, labels = self._vocabulary.processed(first.queue, first.routing_key)
            span = self._telemetry.tracer.start_span(
                name,
                Context(),
                kind=SpanKind.CONSUMER,
                attributes={**labels, BATCH: len(messages)},
                links=links,
            )
            handling = None
            if span.is_recording():
                handling = self._endings.begin(span, tuple(map(_key, messages)))
            return _Begun(handling, attach(set_span_in_context(span, Context())))
        except Exception as error:
            self._telemetry.trouble.tell(error)
            return None

    # -- end -----------------------------------------------------------------------------------

    def _succeed(
        self, begun: _Begun | None, messages: Sequence[Message[Any]], seconds: float
    ) -> None:
        try:
            if begun is not None:
                detach(begun.token)
                if begun.handling is not None:
                    self._endings.end(begun.handling, _failed_by_hand(messages))
            self._telemetry.instruments.processed(self._vocabulary, messages[0].queue, seconds)
        except Exception as error:
            self._telemetry.trouble.tell(error)

    def _fail(
        self,
        begun: _Begun | None,
        messages: Sequence[Message[Any]],
        seconds: float,
        raised: BaseException,
    ) -> None:
        try:
            later = isinstance(raised, Postponed) and len(messages) == 1
            kind = None if later else error_type(raised)
            if begun is not None:
                detach(begun.token)
                if (handling := begun.handling) is not None:
                    if kind is not None:
                        handling.span.record_exception(raised)
                        if not handling.failed:
                            mark_failed(handling.span, kind, kind)
                    self._endings.end(handling, _failed(messages, raised))
            self._telemetry.instruments.processed(
                self._vocabulary, messages[0].queue, seconds, kind
            )
        except Exception as error:
            self._telemetry.trouble.tell(error)


def _key(message: Message[Any]) -> Key:
    return message.queue, message.id


def _failed_by_hand(messages: Iterable[Message[Any]]) -> list[Key]:
    return [_key(each) for each in messages if each.settled not in (None, "ack")]


def _failed(messages: Sequence[Message[Any]], raised: BaseException) -> list[Key]:
    """Whose ending is to come, by what their handler has raised."""
    failed = list(messages)
    if isinstance(raised, BatchFailed):
        places = [each for each in raised.errors if isinstance(each, int)]
        named = [each for each in raised.errors if isinstance(each, Message)]
        failed = [m for at, m in enumerate(messages) if at in places or m in named] or failed
    return [_key(each) for each in failed if each.settled != "ack"]
