"""Facts and their observers: told what they asked for, and never in the way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from queuecraft import ConfigError, QueueCraft
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.facts import (
    ConnectionStateChanged,
    Disconnected,
    Fact,
    MessagesAcked,
    MessagesDelivered,
    MessagesPublished,
    MessagesSucceeded,
    Shutdown,
    WorkerStarted,
    WorkerStopped,
)
from queuecraft.runtime.facts import Facts
from queuecraft.testing import FakeClock, FaultyDriver, Ledger
from tests.runtime.publishing import Order, Shop, order_placed, turns


@pytest.fixture(params=[True, False], ids=["inline", "network"])
def inline(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def shop(inline: bool) -> AsyncIterator[Shop]:
    async with Shop(inline=inline) as shop:
        yield shop


# -- who is told -----------------------------------------------------------------------------------


async def test_an_observer_is_told_of_its_kind_and_no_other(shop: Shop) -> None:
    told: list[MessagesPublished] = []
    shop.qc.observe(MessagesPublished, told.append)
    await shop.publish("m-1")
    await shop.qc.shutdown()
    assert [message.id for fact in told for message in fact.messages] == ["m-1"]


async def test_an_observer_of_facts_is_told_of_everything(shop: Shop) -> None:
    told: list[Fact] = []
    shop.qc.observe(Fact, told.append)
    await shop.publish("m-1")
    await shop.qc.shutdown()
    assert {type(fact) for fact in told} == {MessagesPublished, ConnectionStateChanged, Shutdown}


async def test_observers_are_told_in_the_order_they_came(shop: Shop) -> None:
    told: list[int] = []
    for n in range(3):
        shop.qc.observe(MessagesPublished, lambda fact, n=n: told.append(n))  # type: ignore[misc]
    await shop.publish("m-1")
    assert told == [0, 1, 2]


async def test_an_observer_that_is_stopped_is_told_no_more(shop: Shop) -> None:
    told: list[Fact] = []
    stop = shop.qc.observe(MessagesPublished, told.append)
    await shop.publish("m-1")
    stop()
    stop()
    await shop.publish("m-2")
    assert len(told) == 1


async def test_observing_twice_is_being_told_twice_and_stopped_one_by_one(shop: Shop) -> None:
    told: list[Fact] = []
    stop = shop.qc.observe(MessagesPublished, told.append)
    shop.qc.observe(MessagesPublished, told.append)
    await shop.publish("m-1")
    assert len(told) == 2
    stop()
    stop()
    await shop.publish("m-2")
    assert len(told) == 3


async def test_an_observer_may_stop_itself_and_bring_others(shop: Shop) -> None:
    told: list[str] = []

    def once(fact: MessagesPublished) -> None:
        told.append("once")
        stop()
        shop.qc.observe(MessagesPublished, lambda fact: told.append("other"))

    stop = shop.qc.observe(MessagesPublished, once)
    await shop.publish("m-1")
    assert told == ["once"]
    await shop.publish("m-2")
    assert told == ["once", "other"]


async def test_observers_of_two_apps_know_nothing_of_each_other(inline: bool) -> None:
    async with Shop(inline=inline) as one, Shop(inline=inline) as two:
        one.facts.clear()
        two.facts.clear()
        await one.publish("m-1")
        assert len(one.facts) == 1
        assert not two.facts


@pytest.mark.parametrize("kind", [str, "Shutdown", None, Shutdown()], ids=repr)
def test_what_is_no_kind_of_fact_cannot_be_observed(kind: Any) -> None:
    with pytest.raises(ConfigError, match=r"queuecraft\.facts"):
        QueueCraft().observe(kind, print)


def test_what_cannot_be_called_cannot_observe() -> None:
    nothing: Any = None
    with pytest.raises(ConfigError, match="expected a function"):
        QueueCraft().observe(Shutdown, nothing)


# -- built only if somebody listens ----------------------------------------------------------------


def test_wants_follows_those_who_come_and_go() -> None:
    facts = Facts()
    assert not facts.wants(Shutdown)
    stop = facts.observe(Shutdown, print)
    assert facts.wants(Shutdown)
    assert not facts.wants(Disconnected)
    stop()
    assert not facts.wants(Shutdown)


def test_wants_knows_those_who_want_everything() -> None:
    facts = Facts()
    assert not facts.wants(Disconnected)
    stop = facts.observe(Fact, print)
    assert facts.wants(Disconnected)
    stop()
    assert not facts.wants(Disconnected)


async def test_a_fact_nobody_wants_is_not_built(
    inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unwanted(MessagesPublished, frozen=True, eq=False, kw_only=True):
        def __post_init__(self) -> None:
            raise AssertionError("nobody asked for it")

    driver = FaultyDriver(inline=inline)
    qc = QueueCraft(drivers=[driver], unroutable="drop")
    qc.worker("billing").on(order_placed, print)
    async with qc:
        monkeypatch.setattr("queuecraft.runtime.publisher.MessagesPublished", Unwanted)
        await qc.publish(order_placed, Order("1"))
        await qc.publish_many(order_placed, [Order("2")])
        assert qc.get_metrics().messages_sent == 2


# -- observers that fail ---------------------------------------------------------------------------


def _raises(fact: Fact) -> None:
    raise ZeroDivisionError("a bad observer")


async def _raises_later(fact: Fact) -> None:
    raise ZeroDivisionError("a bad observer")


async def _raises_much_later(fact: Fact) -> None:
    await asyncio.sleep(0)
    raise ZeroDivisionError("a bad observer")


def _looks_at_a_cancelled_future(fact: Fact) -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    future.result()


class _Unprintable:
    def __repr__(self) -> str:
        raise ZeroDivisionError("not even this")

    def __call__(self, fact: Fact) -> None:
        raise ZeroDivisionError("a bad observer")


BAD = [
    _raises,
    _raises_later,
    _raises_much_later,
    _looks_at_a_cancelled_future,
    _Unprintable(),
    lambda: None,
]


@pytest.mark.parametrize("observer", BAD, ids=lambda each: getattr(each, "__name__", "object"))
async def test_an_observer_that_fails_changes_nothing(
    inline: bool, observer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    clock, ledger = FakeClock(), Ledger()
    driver = FaultyDriver(MemoryDriver(clock), inline=inline)
    qc = QueueCraft(drivers=[driver], clock=clock)
    told: list[Fact] = []
    qc.observe(Fact, observer)
    qc.observe(Fact, told.append)
    worker = qc.worker("billing").on(order_placed, ledger.failing("billing", times=1))
    async with qc:
        await worker.start()
        ledger.published(await qc.publish(order_placed, Order("1")))
        for id in await qc.publish_many(order_placed, [Order("2"), Order("3")]):
            ledger.published(id)
        await driver.drop()
        ledger.published(await qc.publish(order_placed, Order("4")))
        await clock.advance(60)
        assert qc.health_check().ok
    ledger.check(duplicates_at_most=4)
    assert isinstance(told[-1], Shutdown)
    assert "observer" in caplog.text
    assert all(record.levelno < logging.CRITICAL for record in caplog.records)


async def test_the_others_are_told_though_one_fails(shop: Shop) -> None:
    told: list[Fact] = []
    shop.qc.observe(MessagesPublished, _raises)
    shop.qc.observe(MessagesPublished, told.append)
    await shop.publish("m-1")
    assert len(told) == 1


# -- async observers -------------------------------------------------------------------------------


async def test_an_async_observer_runs_beside_what_it_is_told_of(shop: Shop) -> None:
    go_on, told = asyncio.Event(), list[Fact]()

    async def observe(fact: MessagesPublished) -> None:
        await go_on.wait()
        told.append(fact)

    shop.qc.observe(MessagesPublished, observe)
    await shop.publish("m-1")
    assert not told
    go_on.set()
    await turns()
    assert len(told) == 1


async def test_shutdown_waits_for_async_observers(inline: bool) -> None:
    told: list[Fact] = []

    async def observe(fact: Fact) -> None:
        await turns(50)
        told.append(fact)

    async with Shop(inline=inline) as shop:
        shop.qc.observe(Shutdown, observe)
        await shop.qc.shutdown()
        assert len(told) == 1


async def test_an_async_observer_may_publish(shop: Shop) -> None:
    async def observe(fact: MessagesPublished) -> None:
        if fact.messages[0].routing_key == "order.placed":
            await shop.qc.publish("order.noted", 1, message_id="m-2")

    shop.qc.observe(MessagesPublished, observe)
    await shop.publish("m-1")
    await shop.clock.settle()
    assert await shop.stored() == ["m-1", "m-2"]


def test_an_async_observer_without_a_loop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    facts = Facts()
    facts.observe(Shutdown, _raises_later)
    facts.emit(Shutdown())
    assert "observer" in caplog.text


# -- what is told ----------------------------------------------------------------------------------


async def test_the_life_of_a_message_is_told_in_order() -> None:
    clock, ledger = FakeClock(), Ledger()
    driver = FaultyDriver(MemoryDriver(clock), inline=True)
    qc = QueueCraft(drivers=[driver], clock=clock)
    told: list[type[Fact]] = []
    qc.observe(Fact, lambda fact: told.append(type(fact)))
    worker = qc.worker("billing").on(order_placed, ledger.recording("billing"))
    async with qc:
        await worker.start()
        await qc.publish(order_placed, Order("1"))
        await ledger.wait_for(billing=1)
        await clock.advance(1)
    kinds = [kind for kind in told if kind is not ConnectionStateChanged]
    assert kinds == [
        WorkerStarted,
        MessagesPublished,
        MessagesDelivered,
        MessagesSucceeded,
        MessagesAcked,
        WorkerStopped,
        Shutdown,
    ]


async def test_facts_cannot_be_changed(shop: Shop) -> None:
    fact = Disconnected(error="gone")
    changing: Any = fact
    with pytest.raises(AttributeError):
        changing.error = "not gone"


async def test_the_logger_of_the_caller_is_used(inline: bool) -> None:
    logger = logging.getLogger("tests.mine")
    logger.setLevel(logging.INFO)
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger.addHandler(Keep())
    driver = FaultyDriver(inline=inline)
    qc = QueueCraft(drivers=[driver], logger=logger)
    qc.observe(Shutdown, _raises)
    async with qc:
        pass
    logger.handlers.clear()
    assert any("connecting → connected" in line for line in lines)
    assert any("failed on Shutdown" in line for line in lines)
