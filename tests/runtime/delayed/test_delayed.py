"""Delayed messages: added, seen, cancelled, and moved when they are due."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    ConnectionLost,
    Event,
    PayloadError,
    PublishError,
    Queue,
    QueueCraft,
    QueueFull,
)
from queuecraft.facts import DelayedDelivered, DelayedRefused
from queuecraft.model.delayed import DelayedSettings
from queuecraft.testing import FakeClock
from tests.runtime.delayed.conftest import Make
from tests.runtime.delayed.looking import ids, noted, ready, waiting

order_placed = Event("order.placed", dict)


async def test_a_message_is_moved_when_it_is_due_and_not_before(
    qc: QueueCraft, clock: FakeClock
) -> None:
    async with qc.delayed.running():
        await qc.delayed.add(order_placed, {"n": 1}, delay=60)
        await clock.advance(59.999)
        assert await ready(qc) == []
        await clock.advance(0.001)
        assert await ready(qc) == [{"n": 1}]
        assert await waiting(qc) == []


async def test_an_event_reaches_the_queues_bound_to_it_when_it_is_due(
    qc: QueueCraft, clock: FakeClock
) -> None:
    async with qc.delayed.running():
        await qc.delayed.add(order_placed, {"n": 1}, delay=60)
        await qc.admin.declare("audit", "order.placed")
        await qc.admin.unbind("billing", "order.*")
        await clock.advance(60)
        assert (await ready(qc), await ready(qc, "audit")) == ([], [{"n": 1}])


async def test_a_queue_gets_what_is_for_it_alone(qc: QueueCraft, clock: FakeClock) -> None:
    await qc.admin.declare("audit", "#")
    async with qc.delayed.running():
        await qc.delayed.add(Queue("billing", dict), {"n": 1}, delay=1)
        await clock.advance(1)
        assert (await ready(qc), await ready(qc, "audit")) == ([{"n": 1}], [])


async def test_a_moved_message_keeps_all_it_had(qc: QueueCraft, clock: FakeClock) -> None:
    at = datetime.fromtimestamp(clock.now() + 90, UTC)
    id = await qc.delayed.add(
        order_placed,
        {"n": 1},
        deliver_at=at,
        headers={"tenant": "t1"},
        message_id="mine",
        key="k",
        correlation_id="c",
    )
    added_at = datetime.fromtimestamp(clock.now(), UTC)
    async with qc.delayed.running():
        await clock.advance(90)
    (found,) = await qc.admin.peek("billing")
    assert id == found.id == "mine"
    assert (found.headers, found.key, found.correlation_id) == ({"tenant": "t1"}, "k", "c")
    assert (found.published_at, found.due_at) == (added_at, at)


async def test_messages_arrive_in_the_order_they_are_due(qc: QueueCraft, clock: FakeClock) -> None:
    async with qc.delayed.running():
        for delay in (5, 1, 3, 2, 4):
            await qc.delayed.add(order_placed, {"n": delay}, delay=delay)
        await clock.advance(5)
    assert await ready(qc) == [{"n": n} for n in (1, 2, 3, 4, 5)]


async def test_more_than_one_step_holds_are_all_moved(qc: QueueCraft, clock: FakeClock) -> None:
    for n in range(1100):
        await qc.delayed.add(order_placed, {"n": n}, delay=1 + n / 10_000)
    async with qc.delayed.running():
        await clock.advance(1)
        await clock.advance(2)
    assert await ready(qc) == [{"n": n} for n in range(1100)]


@pytest.mark.parametrize("url", ["file"], indirect=True)
async def test_two_movers_move_each_message_once(make: Make, clock: FakeClock) -> None:
    one, other = await make(), await make()
    async with one.delayed.running(), other.delayed.running():
        for n in range(300):
            await one.delayed.add(order_placed, {"n": n}, delay=1, message_id=f"m-{n:03}")
        await clock.advance(3)
    assert sorted(await ids(one)) == [f"m-{n:03}" for n in range(300)]


@pytest.mark.parametrize("url", ["file"], indirect=True)
async def test_what_others_add_is_found_in_time(make: Make, clock: FakeClock) -> None:
    mover, adder = await make(), await make()
    async with mover.delayed.running():
        await clock.advance(0.5)
        await adder.delayed.add(order_placed, {"n": 1}, delay=2)
        await clock.advance(2)
        assert await ready(mover) == [{"n": 1}]


async def test_a_time_that_has_passed_is_now(qc: QueueCraft, clock: FakeClock) -> None:
    past = datetime.fromtimestamp(clock.now(), UTC) - timedelta(hours=1)
    async with qc.delayed.running():
        await qc.delayed.add(order_placed, {"n": 1}, deliver_at=past)
        await clock.settle()
        assert await ready(qc) == [{"n": 1}]


async def test_a_cancelled_message_never_arrives(qc: QueueCraft, clock: FakeClock) -> None:
    async with qc.delayed.running():
        id = await qc.delayed.add(order_placed, {"n": 1}, delay=60)
        assert await qc.delayed.cancel(id)
        assert not await qc.delayed.cancel(id)
        await clock.advance(120)
        assert await ready(qc) == []


async def test_at_the_limit_a_message_is_refused_with_what_to_do(make: Make) -> None:
    qc = await make(limit=2)
    await qc.delayed.add(order_placed, {}, delay=60)
    kept = await qc.delayed.add(order_placed, {}, delay=60)
    with pytest.raises(QueueFull, match=r"2 delayed messages wait already; .*delayed\.limit=2"):
        await qc.delayed.add(order_placed, {}, delay=60, message_id="too-many")
    await qc.delayed.cancel(kept)
    await qc.delayed.add(order_placed, {}, delay=60)
    assert (await qc.delayed.stats()).size == 2


async def test_fifty_tasks_at_the_limit_add_none_too_many(make: Make) -> None:
    qc = await make(limit=10)
    adding = (qc.delayed.add(order_placed, {}, delay=60) for _ in range(50))
    results = await asyncio.gather(*adding, return_exceptions=True)
    assert sum(isinstance(each, str) for each in results) == 10
    assert sum(isinstance(each, QueueFull) for each in results) == 40
    assert len(await waiting(qc)) == 10


async def test_what_waits_is_listed_page_by_page(qc: QueueCraft, clock: FakeClock) -> None:
    for n in range(5):
        target = order_placed if n % 2 else Queue("billing", dict)
        await qc.delayed.add(target, {"n": n}, delay=60 - n, message_id=f"m-{n}")
    first = await qc.delayed.list(3)
    second = await qc.delayed.list(3, after=first.next)
    assert [each.id for each in [*first, *second]] == ["m-4", "m-3", "m-2", "m-1", "m-0"]
    assert (len(first), len(second), second.next) == (3, 2, None)
    last, event = first[0], first[1]
    assert (last.target, last.kind) == ("billing", "queue")
    assert (event.target, event.kind) == ("order.placed", "event")
    assert (last.preview, last.size) == ('{"n":4}', 7)
    assert last.due_at - last.added_at == timedelta(seconds=56)


@pytest.mark.parametrize(
    ("payload", "preview"),
    [
        ("x" * 500, '"' + "x" * 198 + "…"),
        ("x" * 70_000, '"' + "x" * 198 + "…"),
        ({"a": "\x1b[31m"}, '{"a":"\\u001b[31m"}'),
    ],
)
async def test_a_preview_is_short_whatever_the_payload(
    qc: QueueCraft, payload: object, preview: str
) -> None:
    await qc.delayed.add("order.placed", payload, delay=60)
    (found,) = await qc.delayed.list()
    assert found.preview == preview


async def test_what_cannot_be_shown_is_counted(qc: QueueCraft) -> None:
    await qc.delayed.add(Event("order.raw", bytes), b"\xff" * 100_000, delay=60)
    (found,) = await qc.delayed.list()
    assert (found.preview, found.size) == ("<100000 bytes>", 100_000)


async def test_what_is_refused_waits_and_is_tried_again(qc: QueueCraft, clock: FakeClock) -> None:
    refused = noted(qc, DelayedRefused)
    async with qc.delayed.running():
        await qc.delayed.add("user.created", {"n": 1}, delay=1, message_id="m-1")
        await clock.advance(1)
        assert [each.count for each in refused] == [1]
        assert "no queue is bound to event 'user.created'" in refused[0].error
        (found,) = await qc.delayed.list()
        assert found.failures == 1
        await qc.admin.bind("billing", "user.*")
        await clock.advance(1)
        assert await ready(qc) == [{"n": 1}]


async def test_one_that_is_refused_does_not_hold_up_the_others(
    qc: QueueCraft, clock: FakeClock
) -> None:
    async with qc.delayed.running():
        await qc.delayed.add(Queue("nowhere"), {}, delay=1)
        await qc.delayed.add(order_placed, {"n": 1}, delay=1)
        await clock.advance(1)
        assert await ready(qc) == [{"n": 1}]
        assert (await qc.delayed.stats()).size == 1


async def test_where_unroutable_events_are_dropped_these_are_too(
    url: str, clock: FakeClock
) -> None:
    async with QueueCraft(url, clock=clock, unroutable="drop") as qc, qc.delayed.running():
        await qc.delayed.add("user.created", {}, delay=1)
        await clock.advance(1)
        assert (await qc.delayed.stats()).size == 0


async def test_what_was_delivered_is_told(qc: QueueCraft, clock: FakeClock) -> None:
    delivered = noted(qc, DelayedDelivered)
    async with qc.delayed.running():
        id = await qc.delayed.add(order_placed, {}, delay=1)
        await clock.advance(1)
    assert [[each.id for each in fact.messages] for fact in delivered] == [[id]]


async def test_nothing_moves_once_the_service_is_stopped(qc: QueueCraft, clock: FakeClock) -> None:
    await qc.delayed.start()
    await qc.delayed.start()
    assert qc.delayed.is_running
    await qc.delayed.add(order_placed, {}, delay=1)
    await qc.delayed.stop()
    await qc.delayed.stop()
    assert not qc.delayed.is_running
    await clock.advance(60)
    assert await ready(qc) == []
    async with qc.delayed.running():
        await clock.settle()
        assert await ready(qc) == [{}]


async def test_run_ends_when_it_is_stopped(qc: QueueCraft, clock: FakeClock) -> None:
    task = asyncio.create_task(qc.delayed.run())
    await clock.settle()
    assert qc.delayed.is_running
    await qc.delayed.stop()
    await task


async def test_workers_bring_the_service_with_them_where_that_is_set(
    url: str, clock: FakeClock
) -> None:
    settings = DelayedSettings(service=True)
    qc = QueueCraft(url, clock=clock, delayed=settings)
    worker = qc.worker("billing")
    worker.on("order.*", print)
    async with qc:
        assert not qc.delayed.is_running  # nobody works yet
        await worker.start()
        await clock.settle()
        assert qc.delayed.is_running
    assert not qc.delayed.is_running


def test_workers_that_cannot_bring_the_service_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"set delayed\.store"):
        QueueCraft("amqp://localhost", delayed=DelayedSettings(service=True))


async def test_messages_outlive_the_process_that_added_them(
    tmp_path: Path, clock: FakeClock
) -> None:
    url = f"local://{tmp_path}/queue.db"
    async with QueueCraft(url, clock=clock) as qc:
        await qc.admin.declare("billing", "order.*")
        await qc.delayed.add(order_placed, {"n": 1}, delay=60)
    async with QueueCraft(url, clock=clock) as qc, qc.delayed.running():
        await clock.advance(60)
        assert await ready(qc) == [{"n": 1}]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "say when it is due"),
        ({"delay": 1, "deliver_at": datetime.now(UTC)}, "not both"),
        ({"delay": -1}, "delay=-1: expected seconds"),
        ({"delay": "1"}, "delay='1': expected a number"),
        ({"delay": float("nan")}, "delay=nan"),
        ({"deliver_at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"delay": 1, "message_id": ""}, "message_id=''"),
        ({"delay": 1, "headers": {"x-id": "1"}}, "QueueCraft's own"),
    ],
)
async def test_options_that_make_no_sense_are_refused(
    qc: QueueCraft, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        await qc.delayed.add(order_placed, {}, **options)
    assert (await qc.delayed.stats()).size == 0


async def test_a_payload_that_does_not_fit_is_refused_when_it_is_added(qc: QueueCraft) -> None:
    with pytest.raises(PayloadError):
        await qc.delayed.add(Event("order.count", int), "many", delay=1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.parametrize("limit", [0, -1, 10_001, 1.5, True])
async def test_a_page_of_no_sensible_size_is_refused(qc: QueueCraft, limit: Any) -> None:
    with pytest.raises(ConfigError, match="limit="):
        await qc.delayed.list(limit)


@pytest.mark.parametrize("after", ["", "m-1", "soon_m-1"])
async def test_a_page_after_nothing_known_is_refused(qc: QueueCraft, after: str) -> None:
    with pytest.raises(ConfigError, match="expected the `next` of another page"):
        await qc.delayed.list(after=after)


async def test_adding_after_the_end_says_so(url: str) -> None:
    qc = QueueCraft(url)
    await qc.open()
    await qc.delayed.stats()
    await qc.shutdown()
    for use in (qc.delayed.stats(), qc.delayed.start(), qc.delayed.cleanup()):
        with pytest.raises(ConnectionLost, match="shut down"):
            await use
    with pytest.raises(PublishError, match="shut down") as caught:
        await qc.delayed.add(order_placed, {}, delay=1)
    assert caught.value.outcome == "rejected"
