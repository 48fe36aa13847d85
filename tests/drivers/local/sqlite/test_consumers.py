"""Consumers of one file in several processes: what each knows of the others, and who is woken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from queuecraft.drivers.base import (
    ACCEPTED,
    ConnectionLost,
    Delivery,
    Move,
    Outgoing,
    Queue,
    Rejected,
)
from queuecraft.drivers.local.sqlite import SqliteDriver
from queuecraft.model.errors import QueueError
from tests.drivers.local.sqlite.conftest import Opener
from tests.drivers.local.sqlite.file import messages, rows


def ids(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.sent.id for delivery in deliveries]


async def waits(receiving: asyncio.Future[Any]) -> None:
    """Until a `receive` has nothing left to do but wait."""
    for _ in range(5):
        await asyncio.sleep(0)
    assert not receiving.done()


async def test_a_consumer_that_leaves_with_nothing_in_hand_is_gone_for_all(
    open_driver: Opener,
) -> None:
    ours, theirs = await open_driver(), await open_driver()
    await ours.declare(Queue("jobs"))
    subscription = await ours.subscribe(Queue("jobs"), prefetch=1)
    assert [info.consumers for info in await theirs.inspect()] == [1]

    await subscription.close()

    assert [info.consumers for info in await theirs.inspect()] == [0]
    assert not (await theirs.topology()).consumers


async def test_an_exclusive_queue_is_free_again_once_its_consumer_has_left(
    open_driver: Opener,
) -> None:
    ours, theirs = await open_driver(), await open_driver()
    queue = Queue[Any]("jobs", exclusive=True)
    await ours.declare(queue)
    await ours.declare(Queue("other"))
    await theirs.subscribe(Queue("other"), prefetch=1)
    subscription = await ours.subscribe(queue, prefetch=1)
    with pytest.raises(QueueError, match="exclusive"):
        await theirs.subscribe(queue, prefetch=1)

    await subscription.close()

    await theirs.subscribe(queue, prefetch=1)
    assert [c.queue for c in (await ours.topology()).consumers] == ["jobs", "other"]


async def test_a_queue_that_went_with_its_last_consumer_is_gone_for_all(
    open_driver: Opener,
) -> None:
    ours, theirs = await open_driver(), await open_driver()
    queue = Queue[Any]("jobs", auto_delete=True)
    await ours.declare(queue)
    subscription = await ours.subscribe(queue, prefetch=1)
    assert await theirs.send(messages("jobs", "m-1")) == [ACCEPTED]

    await subscription.close()

    (receipt,) = await theirs.send(messages("jobs", "m-2"))
    assert isinstance(receipt, Rejected)
    assert not await theirs.inspect()


async def test_a_change_of_another_process_right_after_one_of_ours_is_seen(
    open_driver: Opener,
) -> None:
    ours, theirs = await open_driver(), await open_driver()
    await ours.declare(Queue("ours"))
    await theirs.declare(Queue("theirs"))
    assert await ours.send(messages("theirs", "m-1")) == [ACCEPTED]
    await ours.declare(Queue("more"))
    await theirs.delete("theirs")
    (receipt,) = await ours.send(messages("theirs", "m-2"))
    assert isinstance(receipt, Rejected)


async def test_moved_messages_arrive_in_the_order_of_the_moves(open_driver: Opener) -> None:
    driver = await open_driver()
    for name in ("jobs", "done"):
        await driver.declare(Queue(name))
    await driver.send(messages("jobs", *"abcd"))
    subscription = await driver.subscribe(Queue("jobs"), prefetch=9)
    taken = list(await subscription.receive(9, 0))
    await subscription.release([taken.pop(1)])  # what is left is held in two pieces
    a, c, d = taken

    receipts = await subscription.move(
        [Move(each, Outgoing(b"", each.sent.id, queue="done")) for each in (c, a, d)]
    )

    assert receipts == [ACCEPTED] * 3
    assert ids(await driver.peek("done", 9)) == ["c", "a", "d"]


@pytest.mark.usefixtures("no_poll")
async def test_a_message_that_woke_a_consumer_who_leaves_wakes_another(open_driver: Opener) -> None:
    driver = await open_driver()
    await driver.declare(Queue("jobs"))
    leaving = await driver.subscribe(Queue("jobs"), prefetch=1)
    staying = await driver.subscribe(Queue("jobs"), prefetch=1)
    first = asyncio.ensure_future(leaving.receive(1, 60))
    await waits(first)
    second = asyncio.ensure_future(staying.receive(1, 60))
    await waits(second)

    await driver.send(messages("jobs", "m-1"))
    await leaving.close()

    assert ids(await asyncio.wait_for(second, 10)) == ["m-1"]
    with pytest.raises(ConnectionLost):
        await first


@pytest.mark.usefixtures("no_poll")
async def test_what_is_released_wakes_consumers_that_came_in_the_meantime(
    open_driver: Opener,
) -> None:
    ours, theirs = await open_driver(), await open_driver()
    await ours.declare(Queue("jobs"))
    await ours.send(messages("jobs", "m-1"))
    subscription = await ours.subscribe(Queue("jobs"), prefetch=1)
    taken = await subscription.receive(1, 0)
    newcomer = await theirs.subscribe(Queue("jobs"), prefetch=1)
    receiving = asyncio.ensure_future(newcomer.receive(1, 60))
    await waits(receiving)

    await subscription.release(taken)

    assert ids(await asyncio.wait_for(receiving, 10)) == ["m-1"]


@pytest.mark.usefixtures("no_poll")
async def test_what_a_leaving_consumer_held_wakes_the_others_at_once(open_driver: Opener) -> None:
    ours, theirs = await open_driver(), await open_driver()
    await ours.declare(Queue("jobs"))
    await ours.send(messages("jobs", "m-1"))
    subscription = await ours.subscribe(Queue("jobs"), prefetch=1)
    await subscription.receive(1, 0)
    other = await theirs.subscribe(Queue("jobs"), prefetch=1)
    receiving = asyncio.ensure_future(other.receive(1, 60))
    await waits(receiving)

    await ours.close()

    (delivery,) = await asyncio.wait_for(receiving, 10)
    assert delivery.redeliveries == 1


@pytest.mark.usefixtures("no_poll")
async def test_consumers_elsewhere_are_told_that_their_queue_was_deleted(
    open_driver: Opener,
) -> None:
    ours, theirs = await open_driver(), await open_driver()
    await ours.declare(Queue("jobs"))
    subscription = await theirs.subscribe(Queue("jobs"), prefetch=1)
    receiving = asyncio.ensure_future(subscription.receive(1, 60))
    await waits(receiving)

    await ours.delete("jobs")

    with pytest.raises(QueueError, match="deleted") as caught:
        await asyncio.wait_for(receiving, 10)
    assert not isinstance(caught.value, ConnectionLost)


@pytest.mark.usefixtures("no_poll")
async def test_a_queue_made_anew_elsewhere_is_not_taken_for_the_empty_one_of_before(
    open_driver: Opener,
) -> None:
    ours, theirs = await open_driver(), await open_driver()
    await ours.declare(Queue("jobs"))
    before = await theirs.subscribe(Queue("jobs"), prefetch=1)
    assert await before.receive(1, 0) == []

    await ours.delete("jobs")
    await ours.declare(Queue("jobs"))
    await ours.send(messages("jobs", "m-1"))
    again = await theirs.subscribe(Queue("jobs"), prefetch=1)

    assert ids(await again.receive(1, 0)) == ["m-1"]
    with pytest.raises(QueueError, match="deleted"):
        await before.receive(1, 0)


async def test_a_consumer_that_slips_in_while_a_queue_is_deleted_leaves_no_trace(
    open_driver: Opener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = await open_driver(), await open_driver()
    await ours.declare(Queue("jobs"))
    await ours.send(messages("jobs", "m-1", "m-2"))
    late: list[Delivery] = []
    change: Callable[..., Awaitable[Any]] = ours._change
    steps = 0

    async def interrupted(*work: Any) -> Any:
        nonlocal steps
        steps += 1
        result = await change(*work)
        if steps == 1:  # what is there is still to be deleted
            subscription = await theirs.subscribe(Queue("jobs"), prefetch=9)
            late.extend(await subscription.receive(9, 0))
            monkeypatch.setattr(ours, "_change", change)
            slipped.append(subscription)
        return result

    slipped: list[Any] = []
    monkeypatch.setattr(ours, "_change", interrupted)
    await ours.delete("jobs")

    assert ids(late) == ["m-1", "m-2"]
    assert rows(path, "SELECT * FROM lease") == rows(path, "SELECT * FROM consumer") == []
    await ours.declare(Queue("jobs"))
    await ours.send(messages("jobs", "m-3", "m-4"))
    assert await slipped[0].ack(late) == late  # and it cannot touch what has taken their place
    assert ids(await ours.peek("jobs", 9)) == ["m-3", "m-4"]


async def test_acks_of_a_consumer_whose_queue_was_deleted_are_stale(open_driver: Opener) -> None:
    ours, theirs = await open_driver(), await open_driver()
    await ours.declare(Queue("jobs"))
    await ours.send(messages("jobs", "m-1"))
    subscription = await theirs.subscribe(Queue("jobs"), prefetch=1)
    taken = await subscription.receive(1, 0)

    await ours.delete("jobs")
    await ours.declare(Queue("jobs"))
    await ours.send(messages("jobs", "m-2"))

    assert await subscription.ack(taken) == taken
    await subscription.release(taken)
    (receipt,) = await subscription.move([Move(taken[0], Outgoing(b"", "m-1", queue="jobs"))])
    assert isinstance(receipt, Rejected)
    assert ids(await ours.peek("jobs", 9)) == ["m-2"]


async def test_a_queue_that_has_used_up_its_places_starts_over_when_it_is_empty(
    open_driver: Opener, path: Path
) -> None:
    driver = await open_driver()
    await driver.declare(Queue("jobs"))
    subscription = await driver.subscribe(Queue("jobs"), prefetch=9)
    _use_up(driver, leaving=2)

    assert await driver.send(messages("jobs", "a", "b")) == [ACCEPTED] * 2
    taken = await subscription.receive(9, 0)
    with pytest.raises(Exception, match="drain it once"):
        await driver.send(messages("jobs", "c"))
    await subscription.ack(taken)
    assert await driver.send(messages("jobs", "c", "d")) == [ACCEPTED] * 2

    assert ids(await subscription.receive(9, 0)) == ["c", "d"]
    assert rows(path, "SELECT next FROM counter") == [(2,)]


def _use_up(driver: SqliteDriver, leaving: int) -> None:
    assert driver._publishing is not None
    driver._publishing.execute("UPDATE counter SET next = ?", ((1 << 40) - leaving,))
