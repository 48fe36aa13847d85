"""Many messages in one call: an outcome for each, in order, or all or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    PayloadError,
    PublishError,
    QueueFull,
    Unroutable,
    UnsupportedFeature,
)
from queuecraft.facts import MessagesPublished
from queuecraft.runtime.sender import BATCH
from queuecraft.testing import FaultyDriver
from tests.runtime.publishing import (
    Order,
    Shop,
    eventually,
    nobody_cares,
    order_placed,
    started,
)


@pytest.fixture(params=[True, False], ids=["inline", "network"])
def inline(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def shop(inline: bool) -> AsyncIterator[Shop]:
    async with Shop(inline=inline) as shop:
        yield shop


def orders(count: int) -> list[Order]:
    return [Order(f"o-{n}") for n in range(count)]


async def test_it_returns_the_id_of_each(shop: Shop) -> None:
    ids = await shop.qc.publish_many(order_placed, orders(3))
    assert len(set(ids)) == 3
    assert await shop.stored() == ids


async def test_nothing_to_publish_is_nothing_published(shop: Shop) -> None:
    assert await shop.qc.publish_many(order_placed, []) == []
    assert await shop.qc.publish_many(order_placed, iter(())) == []
    assert shop.driver.calls["send"] == 0


async def test_payloads_may_come_from_a_generator(shop: Shop) -> None:
    ids = await shop.qc.publish_many(order_placed, (Order(f"o-{n}") for n in range(1100)))
    assert len(ids) == 1100
    bodies = [message.body for message in await shop.messages()]
    assert bodies == [b'{"id":"o-%d","total":9.5}' % n for n in range(1100)]


async def test_a_generator_is_read_as_it_is_needed(shop: Shop) -> None:
    read = 0

    def payloads() -> Iterator[Order]:
        nonlocal read
        for order in orders(3 * BATCH):
            read += 1
            yield order

    shop.driver.batches.clear()
    many = started(shop.qc.publish_many(order_placed, payloads()))
    await eventually(lambda: shop.driver.batches)
    assert read <= 2 * BATCH
    await many


async def test_many_are_sent_in_few_flights_none_too_large(shop: Shop) -> None:
    shop.driver.batches.clear()
    await shop.qc.publish_many(order_placed, orders(2 * BATCH + 1))
    assert shop.driver.batches == [BATCH, BATCH, 1]


async def test_others_have_their_turn_between_flights(shop: Shop) -> None:
    turned: list[bool] = []
    await shop.qc.publish_many(order_placed, orders(1))
    asyncio.get_running_loop().call_soon(turned.append, True)
    await shop.qc.publish_many(order_placed, orders(BATCH + 1))
    assert turned


async def test_order_is_kept_among_calls_made_together(shop: Shop) -> None:
    results = await asyncio.gather(
        *(shop.qc.publish_many(order_placed, orders(100)) for _ in range(3))
    )
    stored = await shop.stored()
    for ids in results:
        assert [id for id in stored if id in set(ids)] == ids


async def test_one_bad_payload_is_named_and_the_others_are_published(shop: Shop) -> None:
    payloads: list[Any] = [Order("o-1"), "no order", Order("o-3")]
    with pytest.raises(PublishError, match="1 of 3 messages were not published") as caught:
        await shop.qc.publish_many(order_placed, payloads)
    first, second, third = caught.value.results
    assert [first, third] == await shop.stored()
    assert isinstance(second, PayloadError)
    assert caught.value.outcome == "rejected"
    assert caught.value.__cause__ is second


async def test_errors_may_be_returned_in_their_places(shop: Shop) -> None:
    payloads: list[Any] = ["no order", Order("o-2"), None]
    results = await shop.qc.publish_many(order_placed, payloads, return_exceptions=True)
    assert [type(each) for each in results] == [PayloadError, str, PayloadError]
    assert await shop.stored() == [results[1]]


async def test_errors_keep_their_places_beyond_the_first_flight(shop: Shop) -> None:
    payloads: list[Any] = orders(2 * BATCH + 10)
    bad = [0, BATCH - 1, BATCH, BATCH + 7, 2 * BATCH + 9]
    for at in bad:
        payloads[at] = 5
    results = await shop.qc.publish_many(order_placed, payloads, return_exceptions=True)
    assert [at for at, each in enumerate(results) if not isinstance(each, str)] == bad
    assert await shop.stored() == [each for each in results if isinstance(each, str)]


async def test_bad_payloads_with_options_keep_their_places_too(shop: Shop) -> None:
    payloads: list[Any] = [Order("o-1"), 5, Order("o-3")]
    results = await shop.qc.publish_many(
        order_placed, payloads, return_exceptions=True, headers={"tenant": "t"}
    )
    assert [type(each) for each in results] == [str, PayloadError, str]


async def test_only_bad_payloads_send_nothing(shop: Shop) -> None:
    payloads: list[Any] = [1, 2]
    results = await shop.qc.publish_many(order_placed, payloads, return_exceptions=True)
    assert [type(each) for each in results] == [PayloadError, PayloadError]
    assert shop.driver.calls["send"] == 0


async def test_what_the_broker_rejects_is_told_for_each(shop: Shop) -> None:
    shop.driver.reject(times=2)
    results = await shop.qc.publish_many(order_placed, orders(4), return_exceptions=True)
    assert [type(each) for each in results] == [PublishError, PublishError, str, str]
    assert await shop.stored() == results[2:]


async def test_an_event_nobody_is_bound_to_is_an_error_for_each(shop: Shop) -> None:
    results = await shop.qc.publish_many(nobody_cares, [{}, {}], return_exceptions=True)
    assert [type(each) for each in results] == [Unroutable, Unroutable]


async def test_unroutable_messages_may_be_dropped(shop: Shop) -> None:
    ids = await shop.qc.publish_many(nobody_cares, [{}, {}], unroutable="drop")
    assert len(set(ids)) == 2
    assert shop.qc.get_metrics().messages_sent == 0


async def test_options_hold_for_each_message(shop: Shop) -> None:
    await shop.qc.publish_many(
        order_placed, orders(BATCH + 1), headers={"tenant": "t"}, priority=3, correlation_id="c"
    )
    messages = await shop.messages()
    assert len({message.id for message in messages}) == BATCH + 1
    assert {(m.headers["tenant"], m.priority, m.correlation_id) for m in messages} == {
        ("t", 3, "c")
    }


async def test_a_bad_option_is_refused_before_the_first_payload_is_read(shop: Shop) -> None:
    for payloads in (iter(()), iter(orders(3))):
        with pytest.raises(ConfigError, match="delay"):
            await shop.qc.publish_many(order_placed, payloads, delay=-1)
    assert shop.driver.calls["send"] == 0


async def test_one_id_for_many_messages_is_refused(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="an id of its own"):
        await shop.qc.publish_many(order_placed, orders(2), message_id="m-1")


async def test_payloads_that_cannot_be_iterated_are_a_type_error(shop: Shop) -> None:
    nothing: Any = 5
    with pytest.raises(TypeError, match="not iterable"):
        await shop.qc.publish_many(order_placed, nothing)


async def test_a_generator_that_fails_fails_the_call(shop: Shop) -> None:
    def payloads() -> Iterator[Order]:
        yield Order("o-1")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await shop.qc.publish_many(order_placed, payloads())
    assert await shop.publish("m-1") == "m-1"


# -- all or none -----------------------------------------------------------------------------------


async def test_an_atomic_batch_is_one_flight_however_large(shop: Shop) -> None:
    shop.driver.batches.clear()
    ids = await shop.qc.publish_many(order_placed, orders(2 * BATCH), atomic=True)
    assert shop.driver.batches == [2 * BATCH]
    assert await shop.stored() == ids


async def test_an_atomic_batch_shares_its_flight_with_nobody() -> None:
    async with Shop(inline=False) as shop:
        await shop.publish("m-0")
        shop.driver.batches.clear()
        hang = shop.driver.hang()
        first = shop.publish("m-1")
        await hang.reached()
        work = [shop.publish("m-2"), shop.publish("m-3")]
        many = started(shop.qc.publish_many(order_placed, orders(3), atomic=True))
        await asyncio.sleep(0)
        more = shop.publish("m-4")
        await shop.clock.settle()
        hang.release()
        await asyncio.gather(first, *work, more)
        await many
        assert shop.driver.batches == [1, 2, 3, 1]


async def test_an_atomic_batch_with_one_rejected_message_stores_none(shop: Shop) -> None:
    shop.driver.reject()
    results = await shop.qc.publish_many(
        order_placed, orders(3), atomic=True, return_exceptions=True
    )
    assert all(isinstance(each, PublishError) for each in results)
    assert await shop.stored() == []


async def test_an_atomic_batch_with_one_bad_payload_sends_none(shop: Shop) -> None:
    payloads: list[Any] = [Order("o-1"), 5, Order("o-3")]
    results = await shop.qc.publish_many(
        order_placed, payloads, atomic=True, return_exceptions=True
    )
    assert [type(each) for each in results] == [PublishError, PayloadError, PublishError]
    with pytest.raises(PublishError, match="3 of 3 messages were not published"):
        await shop.qc.publish_many(order_placed, payloads, atomic=True)
    assert shop.driver.calls["send"] == 0


async def test_atomic_is_refused_where_the_broker_cannot(inline: bool) -> None:
    driver = FaultyDriver(inline=inline)
    vars(driver)["traits"] = replace(driver.traits, atomic_send=False)
    async with Shop(drivers=[driver]) as shop:
        with pytest.raises(UnsupportedFeature, match="atomic=True"):
            await shop.qc.publish_many(order_placed, orders(2), atomic=True)
        assert driver.calls["send"] == 0


async def test_an_atomic_batch_without_an_answer_is_sent_again_as_a_whole(shop: Shop) -> None:
    await shop.publish("m-0")
    shop.driver.batches.clear()
    shop.driver.lose_answers(stored=False)
    many = started(shop.qc.publish_many(order_placed, orders(3), atomic=True))
    await shop.clock.advance(1)
    assert await many == (await shop.stored())[1:]
    assert shop.driver.batches == [3, 3]


# -- when the broker does not answer ---------------------------------------------------------------


async def test_only_what_was_not_answered_is_sent_again(shop: Shop) -> None:
    await shop.publish("m-0")
    shop.driver.batches.clear()
    shop.driver.lose_answers([1, 3], stored=False)
    many = started(shop.qc.publish_many(order_placed, orders(5)))
    await shop.clock.advance(1)
    ids = await many
    assert shop.driver.batches == [5, 2]
    stored = (await shop.stored())[1:]
    assert stored == [ids[0], ids[2], ids[4], ids[1], ids[3]]


async def test_a_rejection_beside_a_missing_answer_stands(shop: Shop) -> None:
    await shop.publish("m-0")
    shop.driver.reject()
    shop.driver.lose_answers([1], stored=False)
    many = started(shop.qc.publish_many(order_placed, orders(3), return_exceptions=True))
    await shop.clock.advance(1)
    assert [type(each) for each in await many] == [PublishError, str, str]


async def test_what_was_confirmed_is_told_though_the_rest_is_unknown(shop: Shop) -> None:
    await shop.publish("m-0")
    shop.driver.lose_answers([1], stored=True)
    shop.driver.lose_answers([0], stored=True, times=1_000_000)
    many = started(shop.qc.publish_many(order_placed, orders(3)))
    await shop.clock.advance(31)
    with pytest.raises(PublishError, match="1 of 3") as caught:
        await many
    first, second, third = caught.value.results
    assert isinstance(first, str)
    assert isinstance(third, str)
    assert isinstance(second, PublishError)
    assert second.outcome == caught.value.outcome == "unknown"


async def test_what_was_published_before_an_outage_is_told(inline: bool) -> None:
    async with Shop(inline=inline, on_outage="fail") as shop:
        await shop.publish("m-0")

        def payloads() -> Iterator[Order]:
            yield from orders(BATCH)
            shop.driver.refuse(opens=1_000_000)
            shop.driver.connected = False
            yield from orders(10)

        many = started(shop.qc.publish_many(order_placed, payloads(), return_exceptions=True))
        await shop.clock.advance(31)
        results = await many
        assert [type(each) for each in results] == [str] * BATCH + [PublishError] * 10


async def test_more_than_may_wait_is_sent_in_parts_that_may(inline: bool) -> None:
    async with Shop(inline=inline, max_pending=100) as shop:
        await shop.outage()
        many = started(shop.qc.publish_many(order_placed, orders(250)))
        await shop.recover()
        assert await many == await shop.stored()


async def test_too_many_at_once_in_an_outage_are_refused_each(inline: bool) -> None:
    async with Shop(inline=inline, max_pending=100) as shop:
        await shop.outage()
        waiting = [shop.publish(f"m-{n}") for n in range(95)]
        await shop.clock.settle()
        results = await shop.qc.publish_many(order_placed, orders(10), return_exceptions=True)
        assert [type(each) for each in results] == [QueueFull] * 10
        await shop.recover()
        await asyncio.gather(*waiting)


async def test_every_accepted_message_is_told_once(shop: Shop) -> None:
    await shop.publish("m-0")
    shop.facts.clear()
    shop.driver.lose_answers([1], stored=False)
    many = started(shop.qc.publish_many(order_placed, orders(3)))
    await shop.clock.advance(1)
    told = [message.id for fact in shop.seen(MessagesPublished) for message in fact.messages]
    assert sorted(told) == sorted(await many)
