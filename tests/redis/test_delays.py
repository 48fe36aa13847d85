"""Delays: by the server's clock, never early, fanning out when they are due."""

from __future__ import annotations

import asyncio
import time

import pytest

from queuecraft.drivers.base import Binding, Exchange, Outgoing, Queue, Rejected, Subscription
from queuecraft.model.errors import QueueError
from tests.redis.place import (
    EVENTS,
    Place,
    asleep,
    bound,
    emptied,
    event,
    eventually,
    ids,
    received,
    sent,
    to,
)

MODES = pytest.mark.parametrize("mode", ["list", "stream"])


@MODES
async def test_a_delayed_event_reaches_the_queues_bound_when_it_is_due(
    place: Place, mode: str
) -> None:
    driver = await place.driver(mode)
    for name in ("stays", "leaves"):
        await driver.declare(bound(name, "order.placed"))
    due = time.time() + 0.2
    await sent(driver, event("order.placed", due_at=due))
    await driver.declare(bound("comes", "order.*"))
    await driver.unbind("leaves", [Binding(EVENTS, "order.placed")])
    for name in ("stays", "comes"):
        got = await received(await driver.subscribe(Queue(name), prefetch=5))
        assert ids(got) == ["m-1"]
        assert time.time() >= due
    assert await emptied(await driver.subscribe(Queue("leaves"), prefetch=5)) == []


@MODES
async def test_an_event_that_is_due_for_nobody_is_kept(place: Place, mode: str) -> None:
    driver = await place.driver(mode)
    for name in ("billing", "other"):
        await driver.declare(bound(name, f"{name}.placed"))
    await sent(driver, event("billing.placed", due_at=time.time() + 0.1))
    await driver.delete("billing")
    waiting = asyncio.create_task(received(await driver.subscribe(Queue("other"), prefetch=5)))
    await eventually(lambda: driver.inspect(["qc.undelivered.dlq"]))
    assert ids(await driver.peek("qc.undelivered.dlq", 5)) == ["m-1"]
    waiting.cancel()


async def test_an_event_nobody_is_bound_to_is_unroutable_at_once_though_delayed(
    place: Place,
) -> None:
    driver = await place.driver()
    await driver.prepare([EVENTS])
    (receipt,) = await driver.send([event("order.placed", due_at=time.time() + 60)])
    assert isinstance(receipt, Rejected)


async def test_a_delayed_event_of_a_headers_exchange_is_routed_by_its_headers(
    place: Place,
) -> None:
    reports = Exchange("reports", "headers")
    driver = await place.driver()
    for kind in ("pdf", "text"):
        await driver.declare(Queue(kind, bindings=(Binding(reports, "", {"format": kind}),)))
    message = Outgoing(
        b"{}", "m-1", "reports", headers={"format": "pdf"}, due_at=time.time() + 0.05
    )
    await sent(driver, message)
    assert ids(await received(await driver.subscribe(Queue("pdf"), prefetch=5))) == ["m-1"]
    assert await emptied(await driver.subscribe(Queue("text"), prefetch=5)) == []


@MODES
async def test_one_who_waits_learns_of_what_is_due_sooner(place: Place, mode: str) -> None:
    driver, other = await place.driver(mode), await place.driver(mode)
    await driver.declare(bound("billing", "order.placed"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    await sent(other, to("billing", "much later", due_at=time.time() + 3600))
    await sent(other, event("order.placed", "later", due_at=time.time() + 3000))
    for number in range(3):
        waiting = asyncio.create_task(received(consumer))
        await asleep(consumer)
        due = time.time() + 0.05
        soon = to("billing", f"m-{number}", due_at=due)
        if number == 1:
            soon = event("order.placed", f"m-{number}", due_at=due)
        await sent(other, soon)
        assert ids(await waiting) == [f"m-{number}"]
        assert time.time() >= due


@MODES
async def test_more_than_a_script_brings_at_once_comes_in_order(place: Place, mode: str) -> None:
    driver = await place.driver(mode)
    await driver.declare(Queue("billing"))
    due = time.time() + 0.2
    names = [f"m-{n:04}" for n in range(1200)]
    await sent(driver, *(to("billing", name, due_at=due) for name in names))
    consumer = await driver.subscribe(Queue("billing"), prefetch=2000)
    assert ids(await received(consumer, 1200)) == names


@MODES
async def test_purging_forgets_what_is_due_and_keeps_what_is_not(place: Place, mode: str) -> None:
    driver = await place.driver(mode)
    await driver.declare(Queue("billing"))
    await sent(driver, to("billing", "due", due_at=time.time() + 0.01))
    await sent(driver, to("billing", "later", due_at=time.time() + 3600))

    async def is_ready() -> bool:
        return (await driver.inspect(["billing"]))[0].ready == 1

    await eventually(is_ready)
    assert await driver.purge("billing") == 1
    (info,) = await driver.inspect(["billing"])
    assert (info.ready, info.delayed) == (0, 1)


@MODES
async def test_an_event_that_one_queue_cannot_take_reaches_the_others_and_waits_for_that_one(
    place: Place, mode: str
) -> None:
    driver = await place.driver(mode)
    taking = ("audit", "crm", "search")
    for name in ("billing", *taking):
        await driver.declare(bound(name, "order.*"))
    await driver.declare(Queue("other"))
    other = await driver.subscribe(Queue("other"), prefetch=1)
    await sent(driver, event("order.placed", due_at=time.time() + 0.05))
    await spoil(place, "queue:billing", "stream:billing")

    await eventually(lambda: has_gone(place, other))
    for name in taking:
        assert ids(await driver.peek(name, 5)) == ["m-1"]
    billing = await driver.subscribe(Queue("billing"), prefetch=5)
    for _ in range(2):
        with pytest.raises(QueueError, match="WRONGTYPE"):
            await billing.receive(5, 0)

    await mend(place, "queue:billing", "stream:billing")
    assert ids(await received(billing)) == ["m-1"]
    assert await emptied(billing) == []


@MODES
async def test_an_event_that_cannot_wait_for_its_queue_either_is_kept(
    place: Place, mode: str
) -> None:
    driver = await place.driver(mode)
    for name in ("billing", "audit"):
        await driver.declare(bound(name, "order.*"))
    audit = await driver.subscribe(Queue("audit"), prefetch=1)
    await sent(driver, event("order.placed", due_at=time.time() + 0.05))
    await spoil(place, "queue:billing", "stream:billing", "delayed:billing")

    assert ids(await received(audit)) == ["m-1"]

    assert ids(await driver.peek("qc.undelivered.dlq", 5)) == ["m-1"]


async def test_an_event_that_can_be_stored_nowhere_is_tried_again_and_holds_up_nobody(
    place: Place,
) -> None:
    driver = await place.driver()
    await driver.declare(bound("billing", "order.*"))
    jobs = Exchange("jobs")
    await driver.declare(Queue("jobs", bindings=(Binding(jobs, "#"),)))
    due = time.time() + 0.05
    first = Outgoing(b"{}", "before", "jobs", "job.begun", due_at=due)
    last = Outgoing(b"{}", "after", "jobs", "job.begun", due_at=due)
    await sent(driver, first, event("order.placed", due_at=due), last)
    await mend(place, "routes")
    await spoil(place, "bound:events")

    consumer = await driver.subscribe(Queue("jobs"), prefetch=5)
    with pytest.raises(QueueError, match="WRONGTYPE"):
        await received(consumer)
    assert ids(await emptied(consumer)) == ["before", "after"]

    await mend(place, "bound:events")
    await driver.bind("billing", [Binding(EVENTS, "order.*")])
    assert ids(await received(await driver.subscribe(Queue("billing"), prefetch=5))) == ["m-1"]
    assert await emptied(consumer) == []


async def test_what_cannot_be_made_ready_does_not_bring_the_rest_again_and_again(
    place: Place,
) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing", max_priority=9))
    due = time.time() + 0.05
    await sent(driver, to("billing", "usual", due_at=due))
    await sent(driver, to("billing", "urgent", priority=5, due_at=due))
    await spoil(place, "queue.5:billing")

    consumer = await driver.subscribe(Queue("billing"), prefetch=5)

    async def is_ready() -> bool:
        with pytest.raises(QueueError, match="WRONGTYPE"):
            await consumer.receive(5, 0)
        return bool(await place.call("EXISTS", place.key("queue:billing")))

    await eventually(is_ready)
    assert await is_ready()

    await mend(place, "queue.5:billing")
    assert ids(await received(consumer, 2)) == ["urgent", "usual"]
    assert await emptied(consumer) == []


async def spoil(place: Place, *keys: str) -> None:
    """Let somebody use keys of ours for something else."""
    for key in keys:
        await place.call("SET", place.key(key), "mine")


async def mend(place: Place, *keys: str) -> None:
    for key in keys:
        await place.call("DEL", place.key(key))


async def has_gone(place: Place, consumer: Subscription) -> bool:
    """Whether the delayed event has gone its way, if need be by this consumer's doing."""
    assert await consumer.receive(1, 0) == []
    return not await place.call("EXISTS", place.key("events"))
