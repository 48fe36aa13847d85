"""Publishing: confirmed before it returns, coalesced, and nobody pays for another's mistake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    Event,
    Exchange,
    PayloadError,
    PublishError,
    Queue,
    QueueCraft,
    QueueError,
    TopologyMismatch,
    Unroutable,
    UnsupportedFeature,
)
from queuecraft.drivers.base import Accepted, Outgoing, Receipt
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.facts import MessagesPublished
from queuecraft.runtime.publisher import YIELD_EVERY
from queuecraft.runtime.sender import BATCH
from queuecraft.testing import FakeClock, FaultyDriver
from tests.runtime.publishing import Order, Shop, nobody_cares, order_placed, outcome, started


@pytest.fixture(params=[True, False], ids=["inline", "network"])
def inline(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def shop(inline: bool) -> AsyncIterator[Shop]:
    async with Shop(inline=inline) as shop:
        yield shop


@pytest.fixture
async def network() -> AsyncIterator[Shop]:
    async with Shop(inline=False) as shop:
        yield shop


# -- confirmed -------------------------------------------------------------------------------------


async def test_publish_returns_the_id_of_what_the_broker_has(shop: Shop) -> None:
    id = await shop.qc.publish(order_placed, Order("o-1"))
    assert await shop.stored() == [id]


async def test_every_publish_has_an_id_of_its_own(shop: Shop) -> None:
    ids = [await shop.qc.publish(order_placed, Order("o-1")) for _ in range(100)]
    assert len(set(ids)) == 100


async def test_publish_does_not_return_before_the_broker_has_confirmed(network: Shop) -> None:
    await network.qc.publish(order_placed, Order("o-0"))
    hang = network.driver.hang(stored=True)
    publish = network.publish("m-1")
    await hang.reached()
    await network.clock.settle()
    assert "m-1" in await network.stored()
    assert not publish.done()
    hang.release()
    assert await publish == "m-1"


async def test_the_message_says_what_it_is(shop: Shop) -> None:
    await shop.qc.publish(order_placed, Order("o-1", 2.5))
    (message,) = await shop.messages()
    assert message.body == b'{"id":"o-1","total":2.5}'
    assert message.content_type == "application/json"
    assert message.exchange == "events"
    assert message.routing_key == "order.placed"
    assert message.timestamp == shop.clock.now()
    assert message.queue is None
    assert message.persistent


async def test_an_event_may_be_named_by_a_plain_string(shop: Shop) -> None:
    id = await shop.qc.publish("order.placed", {"anything": 1})
    assert await shop.stored() == [id]


async def test_an_event_reaches_every_queue_bound_to_it(shop: Shop) -> None:
    for name in ("audit", "stock"):
        worker = shop.qc.worker(name).on("order.placed", _ignore)
        await shop.driver.declare(worker.definition)
    id = await shop.qc.publish(order_placed, Order("o-1"))
    assert [await shop.stored(name) for name in ("billing", "audit", "stock")] == [[id]] * 3


async def test_send_goes_to_one_queue_alone(shop: Shop) -> None:
    await shop.driver.declare(Queue("invoices"))
    id = await shop.qc.send("invoices", {"id": "i-1"})
    assert await shop.stored("invoices") == [id]
    assert await shop.stored() == []


async def test_send_checks_the_type_of_a_typed_queue(shop: Shop) -> None:
    invoices = Queue("invoices", Order)
    await shop.driver.declare(invoices)
    await shop.qc.send(invoices, Order("i-1"))
    wrong: Any = "i-2"
    with pytest.raises(PayloadError, match="expected Order"):
        await shop.qc.send(invoices, wrong)
    assert len(await shop.stored("invoices")) == 1


async def test_send_to_a_queue_that_does_not_exist_says_so(shop: Shop) -> None:
    with pytest.raises(PublishError, match="no such queue") as caught:
        await shop.qc.send("nowhere", 1)
    assert caught.value.outcome == "rejected"
    assert caught.value.queue == "nowhere"
    assert caught.value.broker == "local"
    assert caught.value.message_id


async def test_an_event_nobody_is_bound_to_raises(shop: Shop) -> None:
    with pytest.raises(Unroutable, match=r"nobody\.cares") as caught:
        await shop.qc.publish(nobody_cares, {})
    assert caught.value.outcome == "rejected"


async def test_an_unroutable_event_may_be_dropped(shop: Shop) -> None:
    id = await shop.qc.publish(nobody_cares, {}, unroutable="drop", message_id="m-1")
    assert id == "m-1"
    assert shop.qc.get_metrics().messages_sent == 0


async def test_dropping_the_unroutable_is_a_setting_that_an_option_overrules(inline: bool) -> None:
    async with Shop(inline=inline, unroutable="drop") as shop:
        await shop.qc.publish(nobody_cares, {})
        with pytest.raises(Unroutable):
            await shop.qc.publish(nobody_cares, {}, unroutable="error")


async def test_drop_forgives_no_other_error(shop: Shop) -> None:
    shop.driver.reject(to="order.placed")
    with pytest.raises(PublishError, match="the test rejects it"):
        await shop.qc.publish(order_placed, Order("o-1"), unroutable="drop")


async def test_what_the_broker_rejects_is_rejected(shop: Shop) -> None:
    shop.driver.reject()
    with pytest.raises(PublishError) as caught:
        await shop.qc.publish(order_placed, Order("o-1"), message_id="m-1")
    assert caught.value.outcome == "rejected"
    assert caught.value.message_id == "m-1"
    assert await shop.stored() == []


async def test_a_rejection_of_the_brokers_own_kind_reaches_the_caller(shop: Shop) -> None:
    shop.driver.reject(UnsupportedFeature("not this one"))
    with pytest.raises(UnsupportedFeature, match="not this one"):
        await shop.qc.publish(order_placed, Order("o-1"))


async def test_a_payload_of_another_type_is_refused_before_anything_is_sent(shop: Shop) -> None:
    wrong: Any = {"id": "o-1"}
    with pytest.raises(PayloadError, match=r"order\.placed.*expected Order") as caught:
        await shop.qc.publish(order_placed, wrong)
    assert caught.value.operation == "publish"
    assert shop.driver.calls["send"] == 0


async def test_a_payload_too_large_is_refused_before_anything_is_sent(inline: bool) -> None:
    async with Shop(inline=inline, max_message_bytes=100) as shop:
        with pytest.raises(PayloadError, match="max_message_bytes"):
            await shop.qc.publish("order.placed", "x" * 101)
        assert shop.driver.calls["send"] == 0


@pytest.mark.parametrize("target", [5, None, Order("o-1"), ...], ids=str)
async def test_publish_takes_nothing_but_events(shop: Shop, target: Any) -> None:
    with pytest.raises(TypeError, match="publish takes an Event or the name of one, not"):
        await shop.qc.publish(target, {})


async def test_an_event_with_a_wildcard_cannot_be_published(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="wildcard"):
        await shop.qc.publish("order.*", {})


@pytest.mark.parametrize("name", ["", "e" * 300, "tab\t", "\udc80"], ids=repr)
async def test_an_event_name_that_no_broker_takes_is_refused(shop: Shop, name: str) -> None:
    with pytest.raises(ConfigError):
        await shop.qc.publish(name, {})
    assert shop.driver.calls["send"] == 0


async def test_a_queue_name_of_300_bytes_is_refused(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="300 bytes"):
        await shop.qc.send("q" * 300, {})


async def test_the_limit_on_names_is_the_brokers(inline: bool) -> None:
    driver = FaultyDriver(inline=inline)
    vars(driver)["traits"] = replace(driver.traits, max_name=249)
    async with Shop(drivers=[driver]) as shop:
        for call in (shop.qc.publish("e" * 250, {}), shop.qc.send("q" * 250, {})):
            with pytest.raises(ConfigError, match="250 bytes, the broker allows 249"):
                await call
        assert driver.calls["send"] == 0


# -- at once, and together -------------------------------------------------------------------------


async def test_a_lone_publish_on_an_inline_driver_needs_no_turn_of_the_loop() -> None:
    async with Shop(inline=True) as shop:
        await shop.qc.publish(order_placed, Order("o-0"))
        turned: list[bool] = []
        asyncio.get_running_loop().call_soon(turned.append, True)
        await shop.qc.publish(order_placed, Order("o-1"))
        assert not turned


async def _turns_during(calls: int, publish: Any) -> int:
    loop, count, over = asyncio.get_running_loop(), 0, False

    def tick() -> None:
        nonlocal count
        count += 1
        if not over:
            loop.call_soon(tick)

    loop.call_soon(tick)
    for _ in range(calls):
        await publish()
    over = True
    return count


async def test_a_stream_of_publishes_lets_others_have_their_turn() -> None:
    async with Shop(inline=True) as shop:

        async def publish() -> None:
            await shop.qc.publish(order_placed, Order("o-1"))

        await publish()
        assert await _turns_during(10 * YIELD_EVERY, publish) >= 9


async def test_a_stream_of_dropped_publishes_lets_others_have_their_turn() -> None:
    async with Shop(inline=True, unroutable="drop") as shop:

        async def publish() -> None:
            await shop.qc.publish(nobody_cares, {})

        await publish()
        assert await _turns_during(10 * YIELD_EVERY, publish) >= 9


async def test_a_stream_of_rejected_publishes_lets_others_have_their_turn() -> None:
    async with Shop(inline=True) as shop:

        async def publish() -> None:
            with pytest.raises(Unroutable):
                await shop.qc.publish(nobody_cares, {})

        await publish()
        assert await _turns_during(10 * YIELD_EVERY, publish) >= 9


async def test_publishes_made_together_travel_together(network: Shop) -> None:
    await asyncio.gather(*(network.publish(f"m-{n}") for n in range(100)))
    assert network.driver.batches == [100]


async def test_what_comes_during_a_flight_takes_the_next_one_together(network: Shop) -> None:
    await network.publish("m-0")
    network.driver.batches.clear()
    hang = network.driver.hang()
    first = network.publish("m-1")
    await hang.reached()
    others = [network.publish(f"m-{n}") for n in range(2, 12)]
    await network.clock.settle()
    assert network.driver.batches == [1]
    hang.release()
    await asyncio.gather(first, *others)
    assert network.driver.batches == [1, 10]


async def test_publishes_arrive_in_the_order_they_were_made(shop: Shop) -> None:
    ids = [f"m-{n}" for n in range(1200)]
    assert await asyncio.gather(*(shop.publish(id) for id in ids)) == ids
    assert await shop.stored() == ids


async def test_no_flight_is_larger_than_the_limit(network: Shop) -> None:
    await asyncio.gather(
        network.publish("m-1"),
        network.qc.publish_many(order_placed, [Order("o")] * BATCH),
        network.qc.publish_many(order_placed, [Order("o")] * (BATCH // 2)),
        network.qc.publish_many(order_placed, [Order("o")] * BATCH),
    )
    assert sum(network.driver.batches) == 1 + 2 * BATCH + BATCH // 2
    assert max(network.driver.batches) <= BATCH


async def test_events_on_several_exchanges_published_together_all_arrive(network: Shop) -> None:
    events = [Event(f"order.{n}", exchange=f"exchange-{n % 3}") for n in range(9)]
    for n in range(3):
        worker = network.qc.worker(f"q-{n}", exchange=f"exchange-{n}").on("#", _ignore)
        await network.driver.declare(worker.definition)
    ids = await asyncio.gather(*(network.qc.publish(event, {}) for event in events))
    for n in range(3):
        assert await network.stored(f"q-{n}") == [ids[n], ids[n + 3], ids[n + 6]]


# -- one caller's mistake --------------------------------------------------------------------------


async def test_one_bad_message_of_many_fails_its_caller_alone(inline: bool) -> None:
    async with Shop(inline=inline, max_message_bytes=1000) as shop:
        qc = shop.qc
        shop.driver.reject(to="order.refused", times=None)
        wrong: Any = {"id": "o-1"}
        bad = {
            "wrong type": (qc.publish(order_placed, wrong), PayloadError),
            "too large": (qc.publish("order.placed", "x" * 1001), PayloadError),
            "reserved": (qc.publish("order.a", 1, headers={"x-retry-count": 1}), ConfigError),
            "bad header": (qc.publish("order.a", 1, headers={"n": float("nan")}), PayloadError),
            "bad text": (qc.publish("order.a", 1, key="\udc80"), ConfigError),
            "unroutable": (qc.publish("nobody.cares", 1), Unroutable),
            "rejected": (qc.publish("order.refused", 1), PublishError),
            "no queue": (qc.send("nowhere", 1), PublishError),
            "no name": (qc.publish("", 1), ConfigError),
        }
        good: list[Any] = []
        both: list[Any] = []
        for call, _ in bad.values():
            good.append(started(qc.publish(order_placed, Order("o-1"))))
            both += [good[-1], started(call)]
        results = await asyncio.gather(*both, return_exceptions=True)
        assert await shop.stored() == [task.result() for task in good]
        for (name, (_, error)), result in zip(bad.items(), results[1::2], strict=True):
            assert isinstance(result, error), name


class Pedant(FaultyDriver):
    """Refuses a whole batch for one message in it, before anything is attempted."""

    async def send(
        self, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        if any(message.id == "bad" for message in messages):
            self.batches.append(len(messages))
            raise QueueError("I do not like one of these")
        return await super().send(messages, atomic=atomic)


async def test_a_batch_that_is_refused_whole_fails_only_the_caller_who_is_to_blame() -> None:
    async with Shop(drivers=[Pedant(inline=False)]) as shop:
        good = [shop.publish("m-1"), shop.publish("m-2")]
        bad = shop.publish("bad")
        more = shop.publish("m-3")
        assert await asyncio.gather(*good, more) == ["m-1", "m-2", "m-3"]
        with pytest.raises(QueueError, match="I do not like"):
            await bad
        assert await shop.stored() == ["m-1", "m-2", "m-3"]


async def test_a_batch_that_was_refused_whole_is_sent_one_by_one() -> None:
    async with Shop(drivers=[Pedant(inline=False)]) as shop:
        ids = [*(f"m-{n}" for n in range(8)), "bad", "m-8"]
        results = await asyncio.gather(*(shop.publish(id) for id in ids), return_exceptions=True)
        assert [each for each in results if isinstance(each, str)] == [*ids[:8], ids[9]]
        assert shop.driver.batches == [10, *[1] * 10]
        assert await shop.stored() == [id for id in ids if id != "bad"]


async def test_a_publish_cancelled_while_others_fly_one_by_one_is_not_sent() -> None:
    async with Shop(drivers=[Pedant(inline=False)]) as shop:
        bad, first, second, third = (shop.publish(id) for id in ("bad", "m-1", "m-2", "m-3"))
        hang = shop.driver.hang()
        await hang.reached()  # the first of those that are to be stored
        third.cancel()
        hang.release()
        assert [await first, await second] == ["m-1", "m-2"]
        assert isinstance(await outcome(bad), QueueError)
        assert await shop.stored() == ["m-1", "m-2"]


async def test_a_lone_message_that_the_driver_refuses_raises_what_it_said() -> None:
    for inline in (True, False):
        async with Shop(drivers=[Pedant(inline=inline)]) as shop:
            await shop.publish("m-1")
            with pytest.raises(QueueError, match="I do not like"):
                await shop.publish("bad")
            assert await shop.publish("m-2") == "m-2"


class Broken(FaultyDriver):
    """Breaks the contract when told to."""

    def __init__(self, *, inline: bool) -> None:
        super().__init__(inline=inline)
        self.answer: Any = None

    async def send(
        self, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        receipts = await super().send(messages, atomic=atomic)
        answer, self.answer = self.answer, None
        if isinstance(answer, BaseException):
            raise answer
        return receipts if answer is None else answer(receipts)


BREACHES = {
    "raises": RuntimeError("a bug"),
    "a receipt too many": lambda receipts: [*receipts, *receipts],
    "a receipt too few": lambda receipts: [],
    "no receipts": lambda receipts: [None] * len(receipts),
}


@pytest.mark.parametrize("breach", BREACHES)
async def test_a_driver_that_breaks_its_contract_leaves_the_outcome_unknown(
    inline: bool, breach: str
) -> None:
    driver = Broken(inline=inline)
    async with Shop(drivers=[driver]) as shop:
        await shop.publish("m-0")
        driver.answer = BREACHES[breach]
        publish = shop.publish("m-1")
        with pytest.raises(PublishError, match="the driver failed") as caught:
            await publish
        assert caught.value.outcome == "unknown"
        assert caught.value.message_id == "m-1"
        assert await shop.publish("m-2") == "m-2"


@pytest.mark.parametrize("breach", BREACHES)
async def test_a_driver_that_breaks_its_contract_answers_for_each_of_many(
    inline: bool, breach: str
) -> None:
    driver = Broken(inline=inline)
    async with Shop(drivers=[driver]) as shop:
        await shop.publish("m-0")
        driver.answer = BREACHES[breach]
        results = await shop.qc.publish_many(
            order_placed, [Order("1"), Order("2")], return_exceptions=True
        )
        assert [getattr(each, "outcome", each) for each in results] == ["unknown"] * 2
        assert await shop.publish("m-2") == "m-2"


async def test_a_driver_that_lets_out_a_cancellation_cancels_nobody() -> None:
    driver = Broken(inline=False)
    async with Shop(drivers=[driver]) as shop:
        await shop.publish("m-0")
        driver.answer = asyncio.CancelledError()
        with pytest.raises(PublishError, match="CancelledError") as caught:
            await shop.publish("m-1")
        assert caught.value.outcome == "unknown"
        assert await shop.publish("m-2") == "m-2"


async def test_any_accepted_receipt_is_a_confirmation(inline: bool) -> None:
    driver = Broken(inline=inline)
    async with Shop(drivers=[driver]) as shop:
        await shop.publish("m-0")
        driver.answer = lambda receipts: [Accepted() for _ in receipts]
        assert await shop.publish("m-1") == "m-1"
        driver.answer = lambda receipts: [Accepted() for _ in receipts]
        assert len(await shop.qc.publish_many(order_placed, [Order("1"), Order("2")])) == 2
        assert len(await shop.stored()) == 4


async def test_a_mistake_of_ours_is_told_and_not_waited_for(
    network: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(network.qc._engine.publisher._sender, "_take", fail)
        with pytest.raises(PublishError, match="ZeroDivisionError"):
            await network.publish("m-1")
    assert await network.publish("m-2") == "m-2"


# -- cancelled -------------------------------------------------------------------------------------


async def test_cancelling_a_publish_that_waits_leaves_the_others_alone(network: Shop) -> None:
    await network.publish("m-0")
    hang = network.driver.hang()
    first = network.publish("m-1")
    await hang.reached()
    second, third, fourth = (network.publish(f"m-{n}") for n in (2, 3, 4))
    await network.clock.settle()
    third.cancel()
    hang.release()
    assert [await first, await second, await fourth] == ["m-1", "m-2", "m-4"]
    assert isinstance(await outcome(third), asyncio.CancelledError)
    assert await network.stored() == ["m-0", "m-1", "m-2", "m-4"]


@pytest.mark.parametrize("stored", [True, False])
async def test_cancelling_a_publish_in_flight_leaves_its_batch_alone(
    network: Shop, stored: bool
) -> None:
    await network.publish("m-0")
    hang = network.driver.hang(stored=stored)
    first, second, third = (network.publish(f"m-{n}") for n in (1, 2, 3))
    await hang.reached()
    second.cancel()
    await network.clock.settle()
    assert second.cancelled()
    assert not first.done()
    hang.release()
    assert [await first, await third] == ["m-1", "m-3"]


async def test_cancelling_the_first_publish_of_all_leaves_the_others_alone() -> None:
    """The sender was started by it, and must not go with it."""
    async with Shop(inline=False) as shop:
        first, second = shop.publish("m-1"), shop.publish("m-2")
        await asyncio.sleep(0)
        first.cancel()
        assert await second == "m-2"


async def test_a_publish_cancelled_as_it_is_about_to_fly_is_left_behind(network: Shop) -> None:
    await network.publish("m-0")
    first, second = network.publish("m-1"), network.publish("m-2")
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "m-2"
    assert await network.stored() == ["m-0", "m-2"]


async def test_cancelling_every_publish_leaves_nothing_behind(network: Shop) -> None:
    await network.publish("m-0")
    hang = network.driver.hang()
    publishes = [network.publish(f"m-{n}") for n in range(1, 10)]
    await hang.reached()
    publishes += [network.publish(f"m-{n}") for n in range(10, 20)]
    await network.clock.settle()
    for publish in publishes:
        publish.cancel()
    await network.clock.settle()
    hang.release()
    await network.clock.settle()
    assert all(publish.cancelled() for publish in publishes)
    assert await network.publish("m-20") == "m-20"
    assert network.clock.pending == () or network.clock.pending[0] <= 30
    assert not {"m-10", "m-15", "m-19"} & set(await network.stored())


async def test_a_cancelled_publish_does_not_send_one_whose_exchange_is_not_ready() -> None:
    async with Shop(inline=False) as shop:
        worker = shop.qc.worker("audit", exchange="audit").on("#", _ignore)
        await shop.driver.declare(worker.definition)
        await shop.publish("m-0")
        await shop.outage()
        first = shop.publish("m-1")
        second = shop.publish("m-2", exchange="audit")
        await shop.clock.settle()
        first.cancel()
        await shop.recover()
        assert await second == "m-2"
        assert await shop.stored("audit") == ["m-2"]


async def test_cancelling_publish_many_leaves_the_others_alone(network: Shop) -> None:
    await network.publish("m-0")
    hang = network.driver.hang()
    many = started(network.qc.publish_many(order_placed, [Order("o")] * 1200))
    one = network.publish("m-1")
    await hang.reached()
    many.cancel()
    await network.clock.settle()
    hang.release()
    assert await one == "m-1"
    assert many.cancelled()
    assert network.driver.batches[1:] == [BATCH, 1]


# -- exchanges -------------------------------------------------------------------------------------


async def test_an_exchange_is_made_before_the_first_message_and_once(shop: Shop) -> None:
    worker = shop.qc.worker("audit", exchange="audit").on("#", _ignore)
    await shop.driver.declare(worker.definition)
    shop.driver.calls.clear()
    for _ in range(3):
        await shop.qc.publish("order.placed", 1, exchange="audit")
    assert shop.driver.calls["prepare"] == 1
    assert len(await shop.stored("audit")) == 3
    assert await shop.stored() == []


async def test_an_exchange_made_by_a_publish_outlives_it(shop: Shop) -> None:
    with pytest.raises(Unroutable):
        await shop.qc.publish("order.placed", 1, exchange=Exchange("fan", "fanout"))
    topology = await shop.driver.topology()
    assert Exchange("fan", "fanout") in topology.exchanges


async def test_an_exchange_of_another_type_fails_its_caller_alone(shop: Shop) -> None:
    await shop.publish("m-0")
    wrong = Exchange("events", "fanout")
    good = [shop.publish("m-1"), shop.publish("m-2")]
    bad = shop.publish("bad", exchange=wrong)
    more = shop.publish("m-3")
    assert await asyncio.gather(*good, more) == ["m-1", "m-2", "m-3"]
    with pytest.raises(TopologyMismatch, match=r"events.*type='topic'"):
        await bad
    assert await shop.stored() == ["m-0", "m-1", "m-2", "m-3"]


async def test_an_event_on_an_exchange_of_another_type_is_refused_every_time(shop: Shop) -> None:
    await shop.publish("m-0")
    event = Event("order.placed", exchange=Exchange("events", "fanout"))
    for _ in range(2):
        with pytest.raises(TopologyMismatch):
            await shop.qc.publish(event, 1)
    results = await shop.qc.publish_many(event, [1, 2], return_exceptions=True)
    assert all(isinstance(each, TopologyMismatch) for each in results)


async def test_an_exchange_type_that_the_broker_lacks_is_refused_before_sending(
    inline: bool,
) -> None:
    driver = FaultyDriver(inline=inline)
    vars(driver)["traits"] = replace(driver.traits, exchange_types=frozenset({"topic"}))
    async with Shop(drivers=[driver]) as shop:
        with pytest.raises(UnsupportedFeature, match="fanout"):
            await shop.qc.publish("order.placed", 1, exchange=Exchange("fan", "fanout"))
        with pytest.raises(UnsupportedFeature, match="headers"):
            await shop.qc.publish(Event("order.placed", exchange=Exchange("h", "headers")), 1)
        assert driver.calls["prepare"] == driver.calls["send"] == 0


async def test_an_exchange_that_the_driver_cannot_make_fails_its_caller_alone(shop: Shop) -> None:
    await shop.publish("m-0")
    shop.driver.fail("prepare", QueueError("not this exchange"))
    bad = shop.publish("bad", exchange="other")
    good = shop.publish("m-1")
    with pytest.raises(QueueError, match="not this exchange"):
        await bad
    assert await good == "m-1"


class Clumsy(FaultyDriver):
    """Has a bug in `prepare`."""

    async def prepare(self, exchanges: Sequence[Exchange]) -> None:
        if any(exchange.name == "other" for exchange in exchanges):
            raise RuntimeError("a bug")
        await super().prepare(exchanges)


async def test_a_bug_in_making_an_exchange_fails_its_caller_alone(inline: bool) -> None:
    async with Shop(drivers=[Clumsy(inline=inline)]) as shop:
        await shop.publish("m-0")
        bad = shop.publish("bad", exchange="other")
        good = shop.publish("m-1")
        with pytest.raises(PublishError, match="a bug") as caught:
            await bad
        assert caught.value.outcome == "rejected"
        assert await good == "m-1"


async def test_the_exchange_of_an_event_is_overruled_by_the_option(shop: Shop) -> None:
    for name in ("a", "b"):
        worker = shop.qc.worker(name, exchange=name).on("#", _ignore)
        await shop.driver.declare(worker.definition)
    event = Event("order.placed", exchange="a")
    first = await shop.qc.publish(event, 1)
    second = await shop.qc.publish(event, 1, exchange="b")
    assert [await shop.stored("a"), await shop.stored("b")] == [[first], [second]]


async def test_the_default_exchange_is_a_setting(inline: bool) -> None:
    async with Shop(inline=inline, exchange="orders", exchange_type="fanout") as shop:
        await shop.qc.publish("anything", 1)
        (message,) = await shop.messages()
        assert message.exchange == "orders"


# -- keys ------------------------------------------------------------------------------------------


async def test_the_key_comes_from_the_event_unless_it_is_given(shop: Shop) -> None:
    event = Event("order.placed", Order, key=lambda order: order.id)
    await shop.qc.publish(event, Order("o-1"))
    await shop.qc.publish(event, Order("o-1"), key="mine")
    await shop.qc.publish(event, Order("o-1"), ttl=60)
    await shop.qc.publish_many(event, [Order("o-2")])
    await shop.qc.publish_many(event, [Order("o-2")], ttl=60)
    keys = [message.key for message in await shop.messages()]
    assert keys == ["o-1", "mine", "o-1", "o-2", "o-2"]


def _failing_key(order: Order) -> str:
    raise ZeroDivisionError("no key")


BAD_KEYS: dict[str, Any] = {
    "raises": _failing_key,
    "gives an int": lambda order: 5,
    "gives None": lambda order: None,
    "gives half a character": lambda order: "\udc80",
}


@pytest.mark.parametrize("key", BAD_KEYS)
async def test_a_key_function_that_fails_fails_its_caller_before_anything_is_sent(
    shop: Shop, key: str
) -> None:
    event = Event("order.placed", Order, key=BAD_KEYS[key])
    options: Any
    for options in ({}, {"ttl": 5}):
        with pytest.raises(PayloadError, match=r"the key function of event 'order\.placed'"):
            await shop.qc.publish(event, Order("o-1"), **options)
        results = await shop.qc.publish_many(
            event, [Order("o-1")], return_exceptions=True, **options
        )
        assert "the key function of event 'order.placed'" in str(results[0])
    assert shop.driver.calls["send"] == 0


async def test_the_cause_of_a_failing_key_function_is_kept(shop: Shop) -> None:
    event = Event("order.placed", Order, key=_failing_key)
    with pytest.raises(PayloadError) as caught:
        await shop.qc.publish(event, Order("o-1"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# -- bounded, counted, told ------------------------------------------------------------------------


async def test_events_made_on_the_fly_are_not_remembered_for_ever(shop: Shop) -> None:
    for n in range(5000):
        await shop.qc.publish(Event(f"order.{n}"), n)
    assert len(shop.qc._engine.publisher._recipes) <= 4096


async def test_what_was_sent_is_counted_and_told(shop: Shop) -> None:
    await shop.publish("m-1")
    await shop.qc.publish_many(order_placed, [Order("1"), Order("2")])
    with pytest.raises(Unroutable):
        await shop.qc.publish(nobody_cares, {})
    assert shop.qc.get_metrics().messages_sent == 3
    told = [message.id for fact in shop.seen(MessagesPublished) for message in fact.messages]
    assert told == await shop.stored()


async def test_the_last_success_is_when_it_was_sent_not_what_its_timestamp_says(
    shop: Shop,
) -> None:
    await shop.qc.publish(order_placed, Order("1"), timestamp=datetime(2001, 1, 1, tzinfo=UTC))
    assert shop.qc.health_check().last_message_at == datetime.fromtimestamp(shop.clock.now(), UTC)


async def test_two_instances_share_nothing() -> None:
    one, two = QueueCraft("local://"), QueueCraft("local://")
    async with one, two:
        for qc in (one, two):
            qc.worker("billing").on("order.#", _ignore)
            await qc.open()
        await one.publish(order_placed, Order("1"))
        assert (one.get_metrics().messages_sent, two.get_metrics().messages_sent) == (1, 0)
        await one.shutdown()
        assert (one.connection_state, two.connection_state) == ("closed", "connected")
        await two.publish(order_placed, Order("2"))


async def test_publishing_connects_when_it_is_first_needed(inline: bool) -> None:
    clock = FakeClock()
    driver = FaultyDriver(MemoryDriver(clock), inline=inline)
    qc = QueueCraft(drivers=[driver], clock=clock)
    assert driver.calls["open"] == 0
    ids = await asyncio.gather(
        *(qc.publish("order.placed", n, unroutable="drop") for n in range(10))
    )
    assert len(set(ids)) == 10
    assert driver.calls["open"] == 1
    await qc.shutdown()


async def _ignore(payload: Any) -> None: ...
