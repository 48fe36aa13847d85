"""A span around each publish, whose context travels with what is published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from time import perf_counter
from typing import Any, NamedTuple, cast

from opentelemetry.trace import Link, Span, SpanKind, get_current_span, set_span_in_context

from queuecraft.model.errors import QueueError
from queuecraft.observers.otel.conventions import (
    BATCH,
    CONVERSATION_ID,
    MESSAGE_ID,
    Vocabulary,
    error_type,
)
from queuecraft.observers.otel.telemetry import Telemetry, mark_failed
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.options import PublishOptions
from queuecraft.runtime.publication import Publish, Way


class _Begun(NamedTuple):
    span: Span | None
    name: str
    options: PublishOptions
    started: float


class Sending:
    """Middleware around publishing: one span for a publish, and one for all of `publish_many`."""

    def __init__(self, telemetry: Telemetry, vocabulary: Vocabulary) -> None:
        self._telemetry = telemetry
        self._vocabulary = vocabulary

    def attach(self, engine: Engine) -> None:
        """Know the broker."""
        self._vocabulary.learn(engine)

    def __call__(self, publish: Publish) -> Publish:
        return publish  # all is done by `enclose`

    def enclose(self, way: Way) -> Way:
        """The same way, traced."""
        begin, end, fail = self._begin, self._end, self._fail
        one, many = way

        async def publish(target: object, payload: object, options: PublishOptions, /) -> str:
            begun = begin(target, options)
            try:
                id = await one(target, payload, begun.options)
            except BaseException as error:
                fail(begun, error)
                raise
            end(begun, id)
            return id

        async def publish_many(
            target: object,
            payloads: Iterable[object],
            options: PublishOptions,
            /,
            *,
            atomic: bool = False,
        ) -> list[str | QueueError]:
            begun = begin(target, options, len(payloads) if isinstance(payloads, Sized) else None)
            try:
                results = await many(target, payloads, begun.options, atomic=atomic)
            except BaseException as error:
                fail(begun, error)
                raise
            self._end_many(begun, results)
            return results

        return Way(publish, publish_many)

    # -- a span --------------------------------------------------------------------------------

    def _begin(self, target: object, options: PublishOptions, count: int | None = None) -> _Begun:
        name = str(getattr(target, "name", target))
        started = perf_counter()
        try:
            title, labels = self._vocabulary.sent(name)
            given: Any = options.get("headers")
            links: list[Link] | None = None
            own = isinstance(given, Mapping) and self._telemetry.carrier.carries(given)
            if own:  # what the caller has chosen stays as it is
                context = get_current_span(self._telemetry.carrier.read(given)).get_span_context()
                links = [Link(context)] if context.is_valid else None
            span = self._telemetry.tracer.start_span(
                title, kind=SpanKind.PRODUCER, attributes=labels, links=links
            )
            if span.is_recording():
                if count is not None:
                    span.set_attribute(BATCH, count)
                if isinstance(id := options.get("correlation_id"), str):
                    span.set_attribute(CONVERSATION_ID, id)
            if not own and isinstance(given, Mapping | None):
                carried = self._telemetry.carrier.write(set_span_in_context(span))
                if carried:
                    headers = {**carried, **given} if given else carried
                    options = cast("PublishOptions", {**options, "headers": headers})
        except Exception as error:
            self._telemetry.trouble.tell(error)
            return _Begun(None, name, options, started)
        return _Begun(span, name, options, started)

    def _end(self, begun: _Begun, id: str) -> None:
        try:
            self._measure(begun, 1)
            if (span := begun.span) is not None:
                if span.is_recording():
                    span.set_attribute(MESSAGE_ID, id)
                span.end()
        except Exception as error:
            self._telemetry.trouble.tell(error)

    def _end_many(self, begun: _Begun, results: list[str | QueueError]) -> None:
        try:
            failed = [each for each in results if isinstance(each, QueueError)]
            kind = error_type(failed[0]) if failed else None
            self._measure(begun, len(results) - len(failed), kind, len(failed))
            if (span := begun.span) is None:
                return
            if span.is_recording():
                span.set_attribute(BATCH, len(results))
                if kind is not None:
                    span.record_exception(failed[0])
                    text = f"{len(failed)} of {len(results)} messages were not published"
                    mark_failed(span, kind, text)
            span.end()
        except Exception as error:
            self._telemetry.trouble.tell(error)

    def _fail(self, begun: _Begun, raised: BaseException) -> None:
        try:
            kind = error_type(raised)
            self._measure(begun, 0, kind, 1)
            if (span := begun.span) is not None:
                if span.is_recording():
                    span.record_exception(raised)
                    mark_failed(span, kind, kind)
                span.end()
        except Exception as error:
            self._telemetry.trouble.tell(error)

    def _measure(
        self, begun: _Begun, accepted: int, error: str | None = None, failed: int = 0
    ) -> None:
        took = perf_counter() - begun.started
        self._telemetry.instruments.sent(
            self._vocabulary, begun.name, accepted, took, error, failed
        )
