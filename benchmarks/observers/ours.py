"""QueueCraft with observers attached, and without."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from benchmarks.harness import Case, Measurement
from benchmarks.memory.ours import BATCH, Publish, in_batches, one_at_a_time
from benchmarks.order import Order, Tally, orders
from queuecraft import Event, JsonFormatter, QueueCraft
from queuecraft.middleware import Logging
from queuecraft.observers.otel import OpenTelemetry
from queuecraft.observers.prometheus import PrometheusObserver

Attach = Callable[[QueueCraft], Callable[[], object]]
"""Attaches an observer; what is called at the end."""

LONGER = 5

order_placed = Event("order.placed", Order)


class Nowhere(SpanExporter):
    """Takes spans, and forgets them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class Void:
    """A stream that keeps nothing."""

    def write(self, text: str) -> None: ...

    def flush(self) -> None: ...


def nothing(qc: QueueCraft) -> Callable[[], object]:
    return lambda: None


def prometheus(qc: QueueCraft) -> Callable[[], object]:
    metrics = PrometheusObserver()
    metrics.attach(qc)
    return metrics.text


def traces(qc: QueueCraft, *, sampled: float, metrics: bool = False) -> Callable[[], object]:
    tracers = TracerProvider(sampler=ParentBasedTraceIdRatio(sampled))
    tracers.add_span_processor(BatchSpanProcessor(Nowhere()))
    meters = MeterProvider([InMemoryMetricReader()]) if metrics else None
    OpenTelemetry(tracers, meters).attach(qc)
    return tracers.shutdown


def json_log(qc: QueueCraft, *, lines: bool) -> Callable[[], object]:
    handler = logging.StreamHandler(Void())
    handler.setFormatter(JsonFormatter())
    log = logging.getLogger("queuecraft")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    if lines:
        qc.use(Logging())

    def end() -> None:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)

    return end


async def run(messages: int, *, attach: Attach, publish: Publish[Order]) -> Measurement:
    messages *= LONGER
    tally = Tally(messages)

    async def charge(order: Order) -> None:
        tally.add(order)

    qc = QueueCraft("local://")
    end = attach(qc)
    worker = qc.worker("billing", concurrency=1, prefetch=BATCH)
    worker.on(order_placed)(charge)
    payloads = orders(Order, messages)
    async with qc:
        await worker.start()
        started = perf_counter()
        await publish(qc, order_placed, payloads)
        await tally.done.wait()
        took = perf_counter() - started
    end()
    tally.verify(Order)
    return Measurement(messages, took)


def case(name: str, attach: Attach, publish: Publish[Order] = in_batches) -> Case:
    return Case(
        name=name,
        group="observers",
        contender="QueueCraft",
        run=partial(run, attach=attach, publish=publish),
    )


CASES = (
    case("nothing", nothing),
    case("Prometheus", prometheus),
    case("JSON log at info", partial(json_log, lines=False)),
    case("a JSON line for each message", partial(json_log, lines=True)),
    case("OpenTelemetry, 1 % sampled", partial(traces, sampled=0.01)),
    case("OpenTelemetry, all sampled", partial(traces, sampled=1.0)),
    case("OpenTelemetry, all sampled, and metrics", partial(traces, sampled=1.0, metrics=True)),
    case("nothing, one at a time", nothing, one_at_a_time),
    case("Prometheus, one at a time", prometheus, one_at_a_time),
    case("OpenTelemetry, 1 % sampled, one at a time", partial(traces, sampled=0.01), one_at_a_time),
)
