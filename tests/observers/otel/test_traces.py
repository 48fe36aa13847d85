"""One trace for all that follows from a publish, by the conventions of OpenTelemetry."""

from __future__ import annotations

import asyncio
import sqlite3
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from queuecraft import (
    BatchFailed,
    Event,
    Message,
    NoRetry,
    Queue,
    RemoteError,
    Retry,
    Unroutable,
)
from queuecraft.middleware import Postponed
from queuecraft.outbox import Outbox
from tests.observers.otel.recorded import Recorded, context_of, labels_of, parent_of, trace_of
from tests.runtime.support import eventually, running

number = Event("number", int)
AGAIN = Retry(max_retries=1, initial_delay=0.0)


def spans_of(recorded: Recorded, name: str, count: int) -> Any:
    return lambda: len(recorded.named(name)) == count


async def test_publish_and_handler_and_what_that_publishes_are_one_trace() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    billing, shipping = qc.worker("billing"), qc.worker("shipping")

    @billing.on("order.placed")
    async def charge(order: dict[str, Any]) -> None:
        with recorded.tracer.start_as_current_span("ask the bank"):
            await qc.publish("order.paid", order)

    @shipping.on("order.paid")
    def ship(order: dict[str, Any]) -> None:  # in a thread
        with recorded.tracer.start_as_current_span("print a label"):
            pass

    async with qc, running(billing, shipping):
        with recorded.tracer.start_as_current_span("checkout"):
            await qc.publish("order.placed", {})
        await eventually(spans_of(recorded, "process shipping", 1))
    chain = [
        recorded.named(name)[0]
        for name in (
            "checkout",
            "send order.placed",
            "process billing",
            "ask the bank",
            "send order.paid",
            "process shipping",
            "print a label",
        )
    ]
    for before, after in pairwise(chain):
        assert parent_of(after) == context_of(before).span_id, after.name
    assert {trace_of(each) for each in recorded.spans} == {trace_of(chain[0])}


async def test_spans_say_what_the_conventions_ask_for() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("billing")
    worker.on(number, lambda n: None)
    async with qc, running(worker):
        id = await qc.publish(number, 1, correlation_id="c-1")
        await eventually(spans_of(recorded, "process billing", 1))
    (sent,), (handled,) = recorded.named("send number"), recorded.named("process billing")
    assert sent.kind is SpanKind.PRODUCER
    assert labels_of(sent) == {
        "messaging.system": "queuecraft",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "number",
        "messaging.message.id": id,
        "messaging.message.conversation_id": "c-1",
    }
    assert handled.kind is SpanKind.CONSUMER
    assert labels_of(handled) == {
        "messaging.system": "queuecraft",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "billing",
        "messaging.consumer.group.name": "billing",
        "messaging.message.id": id,
        "messaging.message.conversation_id": "c-1",
        "queuecraft.event": "number",
        "queuecraft.attempt": 1,
    }
    assert sent.status.status_code is handled.status.status_code is StatusCode.UNSET


async def test_retries_and_the_dead_letter_are_told_in_the_spans_of_one_trace() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("billing", retry=AGAIN)

    @worker.on(number)
    async def fail(n: int) -> None:
        raise ValueError("no money")

    async with qc, running(worker):
        await qc.publish(number, 1)
        await eventually(spans_of(recorded, "process billing", 2))
        (letter,) = await qc.admin.peek("billing.dlq")
        worker_of_letters = letter.headers["traceparent"]
    sent = recorded.named("send number")[0]
    first, second = recorded.named("process billing")
    assert parent_of(first) == parent_of(second) == context_of(sent).span_id
    assert f"{trace_of(sent):032x}" in str(worker_of_letters)
    for span in (first, second):
        assert span.status.status_code is StatusCode.ERROR
        assert labels_of(span)["error.type"] == "ValueError"
        assert span.events[0].name == "exception"
    assert [(e.name, dict(e.attributes or {})) for e in first.events][1:] == [
        (
            "retry",
            {
                "queuecraft.reason": "handler-error",
                "queuecraft.delay": 0.0,
                "queuecraft.attempt": 1,
            },
        )
    ]
    assert [(e.name, dict(e.attributes or {})) for e in second.events][1:] == [
        ("dead letter", {"queuecraft.reason": "handler-error", "queuecraft.attempt": 2})
    ]


async def test_a_redrive_stays_in_the_trace() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("billing", retry=NoRetry())
    broken = True

    @worker.on(number)
    async def handle(n: int) -> None:
        if broken:
            raise ValueError("no money")

    async with qc, running(worker):
        await qc.publish(number, 1)
        await eventually(spans_of(recorded, "process billing", 1))
        broken = False
        await qc.dead_letters.redrive("billing")
        await eventually(spans_of(recorded, "process billing", 2))
    assert len({trace_of(each) for each in recorded.spans}) == 1


async def test_what_a_handler_decides_by_hand_is_told_too() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("billing", retry=AGAIN)

    @worker.on(number)
    async def decide(n: int, message: Message[int]) -> None:
        if n == 0:
            await message.ack()
        elif message.attempt == 1:
            await message.retry(delay=0.0)
        else:
            await message.dead_letter("odd")

    async with qc, running(worker):
        await qc.publish_many(number, [0, 1])
        await eventually(spans_of(recorded, "process billing", 3))
    told = [[event.name for event in each.events] for each in recorded.named("process billing")]
    assert sorted(told) == [[], ["dead letter"], ["retry"]]
    kinds = [labels_of(each).get("error.type") for each in recorded.named("process billing")]
    assert sorted(map(str, kinds)) == ["None", "nack", "odd"]


async def test_a_postponed_message_has_not_failed() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("billing")
    tries: list[int] = []

    @worker.on(number)
    async def handle(n: int) -> None:
        tries.append(n)
        if len(tries) == 1:
            raise Postponed(0.01, "the bank is closed")

    async with qc, running(worker):
        await qc.publish(number, 1)
        await eventually(spans_of(recorded, "process billing", 2))
    first = recorded.named("process billing")[0]
    assert first.status.status_code is StatusCode.UNSET
    assert [event.name for event in first.events] == ["postponed"]


async def test_publish_many_is_one_span_and_may_be_atomic() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("billing")
    worker.on(number, lambda n: None)
    async with qc, running(worker):
        await qc.publish_many(number, (n for n in range(3)), atomic=True)
        await eventually(spans_of(recorded, "process billing", 3))
    (sent,) = recorded.named("send number")
    assert labels_of(sent)["messaging.batch.message_count"] == 3
    assert {parent_of(each) for each in recorded.named("process billing")} == {
        context_of(sent).span_id
    }


async def test_a_handler_of_lists_has_one_span_that_is_linked_to_each_publish() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("billing", retry=NoRetry())
    inside: list[int] = []

    @worker.on(number, batch_size=10, batch_wait=0.2)
    async def handle(numbers: list[int], messages: list[Message[int]]) -> None:
        inside.append(get_current_span().get_span_context().span_id)
        raise BatchFailed({1: ValueError("no money")})

    async with qc, running(worker):
        for n in range(3):
            await qc.publish(number, n)
        await eventually(spans_of(recorded, "process billing", 1))
    (span,) = recorded.named("process billing")
    assert inside == [context_of(span).span_id]
    assert labels_of(span)["messaging.batch.message_count"] == 3
    assert span.parent is None
    assert {link.context.span_id for link in span.links} == {
        context_of(each).span_id for each in recorded.named("send number")
    }
    (told,) = [event for event in span.events if event.name == "dead letter"]
    assert (told.attributes or {})["messaging.message.id"] == labels_of(
        recorded.named("send number")[1]
    )["messaging.message.id"]


async def test_with_link_a_handler_begins_a_trace_of_its_own() -> None:
    recorded = Recorded(link=True)
    qc = recorded.queuecraft()
    worker = qc.worker("billing")
    worker.on(number, lambda n: None)
    async with qc, running(worker):
        await qc.publish(number, 1)
        await eventually(spans_of(recorded, "process billing", 1))
    (sent,), (handled,) = recorded.named("send number"), recorded.named("process billing")
    assert handled.parent is None
    assert trace_of(handled) != trace_of(sent)
    assert [link.context.span_id for link in handled.links] == [context_of(sent).span_id]


async def test_a_request_and_its_handler_are_one_trace() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("pricing")

    @worker.on("price.asked")
    async def price(article: str) -> float:
        if article != "tea":
            raise LookupError(article)
        return 4.5

    async with qc, running(worker):
        with recorded.tracer.start_as_current_span("shop"):
            assert await qc.request("price.asked", "tea", float) == 4.5
            with pytest.raises(RemoteError):
                await qc.request("price.asked", "milk", float)
        await eventually(spans_of(recorded, "process pricing", 2))
    assert len({trace_of(each) for each in recorded.spans}) == 1
    failed = recorded.named("process pricing")[1]
    assert labels_of(failed)["error.type"] == "LookupError"
    assert "dropped" in [event.name for event in failed.events]


async def test_delayed_messages_carry_the_trace_on() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("billing")
    worker.on(number, lambda n: None)
    async with qc, running(worker), qc.delayed.running():
        with recorded.tracer.start_as_current_span("shop"):
            await qc.publish(number, 1, delay=0.01)
            await qc.delayed.add(number, 2, delay=0.01)
            await qc.send(Queue("billing", int), 3)
        await eventually(spans_of(recorded, "process billing", 3))
    assert len({trace_of(each) for each in recorded.spans}) == 1
    assert len(recorded.named("send number")) == 2
    assert len(recorded.named("send billing")) == 1


async def test_the_outbox_carries_the_trace_on(tmp_path: Path) -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("billing")
    worker.on(number, lambda n: None)
    outbox = Outbox(headers=recorded.telemetry.headers)
    shop = sqlite3.connect(tmp_path / "shop.db")
    outbox.create(shop)
    with recorded.tracer.start_as_current_span("checkout"), shop:
        shop.execute("CREATE TABLE orders (id)")
        outbox.publish(shop, number, 1)
    shop.close()
    async with qc, running(worker):
        await outbox.relay(qc, f"sqlite:///{tmp_path}/shop.db", once=True)
        await eventually(spans_of(recorded, "process billing", 1))
    (handled,) = recorded.named("process billing")
    assert parent_of(handled) == context_of(recorded.named("checkout")[0]).span_id


async def test_a_failed_publish_is_a_failed_span() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    async with qc:
        with pytest.raises(Unroutable):
            await qc.publish(number, 1)
        results = await qc.publish_many(number, [1, 2], return_exceptions=True)
        assert len(results) == 2
    for span in recorded.named("send number"):
        assert span.status.status_code is StatusCode.ERROR
        assert labels_of(span)["error.type"] == "queuecraft.Unroutable"
        assert [event.name for event in span.events] == ["exception"]


async def test_an_ack_timeout_is_the_error_of_its_span() -> None:
    recorded = Recorded()
    qc = recorded.queuecraft()
    worker = qc.worker("billing", retry=NoRetry(), ack_timeout=0.02)

    @worker.on(number)
    async def handle(n: int) -> None:
        await asyncio.sleep(30)

    async with qc, running(worker):
        await qc.publish(number, 1)
        await eventually(spans_of(recorded, "process billing", 1))
    (span,) = recorded.named("process billing")
    assert labels_of(span)["error.type"] == "AckTimeout"
    assert "dead letter" in [event.name for event in span.events]
