"""The real SDK, keeping what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import SpanContext

from queuecraft import QueueCraft
from queuecraft.observers.otel import OpenTelemetry


class Recorded:
    """Spans and metrics of whatever is attached to `telemetry`."""

    def __init__(self, sampler: Sampler | None = None, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(sampler=sampler)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])
        self.telemetry = OpenTelemetry(self.tracers, self.meters, **options)
        self.tracer = self.tracers.get_tracer("the application")

    def queuecraft(self, url: str = "local://", **options: Any) -> QueueCraft:
        """A QueueCraft that is traced."""
        qc = QueueCraft(url, **options)
        self.telemetry.attach(qc)
        return qc

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """Those that have ended."""
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """Those of this name, the first that began first."""
        found = [each for each in self.spans if each.name == name]
        return sorted(found, key=lambda each: each.start_time or 0)

    def points(self, name: str) -> list[Any]:
        """The points of a metric."""
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def values(self, name: str, *labels: str) -> dict[tuple[Any, ...], Any]:
        """The values of a metric, by some of its labels."""
        return {
            tuple((each.attributes or {}).get(label) for label in labels): (
                each.count if hasattr(each, "bucket_counts") else each.value
            )
            for each in self.points(name)
        }


def trace_of(span: ReadableSpan) -> int:
    """The id of its trace."""
    return context_of(span).trace_id


def context_of(span: ReadableSpan) -> SpanContext:
    """What tells it from all others."""
    context = span.get_span_context()
    assert context is not None
    return context


def parent_of(span: ReadableSpan) -> int | None:
    """The id of the span that it belongs to."""
    return None if span.parent is None else span.parent.span_id


def labels_of(span: ReadableSpan) -> Mapping[str, Any]:
    """Its attributes."""
    return span.attributes or {}
