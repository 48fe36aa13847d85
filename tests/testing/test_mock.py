"""The mock facade: recorded publishes, simulated deliveries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    Event,
    Message,
    NoDeadLetter,
    NoRetry,
    PayloadError,
    PublishError,
    Queue,
    QueueCraft,
    Retry,
    Unroutable,
)
from queuecraft.middleware import Postponed
from queuecraft.model.outcome import Acked, DeadLettered, Dropped, PutOff, Retried
from queuecraft.testing import Ledger, MockQueueCraft


@dataclass
class Order:
    id: str
    total: float = 0.0


order_placed = Event("order.placed", Order)
order_paid = Event("order.paid", Order, key=lambda order: order.id)
invoices = Queue("invoices", Order)


@pytest.fixture
async def mock() -> AsyncIterator[MockQueueCraft]:
    async with MockQueueCraft() as mock:
        yield mock


async def test_it_is_a_queuecraft(mock: MockQueueCraft) -> None:
    assert isinstance(mock, QueueCraft)
    assert mock.connection_state == "connected"
    assert mock.health_check().status == "healthy"


async def test_publishes_are_recorded_per_event_and_need_no_worker(mock: MockQueueCraft) -> None:
    await mock.publish(order_placed, Order("o-1"))
    await mock.publish(order_paid, Order("o-1", 9.5))
    await mock.publish_many(order_placed, [Order("o-2"), Order("o-3")])
    assert mock.published(order_placed) == [Order("o-1"), Order("o-2"), Order("o-3")]
    assert mock.published(order_paid) == [Order("o-1", 9.5)]
    assert mock.published("order.paid") == [{"id": "o-1", "total": 9.5}]
    assert len(mock.published("order.*")) == 4
    assert mock.published("user.#") == []


async def test_sends_are_recorded_per_queue(mock: MockQueueCraft) -> None:
    await mock.send(invoices, Order("o-1"))
    await mock.send("letters", "hello")
    assert mock.sent(invoices) == [Order("o-1")]
    assert mock.sent("letters") == ["hello"]
    assert mock.published("#") == []
    assert [record.queue for record in mock.records] == ["invoices", "letters"]


async def test_a_record_tells_how_a_message_was_sent(mock: MockQueueCraft) -> None:
    id = await mock.publish(
        order_paid,
        Order("o-1"),
        headers={"tenant": "acme"},
        delay=30,
        ttl=60,
        priority=5,
        correlation_id="c-1",
    )
    (record,) = mock.records
    assert record.id == id
    assert record.event == "order.paid"
    assert record.exchange == "events"
    assert record.headers == {"tenant": "acme"}
    assert record.key == "o-1"
    assert record.priority == 5
    assert record.correlation_id == "c-1"
    assert record.delay == 30
    assert record.deliver_at == datetime.fromtimestamp(mock.clock.now() + 30, UTC)
    assert record.expires_at == datetime.fromtimestamp(mock.clock.now() + 90, UTC)
    assert record.payload == {"id": "o-1", "total": 0.0}
    assert id in repr(record)


async def test_a_record_of_a_plain_publish_leaves_the_rest_unsaid(mock: MockQueueCraft) -> None:
    await mock.publish(order_placed, Order("o-1"))
    (record,) = mock.records
    assert (record.delay, record.deliver_at, record.expires_at, record.key) == (None,) * 4


async def test_a_payload_that_does_not_fit_is_refused_as_ever(mock: MockQueueCraft) -> None:
    with pytest.raises(PayloadError):
        await mock.publish("order.placed", object())
    assert mock.records == []


async def test_publishing_fails_on_demand(mock: MockQueueCraft) -> None:
    mock.fail_publishing(event=order_placed, times=2)
    mock.fail_publishing(Unroutable("nobody"), event="order.paid")
    for _ in range(2):
        with pytest.raises(PublishError, match="the test rejects it"):
            await mock.publish(order_placed, Order("o-1"))
    with pytest.raises(Unroutable, match="nobody"):
        await mock.publish(order_paid, Order("o-1"))
    await mock.publish(order_placed, Order("o-2"))
    assert mock.published("#") == [{"id": "o-2", "total": 0.0}]


async def test_clearing_forgets_records_and_failures(mock: MockQueueCraft) -> None:
    await mock.publish(order_placed, Order("o-1"))
    mock.fail_publishing(times=None)
    mock.clear()
    assert mock.records == []
    await mock.publish(order_placed, Order("o-2"))
    assert mock.published(order_placed) == [Order("o-2")]


async def test_what_is_published_is_not_handled_by_itself(mock: MockQueueCraft) -> None:
    ledger = Ledger()
    worker = mock.worker("billing").on(order_placed, ledger.recording("billing"))
    await worker.start()
    await mock.publish(order_placed, Order("o-1"))
    await mock.clock.advance(60)
    assert ledger.calls == []


async def test_a_delivery_is_handled_as_a_real_one(mock: MockQueueCraft) -> None:
    seen: list[Any] = []

    def noted(handle):
        async def noting(message: Message[Any]) -> object:
            seen.append("middleware")
            return await handle(message)

        return noting

    billing = mock.worker("billing", middleware=[noted])

    @billing.on(order_placed)
    async def charge(order: Order, message: Message[Order]) -> None:
        seen.append((order, message.attempt, dict(message.headers), message.key, message.id))
        await mock.publish(order_paid, order)

    outcome = await mock.deliver(
        billing, Order("o-1"), headers={"tenant": "acme"}, key="k", message_id="m-1"
    )
    assert outcome == Acked()
    assert seen == ["middleware", (Order("o-1"), 1, {"tenant": "acme"}, "k", "m-1")]
    assert mock.published(order_paid) == [Order("o-1")]


async def test_an_event_finds_its_worker(mock: MockQueueCraft) -> None:
    ledger = Ledger()
    mock.worker("billing").on(order_placed, ledger.recording("billing"))
    mock.worker("audit").on("user.#", ledger.recording("audit"))
    assert await mock.deliver(order_placed, Order("o-1")) == Acked()
    assert await mock.deliver("user.created", {"name": "Ada"}) == Acked()
    assert ledger.payloads("billing") == [Order("o-1")]
    assert ledger.payloads("audit") == [{"name": "Ada"}]


async def test_a_worker_of_several_events_is_told_which(mock: MockQueueCraft) -> None:
    ledger = Ledger()
    billing = (
        mock.worker("billing")
        .on(order_placed, ledger.recording("placed"))
        .on(order_paid, ledger.recording("paid"))
    )
    with pytest.raises(ConfigError, match="say which"):
        await mock.deliver(billing, Order("o-1"))
    await mock.deliver(billing, Order("o-1"), event=order_paid)
    await mock.deliver(billing, Order("o-2"), event="order.placed")
    assert ledger.payloads("paid") == [Order("o-1")]
    assert ledger.payloads("placed") == [Order("o-2")]


async def test_an_event_of_several_workers_or_none_needs_the_worker(mock: MockQueueCraft) -> None:
    with pytest.raises(ConfigError, match="no worker"):
        await mock.deliver(order_placed, Order("o-1"))
    for name in ("one", "two"):
        mock.worker(name).on(order_placed, Ledger().recording(name))
    with pytest.raises(ConfigError, match="name the worker"):
        await mock.deliver(order_placed, Order("o-1"))


async def test_a_failure_is_retried_until_attempts_run_out(mock: MockQueueCraft) -> None:
    ledger = Ledger()
    billing = mock.worker("billing", retry=Retry(max_retries=2, initial_delay=10))
    billing.on(order_placed, ledger.failing("billing", times=None, error=KeyError("o-1")))
    outcomes = [await mock.deliver(billing, Order("o-1"), attempt=n) for n in (1, 2, 3)]
    assert [type(each) for each in outcomes] == [Retried, Retried, DeadLettered]
    first, second, last = outcomes
    assert isinstance(first, Retried)
    assert isinstance(second, Retried)
    assert isinstance(last, DeadLettered)
    assert (first.delay, second.delay) == (10, 20)
    assert last.reason == "handler-error"
    assert last.failure is not None
    assert last.failure.error_type == "KeyError"
    assert ledger.attempts("billing") == [1, 2, 3]


async def test_a_retry_comes_back_when_its_time_has_come(mock: MockQueueCraft) -> None:
    ledger = Ledger()
    billing = mock.worker("billing", retry=Retry(initial_delay=20))
    billing.on(order_placed, ledger.failing("billing", times=1))
    assert isinstance(await mock.deliver(billing, Order("o-1")), Retried)
    await mock.clock.advance(19)
    assert ledger.attempts("billing") == [1]
    await mock.clock.advance(1)
    assert ledger.attempts("billing") == [1, 2]


async def test_without_dead_letters_the_end_is_dropped(mock: MockQueueCraft) -> None:
    billing = mock.worker("billing", retry=NoRetry(), dead_letter=NoDeadLetter())
    billing.on(order_placed, Ledger().failing("billing"))
    assert isinstance(await mock.deliver(billing, Order("o-1")), Dropped)


async def test_what_is_put_off_is_told(mock: MockQueueCraft) -> None:
    billing = mock.worker("billing")

    @billing.on(order_placed)
    async def charge(order: Order) -> None:
        raise Postponed(60, "the bank is closed")

    assert await mock.deliver(billing, Order("o-1")) == PutOff(60, "the bank is closed")


async def test_a_body_that_cannot_be_read_is_a_dead_letter_at_once(mock: MockQueueCraft) -> None:
    ledger = Ledger()
    billing = mock.worker("billing").on(order_placed, ledger.recording("billing"))
    outcome = await mock.deliver(billing, body=b"not JSON")
    assert isinstance(outcome, DeadLettered)
    assert outcome.reason == "invalid-payload"
    assert ledger.calls == []


async def test_settling_by_hand_is_an_outcome_too(mock: MockQueueCraft) -> None:
    async def by_hand(order: Order, message: Message[Order]) -> None:
        match order.id:
            case "ack":
                await message.ack()
            case "retry":
                await message.retry(delay=7)
            case "dead":
                await message.dead_letter("not mine")
            case _:
                await message.nack(requeue=False, reason="no")

    billing = mock.worker("billing").on(order_placed, by_hand)
    assert await mock.deliver(billing, Order("ack")) == Acked()
    retried = await mock.deliver(billing, Order("retry"))
    assert isinstance(retried, Retried)
    assert retried.delay == 7
    dead = await mock.deliver(billing, Order("dead"))
    assert isinstance(dead, DeadLettered)
    assert dead.reason == "not mine"
    assert isinstance(await mock.deliver(billing, Order("nack")), DeadLettered)


async def test_a_sync_handler_is_delivered_to_as_well(mock: MockQueueCraft) -> None:
    seen: list[Order] = []

    def charge(order: Order) -> None:
        seen.append(order)

    billing = mock.worker("billing").on(order_placed, charge)
    assert await mock.deliver(billing, Order("o-1")) == Acked()
    assert seen == [Order("o-1")]


async def test_a_handler_that_does_not_end_is_told_of(mock: MockQueueCraft) -> None:
    async def sleeps(order: Order) -> None:
        await mock.clock.sleep(3600)

    billing = mock.worker("billing").on(order_placed, sleeps)
    with pytest.raises(AssertionError, match=r"billing.* did not finish message m-1"):
        await mock.deliver(billing, Order("o-1"), message_id="m-1", timeout=0.01)
    await mock.clock.advance(3600)


async def test_two_mocks_share_nothing() -> None:
    async with MockQueueCraft() as one, MockQueueCraft() as two:
        await one.publish(order_placed, Order("o-1"))
        assert two.records == []
        assert one.clock is not two.clock


async def test_settings_apply_to_a_mock() -> None:
    async with MockQueueCraft(exchange="shop", retry=NoRetry()) as mock:
        await mock.publish(order_placed, Order("o-1"))
        assert mock.records[0].exchange == "shop"
        billing = mock.worker("billing").on(order_placed, Ledger().failing("billing"))
        assert isinstance(await mock.deliver(billing, Order("o-1")), DeadLettered)
