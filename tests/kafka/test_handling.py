"""Publish, handle, fail, and send back, on a real Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from queuecraft import Event, Message, NoRetry, Queue, QueueCraft
from queuecraft.drivers.base import Delivery
from queuecraft.drivers.kafka.forwarding import Forwarder
from queuecraft.drivers.kafka.subscription import KafkaSubscription
from queuecraft.testing import Ledger
from tests.brokers.kcat import Kcat
from tests.kafka.place import AT_ONCE, Order, order_placed, running, topic, until

PATIENCE = 20.0


async def dead_headers(kcat: Kcat, url: str) -> dict[str, str]:
    """All headers of the only dead letter that have one line."""
    consume = ("-C", "-t", topic(url, "billing.dlq"), "-o", "beginning", "-e", "-f", "%h")
    told = await asyncio.to_thread(kcat, url, *consume)
    return dict(each.split("=", 1) for each in told.split(",") if "=" in each)


async def test_an_event_reaches_every_queue_bound_to_it_with_all_it_says(url: str) -> None:
    seen = Ledger()
    arrived: list[Message[Order]] = []
    qc = QueueCraft(url)
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
        await seen.wait_for(timeout=PATIENCE, billing=1, audit=1)
    (message,) = arrived
    assert message.payload == Order("ö-1")
    assert (message.id, message.key, message.routing_key) == (id, "ada", "order.placed")
    assert (message.correlation_id, dict(message.headers)) == ("c-1", {"n": 1})
    assert (message.attempt, message.redeliveries) == (1, 0)


async def test_what_was_published_before_a_worker_runs_is_handled_once_when_it_does(
    url: str,
) -> None:
    seen = Ledger()
    async with QueueCraft(url) as qc:
        await qc.admin.declare("billing", "order.*")
        await qc.publish(order_placed, Order("o-1"))
    for calls in (1, 2):
        async with QueueCraft(url) as qc:
            billing = qc.worker("billing").on("order.*", seen.recording("billing"))
            async with running(billing):
                await seen.wait_for(timeout=PATIENCE, billing=calls)
            assert (await qc.admin.inspect("billing")).ready == 0
            await qc.publish(order_placed, Order("o-2"))
    assert [each["id"] for each in seen.payloads()] == ["o-1", "o-2"]


async def test_a_retry_goes_back_to_the_queue_that_failed_and_no_other(url: str) -> None:
    seen = Ledger()
    qc = QueueCraft(url, retry=AT_ONCE)
    billing = qc.worker("billing").on(order_placed, seen.failing("billing", times=2))
    audit = qc.worker("audit").on(order_placed, seen.recording("audit"))
    async with qc, running(billing, audit):
        await qc.publish(order_placed, Order("o-1"))
        await seen.wait_for(timeout=PATIENCE, billing=3, audit=1)
        await until(lambda: qc.admin.inspect("billing"), lambda info: not info.ready)
    assert (seen.attempts("billing"), seen.attempts("audit")) == ([1, 2, 3], [1])


async def test_a_delayed_event_is_not_early(url: str) -> None:
    seen = Ledger()
    late: list[float] = []
    qc = QueueCraft(url)
    billing = qc.worker("billing")

    @billing.on(order_placed)
    async def charge(order: Order, message: Message[Order]) -> None:
        late.append(time.time() - due)
        seen.record("billing", message)

    async with qc, running(billing):
        due = time.time() + 1.3
        await qc.publish(order_placed, Order("o-1"), delay=1.3)
        await seen.wait_for(timeout=PATIENCE, billing=1)
    assert late[0] >= -0.002


async def test_a_dead_letter_names_its_record_and_is_handled_when_it_is_sent_back(
    url: str, kcat: Kcat
) -> None:
    seen = Ledger()
    qc = QueueCraft(url, retry=AT_ONCE)
    billing = qc.worker("billing").on(order_placed, seen.failing("billing", times=3))
    async with qc, running(billing):
        await qc.publish_many(order_placed, [Order("o-1")], key="ada", headers={"n": 1})
        await seen.wait_for(timeout=PATIENCE, billing=3)
        (letter,) = await until(lambda: qc.dead_letters.list("billing"), bool)
        assert (letter.reason, letter.failures) == ("handler-error", 3)
        told = await dead_headers(kcat, url)
        assert told["x-original-topic"] == topic(url, "order.placed")
        assert (told["x-original-offset"], told["x-original-queue"]) == ("0", "billing")
        assert int(told["x-original-partition"]) in range(4)
        assert (letter.headers["n"], letter.key) == (1, "ada")

        report = await qc.dead_letters.redrive("billing")
        assert (report.moved, report.refused) == (1, 0)
        await seen.wait_for(timeout=PATIENCE, billing=4)
        assert await qc.dead_letters.count("billing") == 0
    assert seen.attempts("billing") == [1, 2, 3, 1]


async def test_a_poison_record_in_the_middle_holds_up_nobody_and_is_kept(
    url: str, kcat: Kcat
) -> None:
    seen = Ledger()
    qc = QueueCraft(f"{url}&partitions=1")
    billing = qc.worker("billing", retry=NoRetry()).on(order_placed, seen.recording("billing"))
    async with qc, running(billing):
        await qc.publish_many(order_placed, [Order(f"o-{n}") for n in range(5)])
        await qc.publish(Event("order.placed", dict[str, int]), {"nonsense": 1})
        await qc.publish_many(order_placed, [Order(f"o-{n}") for n in range(5, 10)])
        await seen.wait_for(timeout=PATIENCE, billing=10)
        (letter,) = await until(lambda: qc.dead_letters.list("billing"), bool)
        await until(lambda: qc.admin.inspect("billing"), lambda info: not info.ready)
    assert [order.id for order in seen.payloads()] == [f"o-{n}" for n in range(10)]
    assert letter.body == b'{"nonsense":1}'
    assert (await dead_headers(kcat, url))["x-original-offset"] == "5"


async def test_events_of_a_key_are_handled_in_order_though_one_of_them_fails(url: str) -> None:
    seen = Ledger()
    failed: set[str] = set()
    qc = QueueCraft(url, retry=AT_ONCE)
    billing = qc.worker("billing", ordering="key", concurrency=8)

    @billing.on(order_placed)
    async def charge(order: Order, message: Message[Order]) -> None:
        if order.id.endswith("-3") and order.id not in failed:
            failed.add(order.id)
            raise RuntimeError("not yet")
        seen.record("billing", message)

    async with qc, running(billing):
        for n in range(8):
            for key in ("ada", "bob", "cy"):
                await qc.publish(order_placed, Order(f"{key}-{n}"), key=key)
        await seen.wait_for(timeout=PATIENCE, billing=24)
    for key in ("ada", "bob", "cy"):
        ids = [each.payload.id for each in seen.calls if each.key == key]
        assert ids == [f"{key}-{n}" for n in range(8)]
    assert len(failed) == 3


async def test_a_pattern_is_given_the_topics_that_are_made_later_from_their_beginning(
    url: str,
) -> None:
    seen = Ledger()
    qc = QueueCraft(url)
    audit = qc.worker("audit").on("user.#", seen.recording("audit"))
    async with qc, running(audit), QueueCraft(url) as other:
        await other.publish("user.added", 1)
        await other.publish("user.name.changed", 2)
        await other.publish("order.paid", 3)
        await seen.wait_for(timeout=PATIENCE, audit=2)
    assert sorted(seen.payloads()) == [1, 2]


async def test_two_processes_share_a_queue_and_each_message_is_handled_once(url: str) -> None:
    """What is sent to the queue and what is published are in partitions of their own, which may
    go to one process each."""
    seen = Ledger()
    one, two = QueueCraft(url), QueueCraft(url)
    orders = Queue("billing", Order)
    first, second = one.worker(orders), two.worker(orders)
    for name, worker in (("first", first), ("second", second)):
        worker.on(order_placed, seen.recording(name)).on(orders, seen.recording(name))
    async with one, two, running(first, second):
        ids: list[str] = []

        async def both() -> bool:
            batch = [Order(f"o-{len(ids) + n}") for n in range(20)]
            ids.extend(await one.publish_many(order_placed, batch))
            ids.extend([await two.send(orders, each) for each in batch[:5]])
            return bool(seen.ids("first") and seen.ids("second"))

        await until(both, bool)
        await until(lambda: one.admin.inspect("billing"), lambda info: not info.ready)
    assert sorted(seen.ids()) == sorted(ids)


async def test_who_has_enough_to_do_for_long_still_shares_with_one_who_comes(url: str) -> None:
    seen = Ledger()
    one, two = QueueCraft(url), QueueCraft(url)
    orders = Queue("billing", Order)
    first, second = one.worker(orders), two.worker(orders)

    def slowly(name: str) -> Callable[[Order, Message[Order]], Awaitable[None]]:
        async def charge(order: Order, message: Message[Order]) -> None:
            seen.record(name, message)
            await asyncio.sleep(0.05)

        return charge

    for name, worker in (("first", first), ("second", second)):
        worker.on(order_placed, slowly(name)).on(orders, slowly(name))
    async with one, two:
        await first.declare()
        for n in range(200):  # by their keys they are in all partitions, of which both have some
            await one.publish(order_placed, Order(f"o-{n}"), key=f"o-{n}")
            await one.send(orders, Order(f"o-{n}"), key=f"o-{n}")
        async with running(first):
            await seen.wait_for(timeout=PATIENCE, first=1)
            async with running(second):
                await seen.wait_for(timeout=PATIENCE / 2, second=1)  # the first has twice as much
    assert len(seen.ids("first")) < 400


async def test_a_purged_queue_forgets_events_that_others_still_get(url: str) -> None:
    seen = Ledger()
    async with QueueCraft(url) as qc:
        await qc.admin.declare("billing", "order.*")
        await qc.admin.declare("audit", "order.*")
        await qc.publish_many(order_placed, [Order("o-1"), Order("o-2")])
        assert await qc.admin.purge("billing") == 2
        assert [(await qc.admin.inspect(each)).ready for each in ("billing", "audit")] == [0, 2]
        await qc.publish(order_placed, Order("o-3"))
        billing = qc.worker("billing").on("order.*", seen.recording("billing"))
        async with running(billing):
            await seen.wait_for(timeout=PATIENCE, billing=1)
    assert [each["id"] for each in seen.payloads("billing")] == ["o-3"]


async def test_what_waits_moves_on_after_a_failure_that_nobody_has_thought_of(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [RuntimeError("out of order")]
    move = Forwarder._move

    async def failing(
        self: Forwarder, subscription: KafkaSubscription, due: list[Delivery]
    ) -> None:
        if failures:
            raise failures.pop()
        await move(self, subscription, due)

    monkeypatch.setattr(Forwarder, "_move", failing)
    seen = Ledger()
    qc = QueueCraft(url)
    billing = qc.worker("billing", retry=AT_ONCE)
    billing.on(order_placed, seen.failing("billing", times=1))
    async with qc, running(billing):
        await qc.publish(order_placed, Order("o-1"))
        await seen.wait_for(timeout=PATIENCE, billing=2)
    assert seen.attempts("billing") == [1, 2]
    assert "delayed messages wait a little longer: out of order" in caplog.text
