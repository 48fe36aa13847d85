"""The queue in memory: what it does beyond the contract that every driver keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from queuecraft.drivers.base import (
    ACCEPTED,
    Binding,
    ConnectionLost,
    Exchange,
    Move,
    Outgoing,
    Queue,
    Rejected,
)
from queuecraft.drivers.local.exchanges import REMEMBERED
from queuecraft.drivers.local.memory import DUE_AT_ONCE, MemoryDriver
from queuecraft.model.errors import (
    AlreadySettled,
    PublishError,
    QueueError,
    TopologyMismatch,
    Unroutable,
)
from queuecraft.model.queue import DeadLetterTarget
from queuecraft.testing import FakeClock, failing
from queuecraft.testing.failpoints import Failed

BILLING: Queue = Queue("billing", bindings=(Binding(Exchange("events"), "order.placed"),))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def driver(clock: FakeClock) -> AsyncIterator[MemoryDriver]:
    driver = MemoryDriver(clock)
    await driver.open()
    await driver.declare(BILLING)
    yield driver
    await driver.close()


def to_billing(*ids: str, **fields: Any) -> list[Outgoing]:
    return [Outgoing(b"", id, queue="billing", **fields) for id in ids]


async def ready(driver: MemoryDriver, queue: str = "billing") -> list[str]:
    return [each.sent.id for each in await driver.peek(queue, 1_000_000)]


async def test_building_it_does_nothing() -> None:
    driver = MemoryDriver()
    with pytest.raises(ConnectionLost, match="open it first"):
        await driver.declare(BILLING)
    await driver.close()


async def test_it_never_gives_up_the_loop_to_send_or_settle(driver: MemoryDriver) -> None:
    assert driver.traits.inline
    subscription = await driver.subscribe(BILLING, prefetch=10)
    turned: list[bool] = []
    asyncio.get_running_loop().call_soon(turned.append, True)
    await driver.send(to_billing("m-1", "m-2", "m-3"))
    one, two, three = await subscription.receive(10, 1)
    await subscription.ack([one])
    await subscription.release([two])
    await subscription.move([Move(three, three.sent)])
    assert turned == []


async def test_it_is_gone_with_its_object() -> None:
    one, two = MemoryDriver(), MemoryDriver()
    await one.open()
    await two.open()
    await one.declare(BILLING)
    assert await two.inspect() == []


async def test_a_headers_exchange_looks_at_each_message_of_a_batch(driver: MemoryDriver) -> None:
    exchange = Exchange("reports", "headers")
    await driver.declare(Queue("pdf", bindings=(Binding(exchange, "", {"format": "pdf"}),)))
    batch = [
        Outgoing(b"", id, "reports", "report", headers=headers)
        for id, headers in (
            ("none", {}),
            ("pdf", {"format": "pdf"}),
            ("csv", {"format": "csv"}),
            ("pdf-too", {"format": "pdf"}),
        )
    ]
    receipts = await driver.send(batch)
    assert [receipt is ACCEPTED for receipt in receipts] == [False, True, False, True]
    assert await ready(driver, "pdf") == ["pdf", "pdf-too"]


async def test_headers_do_not_decide_where_the_key_does(driver: MemoryDriver) -> None:
    batch = [
        Outgoing(b"", "m-1", "events", "order.placed", headers={"a": 1}),
        Outgoing(b"", "m-2", "events", "order.placed"),
    ]
    assert await driver.send(batch) == [ACCEPTED, ACCEPTED]
    assert await ready(driver) == ["m-1", "m-2"]


async def test_a_new_binding_counts_at_once_for_a_route_already_taken(driver: MemoryDriver) -> None:
    event = Outgoing(b"", "m-1", "events", "order.placed")
    await driver.send([event])
    await driver.declare(Queue("audit", bindings=(Binding(Exchange("events"), "order.*"),)))
    await driver.send([event])
    assert await ready(driver, "audit") == ["m-1"]
    await driver.delete("audit")
    assert await driver.send([event]) == [ACCEPTED]
    assert await ready(driver) == ["m-1"] * 3


async def test_routes_are_remembered_within_bounds(driver: MemoryDriver) -> None:
    await driver.declare(Queue("all", bindings=(Binding(Exchange("events"), "#"),)))
    for number in range(REMEMBERED + 10):
        await driver.send([Outgoing(b"", "m", "events", f"event.{number}")])
    assert len(driver._exchanges._routes) <= REMEMBERED
    assert len(await ready(driver, "all")) == REMEMBERED + 10


async def test_an_unknown_exchange_takes_nothing(driver: MemoryDriver) -> None:
    (receipt,) = await driver.send([Outgoing(b"", "m-1", "elsewhere", "order.placed")])
    assert isinstance(receipt, Rejected)
    assert isinstance(receipt.error, Unroutable)
    assert "'elsewhere'" in str(receipt.error)


async def test_a_missing_queue_is_named_and_known_ones_listed(driver: MemoryDriver) -> None:
    for call in (
        lambda: driver.subscribe(Queue("biling"), prefetch=1),
        lambda: driver.peek("biling", 1),
        lambda: driver.purge("biling"),
        lambda: driver.delete("biling"),
    ):
        with pytest.raises(QueueError, match="no queue 'biling'; known queues: billing"):
            await call()
    (receipt,) = await driver.send([Outgoing(b"", "m-1", queue="biling")])
    assert isinstance(receipt, Rejected)
    assert isinstance(receipt.error, PublishError)
    assert receipt.error.queue == "biling"


@pytest.mark.parametrize(
    "other",
    [
        {"durable": False},
        {"exclusive": True},
        {"auto_delete": True},
        {"max_priority": 5},
        {"arguments": {"x-max-length": 10}},
    ],
    ids=str,
)
async def test_a_queue_is_what_it_was_declared_as(
    driver: MemoryDriver, other: dict[str, Any]
) -> None:
    (name,) = other
    with pytest.raises(TopologyMismatch, match=name):
        await driver.declare(Queue("billing", **other))


@pytest.mark.parametrize(
    "other",
    [{"type": "fanout"}, {"durable": False}, {"auto_delete": True}, {"arguments": {"a": 1}}],
    ids=str,
)
async def test_an_exchange_is_what_it_was_declared_as(
    driver: MemoryDriver, other: dict[str, Any]
) -> None:
    (name,) = other
    with pytest.raises(TopologyMismatch, match=name):
        await driver.prepare([Exchange("events", **other)])


async def test_a_queue_that_is_refused_is_not_half_made(driver: MemoryDriver) -> None:
    wrong = Queue("audit", bindings=(Binding(Exchange("events", "fanout"), ""),))
    with pytest.raises(TopologyMismatch):
        await driver.declare(wrong)
    assert await driver.inspect(["audit"]) == []


async def test_an_exclusive_queue_has_one_consumer(driver: MemoryDriver) -> None:
    queue: Queue = Queue("mine", exclusive=True)
    await driver.declare(queue)
    first = await driver.subscribe(queue, prefetch=1)
    with pytest.raises(QueueError, match="exclusive"):
        await driver.subscribe(queue, prefetch=1)
    await first.close()
    await driver.subscribe(queue, prefetch=1)


async def test_an_auto_delete_queue_goes_with_its_last_consumer(driver: MemoryDriver) -> None:
    queue: Queue = Queue("brief", auto_delete=True, bindings=BILLING.bindings)
    await driver.declare(queue)
    one, two = [await driver.subscribe(queue, prefetch=1) for _ in range(2)]
    await one.close()
    assert len(await driver.inspect(["brief"])) == 1
    await two.close()
    assert await driver.inspect(["brief"]) == []
    event = Outgoing(b"", "m-1", "events", "order.placed")
    assert await driver.send([event]) == [ACCEPTED]
    assert await ready(driver) == ["m-1"]


async def test_deleting_a_queue_ends_its_consumers(driver: MemoryDriver) -> None:
    await driver.send(to_billing("m-1", "m-2"))
    idle = await driver.subscribe(BILLING, prefetch=10)
    full = await driver.subscribe(BILLING, prefetch=1)
    held = await idle.receive(1, 1)
    await full.receive(1, 1)
    waiting = [asyncio.ensure_future(each.receive(1, 60)) for each in (idle, full)]
    await asyncio.sleep(0)
    await driver.delete("billing")
    for each in waiting:
        with pytest.raises(QueueError, match="deleted") as caught:
            await each
        assert not isinstance(caught.value, ConnectionLost)
    assert await idle.ack(held) == []
    await idle.close()
    await full.close()
    await driver.declare(BILLING)
    assert await ready(driver) == []


async def test_what_was_delayed_for_a_deleted_queue_does_not_reach_its_successor(
    driver: MemoryDriver, clock: FakeClock
) -> None:
    await driver.send(to_billing("m-1", due_at=clock.now() + 10))
    await driver.delete("billing")
    await driver.declare(BILLING)
    await clock.advance(20)
    assert await ready(driver) == []
    (info,) = await driver.inspect(["billing"])
    assert (info.ready, info.delayed) == (0, 0)


async def test_delays_are_kept_to_the_moment(driver: MemoryDriver, clock: FakeClock) -> None:
    start = clock.now()
    for seconds in (30, 10, 20, 10):
        await driver.send(to_billing(f"after-{seconds}", due_at=start + seconds))
    await clock.advance(9.9)
    assert await ready(driver) == []
    await clock.advance(0.1)
    assert await ready(driver) == ["after-10", "after-10"]
    await clock.advance(100)
    assert await ready(driver) == ["after-10", "after-10", "after-20", "after-30"]


async def test_an_earlier_delay_is_not_held_up_by_a_later_one(
    driver: MemoryDriver, clock: FakeClock
) -> None:
    await driver.send(to_billing("late", due_at=clock.now() + 3600))
    await clock.advance(1)
    await driver.send(to_billing("soon", due_at=clock.now() + 5))
    await clock.advance(5)
    assert await ready(driver) == ["soon"]


async def test_delays_go_on_while_it_is_closed(driver: MemoryDriver, clock: FakeClock) -> None:
    await driver.send(to_billing("m-1", due_at=clock.now() + 10))
    await driver.close()
    assert clock.pending == ()
    await clock.advance(60)
    await driver.open()
    await clock.settle()
    assert await ready(driver) == ["m-1"]


async def test_many_delays_that_end_together_leave_the_loop_its_turns(
    driver: MemoryDriver, clock: FakeClock
) -> None:
    count = DUE_AT_ONCE * 3
    due = clock.now() + 10
    await driver.send(to_billing(*(str(n) for n in range(count)), due_at=due))
    seen: list[int] = []

    async def watch() -> None:
        while not seen or seen[-1] < count:
            seen.append(len(await ready(driver)))
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    await clock.advance(10)
    await watching
    assert {DUE_AT_ONCE, DUE_AT_ONCE * 2} <= set(seen)
    assert await ready(driver) == [str(n) for n in range(count)]


async def test_a_consumer_that_waits_in_vain_leaves_nothing_behind(
    driver: MemoryDriver, clock: FakeClock
) -> None:
    subscription = await driver.subscribe(BILLING, prefetch=1)
    for _ in range(3):
        waiting = asyncio.ensure_future(subscription.receive(1, 10))
        await clock.advance(10)
        assert await waiting == []
    cancelled = asyncio.ensure_future(subscription.receive(1, 10))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert not driver._inboxes["billing"].waiting
    assert clock.pending == ()


async def test_a_receive_waits_as_long_as_it_was_told_and_no_longer(
    driver: MemoryDriver, clock: FakeClock
) -> None:
    subscription = await driver.subscribe(BILLING, prefetch=1)
    await driver.send(to_billing("m-1"))
    (held,) = await subscription.receive(1, 0)
    waiting = asyncio.ensure_future(subscription.receive(1, 10))
    await clock.advance(6)
    await subscription.ack([held])  # there is room now, and still no message
    await clock.advance(3.9)
    assert not waiting.done()
    await clock.advance(0.2)
    assert await waiting == []


async def test_the_closed_consumers_wake_up_goes_to_another(driver: MemoryDriver) -> None:
    one, two = [await driver.subscribe(BILLING, prefetch=1) for _ in range(2)]
    first = asyncio.ensure_future(one.receive(1, 60))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(two.receive(1, 60))
    await asyncio.sleep(0)
    await driver.send(to_billing("m-1"))  # wakes the first, which has no turn before it is closed
    await one.close()
    with pytest.raises(ConnectionLost):
        await first
    (delivery,) = await second
    assert (delivery.sent.id, delivery.redeliveries) == ("m-1", 0)


async def test_a_cancelled_consumers_wake_up_goes_to_another(driver: MemoryDriver) -> None:
    one, two = [await driver.subscribe(BILLING, prefetch=1) for _ in range(2)]
    first = asyncio.ensure_future(one.receive(1, 60))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(two.receive(1, 60))
    await asyncio.sleep(0)
    await driver.send(to_billing("m-1"))
    first.cancel()
    assert [each.sent.id for each in await second] == ["m-1"]
    assert first.cancelled()


async def test_the_most_urgent_come_first_also_among_many(driver: MemoryDriver) -> None:
    for priority in (0, 3, 1, 3, 0, 255):
        await driver.send(to_billing(f"p{priority}", priority=priority))
    subscription = await driver.subscribe(BILLING, prefetch=10)
    taken = [(await subscription.receive(1, 0))[0].sent.id for _ in range(4)]
    assert taken == ["p255", "p3", "p3", "p1"]
    assert [each.sent.id for each in await subscription.receive(10, 0)] == ["p0", "p0"]


async def test_the_age_of_the_oldest_counts_from_when_it_was_due(
    driver: MemoryDriver, clock: FakeClock
) -> None:
    async def age() -> float | None:
        (info,) = await driver.inspect(["billing"])
        return info.oldest_age

    assert await age() is None
    await driver.send(to_billing("delayed", timestamp=clock.now(), due_at=clock.now() + 10))
    await clock.advance(12)
    assert await age() == pytest.approx(2)
    await driver.purge("billing")
    await driver.send(to_billing("plain", timestamp=clock.now()))
    await clock.advance(5)
    await driver.send(to_billing("urgent", timestamp=clock.now(), priority=1))
    assert await age() == pytest.approx(5)
    await driver.purge("billing")
    await driver.send(to_billing("unknown"))
    assert await age() is None


async def test_what_is_not_known_is_not_told(driver: MemoryDriver) -> None:
    (info,) = await driver.inspect(["billing"])
    assert info.dead is None
    assert info.rates is None


async def test_the_dead_are_counted_once_the_queue_has_dead_letters(driver: MemoryDriver) -> None:
    target = DeadLetterTarget("events.dlx", "billing.dlq", "billing.dlq")
    await driver.declare(Queue("billing", dead_letters=target))
    await driver.send([Outgoing(b"", "m-1", "events.dlx", "billing.dlq")])
    assert [each.dead for each in await driver.inspect(["billing"])] == [1]
    await driver.declare(BILLING)  # a publisher that knows of no dead letters takes none away
    assert [each.dead for each in await driver.inspect(["billing"])] == [1]


async def test_a_stale_move_says_so(driver: MemoryDriver) -> None:
    await driver.send(to_billing("m-1"))
    subscription = await driver.subscribe(BILLING, prefetch=1)
    (held,) = await subscription.receive(1, 0)
    await subscription.ack([held])
    (receipt,) = await subscription.move([Move(held, held.sent)])
    assert isinstance(receipt, Rejected)
    assert isinstance(receipt.error, AlreadySettled)
    assert receipt.error.message_id == "m-1"


async def test_a_move_that_raises_keeps_everything_held(driver: MemoryDriver) -> None:
    await driver.send(to_billing("m-1"))
    subscription = await driver.subscribe(BILLING, prefetch=1)
    (held,) = await subscription.receive(1, 0)
    broken = Move(held, Outgoing(b"", "m-1", queue=["not", "a", "name"]))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        await subscription.move([broken])
    assert await subscription.ack([held]) == []


async def test_a_failure_before_an_ack_changes_nothing(driver: MemoryDriver) -> None:
    await driver.send(to_billing("m-1"))
    subscription = await driver.subscribe(BILLING, prefetch=1)
    held = await subscription.receive(1, 0)
    with failing("ack.before"), pytest.raises(Failed):
        await subscription.ack(held)
    assert await subscription.ack(held) == []


async def test_a_consumer_at_its_prefetch_goes_on_when_it_gives_back(driver: MemoryDriver) -> None:
    await driver.declare(Queue("other"))
    await driver.send(to_billing("m-1", "m-2"))
    subscription = await driver.subscribe(BILLING, prefetch=1)
    (held,) = await subscription.receive(1, 0)
    waiting = asyncio.ensure_future(subscription.receive(1, 60))
    await asyncio.sleep(0)
    await subscription.release([held])
    (again,) = await waiting
    assert again.sent.id == "m-1"
    waiting = asyncio.ensure_future(subscription.receive(1, 60))
    await asyncio.sleep(0)
    await subscription.move([Move(again, Outgoing(b"", "m-1", queue="other"))])
    assert [each.sent.id for each in await waiting] == ["m-2"]
