"""A driver that fails on command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec.structs import replace

from queuecraft.drivers.base import (
    ACCEPTED,
    ConnectionLost,
    Move,
    Outgoing,
    Queue,
    Receipt,
    Rejected,
    Unknown,
)
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.model.errors import PublishError, Unroutable
from queuecraft.testing import FaultyDriver

BILLING: Queue = Queue("billing")


@pytest.fixture(params=[True, False], ids=["inline", "suspending"])
async def driver(request: pytest.FixtureRequest) -> AsyncIterator[FaultyDriver]:
    driver = FaultyDriver(inline=request.param)
    await driver.open()
    await driver.declare(BILLING)
    yield driver
    await driver.close()


def messages(*ids: str) -> list[Outgoing]:
    return [Outgoing(b"", id, queue="billing") for id in ids]


def kinds(receipts: Sequence[Receipt]) -> list[str]:
    return [type(each).__name__ for each in receipts]


async def ready(driver: FaultyDriver) -> list[str]:
    return [each.sent.id for each in await driver.inner.peek("billing", 100)]


async def test_it_does_what_it_wraps_does_unless_told_otherwise(driver: FaultyDriver) -> None:
    assert await driver.send(messages("m-1", "m-2")) == [ACCEPTED, ACCEPTED]
    subscription = await driver.subscribe(BILLING, prefetch=10)
    one, two = await subscription.receive(10, 1)
    assert await subscription.ack([one]) == []
    await subscription.release([two])
    await subscription.close()
    assert await driver.purge("billing") == 1


def test_its_traits_are_those_of_what_it_wraps() -> None:
    assert FaultyDriver().traits == MemoryDriver.traits
    slow = FaultyDriver(MemoryDriver(), inline=False)
    assert not slow.traits.inline
    assert slow.traits.atomic_move
    assert FaultyDriver.traits.inline


async def test_a_suspending_driver_gives_up_the_loop_in_every_call() -> None:
    driver = FaultyDriver(inline=False)
    for call in (driver.open(), driver.declare(BILLING), driver.send(messages("m-1"))):
        task = asyncio.create_task(call)
        await asyncio.sleep(0)
        assert not task.done()
        await task


async def test_opens_are_refused_so_often(driver: FaultyDriver) -> None:
    await driver.drop()
    driver.refuse(opens=2)
    for _ in range(2):
        with pytest.raises(ConnectionLost, match="refuses"):
            await driver.open()
        assert not driver.connected
    await driver.open()
    assert driver.connected
    assert driver.calls["open"] == 4


async def test_after_a_drop_everything_is_lost_until_it_is_opened(driver: FaultyDriver) -> None:
    await driver.send(messages("m-1"))
    subscription = await driver.subscribe(BILLING, prefetch=10)
    held = await subscription.receive(10, 1)
    await driver.drop()
    for call in (
        lambda: driver.send(messages("m-2")),
        lambda: driver.declare(BILLING),
        lambda: driver.prepare([]),
        lambda: driver.subscribe(BILLING, prefetch=1),
        lambda: driver.topology(),
        lambda: driver.inspect(),
        lambda: driver.peek("billing", 1),
        lambda: driver.purge("billing"),
        lambda: driver.delete("billing"),
        lambda: subscription.receive(1, 0),
        lambda: subscription.ack(held),
        lambda: subscription.release(held),
        lambda: subscription.move([Move(held[0], held[0].sent)]),
    ):
        with pytest.raises(ConnectionLost):
            await call()
    await driver.open()
    subscription = await driver.subscribe(BILLING, prefetch=10)
    (again,) = await subscription.receive(10, 1)
    assert (again.sent.id, again.redeliveries) == ("m-1", 1)


async def test_a_drop_ends_a_receive_that_waits(driver: FaultyDriver) -> None:
    subscription = await driver.subscribe(BILLING, prefetch=10)
    waiting = asyncio.create_task(driver.inner.peek("billing", 1))
    await waiting
    receiving = asyncio.ensure_future(subscription.receive(10, 60))
    for _ in range(3):
        await asyncio.sleep(0)
    await driver.drop()
    with pytest.raises(ConnectionLost):
        await receiving


async def test_a_drop_while_a_call_is_on_its_way_ends_it() -> None:
    driver = FaultyDriver(inline=False)
    await driver.open()
    await driver.declare(BILLING)
    sending = asyncio.create_task(driver.send(messages("m-1")))
    await asyncio.sleep(0)
    await driver.drop()
    with pytest.raises(ConnectionLost):
        await sending


async def test_a_drop_while_the_answer_is_on_its_way_leaves_it_unknown() -> None:
    driver = FaultyDriver(inline=False)
    await driver.open()
    await driver.declare(BILLING)
    sending = asyncio.create_task(driver.send(messages("m-1")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await driver.drop()
    assert kinds(await sending) == ["Unknown"]
    await driver.open()
    assert await ready(driver) == ["m-1"]


@pytest.mark.parametrize("stored", [True, False])
async def test_answers_are_lost_at_the_positions_given(driver: FaultyDriver, stored: bool) -> None:
    driver.lose_answers([0, 2], stored=stored)
    receipts = await driver.send(messages("m-1", "m-2", "m-3"))
    assert kinds(receipts) == ["Unknown", "Accepted", "Unknown"]
    assert isinstance(receipts[0], Unknown)
    assert isinstance(receipts[0].error, ConnectionLost)
    assert await ready(driver) == (["m-1", "m-2", "m-3"] if stored else ["m-2"])
    assert kinds(await driver.send(messages("m-4"))) == ["Accepted"]


async def test_all_answers_of_several_batches_may_be_lost(driver: FaultyDriver) -> None:
    driver.lose_answers(stored=False, times=2)
    answers = [kinds(await driver.send(messages("m-1", "m-2"))) for _ in range(3)]
    assert answers == [["Unknown"] * 2, ["Unknown"] * 2, ["Accepted"] * 2]


@pytest.mark.parametrize("stored", [True, False])
async def test_a_move_whose_answer_is_lost_stays_held(driver: FaultyDriver, stored: bool) -> None:
    await driver.declare(Queue("other"))
    await driver.send(messages("m-1"))
    subscription = await driver.subscribe(BILLING, prefetch=10)
    (held,) = await subscription.receive(1, 1)
    driver.lose_answers(stored=stored, of="move")
    receipts = await subscription.move([Move(held, replace(held.sent, queue="other"))])
    assert kinds(receipts) == ["Unknown"]
    assert len(await driver.peek("other", 10)) == (1 if stored else 0)
    assert await subscription.ack([held]) == []


@pytest.mark.parametrize("of", ["send", "move", None])
async def test_messages_to_one_place_are_rejected(driver: FaultyDriver, of) -> None:
    await driver.declare(Queue("other"))
    await driver.send(messages("m-1"))
    subscription = await driver.subscribe(BILLING, prefetch=10)
    (held,) = await subscription.receive(1, 1)
    error = PublishError("too large")
    driver.reject(error, to="other", times=None, of=of)
    there = replace(held.sent, queue="other")
    sent = await driver.send([there, *messages("m-2")])
    (moved,) = await subscription.move([Move(held, there)])
    assert kinds(sent) == ["Accepted" if of == "move" else "Rejected", "Accepted"]
    assert kinds([moved]) == ["Accepted" if of == "send" else "Rejected"]
    refused = moved if isinstance(moved, Rejected) else sent[0]
    assert isinstance(refused, Rejected)
    assert refused.error is error
    assert await subscription.ack([held]) == ([held] if moved is ACCEPTED else [])


async def test_rejections_end_after_so_many_messages(driver: FaultyDriver) -> None:
    driver.reject(times=2)
    assert kinds(await driver.send(messages("m-1", "m-2", "m-3"))) == [
        "Rejected",
        "Rejected",
        "Accepted",
    ]


async def test_a_rejection_may_wait_for_an_event(driver: FaultyDriver) -> None:
    driver.reject(Unroutable("nobody"), to="order.placed")
    (receipt,) = await driver.send(
        [Outgoing(b"", "m-1", "events", "order.placed", queue="billing")]
    )
    assert isinstance(receipt, Rejected)
    assert isinstance(receipt.error, Unroutable)


async def test_an_atomic_batch_is_rejected_whole(driver: FaultyDriver) -> None:
    driver.reject()
    receipts = await driver.send(messages("m-1", "m-2"), atomic=True)
    assert kinds(receipts) == ["Rejected", "Rejected"]
    assert await ready(driver) == []


@pytest.mark.parametrize("stored", [True, False])
async def test_a_hanging_send_goes_on_when_released(driver: FaultyDriver, stored: bool) -> None:
    hang = driver.hang(stored=stored)
    sending = asyncio.create_task(driver.send(messages("m-1")))
    await hang.reached()
    assert await ready(driver) == (["m-1"] if stored else [])
    assert kinds(await driver.send(messages("m-2"))) == ["Accepted"]
    assert not sending.done()
    hang.release()
    assert await sending == [ACCEPTED]


async def test_a_drop_ends_a_hanging_send_of_which_nothing_was_stored(
    driver: FaultyDriver,
) -> None:
    hang = driver.hang()
    sending = asyncio.create_task(driver.send(messages("m-1")))
    await hang.reached()
    await driver.drop()
    with pytest.raises(ConnectionLost):
        await sending
    await driver.open()
    assert await ready(driver) == []


async def test_a_drop_ends_a_hanging_send_that_was_stored_with_unknown(
    driver: FaultyDriver,
) -> None:
    hang = driver.hang(stored=True)
    sending = asyncio.create_task(driver.send(messages("m-1", "m-2")))
    await hang.reached()
    await driver.drop()
    assert kinds(await sending) == ["Unknown", "Unknown"]
    await driver.open()
    assert await ready(driver) == ["m-1", "m-2"]


async def test_any_call_may_fail(driver: FaultyDriver) -> None:
    driver.fail("declare", times=2)
    driver.fail("subscribe", ConnectionLost("gone"))
    for _ in range(2):
        with pytest.raises(ConnectionLost, match="fails declare"):
            await driver.declare(BILLING)
    await driver.declare(BILLING)
    with pytest.raises(ConnectionLost, match="gone"):
        await driver.subscribe(BILLING, prefetch=1)


async def test_healing_forgets_what_was_commanded(driver: FaultyDriver) -> None:
    driver.fail("declare")
    driver.reject(times=None)
    driver.lose_answers(stored=True)
    driver.hang()
    driver.heal()
    await driver.declare(BILLING)
    assert await driver.send(messages("m-1")) == [ACCEPTED]


async def test_calls_are_counted(driver: FaultyDriver) -> None:
    await driver.send(messages("m-1", "m-2"))
    await driver.send(messages("m-3"))
    subscription = await driver.subscribe(BILLING, prefetch=1)
    await subscription.receive(1, 0)
    await subscription.close()
    assert driver.batches == [2, 1]
    assert driver.calls == {
        "open": 1,
        "declare": 1,
        "send": 2,
        "subscribe": 1,
        "receive": 1,
        "unsubscribe": 1,
    }
