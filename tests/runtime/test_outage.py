"""Publishes that the broker does not answer: sent again in order, or told the truth in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from queuecraft import ConnectionLost, PublishError, QueueCraft, QueueError, QueueFull
from queuecraft.drivers.base import Outgoing, Receipt, Unknown
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.facts import MessagesPublished
from queuecraft.testing import FakeClock, FaultyDriver, Ledger
from tests.runtime.publishing import (
    Order,
    Shop,
    messages,
    order_placed,
    outcome,
    started,
)


@pytest.fixture(params=[True, False], ids=["inline", "network"])
def inline(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def shop(inline: bool) -> AsyncIterator[Shop]:
    async with Shop(inline=inline) as shop:
        await shop.publish("m-0")
        yield shop


@pytest.fixture
async def network() -> AsyncIterator[Shop]:
    async with Shop(inline=False) as shop:
        await shop.publish("m-0")
        yield shop


# -- no answer -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [True, False])
async def test_a_message_without_an_answer_is_sent_again_with_the_same_id(
    shop: Shop, stored: bool
) -> None:
    shop.driver.lose_answers(stored=stored)
    publish = shop.publish("m-1")
    await shop.clock.advance(1)
    assert await publish == "m-1"
    assert (await shop.stored())[1:] == ["m-1"] * (2 if stored else 1)


async def test_it_is_sent_again_as_often_as_it_takes(shop: Shop) -> None:
    shop.driver.lose_answers(stored=False, times=10)
    publish = shop.publish("m-1")
    await shop.clock.advance(29)
    assert await publish == "m-1"


async def test_what_was_not_answered_goes_before_what_is_newer(network: Shop) -> None:
    shop = network
    shop.driver.lose_answers([0, 2], stored=False)
    hang = shop.driver.hang()
    older = [shop.publish(f"m-{n}") for n in (1, 2, 3, 4)]
    await hang.reached()
    newer = [shop.publish(f"m-{n}") for n in (5, 6)]
    await shop.clock.settle()
    hang.release()
    await shop.clock.advance(1)
    await asyncio.gather(*older, *newer)
    assert await shop.stored() == ["m-0", "m-2", "m-4", "m-1", "m-3", "m-5", "m-6"]


async def test_what_comes_after_a_missing_answer_waits_its_turn(shop: Shop) -> None:
    shop.driver.lose_answers(stored=False)
    first = shop.publish("m-1")
    await shop.clock.settle()
    second = shop.publish("m-2")
    await shop.clock.advance(1)
    assert [await first, await second] == ["m-1", "m-2"]
    assert await shop.stored() == ["m-0", "m-1", "m-2"]


class Forgetful(FaultyDriver):
    """Loses answers without losing the connection."""

    async def send(
        self, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        receipts = await super().send(messages, atomic=atomic)
        return [
            Unknown(QueueError("I forgot")) if message.id.startswith("lost") else receipt
            for message, receipt in zip(messages, receipts, strict=True)
        ]


async def test_an_answer_missing_on_a_connection_that_stands_does_not_break_it(
    inline: bool,
) -> None:
    async with Shop(drivers=[Forgetful(inline=inline)]) as shop:
        lost = shop.publish("lost-1")
        await shop.clock.advance(1)
        assert shop.qc.connection_state == "connected"
        assert not lost.done()
        await shop.clock.advance(30)
        with pytest.raises(PublishError, match="no answer from the broker within 30 s: I forgot"):
            await lost
        assert shop.driver.calls["open"] == 0


class ShortOfMemory(Forgetful):
    @property
    def blocked(self) -> str | None:
        return "low on memory"


async def test_a_publish_that_a_blocked_broker_never_took_says_why(inline: bool) -> None:
    async with Shop(drivers=[ShortOfMemory(inline=inline)]) as shop:
        lost = shop.publish("lost-1")
        await shop.clock.advance(31)
        with pytest.raises(PublishError, match="took no messages within 30 s: low on memory"):
            await lost


async def test_an_answer_missing_again_and_again_is_asked_for_ever_more_seldom(
    inline: bool,
) -> None:
    async with Shop(drivers=[Forgetful(inline=inline)]) as shop:
        lost = shop.publish("lost-1")
        await shop.clock.advance(31)
        assert isinstance(await outcome(lost), PublishError)
        assert 20 < len(shop.driver.batches) < 50


async def test_after_the_time_is_up_the_outcome_is_unknown(shop: Shop) -> None:
    shop.driver.lose_answers(stored=True, times=1_000_000)
    publish = shop.publish("m-1")
    await shop.clock.advance(29.9)
    assert not publish.done()
    await shop.clock.advance(0.2)
    with pytest.raises(PublishError, match="within 30 s") as caught:
        await publish
    assert caught.value.outcome == "unknown"
    assert caught.value.message_id == "m-1"
    assert caught.value.broker == "local"
    assert isinstance(caught.value.__cause__, QueueError)


async def test_what_is_refused_after_a_lost_answer_may_still_be_stored(shop: Shop) -> None:
    hang = shop.driver.hang(stored=True)
    publish = shop.publish("m-1")
    await hang.reached()
    shop.driver.reject()
    await shop.driver.drop()
    with pytest.raises(PublishError, match=r"perhaps stored.*the test rejects it") as caught:
        await publish
    assert caught.value.outcome == "unknown"
    assert await shop.stored() == ["m-0", "m-1"]


async def test_a_rejection_in_the_flight_of_a_lost_answer_is_certain(shop: Shop) -> None:
    shop.driver.lose_answers([0], stored=True)
    shop.driver.reject(times=2)
    orders = [Order("1"), Order("2")]
    many = started(shop.qc.publish_many(order_placed, orders, return_exceptions=True))
    await shop.clock.advance(1)
    first, second = await many
    assert isinstance(first, str)
    assert isinstance(second, PublishError)
    assert second.outcome == "rejected"


async def test_a_lost_answer_and_then_an_outage_are_unknown(shop: Shop) -> None:
    shop.driver.lose_answers(stored=True)
    shop.driver.refuse(opens=1_000_000)
    publish = shop.publish("m-1")
    await shop.clock.advance(31)
    with pytest.raises(PublishError) as caught:
        await publish
    assert caught.value.outcome == "unknown"


async def test_a_lost_answer_is_unknown_also_where_outages_fail_at_once(inline: bool) -> None:
    async with Shop(inline=inline, on_outage="fail") as shop:
        await shop.publish("m-0")
        shop.driver.lose_answers(stored=True)
        shop.driver.refuse(opens=1_000_000)
        publish = shop.publish("m-1")
        await shop.clock.advance(31)
        with pytest.raises(PublishError) as caught:
            await publish
        assert caught.value.outcome == "unknown"


async def test_many_in_an_outage_wait_for_it_once(network: Shop) -> None:
    await network.outage()
    many = started(
        network.qc.publish_many(order_placed, [Order("o")] * 1200, return_exceptions=True)
    )
    await network.clock.advance(31)
    results = await many
    assert len(results) == 1200
    assert {getattr(each, "outcome", each) for each in results} == {"rejected"}
    assert "no connection within 30 s" in str(results[0])
    assert "not sent" in str(results[-1])


async def test_a_flight_that_never_lands_is_unknown(network: Shop) -> None:
    hang = network.driver.hang()
    publish = network.publish("m-1")
    await hang.reached()
    await network.clock.advance(31)
    with pytest.raises(PublishError) as caught:
        await publish
    assert caught.value.outcome == "unknown"
    hang.release()
    await network.clock.settle()
    assert await network.publish("m-2") == "m-2"


async def test_the_deadline_of_one_says_nothing_about_another_in_its_flight(
    network: Shop,
) -> None:
    """The first expires in flight; the second never was attempted, as `ConnectionLost` says."""
    shop = network
    await shop.outage()
    first = shop.publish("m-1")
    await shop.clock.advance(15)
    second = shop.publish("m-2")
    shop.driver.heal()
    hang = shop.driver.hang()
    await shop.clock.advance(14)
    await hang.reached()
    await shop.clock.advance(2)
    assert isinstance(error := await outcome(first), PublishError)
    assert error.outcome == "unknown"
    shop.driver.refuse(opens=1_000_000)
    await shop.driver.drop()
    await shop.clock.advance(30)
    assert isinstance(error := await outcome(second), PublishError)
    assert error.outcome == "rejected"


async def test_who_comes_later_behind_a_flight_that_hangs_has_time_of_its_own(
    network: Shop,
) -> None:
    shop = network
    hang = shop.driver.hang()
    first = shop.publish("m-1")
    await hang.reached()
    await shop.clock.advance(0.1)
    second = shop.publish("m-2")
    await shop.clock.advance(28.9)
    third = shop.publish("m-3")
    await shop.clock.advance(2)
    assert [isinstance(await outcome(each), PublishError) for each in (first, second)] == [True] * 2
    assert not third.done()
    hang.release()
    assert await third == "m-3"
    assert await shop.stored() == ["m-0", "m-1", "m-3"]


async def test_an_answer_that_comes_too_late_changes_nothing_but_the_count(network: Shop) -> None:
    hang = network.driver.hang()
    publish = network.publish("m-1")
    await hang.reached()
    await network.clock.advance(31)
    assert isinstance(await outcome(publish), PublishError)
    hang.release()
    await network.clock.settle()
    assert network.qc.get_metrics().messages_sent == 2
    assert len(network.seen(MessagesPublished)) == 2


# -- no connection ---------------------------------------------------------------------------------


async def test_a_connection_lost_before_sending_delays_the_message(shop: Shop) -> None:
    await shop.driver.drop()
    publish = shop.publish("m-1")
    await shop.clock.settle()
    assert await publish == "m-1"
    assert await shop.stored() == ["m-0", "m-1"]


async def test_a_connection_lost_while_sending_sends_again_in_order(network: Shop) -> None:
    shop = network
    hang = shop.driver.hang()
    publishes = [shop.publish(f"m-{n}") for n in (1, 2, 3)]
    await hang.reached()
    publishes += [shop.publish(f"m-{n}") for n in (4, 5)]
    await shop.clock.settle()
    await shop.driver.drop()
    await asyncio.gather(*publishes)
    assert await shop.stored() == [f"m-{n}" for n in range(6)]


async def test_a_connection_lost_after_sending_may_duplicate_and_never_loses(
    network: Shop,
) -> None:
    shop = network
    hang = shop.driver.hang(stored=True)
    publishes = [shop.publish(f"m-{n}") for n in (1, 2)]
    await hang.reached()
    await shop.driver.drop()
    await asyncio.gather(*publishes)
    assert await shop.stored() == ["m-0", "m-1", "m-2", "m-1", "m-2"]


async def test_publishes_wait_for_the_connection_and_keep_their_order(shop: Shop) -> None:
    await shop.outage()
    publishes = [shop.publish(f"m-{n}") for n in range(1, 1000)]
    await shop.clock.advance(5)
    assert not any(publish.done() for publish in publishes)
    await shop.recover()
    await asyncio.gather(*publishes)
    assert await shop.stored() == [f"m-{n}" for n in range(1000)]


async def test_a_publish_that_never_flew_is_rejected_when_its_time_is_up(shop: Shop) -> None:
    await shop.outage()
    publish = shop.publish("m-1")
    await shop.clock.advance(31)
    with pytest.raises(PublishError, match=r"no connection within 30 s: .*refuses") as caught:
        await publish
    assert caught.value.outcome == "rejected"
    await shop.recover()
    assert await shop.stored() == ["m-0"]


async def test_each_publish_has_a_deadline_of_its_own(shop: Shop) -> None:
    await shop.outage()
    first = shop.publish("m-1")
    await shop.clock.advance(20)
    second = shop.publish("m-2")
    await shop.clock.advance(10)
    assert first.done()
    assert not second.done()
    await shop.clock.advance(19.9)
    assert not second.done()
    await shop.clock.advance(0.2)
    assert isinstance(await outcome(second), PublishError)
    assert isinstance(await outcome(first), PublishError)


async def test_the_time_to_wait_is_a_setting(inline: bool) -> None:
    async with Shop(inline=inline, publish_timeout=0.5) as shop:
        await shop.outage()
        publish = shop.publish("m-1")
        await shop.clock.advance(0.6)
        with pytest.raises(PublishError, match=r"within 0\.5 s"):
            await publish


async def test_a_publish_cancelled_in_an_outage_is_not_sent_afterwards(shop: Shop) -> None:
    await shop.outage()
    first, second = shop.publish("m-1"), shop.publish("m-2")
    await shop.clock.settle()
    first.cancel()
    await shop.recover()
    assert await second == "m-2"
    assert await shop.stored() == ["m-0", "m-2"]


async def test_all_publishes_cancelled_in_an_outage_leave_nothing_to_wait_for(shop: Shop) -> None:
    await shop.outage()
    publishes = [shop.publish(f"m-{n}") for n in range(1, 4)]
    await shop.clock.settle()
    for publish in publishes:
        publish.cancel()
    await shop.clock.settle()
    async with asyncio.timeout(1):
        await shop.qc._engine.publisher.flush()


async def test_an_outage_may_fail_publishes_at_once(inline: bool) -> None:
    async with Shop(inline=inline, on_outage="fail") as shop:
        await shop.outage()
        with pytest.raises(PublishError, match=r"not connected: .*refuses") as caught:
            await shop.publish("m-1")
        assert caught.value.outcome == "rejected"
        assert caught.value.message_id == "m-1"
        await shop.recover()
        assert await shop.publish("m-2") == "m-2"
        assert await shop.stored() == ["m-2"]


async def test_the_publish_that_notices_the_outage_fails_too(inline: bool) -> None:
    async with Shop(inline=inline, on_outage="fail") as shop:
        await shop.publish("m-0")
        shop.driver.refuse(opens=1_000_000)
        await shop.driver.drop()
        publish = shop.publish("m-1")
        await shop.clock.advance(31)
        with pytest.raises(PublishError) as caught:
            await publish
        assert caught.value.outcome == "rejected"


@pytest.mark.parametrize("auto", [True, False])
async def test_a_first_connection_that_fails_fails_its_publishes_where_outages_do(
    inline: bool, auto: bool
) -> None:
    clock = FakeClock()
    driver = FaultyDriver(MemoryDriver(clock), inline=inline)
    driver.refuse(opens=1_000_000)
    qc = QueueCraft(drivers=[driver], clock=clock, on_outage="fail", auto_reconnect=auto)
    results = await asyncio.gather(
        *(qc.publish(order_placed, Order("o")) for _ in range(3)), return_exceptions=True
    )
    assert [type(each) for each in results] == [PublishError] * 3
    assert "refuses" in str(results[0])
    with pytest.raises(PublishError, match="refuses"):
        await qc.publish(order_placed, Order("o"))
    await qc.shutdown()


async def test_a_first_host_that_fails_is_no_outage_yet() -> None:
    tried = asyncio.Event()

    class Slow(FaultyDriver):
        async def open(self) -> None:
            tried.set()
            await asyncio.sleep(0)
            await super().open()

    one, two = FaultyDriver(inline=False), Slow(inline=False)
    one.refuse(opens=1_000_000)
    shop = Shop(drivers=[one, two], on_outage="fail", unroutable="drop")
    first = shop.publish("m-1")
    await tried.wait()
    second = shop.publish("m-2")
    assert [await first, await second] == ["m-1", "m-2"]
    await shop.qc.shutdown()


async def test_no_more_than_max_pending_may_wait(inline: bool) -> None:
    async with Shop(inline=inline, max_pending=3) as shop:
        await shop.outage()
        waiting = [shop.publish(f"m-{n}") for n in range(3)]
        await shop.clock.settle()
        with pytest.raises(QueueFull, match=r"3 publishes wait.*max_pending=3"):
            await shop.publish("m-4")
        await shop.recover()
        await asyncio.gather(*waiting)
        assert await shop.stored() == ["m-0", "m-1", "m-2"]


async def test_what_waits_keeps_its_deadline_when_others_are_refused(inline: bool) -> None:
    async with Shop(inline=inline, max_pending=1) as shop:
        await shop.outage()
        waiting = shop.publish("m-1")
        await shop.clock.advance(29)
        with pytest.raises(QueueFull):
            await shop.publish("m-2")
        assert not waiting.done()
        await shop.clock.advance(1.1)
        assert isinstance(await outcome(waiting), PublishError)


@pytest.mark.parametrize("how", ["cancelled", "expired"])
async def test_a_publish_that_waits_no_more_makes_room(inline: bool, how: str) -> None:
    async with Shop(inline=inline, max_pending=1) as shop:
        await shop.outage()
        first = shop.publish("m-1")
        await shop.clock.settle()
        if how == "cancelled":
            first.cancel()
            await shop.clock.settle()
        else:
            await shop.clock.advance(31)
        second = shop.publish("m-2")
        await shop.recover()
        assert await second == "m-2"
        assert isinstance(await outcome(first), (PublishError, asyncio.CancelledError))


async def test_what_is_in_flight_on_a_good_connection_knows_no_limit(inline: bool) -> None:
    async with Shop(inline=inline, max_pending=3) as shop:
        await asyncio.gather(*(shop.publish(f"m-{n}") for n in range(50)))
        assert len(await shop.stored()) == 50


async def test_the_first_connection_is_waited_for_too_and_within_the_limit(inline: bool) -> None:
    clock = FakeClock()
    driver = FaultyDriver(MemoryDriver(clock), inline=inline)
    driver.refuse(opens=3)
    qc = QueueCraft(drivers=[driver], clock=clock, max_pending=2, unroutable="drop")
    waiting = [started(qc.publish(order_placed, Order(f"{n}"))) for n in range(2)]
    await clock.settle()
    with pytest.raises(QueueFull):
        await qc.publish(order_placed, Order("3"))
    await clock.advance(20)
    assert all(isinstance(id, str) for id in await asyncio.gather(*waiting))
    await qc.shutdown()


async def test_ten_thousand_waiting_publishes_are_no_burden(inline: bool) -> None:
    async with Shop(inline=inline) as shop:
        await shop.outage()
        waiting = [shop.publish(f"m-{n}") for n in range(10_000)]
        await shop.clock.settle()
        results = [await outcome(shop.publish("more")) for _ in range(10)]
        assert [type(each) for each in results] == [QueueFull] * 10
        await shop.recover()
        await asyncio.gather(*waiting)
        assert len(await shop.stored()) == 10_000


async def test_publishes_fail_over_to_another_host_and_arrive_there() -> None:
    clock = FakeClock()
    one, two = (FaultyDriver(MemoryDriver(clock), inline=False) for _ in range(2))
    async with Shop(drivers=[one, two]) as shop:
        await shop.publish("m-0", exchange="events")
        hang = one.hang()
        publishes = [shop.publish(f"m-{n}") for n in (1, 2)]
        await hang.reached()
        one.refuse(opens=1_000_000)
        await one.drop()
        assert await asyncio.gather(*publishes) == ["m-1", "m-2"]
        assert [each.id for each in await messages(two.inner)] == ["m-1", "m-2"]


async def test_a_message_that_kills_the_connection_each_time_does_not_hammer_the_broker(
    inline: bool,
) -> None:
    class Fragile(FaultyDriver):
        async def send(
            self, messages: Sequence[Outgoing], *, atomic: bool = False
        ) -> Sequence[Receipt]:
            if any(message.id == "poison" for message in messages):
                await self.drop()
            return await super().send(messages, atomic=atomic)

    async with Shop(drivers=[Fragile(inline=inline)]) as shop:
        poison = shop.publish("poison")
        await shop.clock.advance(31)
        with pytest.raises(PublishError):
            await poison
        assert shop.driver.calls["open"] < 20
        await shop.clock.advance(31)
        assert await shop.publish("m-1") == "m-1"


async def test_an_old_flight_that_fails_late_does_not_break_the_new_connection() -> None:
    """One host: the driver object is the same before and after."""
    release = asyncio.Event()

    class Late(FaultyDriver):
        async def send(
            self, messages: Sequence[Outgoing], *, atomic: bool = False
        ) -> Sequence[Receipt]:
            if messages[0].id == "late" and not release.is_set():
                await release.wait()
                raise ConnectionLost("it was the old one")
            return await super().send(messages, atomic=atomic)

    driver = Late(inline=False)
    async with Shop(drivers=[driver]) as shop:
        await shop.publish("m-0")
        publish = shop.publish("late")
        await shop.clock.settle()
        shop.qc._engine.connection.lost(driver, driver.lost("somebody noticed"))
        await shop.clock.settle()
        opened = driver.calls["open"]
        release.set()
        assert await publish == "late"
        assert driver.calls["open"] == opened


async def test_every_publish_that_returned_is_handled_whatever_breaks(inline: bool) -> None:
    clock, ledger = FakeClock(), Ledger()
    driver = FaultyDriver(MemoryDriver(clock), inline=inline)
    qc = QueueCraft(drivers=[driver], clock=clock, reconnect_delay=0.01)
    worker = qc.worker("billing").on(order_placed, ledger.recording("billing"))

    async def publish(n: int) -> None:
        ledger.published(await qc.publish(order_placed, Order(str(n))))

    async with qc:
        await worker.start()
        cuts = 0
        for n in range(30):
            work = [started(publish(10 * n + k)) for k in range(10)]
            match n % 5:
                case 0:
                    driver.lose_answers([n % 3], stored=bool(n % 2))
                case 1:
                    await driver.drop()
                case 2:
                    driver.fail("send")
                case 3:
                    driver.refuse(opens=2)
                    await driver.drop()
                case _:
                    pass
            cuts += 1
            await clock.advance(2)
            await asyncio.gather(*work)
        await clock.advance(30)
        ledger.check(duplicates_at_most=10 * cuts)


async def test_shutdown_waits_for_publishes_under_way(network: Shop) -> None:
    hang = network.driver.hang()
    publish = network.publish("m-1")
    await hang.reached()
    shutdown = started(network.qc.shutdown())
    await network.clock.settle()
    assert not shutdown.done()
    hang.release()
    assert await publish == "m-1"
    await shutdown


async def test_shutdown_gives_up_what_no_broker_answers(inline: bool) -> None:
    async with Shop(inline=inline) as shop:
        await shop.outage()
        publish = shop.publish("m-1")
        await shop.clock.settle()
        await shop.qc.shutdown(timeout=0)
        with pytest.raises(PublishError, match="shut down before the broker answered") as caught:
            await publish
        assert caught.value.outcome == "rejected"


async def test_shutdown_tells_that_a_flight_never_landed(network: Shop) -> None:
    hang = network.driver.hang()
    publish = network.publish("m-1")
    await hang.reached()
    await network.qc.shutdown(timeout=0)
    with pytest.raises(PublishError, match="shut down") as caught:
        await publish
    assert caught.value.outcome == "unknown"


async def test_publishing_after_shutdown_is_refused_plainly(inline: bool) -> None:
    async with Shop(inline=inline) as shop:
        await shop.outage()
        await shop.recover()
        await shop.qc.shutdown()
        with pytest.raises(PublishError, match="this QueueCraft is shut down") as caught:
            await shop.publish("m-1")
        assert caught.value.outcome == "rejected"
        results = await shop.qc.publish_many(
            order_placed, [Order("1"), Order("2")], return_exceptions=True
        )
        assert ["shut down" in str(each) for each in results] == [True, True]


async def test_publishing_after_shutdown_without_ever_connecting_is_refused_plainly() -> None:
    qc = QueueCraft()
    await qc.shutdown()
    with pytest.raises(PublishError, match="this QueueCraft is shut down"):
        await qc.publish("order.placed", 1)


async def test_handlers_may_publish_while_the_app_shuts_down(inline: bool) -> None:
    clock = FakeClock()
    driver = FaultyDriver(MemoryDriver(clock), inline=inline)
    qc = QueueCraft(drivers=[driver], clock=clock)
    begun, go_on = asyncio.Event(), asyncio.Event()
    published: list[str] = []

    async def handle(payload: Any) -> None:
        begun.set()
        await go_on.wait()
        published.append(await qc.publish("order.paid", 1))

    worker = qc.worker("billing").on("order.placed", handle)
    qc.worker("audit").on("order.paid", handle)
    await qc.open()
    await worker.start()
    await qc.publish("order.placed", 1)
    await begun.wait()
    shutdown = started(qc.shutdown())
    await clock.settle()
    go_on.set()
    await shutdown
    await driver.inner.open()
    assert [each.id for each in await messages(driver.inner, "audit")] == published
    assert len(published) == 1
