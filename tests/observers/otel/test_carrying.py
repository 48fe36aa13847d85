"""How the context of a trace gets into messages and out of them, whoever has written it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from queuecraft import (
    ConfigError,
    Event,
    Message,
    QueueCraft,
    Retry,
)
from queuecraft.observers.otel import OpenTelemetry
from queuecraft.sync import QueueCraft as SyncQueueCraft
from queuecraft.testing import MockQueueCraft
from tests.observers.otel.recorded import Recorded, context_of, parent_of, trace_of
from tests.runtime.support import eventually, running

number = Event("number", int)
AGAIN = Retry(max_retries=1, initial_delay=0.0)


def spans_of(recorded: Recorded, name: str, count: int) -> Any:
    return lambda: len(recorded.named(name)) == count


async def test_a_context_that_the_caller_has_chosen_stays() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("billing")
    worker.on(number, lambda n: None)
    chosen = f"00-{'a' * 32}-{'b' * 16}-01"
    async with qc, running(worker):
        await qc.publish(number, 1, headers={"traceparent": chosen, "tenant": "acme"})
        await eventually(spans_of(recorded, "process billing", 1))
    (handled,), (sent,) = recorded.named("process billing"), recorded.named("send number")
    assert f"{trace_of(handled):032x}" == "a" * 32
    assert [f"{link.context.span_id:016x}" for link in sent.links] == ["b" * 16]


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": "nonsense"},
        {"traceparent": b"\xff\xfe"},
        {"traceparent": 7, "tracestate": True},
        {"traceparent": f"00-{'0' * 32}-{'0' * 16}-01"},
        {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "=,=" * 5000},
        {"baggage": "a=b;" * 10_000},
    ],
)
async def test_headers_of_strangers_cannot_stop_a_message(headers: Any) -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("billing")
    worker.on(number, lambda n: None)
    async with qc, running(worker):
        await qc.publish(number, 1, headers=headers)
        await eventually(lambda: qc.get_metrics().messages_succeeded == 1)
    assert len(recorded.named("process billing")) == 1


async def test_baggage_reaches_the_handler_and_the_span_of_a_starter_does_not() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("billing")
    seen: list[object] = []

    @worker.on(number)
    async def handle(n: int) -> None:
        seen.append(baggage.get_baggage("tenant"))

    async with qc:
        with recorded.tracer.start_as_current_span("deployment"):
            await worker.start()
        token = context.attach(baggage.set_baggage("tenant", "acme"))
        await qc.publish(number, 1)
        context.detach(token)
        await eventually(lambda: seen)
        await eventually(spans_of(recorded, "process billing", 1))
        await worker.stop()
    assert seen == ["acme"]
    (handled,), (deployment,) = recorded.named("process billing"), recorded.named("deployment")
    assert trace_of(handled) != trace_of(deployment)


async def test_what_is_not_sampled_carries_that_on() -> None:
    recorded = Recorded(sampler=ParentBased(ALWAYS_OFF))
    qc = recorded.queuecraft()
    async with qc:
        await qc.admin.declare("billing", "number")
        await qc.publish(number, 1)
        (waiting,) = await qc.admin.peek("billing")
    assert int(str(waiting.headers["traceparent"])[-2:], 16) & 1 == 0
    assert recorded.spans == ()


async def test_without_a_provider_nothing_is_added_to_a_message() -> None:
    qc = QueueCraft()
    OpenTelemetry().attach(qc)
    worker = qc.worker("billing")
    seen: list[Any] = []

    @worker.on(number)
    async def handle(n: int, message: Message[int]) -> None:
        seen.append(dict(message.headers))

    async with qc, running(worker):
        await qc.publish(number, 1)
        await eventually(lambda: seen)
    assert seen == [{}]


async def test_a_context_passes_through_a_process_without_a_provider() -> None:
    qc = QueueCraft()
    OpenTelemetry().attach(qc)
    worker = qc.worker("billing")
    seen: list[Any] = []

    @worker.on("first")
    async def pass_on(n: int) -> None:
        await qc.publish("second", n)

    @worker.on("second")
    async def handle(n: int, message: Message[int]) -> None:
        seen.append(message.headers["traceparent"])

    theirs = f"00-{'a' * 32}-{'b' * 16}-01"
    async with qc, running(worker):
        await qc.publish("first", 1, headers={"traceparent": theirs})
        await eventually(lambda: seen)
    assert seen == [theirs]


async def test_sync_code_publishes_in_its_own_trace() -> None:
    recorded = Recorded()
    made: list[str] = []

    def plain() -> None:
        qc = SyncQueueCraft("local://", publish_middleware=[recorded.telemetry.publishing()])
        with qc:
            qc.admin.declare("billing", "number")
            with recorded.tracer.start_as_current_span("view"):
                qc.publish("number", 1)
            (message,) = qc.admin.peek("billing")
            made.append(str(message.headers["traceparent"]))

    await asyncio.to_thread(plain)
    (sent,), (view,) = recorded.named("send number"), recorded.named("view")
    assert parent_of(sent) == context_of(view).span_id
    assert f"{context_of(sent).span_id:016x}" in made[0]


def test_a_queuecraft_is_traced_once() -> None:
    telemetry = OpenTelemetry()
    qc = QueueCraft()
    telemetry.attach(qc)
    telemetry.attach(QueueCraft())
    with pytest.raises(ConfigError, match="already"):
        telemetry.attach(qc)
    with pytest.raises(ConfigError, match="max_names"):
        OpenTelemetry(max_names=0)


async def test_a_mock_is_traced_as_well() -> None:
    recorded = Recorded()
    async with MockQueueCraft() as mock:
        recorded.telemetry.attach(mock)
        worker = mock.worker("billing")
        worker.on(number, lambda n: None)
        await mock.deliver(worker, 1)
    assert len(recorded.named("process billing")) == 1
