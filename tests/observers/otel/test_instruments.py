"""What is counted for OpenTelemetry, in a bounded number of series; and that its failures are its
own."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from queuecraft import Event, Message, NoRetry, QueueCraft, Retry, Unroutable
from queuecraft.observers.otel import OpenTelemetry
from queuecraft.observers.otel.instruments import BUCKETS
from tests.observers.otel.recorded import Recorded
from tests.runtime.support import eventually, running

number = Event("number", int)
QUEUE, EVENT = "messaging.destination.name", "messaging.destination.name"


async def busy(qc: QueueCraft) -> None:
    """Some succeed, one is retried and dies."""
    worker = qc.worker("billing", retry=Retry(max_retries=1, initial_delay=0.0))

    @worker.on(number)
    async def charge(n: int) -> None:
        if n == 3:
            raise ValueError("no")

    async with qc, running(worker):
        await qc.publish_many(number, range(5))
        await qc.publish(number, 6)
        with pytest.raises(Unroutable):
            await qc.publish("nobody", 1)
        await eventually(
            lambda: (
                qc.get_metrics().messages_succeeded == 5
                and qc.get_metrics().messages_dead_lettered == 1
                and qc.get_metrics().in_flight == 0
            )
        )


async def test_the_metrics_of_the_conventions_and_our_own() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()  # what is gone is not asked any more
    await busy(qc)
    values = recorded.values
    assert values("messaging.client.sent.messages", EVENT, "error.type") == {
        ("number", None): 6,
        ("nobody", "queuecraft.Unroutable"): 1,
    }
    assert values("messaging.client.operation.duration", EVENT, "error.type") == {
        ("number", None): 2,
        ("nobody", "queuecraft.Unroutable"): 1,
    }
    assert values("messaging.client.consumed.messages", QUEUE) == {("billing",): 7}
    assert values("messaging.process.duration", QUEUE, "error.type") == {
        ("billing", None): 5,
        ("billing", "ValueError"): 2,
    }
    assert values("queuecraft.retries", QUEUE) == {("billing",): 1}
    assert values("queuecraft.dead_letters", QUEUE) == {("billing",): 1}
    assert values("queuecraft.in_flight", QUEUE) == {("billing",): 0}
    assert values("queuecraft.connection.state", "queuecraft.connection.state") == {("closed",): 1}
    for point in recorded.points("messaging.process.duration"):
        assert tuple(point.explicit_bounds) == BUCKETS
        assert point.attributes["messaging.operation.name"] == "process"
        assert point.attributes["messaging.system"] == "queuecraft"


async def test_names_made_of_data_share_one_series() -> None:
    recorded = Recorded(max_names=3)
    qc = recorded.queuecraft()
    async with qc:
        await qc.admin.declare("audit", "#")
        for n in range(10):
            await qc.publish(f"customer.{n}", n)
    sent = recorded.values("messaging.client.sent.messages", EVENT)
    assert len(sent) == 4
    assert sent[("other",)] == 7


async def test_two_queuecrafts_are_told_apart_by_their_queues_in_one_set_of_series() -> None:
    recorded = Recorded()
    kept: list[QueueCraft] = []  # what is thrown away is no longer told
    for name in ("one", "two"):
        qc = recorded.queuecraft()
        worker = qc.worker(name)
        worker.on(number, lambda n: None)
        async with qc, running(worker):
            await qc.publish(number, 1)
            await eventually(lambda: qc.get_metrics().messages_succeeded == 1)  # noqa: B023
        kept.append(qc)
    assert recorded.values("messaging.client.consumed.messages", QUEUE) == {
        ("one",): 1,
        ("two",): 1,
    }
    assert recorded.values("messaging.client.sent.messages", EVENT) == {("number",): 2}


class Broken(SpanExporter, SpanProcessor):
    """Fails at whatever it is asked to do."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("the collector is down")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("the collector is down")

    def export(self, spans: Any) -> SpanExportResult:
        raise RuntimeError("the collector is down")


class BrokenAtTheEnd(Broken):
    def on_start(self, span: Any, parent_context: Any = None) -> None: ...


class BrokenPropagator:
    fields = frozenset({"traceparent"})

    def inject(self, *given: Any, **more: Any) -> None:
        raise RuntimeError("no")

    def extract(self, *given: Any, **more: Any) -> None:
        raise RuntimeError("no")


@pytest.mark.parametrize("how", ["start", "end", "export", "propagator"])
async def test_whatever_fails_inside_touches_no_message(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    tracers = TracerProvider()
    propagator: Any = None
    match how:
        case "start":
            tracers.add_span_processor(Broken())
        case "end":
            tracers.add_span_processor(BrokenAtTheEnd())
        case "export":
            tracers.add_span_processor(SimpleSpanProcessor(Broken()))
        case _:
            propagator = BrokenPropagator()
    qc = QueueCraft()
    telemetry = OpenTelemetry(tracers, propagator=propagator)
    telemetry.attach(qc)
    worker = qc.worker("billing", retry=NoRetry())
    lists = qc.worker("audit", retry=NoRetry())
    seen: list[int] = []

    @worker.on(number)
    async def handle(n: int, message: Message[int]) -> None:
        seen.append(n)
        if n == 3:
            raise ValueError("no money")

    @lists.on(number, batch_size=10)
    async def note(numbers: list[int]) -> None:
        seen.extend(numbers)

    with caplog.at_level(logging.ERROR):
        async with qc, running(worker, lists):
            await qc.publish(number, 1, headers={"traceparent": "x"})
            await qc.publish_many(number, [2, 3])
            with pytest.raises(Unroutable):
                await qc.publish("nobody", 1)
            assert telemetry.headers() == {}
            await eventually(
                lambda: (
                    qc.get_metrics().messages_succeeded == 5
                    and qc.get_metrics().messages_dead_lettered == 1
                )
            )
    assert sorted(seen) == [1, 1, 2, 2, 3, 3]
    told = [each for each in caplog.records if "OpenTelemetry failed" in each.message]
    assert len(told) == (0 if how == "export" else 1)


def test_without_its_packages_it_says_what_to_install() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
from queuecraft import ConfigError
try:
    import queuecraft.observers.otel
except ConfigError as error:
    print(error)
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True
    )
    assert "pip install 'queuecraft[otel]'" in answer.stdout
