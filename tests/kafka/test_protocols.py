"""Processes share a queue by either of Kafka's protocols for groups: the classic one, and the one
in which the broker decides who gets what."""

from __future__ import annotations

import asyncio

import pytest

from queuecraft import Message, Queue, QueueCraft
from queuecraft.testing import Ledger
from tests.kafka.place import AT_ONCE, Order, order_placed, running, until

pytestmark = pytest.mark.faults  # for the time it takes

HELD = 8


@pytest.fixture(params=["classic", "consumer"])
def url(kafka_url: str, request: pytest.FixtureRequest) -> str:
    brisk = "&refresh=0.2&session_timeout=6&drain_timeout=10"
    return f"{kafka_url}{brisk}&group_protocol={request.param}"


async def test_a_process_that_joins_gets_its_share_when_handlers_have_ended(url: str) -> None:
    """Some of what the first holds was published, some was sent to the queue: either may move."""
    seen = Ledger()
    gate = asyncio.Event()
    begun: list[str] = []
    one, two = QueueCraft(url), QueueCraft(url)
    orders = Queue("billing", Order)
    first, second = one.worker(orders, concurrency=HELD), two.worker(orders)

    async def hold(order: Order, message: Message[Order]) -> None:
        begun.append(message.id)
        await gate.wait()
        seen.record("first", message)

    async def how_many() -> int:
        return len(begun)

    first.on(order_placed, hold).on(orders, hold)
    second.on(order_placed, seen.recording("second")).on(orders, seen.recording("second"))
    async with one, two, running(first):
        ids: list[str] = []

        async def more(count: int) -> None:
            batch = [Order(f"o-{len(ids) + n}") for n in range(count)]
            ids.extend(await one.publish_many(order_placed, batch))
            ids.extend([await one.send(orders, each) for each in batch])

        await more(HELD // 2)
        await until(how_many, lambda count: count == HELD)
        async with running(second):
            await until(lambda: one.admin.inspect("billing"), lambda info: info.consumers == 2)
            assert seen.ids() == []  # the second has not been given what the first still holds
            gate.set()

            async def both() -> bool:
                await more(10)
                return bool(seen.ids("first")[HELD:] and seen.ids("second"))

            await until(both, bool)
            await until(lambda: one.admin.inspect("billing"), lambda info: not info.ready)
    assert sorted(seen.ids()) == sorted(ids)


async def test_the_broker_spreads_each_topic_over_all_processes(kafka_url: str) -> None:
    seen = Ledger()
    url = f"{kafka_url}&refresh=0.2&group_protocol=consumer"
    one, two = QueueCraft(url), QueueCraft(url)
    async with one, two:
        first = one.worker("billing").on(order_placed, seen.recording("first"))
        second = two.worker("billing").on(order_placed, seen.recording("second"))
        async with running(first), running(second):

            async def both() -> bool:
                await one.publish_many(order_placed, [Order(f"o-{n}") for n in range(20)])
                return bool(seen.ids("first") and seen.ids("second"))

            await until(both, bool)


async def test_a_message_is_retried_and_kept_as_a_dead_letter(url: str) -> None:
    seen = Ledger()
    qc = QueueCraft(url, retry=AT_ONCE)
    billing = qc.worker("billing").on(order_placed, seen.failing("billing", times=3))
    async with qc, running(billing):
        await qc.publish(order_placed, Order("o-1"))
        await seen.wait_for(timeout=20, billing=3)
        (letter,) = await until(lambda: qc.dead_letters.list("billing"), bool)
        assert letter.failures == 3


async def test_who_leaves_hands_over_what_was_not_begun(url: str) -> None:
    seen = Ledger()
    ids: list[str] = []
    for name in ("first", "second"):
        qc = QueueCraft(url)
        billing = qc.worker("billing", concurrency=2, prefetch=50)
        billing.on(order_placed, seen.recording(name))
        async with qc, running(billing):
            if name == "first":
                ids += await qc.publish_many(order_placed, [Order(f"o-{n}") for n in range(200)])
                await seen.wait_for(timeout=20, first=20)
            else:
                await until(lambda: qc.admin.inspect("billing"), lambda info: not info.ready)  # noqa: B023
    assert sorted(seen.ids()) == sorted(ids)
