"""Delays, times to live and order, on a real RabbitMQ."""

from __future__ import annotations

import asyncio
import time

import pytest

from queuecraft import Event, Exchange, Message, NoDeadLetter, PublishError, QueueCraft, Retry
from queuecraft.model.queue import ExchangeType
from queuecraft.testing import Ledger
from tests.rabbitmq.place import Order, number, order_placed, running, until, until_ready


async def test_a_delayed_event_reaches_all_who_are_bound_when_it_is_due_and_never_early(
    rabbitmq_url: str,
) -> None:
    seen = Ledger()
    early: list[float] = []
    qc = QueueCraft(rabbitmq_url)

    async def note(message: Message) -> None:
        assert message.timestamp is not None
        early.append(0.35 - (time.time() - message.timestamp.timestamp()))
        seen.record("audit", message)

    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    audit = qc.worker("audit").on("order.#", note)
    async with qc, running(billing, audit):
        id = await qc.publish(order_placed, Order("o-1"), delay=0.35)
        late = qc.worker("late").on(order_placed, seen.recording("late"))
        async with running(late):  # bound after the publish, before it is due
            await seen.wait_for(billing=1, audit=1, late=1)
    assert seen.ids() == [id] * 3
    assert all(each <= 0 for each in early)


async def test_delays_of_any_length_come_in_the_order_of_their_times(rabbitmq_url: str) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url)
    worker = qc.worker("numbers", concurrency=1).on(number, seen.recording("numbers"))
    async with qc, running(worker):
        await asyncio.gather(*(qc.publish(number, n, delay=n / 10) for n in (9, 4, 14, 1, 6)))
        await qc.publish(number, 0)
        await seen.wait_for(numbers=6)
    assert seen.payloads("numbers") == [0, 1, 4, 6, 9, 14]


async def test_a_delay_that_is_too_long_is_refused_and_what_goes_with_it_is_not(
    rabbitmq_url: str,
) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url)
    worker = qc.worker("numbers").on(number, seen.recording("numbers"))
    async with qc, running(worker):
        too_long = qc.publish(number, 1, delay=311 * 86_400)
        refused, *_ = await asyncio.gather(
            too_long,
            qc.publish(number, 2, delay=0.2),
            qc.publish(number, 3, delay=310 * 86_400),
            return_exceptions=True,
        )
        await seen.wait_for(numbers=1)
    assert isinstance(refused, PublishError)
    assert refused.outcome == "rejected"
    assert "more than 310 days; use qc.delayed" in str(refused)
    assert seen.payloads("numbers") == [2]


async def test_a_delay_sent_to_one_queue_ends_there(rabbitmq_url: str) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url)
    one = qc.worker("one").on("#", seen.recording("one"))
    two = qc.worker("two").on("#", seen.recording("two"))
    async with qc, running(one, two):
        await qc.send("one", {"n": 1}, delay=0.2)
        await seen.wait_for(one=1)
        await qc.publish(number, 2)
        await seen.wait_for(one=2, two=1)
    assert seen.payloads("two") == [2]


async def test_a_message_that_waits_longer_than_its_ttl_is_a_dead_letter(rabbitmq_url: str) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url)
    worker = qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with qc:
        old = await qc.publish(order_placed, Order("old"), ttl=0.05)
        fresh = await qc.publish(order_placed, Order("fresh"), ttl=60)
        due = await qc.publish(order_placed, Order("due"), ttl=5, delay=0.3)
        await until_ready(qc, "billing", 3)
        async with running(worker):
            await seen.wait_for(billing=2)
            await until_ready(qc, "billing.dlq", 1)
        (letter,) = await qc.dead_letters.list("billing")
        assert (letter.id, letter.reason, letter.queue) == (old, "expired", "billing")
    assert seen.ids("billing") == [fresh, due]


async def test_what_a_queue_expires_by_itself_tells_the_same_story(rabbitmq_url: str) -> None:
    seen = Ledger()
    async with QueueCraft(rabbitmq_url) as qc:
        worker = qc.worker("billing", ttl=0.2).on(order_placed, seen.recording("billing"))
        async with running(worker):
            await qc.publish(order_placed, Order("o-0"))
            await seen.wait_for(billing=1)
        id = await qc.publish(order_placed, Order("o-1"), key="ada", headers={"shop": "eu"})
        await until_ready(qc, "billing.dlq", 1)  # with no worker at work
        (letter,) = await qc.dead_letters.list("billing")
        assert (letter.id, letter.queue, letter.event) == (id, "billing", "order.placed")
        assert (letter.reason, letter.key, letter.failures) == ("expired", "ada", 0)
        assert letter.failed_at is not None
        assert letter.headers == {"shop": "eu"}
        async with running(worker):  # first: what is sent back has 0.2 seconds to live
            await qc.dead_letters.redrive("billing")
            await seen.wait_for(billing=2)
    assert seen.ids("billing")[1] == id
    assert seen.attempts("billing") == [1, 1]


async def test_the_time_to_live_of_a_queue_counts_from_when_a_message_is_due(
    rabbitmq_url: str,
) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url)
    worker = qc.worker("billing", ttl=1.0, dead_letter=NoDeadLetter())
    worker.on(order_placed, seen.recording("billing"))
    async with qc, running(worker):
        await qc.publish(order_placed, Order("o-1"), delay=1.3)
        await seen.wait_for(billing=1)


async def test_of_two_ordered_workers_one_is_at_work_and_the_other_takes_over(
    rabbitmq_url: str,
) -> None:
    seen = Ledger()
    first, second = QueueCraft(rabbitmq_url), QueueCraft(rabbitmq_url)
    workers = [
        qc.worker(
            "numbers",
            ordering="key",
            concurrency=4,
            prefetch=20,
            retry=Retry(max_retries=3, initial_delay=0.1, factor=1),
        )
        for qc in (first, second)
    ]
    failed: set[str] = set()

    def handler(name: str):
        async def handle(n: int, message: Message[int]) -> None:
            fails = n % 10 == 3 and message.id not in failed
            seen.record(name, message, failed=fails)
            if fails:
                failed.add(message.id)
                raise RuntimeError("once")

        return handle

    for worker, name in zip(workers, ("first", "second"), strict=True):
        worker.on(number, handler(name))

    async def publish(numbers: range) -> None:
        for n in numbers:
            key = "abc"[n % 3]
            seen.published(await first.publish(number, n, key=key, message_id=str(n)), key=key)

    async with second, first:
        await workers[0].start()
        await workers[1].start()
        await publish(range(30))
        await until(lambda: _handled(seen), lambda handled: handled >= 30)
        assert {each.name for each in seen.calls} == {"first"}
        await workers[0].stop()
        await publish(range(30, 60))
        await until(lambda: _handled(seen), lambda handled: handled >= 60)
        await workers[1].stop()
    assert {each.name for each in seen.calls} == {"first", "second"}
    seen.check(ordered=["first", "second"])


async def _handled(seen: Ledger) -> int:
    return len({each.id for each in seen.calls if not each.failed})


# -- what is due for nobody ------------------------------------------------------------------------


async def test_what_is_due_for_a_queue_that_is_gone_holds_up_nobody_and_is_told(
    rabbitmq_url: str,
) -> None:
    """RabbitMQ tries again what it cannot hand over, and no more than 32 of a level at a time."""
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url, retry=Retry(max_retries=1, initial_delay=0.3))
    numbers = qc.worker("numbers", concurrency=40).on(number, seen.failing("numbers", times=1))
    others = qc.worker("others").on(order_placed, seen.recording("others"))
    async with qc:
        async with running(numbers):
            await qc.publish_many(number, range(40))
            await seen.wait_for(numbers=40)
        await qc.admin.delete("numbers")
        async with running(others):
            await until_ready(qc, "qc.undelivered.dlq", 40)
            await qc.publish(order_placed, Order("o-1"), delay=0.3)
            await seen.wait_for(others=1)
        letter, *_ = await qc.dead_letters.list("qc.undelivered")
        assert (letter.queue, letter.event) == ("numbers", "number")
        assert (letter.reason, letter.failures) == ("undelivered", 1)
        async with running(numbers):  # which makes the queue again
            await seen.wait_for(numbers=80)
    assert sorted(seen.payloads("numbers")) == sorted([*range(40)] * 2)
    assert sorted(seen.attempts("numbers")) == [1] * 40 + [2] * 40


@pytest.mark.parametrize("kind", ["topic", "direct", "fanout", "headers"])
async def test_an_event_that_nobody_wants_when_it_is_due_is_kept_until_somebody_does(
    rabbitmq_url: str, kind: ExchangeType
) -> None:
    exchange = Exchange("odd", kind)
    event = Event("odd.event", int, exchange=exchange)
    wanted = {"format": "pdf"} if kind == "headers" else None
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare("billing")
        await qc.admin.bind("billing", "odd.event", exchange=exchange, headers=wanted)
        await qc.publish(event, 1, delay=0.2, headers={"format": "pdf", "n": 1})
        await until_ready(qc, "billing", 1)
        await qc.publish(event, 2, delay=0.2, headers={"format": "pdf", "n": 2})
        await qc.admin.unbind("billing", "odd.event", exchange=exchange, headers=wanted)
        await until_ready(qc, "qc.undelivered.dlq", 1)
        (letter,) = await qc.dead_letters.list("qc.undelivered")
        assert (letter.event, letter.queue) == ("odd.event", None)
        assert letter.headers == {"format": "pdf", "n": 2}
        assert (await qc.admin.inspect("billing")).ready == 1
        await qc.admin.bind("billing", "odd.event", exchange=exchange, headers=wanted)
        await until_ready(qc, "billing", 2)
        assert (await qc.admin.inspect("qc.undelivered.dlq")).ready == 0


async def test_the_first_delays_of_many_at_once_all_arrive(rabbitmq_url: str) -> None:
    """Each makes the levels, and what another has just made has no leader yet."""
    apps = [QueueCraft(rabbitmq_url) for _ in range(8)]
    async with apps[0] as first:
        await first.admin.declare("numbers", "number")
        await asyncio.gather(*(qc.open() for qc in apps[1:]))
        try:
            await asyncio.gather(*(qc.publish(number, 1, delay=0.3) for qc in apps))
            await until_ready(first, "numbers", 8)
        finally:
            await asyncio.gather(*(qc.shutdown() for qc in apps[1:]))
