"""A whole application runs in memory, with its own handlers, in a time that the test moves."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from queuecraft import ConfigError, Event, Message, Policy, PublishError, QueueCraft, Retry
from queuecraft.facts import MessageFailed, Shutdown
from queuecraft.middleware import Breaker, Handle, Publication, Publish, RateLimit
from queuecraft.model.delayed import DelayedSettings
from queuecraft.testing import testing

order_placed = Event("order.placed", dict[str, Any])
order_paid = Event("order.paid", dict[str, Any])


class Shop:
    """An application as a module would have it: made once, for a broker that is not here."""

    def __init__(self, **options: Any) -> None:
        self.qc = QueueCraft("amqp://nobody.example:1", retry=Retry(initial_delay=20), **options)
        self.seen: list[str] = []
        self.broken = False
        billing = self.billing = self.qc.worker("billing", concurrency=2)
        mail = self.qc.worker("mail")

        @billing.on(order_placed)
        async def charge(order: dict[str, Any], message: Message) -> None:
            self.seen.append(f"charge {order['id']} {message.attempt}")
            if self.broken:
                raise OSError("the bank is closed")
            await self.qc.publish(order_paid, order)

        @mail.on(order_paid)
        def thank(order: dict[str, Any]) -> None:
            self.seen.append(f"thank {order['id']} {threading.current_thread().name[:10]}")


@pytest.mark.parametrize("time", ["first", "again"])
async def test_handlers_publish_to_each_other(time: str) -> None:
    shop = Shop()
    for _ in range(2 if time == "again" else 1):
        shop.seen.clear()
        async with testing(shop.qc) as app:
            await shop.qc.publish(order_placed, {"id": "o-1"})
            await app.settle()
            assert shop.seen == ["charge o-1 1", "thank o-1 queuecraft"]
            assert app.published(order_paid) == [{"id": "o-1"}]
            assert app.published("order.*") == [{"id": "o-1"}] * 2
    assert shop.qc.connection_state == "disconnected"
    assert shop.billing.state == "new"


def test_it_may_be_used_in_one_loop_after_another() -> None:
    shop = Shop()

    async def once() -> None:
        async with testing(shop.qc) as app:
            await shop.qc.publish(order_placed, {"id": "o-1"})
            await app.settle()

    for _ in range(3):
        asyncio.run(once())
    assert len(shop.seen) == 6


async def test_time_travels_over_retries_and_delays() -> None:
    shop = Shop()
    async with testing(shop.qc) as app:
        shop.broken = True
        await shop.qc.publish(order_placed, {"id": "o-1"}, delay=3600)
        await app.advance(3599)
        assert shop.seen == []
        await app.advance(1)
        assert shop.seen == ["charge o-1 1"]
        shop.broken = False
        await app.advance(19)
        assert shop.seen == ["charge o-1 1"]
        await app.advance(1)
        assert shop.seen[1:] == ["charge o-1 2", "thank o-1 queuecraft"]


async def test_a_message_that_keeps_failing_ends_as_a_dead_letter() -> None:
    shop = Shop()
    shop.broken = True
    async with testing(shop.qc) as app:
        await shop.qc.publish(order_placed, {"id": "o-1"})
        await app.advance(86_400)
        assert [line.split()[-1] for line in shop.seen] == ["1", "2", "3", "4"]
        (letter,) = await shop.qc.dead_letters.list("billing")
        assert letter.error == "the bank is closed"


async def test_middleware_and_observers_are_the_applications_own() -> None:
    failures: list[str] = []
    passed: list[str] = []

    def noting(handle: Handle) -> Handle:
        async def noted(message: Message[Any]) -> object:
            passed.append(message.routing_key)
            return await handle(message)

        return noted

    def stamping(publish: Publish) -> Publish:
        async def stamped(publication: Publication) -> str:
            publication.set_header("x-tenant", "acme")
            return await publish(publication)

        return stamped

    shop = Shop(middleware=[noting, RateLimit(1)], publish_middleware=[stamping])
    stop = shop.qc.observe(MessageFailed, lambda fact: failures.append(fact.reason))
    shop.broken = True
    async with testing(shop.qc) as app:
        await shop.qc.publish(order_placed, {"id": "o-1"})
        await app.settle()
        assert passed == ["order.placed"]
        assert failures == ["handler-error"]
        assert app.records[0].headers == {"x-tenant": "acme"}
        await shop.qc.publish(order_placed, {"id": "o-2"})
        await app.settle()
        assert len(shop.seen) == 1  # the limit goes by the time of the test
        await app.advance(1)
        assert len(shop.seen) == 2
    stop()
    async with testing(shop.qc) as app:
        await shop.qc.publish(order_placed, {"id": "o-3"})
        await app.settle()
    assert len(failures) == 2


async def test_workers_may_be_started_by_hand() -> None:
    shop = Shop()
    async with testing(shop.qc, start=False) as app:
        await shop.qc.publish(order_placed, {"id": "o-1"})
        await app.settle()
        assert shop.seen == []
        await shop.billing.start()
        await app.settle()
        assert shop.seen == ["charge o-1 1"]


async def test_an_outage_can_be_rehearsed() -> None:
    shop = Shop()
    async with testing(shop.qc) as app:
        app.driver.refuse(3)
        await app.driver.drop()
        publishing = asyncio.ensure_future(shop.qc.publish(order_placed, {"id": "o-1"}))
        await app.settle()
        assert not publishing.done()
        await app.advance(30)
        await publishing
        await app.settle()
        assert shop.seen[0] == "charge o-1 1"


async def test_one_that_is_open_is_refused() -> None:
    async with QueueCraft() as qc:
        with pytest.raises(ConfigError, match="is open"):
            async with testing(qc):
                pass


async def test_an_observer_that_is_stopped_meanwhile_stays_so() -> None:
    shop = Shop()
    shop.broken = True
    failures: list[MessageFailed] = []
    stop = shop.qc.observe(MessageFailed, failures.append)
    for _ in range(2):
        async with testing(shop.qc) as app:
            stop()
            await shop.qc.publish(order_placed, {"id": "o-1"})
            await app.settle()
    assert failures == []


async def test_what_is_added_meanwhile_is_gone_afterwards() -> None:
    shop = Shop()
    shop.broken = True
    failures: list[MessageFailed] = []
    async with testing(shop.qc):
        shop.qc.worker("audit").on(order_paid, print)
        shop.qc.observe(MessageFailed, failures.append)
    async with testing(shop.qc) as app:
        await shop.qc.publish(order_placed, {"id": "o-1"})
        await app.settle()
    assert shop.seen == ["charge o-1 1"]
    assert failures == []
    assert [each.queue_name for each in shop.qc.workers] == ["billing", "mail"]


async def test_a_rehearsal_that_cannot_begin_leaves_all_as_it_was() -> None:
    class Picky:
        def attach(self, engine: Any) -> None:
            if engine.settings.url == "local://":
                raise ConfigError("not here")

        def __call__(self, handle: Handle) -> Handle:
            return handle

    shop = Shop(middleware=[Picky()])
    before = vars(shop.qc).copy()
    with pytest.raises(ConfigError, match="not here"):
        async with testing(shop.qc):
            pass
    assert vars(shop.qc) == before
    assert shop.billing.state == "new"


async def test_what_was_configured_holds() -> None:
    shop = Shop()
    shop.broken = True
    shop.qc.configure(default_queue=Policy(retry=Retry(initial_delay=7, max_retries=1)))
    async with testing(shop.qc) as app:
        await shop.qc.publish(order_placed, {"id": "o-1"})
        await app.advance(6)
        assert shop.seen == ["charge o-1 1"]
        await app.advance(1)
        assert shop.seen == ["charge o-1 1", "charge o-1 2"]
        assert len(await shop.qc.dead_letters.list("billing")) == 1


async def test_a_broker_that_is_back_closes_the_breaker() -> None:
    shop = Shop(breaker=Breaker(failure_threshold=1, reset_timeout=10_000), on_outage="fail")
    async with testing(shop.qc, start=False) as app:
        await shop.qc.publish(order_placed, {"id": "o-1"})
        app.driver.refuse(3)
        await app.driver.drop()
        with pytest.raises(PublishError, match="not connected"):
            await shop.qc.publish(order_placed, {"id": "o-2"})
        assert shop.qc.health_check().connection_state == "circuit_open"
        await app.advance(120)
        assert shop.qc.health_check().connection_state == "connected"


async def test_delayed_messages_wait_in_memory_too(tmp_path: Path) -> None:
    shop = Shop(delayed=DelayedSettings(store=str(tmp_path / "delayed.db"), service=True))
    async with testing(shop.qc) as app:
        await shop.qc.delayed.add(order_placed, {"id": "o-1"}, delay=100)
        await app.advance(99)
        assert shop.seen == []
        await app.advance(2)
        assert shop.seen[:1] == ["charge o-1 1"]
    assert os.listdir(tmp_path) == []


async def test_who_gives_up_waiting_for_the_end_has_the_application_back() -> None:
    shop = Shop()
    begun, ending, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    over: list[Shutdown] = []
    shop.qc.observe(Shutdown, over.append)

    @shop.qc.worker("slow").on("slow")
    async def handle(n: int) -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            ending.set()
            await ended.wait()

    async def rehearse() -> None:
        async with testing(shop.qc):
            await shop.qc.publish("slow", 1)
            await begun.wait()

    rehearsing = asyncio.create_task(rehearse())
    await ending.wait()
    rehearsing.cancel()
    await asyncio.sleep(0)
    ended.set()
    with pytest.raises(asyncio.CancelledError):
        await rehearsing
    assert len(over) == 1  # nothing of it goes on behind the application's back
    assert shop.qc.connection_state == "disconnected"
    assert {worker.state for worker in shop.qc.workers} == {"new"}
    async with testing(shop.qc) as app:
        await shop.qc.publish(order_placed, {"id": "o-1"})
        await app.settle()
    assert shop.seen[0] == "charge o-1 1"


async def test_afterwards_it_works_on_its_own_broker(tmp_path: Path) -> None:
    seen: list[int] = []
    done = asyncio.Event()
    qc = QueueCraft(f"local://{tmp_path}/queues.db", middleware=[RateLimit(100)])

    @qc.worker("numbers").on("number")
    async def handle(n: int) -> None:
        seen.append(n)
        if n == 2:
            asyncio.get_running_loop().call_soon(done.set)

    async with testing(qc) as app:
        await qc.publish("number", 0)
        await app.settle()
    with pytest.raises(ValueError, match="a test that fails"):
        async with testing(qc):
            raise ValueError("a test that fails")
    async with qc:
        await qc.publish_many("number", [1, 2])
        await qc.workers[0].start()
        await done.wait()
    assert seen == [0, 1, 2]
    async with testing(qc) as app:
        await qc.publish("number", 3)
        await app.settle()
    assert seen == [0, 1, 2, 3]
