"""Publish, handle, fail, and send back, on a real RabbitMQ."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from queuecraft import (
    DeadLetter,
    Event,
    Exchange,
    Message,
    NoDeadLetter,
    NoRetry,
    PublishError,
    Queue,
    QueueCraft,
    Unroutable,
)
from queuecraft.drivers.base import Subscription
from queuecraft.drivers.rabbitmq.driver import RabbitDriver
from queuecraft.facts import Disconnected
from queuecraft.testing import Ledger
from tests.brokers.management import quoted, vhost_of
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.place import (
    AT_ONCE,
    Order,
    number,
    order_paid,
    order_placed,
    running,
    until,
    until_ready,
)


async def test_an_event_reaches_every_queue_bound_to_it_with_all_it_says(
    rabbitmq_url: str,
) -> None:
    seen = Ledger()
    arrived: list[Message[Order]] = []
    qc = QueueCraft(rabbitmq_url)
    billing, audit = qc.worker("billing"), qc.worker("audit")

    @billing.on(order_placed)
    async def charge(order: Order, message: Message[Order]) -> None:
        arrived.append(message)
        seen.record("billing", message)

    audit.on("order.*", seen.recording("audit"))
    async with qc, running(billing, audit):
        id = await qc.publish(
            order_placed, Order("ö-1"), key="ada", headers={"n": 1}, correlation_id="c-1"
        )
        await seen.wait_for(billing=1, audit=1)
    (message,) = arrived
    assert message.payload == Order("ö-1")
    assert (message.id, message.key, message.routing_key) == (id, "ada", "order.placed")
    assert (message.correlation_id, dict(message.headers)) == ("c-1", {"n": 1})
    assert (message.attempt, message.redeliveries) == (1, 0)


async def test_what_was_published_before_a_worker_runs_is_handled_when_it_does(
    rabbitmq_url: str,
) -> None:
    seen = Ledger()
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare("billing", "order.*")
        await qc.publish(order_placed, Order("o-1"))
    async with QueueCraft(rabbitmq_url) as qc:
        billing = qc.worker("billing").on("order.*", seen.recording("billing"))
        async with running(billing):
            await seen.wait_for(billing=1)
        assert (await qc.admin.inspect("billing")).ready == 0


async def test_a_retry_goes_back_to_the_queue_that_failed_and_no_other(rabbitmq_url: str) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url, retry=AT_ONCE)
    billing = qc.worker("billing").on(order_placed, seen.failing("billing", times=2))
    audit = qc.worker("audit").on(order_placed, seen.recording("audit"))
    async with qc, running(billing, audit):
        seen.published(await qc.publish(order_placed, Order("o-1"), headers={"shop": "eu"}))
        await seen.wait_for(billing=3, audit=1)
        await until_ready(qc, "billing", 0)
        assert await qc.dead_letters.count("billing") == 0
    assert seen.attempts("billing") == [1, 2, 3]
    assert seen.attempts("audit") == [1]
    seen.check(by=["billing", "audit"])


async def test_what_cannot_be_handled_is_kept_with_its_story_and_can_be_sent_back(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url, retry=AT_ONCE)
    billing = qc.worker("billing").on(order_placed, seen.failing("billing", times=3))
    async with qc:
        async with running(billing):
            id = await qc.publish(order_placed, Order("o-1"), key="ada", headers={"shop": "eu"})
            await seen.wait_for(billing=3)
            await until_ready(qc, "billing.dlq", 1)
        raw = raw_message(rabbitmq, rabbitmq_url, "billing.dlq")
        assert json.loads(raw["payload"]) == {"id": "o-1", "total": 9.5}
        headers = raw["properties"]["headers"]
        assert headers["x-original-queue"] == "billing"
        assert headers["x-original-routing-key"] == "order.placed"
        assert headers["x-error-type"] == "RuntimeError"
        assert "delivery 3" in headers["x-error"]
        assert "RuntimeError" in headers["x-traceback"]
        assert headers["x-retry-count"] == 3
        assert headers["x-reason"]
        assert headers["x-failed-at"] > 1_700_000_000_000
        assert headers["shop"] == "eu"
        assert not [name for name in headers if "death" in name]

        (letter,) = await qc.dead_letters.list("billing")
        assert (letter.id, letter.queue, letter.event) == (id, "billing", "order.placed")
        assert (letter.key, letter.failures) == ("ada", 3)
        report = await qc.dead_letters.redrive("billing")
        assert (report.moved, report.refused) == (1, 0)
        async with running(billing):
            await seen.wait_for(billing=4)
        assert seen.attempts("billing") == [1, 2, 3, 1]
        assert await qc.dead_letters.count("billing") == 0


async def test_dead_letters_are_sent_back_by_one_who_knows_nothing_of_the_queue(
    rabbitmq_url: str,
) -> None:
    """Without the management interface a broker cannot be asked which queues it has."""
    async with QueueCraft(rabbitmq_url) as qc:
        worker = qc.worker("numbers", retry=NoRetry()).on(number, Ledger().failing("numbers"))
        async with running(worker):
            await qc.publish_many(number, range(3))
            await until_ready(qc, "numbers.dlq", 3)
    for name in ("numbers", "numbers.dlq"):
        async with QueueCraft(rabbitmq_url) as stranger:
            report = await stranger.dead_letters.redrive(name, limit=1)
            assert (report.moved, report.refused) == (1, 0)
    async with QueueCraft(rabbitmq_url) as stranger:
        await stranger.dead_letters.redrive("numbers", to="numbers")
        await until_ready(stranger, "numbers", 3)


async def test_dead_letters_go_where_they_are_told(rabbitmq_url: str) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url, retry=NoRetry())
    policy = DeadLetter(exchange="graveyard", queue="failed", routing_key="from.billing")
    billing = qc.worker("billing", dead_letter=policy)
    billing.on(order_placed, seen.failing("billing", times=None))
    quiet = qc.worker("quiet", dead_letter=NoDeadLetter())
    quiet.on(order_paid, seen.failing("quiet", times=None))
    async with qc, running(billing, quiet):
        await qc.publish(order_placed, Order("o-1"))
        await qc.publish(order_paid, Order("o-2"))
        await seen.wait_for(billing=1, quiet=1)
        await until_ready(qc, "failed", 1)
        names = [info.name for info in await qc.admin.queues()]
    assert names == ["billing", "failed", "quiet"]


async def test_many_are_published_in_one_flight_and_handled_each_once(rabbitmq_url: str) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url)
    worker = qc.worker("numbers", concurrency=8, prefetch=100).on(number, seen.recording("numbers"))
    async with qc, running(worker):
        for id in await qc.publish_many(number, range(2000)):
            seen.published(id)
        await seen.wait_for(numbers=2000, timeout=20)
        await until_ready(qc, "numbers", 0)
    seen.check()
    assert sorted(seen.payloads("numbers")) == list(range(2000))


async def test_an_event_for_nobody_is_an_error_and_its_neighbours_are_published(
    rabbitmq_url: str,
) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare("billing", "order.placed")
        with pytest.raises(Unroutable, match=r"no queue is bound to event 'order\.paid'"):
            await qc.publish(order_paid, Order("o-1"))
        with pytest.raises(PublishError, match="no such queue"):
            await qc.send(Queue("nowhere", Order), Order("o-1"))
        await qc.publish(order_paid, Order("o-1"), unroutable="drop")
        outcomes = await asyncio.gather(
            *(qc.publish(e, Order("o-2")) for e in (order_placed, order_paid) * 20),
            return_exceptions=True,
        )
        assert [type(each) for each in outcomes] == [str, Unroutable] * 20
        assert (await qc.admin.inspect("billing")).ready == 20


async def test_a_worker_of_two_patterns_gets_an_event_once(rabbitmq_url: str) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url)
    worker = qc.worker("audit")
    worker.on("order.*", seen.recording("orders")).on("#", seen.recording("rest"))
    async with qc, running(worker):
        await qc.publish(order_placed, Order("o-1"))
        await qc.publish(order_paid, Order("o-1"))
        await qc.publish(Event("user.created", dict), {"id": "u-1"})
        await seen.wait_for(orders=2, rest=1)
        await until_ready(qc, "audit", 0)
    assert len(seen.calls) == 3


async def test_a_headers_exchange_gives_what_matches(rabbitmq_url: str) -> None:
    seen = Ledger()
    reports = Exchange("reports", "headers")
    report = Event("report", dict, exchange=reports)
    qc = QueueCraft(rabbitmq_url)
    both = qc.worker("both").on(
        report, seen.recording("both"), match={"format": "pdf", "kind": "tax"}
    )
    either = qc.worker("either").on(
        report, seen.recording("either"), match={"x-match": "any", "format": "pdf", "kind": "tax"}
    )
    async with qc, running(both, either):
        await qc.publish(report, {"n": 1}, headers={"format": "pdf", "kind": "tax"})
        await qc.publish(report, {"n": 2}, headers={"format": "pdf", "kind": "note"})
        with pytest.raises(Unroutable):
            await qc.publish(report, {"n": 3}, headers={"format": "csv"})
        await qc.publish(report, {"n": 4}, headers={"kind": "tax"}, delay=0.2)
        await seen.wait_for(both=1, either=3)
    assert [each["n"] for each in seen.payloads("both")] == [1]
    assert [each["n"] for each in seen.payloads("either")] == [1, 2, 4]


async def test_the_urgent_go_first(rabbitmq_url: str) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url)
    worker = qc.worker(Queue("numbers", max_priority=9)).on(number, seen.recording("numbers"))
    async with qc:
        for priority in (0, 5, 9, 5, 1):
            await qc.publish(number, priority, priority=priority)
        async with running(worker):
            await seen.wait_for(numbers=5)
    assert seen.payloads("numbers") == [9, 5, 5, 1, 0]


async def test_a_worker_that_is_paused_while_it_subscribes_keeps_nothing_from_others(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Ledger()
    subscribed, goes_on = asyncio.Event(), asyncio.Event()
    subscribe = RabbitDriver.subscribe

    async def held_up(self: RabbitDriver, queue: Queue[Any], *, prefetch: int) -> Subscription:
        subscription = await subscribe(self, queue, prefetch=prefetch)
        subscribed.set()
        await goes_on.wait()
        return subscription

    async with QueueCraft(rabbitmq_url) as qc, QueueCraft(rabbitmq_url) as other:
        paused = qc.worker("numbers", prefetch=10).on(number, seen.recording("paused"))
        steady = other.worker("numbers").on(number, seen.recording("steady"))
        await steady.declare()
        for n in range(5):
            await other.publish(number, n)
        with monkeypatch.context() as patch:
            patch.setattr(RabbitDriver, "subscribe", held_up)
            await paused.start()
            await subscribed.wait()
        paused.pause()
        goes_on.set()
        async with running(steady):
            await seen.wait_for(steady=5)
        paused.resume()
        await other.publish(number, 5)
        await seen.wait_for(paused=1)
        await paused.stop()
    assert seen.payloads("paused") == [5]


async def test_a_stream_hands_out_one_message_after_the_other(rabbitmq_url: str) -> None:
    got: list[int] = []
    async with QueueCraft(rabbitmq_url) as qc:
        stream = qc.subscribe("numbers", number)
        await stream.open()
        await qc.publish_many(number, [1, 2, 3])
        async with stream:
            async for message in stream:
                got.append(message.payload)
                if message.payload == 3:
                    await message.ack()
                    break
        await until_ready(qc, "numbers", 0)
    assert got == [1, 2, 3]


async def test_a_quorum_queue_retries_and_keeps_dead_letters(rabbitmq_url: str) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url, retry=AT_ONCE)
    queue = Queue[Order]("billing", Order, arguments={"x-queue-type": "quorum"})
    billing = qc.worker(queue).on(order_placed, seen.failing("billing", times=3))
    async with qc:
        async with running(billing):
            await qc.publish(order_placed, Order("o-1"))
            await seen.wait_for(billing=3)
            await until_ready(qc, "billing.dlq", 1)
        assert (await qc.dead_letters.redrive("billing")).moved == 1
        async with running(billing):
            await seen.wait_for(billing=4)
    assert seen.attempts("billing") == [1, 2, 3, 1]


async def test_a_queue_that_is_full_refuses_and_the_publisher_hears_it(rabbitmq_url: str) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        small = Queue("billing", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        await qc.admin.declare(small, "order.*")
        results = await qc.publish_many(
            order_placed, [Order(f"o-{n}") for n in range(10)], return_exceptions=True
        )
        refused = [each for each in results if isinstance(each, PublishError)]
        assert refused
        assert {each.outcome for each in refused} == {"rejected"}
        assert "may be full" in str(refused[0])
        assert (await qc.admin.inspect("billing")).ready == len(results) - len(refused)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_queue_deleted_under_its_worker_is_made_again(
    rabbitmq: RabbitMQ, rabbitmq_url: str, kind: str
) -> None:
    seen = Ledger()
    qc = QueueCraft(rabbitmq_url, reconnect_delay=0.05)
    queue = Queue[Order]("billing", Order, arguments={"x-queue-type": kind})
    billing = qc.worker(queue).on(order_placed, seen.recording("billing"))
    async with qc, running(billing):
        await qc.publish(order_placed, Order("o-1"))
        await seen.wait_for(billing=1)
        path = f"queues/{quoted(vhost_of(rabbitmq_url))}/billing"
        await asyncio.to_thread(rabbitmq.management.call, "DELETE", path)
        await until(lambda: is_published(qc, Order("o-2")), bool)
        await seen.wait_for(billing=2)


async def test_a_broker_in_which_something_breaks_is_found_again_and_its_log_is_pointed_at(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    seen = Ledger()
    lost: list[Disconnected] = []
    qc = QueueCraft(rabbitmq_url, reconnect_delay=0.05)
    qc.observe(Disconnected, lost.append)
    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with qc, running(billing):
        here = f'[{{vhost, <<"{vhost_of(rabbitmq_url)}">>}}]'
        ours = f"[P || P <- rabbit_channel:list(), rabbit_channel:info(P, [vhost]) =:= {here}]"
        await asyncio.to_thread(rabbitmq.ctl, "eval", f"[exit(P, broken) || P <- {ours}].")
        await qc.publish(order_placed, Order("o-1"))
        await seen.wait_for(billing=1)
    assert lost
    for each in lost:
        assert "INTERNAL_ERROR (541); something broke inside it, and its log says" in each.error


async def is_published(qc: QueueCraft, order: Order) -> bool:
    try:
        await qc.publish(order_placed, order)
    except Unroutable:
        return False
    return True


def raw_message(rabbitmq: RabbitMQ, url: str, queue: str) -> dict[str, Any]:
    """The first message of a queue as the broker itself shows it."""
    asked = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    path = f"queues/{quoted(vhost_of(url))}/{quoted(queue)}/get"
    (message,) = rabbitmq.management.call("POST", path, asked)
    return dict(message)
