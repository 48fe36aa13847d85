"""The facade: one object, opened once, closed once, that says what it knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    ConnectionLost,
    Event,
    Exchange,
    NoRetry,
    PayloadError,
    Policy,
    PublishError,
    Queue,
    QueueCraft,
    QueueError,
    Retry,
    Settings,
    Unroutable,
)
from queuecraft.drivers.base import Driver
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.drivers.registry import Drivers
from queuecraft.drivers.target import Target
from queuecraft.facts import Fact, MessageFailed, MessagesPublished, Shutdown, WorkerStopped
from queuecraft.testing import FaultyDriver, Ledger
from tests.runtime.support import (
    Order,
    Stage,
    contents,
    eventually,
    ids,
    order_paid,
    order_placed,
    quiet,
    running,
    staged,
)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


@pytest.fixture
def qc() -> QueueCraft:
    return QueueCraft()


# -- settings --------------------------------------------------------------------------------


def test_nothing_is_opened_until_it_is_needed() -> None:
    driver = FaultyDriver()
    qc = QueueCraft(drivers=[driver])
    qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    assert qc.connection_state == "disconnected"
    assert not driver.calls


def test_keywords_are_settings() -> None:
    qc = QueueCraft(concurrency=8, retry=NoRetry(), exchange="shop")
    assert (qc.settings.concurrency, qc.settings.retry, qc.settings.exchange) == (
        8,
        NoRetry(),
        "shop",
    )
    assert qc.worker("billing").policy.retry == NoRetry()


def test_settings_may_be_an_object() -> None:
    assert QueueCraft(settings=Settings(ttl=5)).worker("billing").policy.ttl == 5


def test_settings_come_from_one_place() -> None:
    with pytest.raises(ConfigError, match="not both"):
        QueueCraft(settings=Settings(), ttl=5)
    with pytest.raises(ConfigError, match="url"):
        QueueCraft("local://", settings=Settings())


def test_an_unknown_setting_is_named() -> None:
    options: dict[str, Any] = {"concurency": 8}
    with pytest.raises(ConfigError, match="did you mean 'concurrency'"):
        QueueCraft(**options)


def test_an_unknown_broker_is_named_without_its_password() -> None:
    with pytest.raises(ConfigError, match="carrier-pigeon") as caught:
        QueueCraft("carrier-pigeon://ada:secret@roof")
    assert "secret" not in str(caught.value)


def test_a_password_is_in_no_text() -> None:
    drivers = Drivers()
    drivers.add("own", lambda target: [MemoryDriver(target.clock)])
    qc = QueueCraft("own://ada:secret@roof", drivers=drivers)
    assert "secret" not in repr(qc)
    assert "secret" not in repr(qc.settings)


def test_drivers_of_ones_own_are_known_by_their_scheme() -> None:
    made: list[str] = []

    def make(target: Target) -> list[Driver]:
        made.append(target.url)
        return [MemoryDriver(target.clock)]

    drivers = Drivers()
    drivers.add("own", make)
    QueueCraft("own://here", drivers=drivers)
    assert made == ["own://here"]


def test_no_driver_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="driver"):
        QueueCraft(drivers=[])


def test_settings_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECRAFT_URL", "local://")
    monkeypatch.setenv("QUEUECRAFT_CONCURRENCY", "8")
    monkeypatch.setenv("QUEUECRAFT_PREFETCH", "none")
    settings = QueueCraft.from_environment().settings
    assert (settings.url, settings.concurrency, settings.prefetch) == ("local://", 8, None)


def test_a_bad_value_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECRAFT_CONCURRENCY", "many")
    with pytest.raises(ConfigError, match="QUEUECRAFT_CONCURRENCY='many'"):
        QueueCraft.from_environment()


def test_a_facade_says_what_it_is(qc: QueueCraft) -> None:
    qc.worker("billing")
    assert repr(qc) == "<QueueCraft local disconnected, 1 workers>"


# -- opening and closing ---------------------------------------------------------------------


async def test_entering_connects_and_leaving_closes() -> None:
    driver = FaultyDriver()
    async with QueueCraft(drivers=[driver]) as qc:
        assert driver.connected
    assert qc.connection_state == "closed"
    assert not driver.connected


async def test_entering_declares_the_queues_of_all_workers() -> None:
    driver = FaultyDriver()
    qc = QueueCraft(drivers=[driver])
    qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    qc.worker("empty")
    async with qc:
        id = await qc.publish(order_placed, Order("o-1"))
        assert await ids(driver, "billing") == [id]
        assert "empty" not in (await driver.topology()).queues


async def test_a_publish_connects_by_itself() -> None:
    qc = QueueCraft()
    with pytest.raises(Unroutable):
        await qc.publish(order_placed, Order("o-1"))
    assert qc.connection_state == "connected"
    await qc.shutdown()


async def test_a_facade_that_cannot_connect_cannot_be_entered_and_is_closed() -> None:
    driver = FaultyDriver()
    driver.refuse(opens=100)
    qc = QueueCraft(drivers=[driver])
    with pytest.raises(ConnectionLost, match="refuses"):
        async with qc:
            raise AssertionError("never here")
    assert qc.connection_state == "closed"


async def test_a_queue_that_cannot_be_declared_keeps_the_facade_closed() -> None:
    driver = FaultyDriver()
    driver.fail("declare", QueueError("not like this"), times=10)
    qc = QueueCraft(drivers=[driver])
    qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    with pytest.raises(QueueError, match="not like this"):
        async with qc:
            raise AssertionError("never here")
    assert not driver.connected


async def test_opening_twice_is_opening_once() -> None:
    driver = FaultyDriver()
    async with QueueCraft(drivers=[driver]) as qc:
        await qc.open()
    assert driver.calls["open"] == 1


async def test_what_was_shut_down_stays_so(qc: QueueCraft) -> None:
    async with qc:
        pass
    with pytest.raises(ConnectionLost, match="shut down"):
        await qc.open()
    with pytest.raises(ConnectionLost, match="shut down"):
        async with qc:
            raise AssertionError("never here")
    with pytest.raises(QueueError):
        await qc.publish(order_placed, Order("o-1"))
    assert qc.connection_state == "closed"


async def test_shutting_down_twice_or_at_once_is_once() -> None:
    facts: list[Fact] = []
    driver = FaultyDriver()
    qc = QueueCraft(drivers=[driver])
    qc.observe(Shutdown, facts.append)
    await qc.open()
    await asyncio.gather(*(qc.shutdown() for _ in range(3)))
    await qc.shutdown()
    assert len(facts) == 1
    assert driver.calls["close"] == 1


async def test_shutting_down_what_was_never_opened_is_no_harm(qc: QueueCraft) -> None:
    await qc.shutdown()
    assert qc.connection_state == "closed"


async def test_a_cancelled_shutdown_goes_on() -> None:
    leave = asyncio.Event()
    qc = QueueCraft()
    worker = qc.worker("billing")

    @worker.on(order_placed)
    async def wait(order: Order) -> None:
        await leave.wait()

    await worker.start()
    await qc.publish(order_placed, Order("o-1"))
    await eventually(lambda: worker.in_flight)
    closing = asyncio.ensure_future(qc.shutdown())
    await quiet()
    closing.cancel()
    await asyncio.wait([closing])
    leave.set()
    await qc.shutdown()
    assert qc.connection_state == "closed"
    assert worker.counters.succeeded == 1


async def test_the_last_fact_is_the_shutdown() -> None:
    facts: list[Fact] = []
    qc = QueueCraft()
    worker = qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    qc.observe(Fact, facts.append)
    async with qc:
        await worker.start()
    assert isinstance(facts[-1], Shutdown)
    assert any(isinstance(fact, WorkerStopped) for fact in facts)


async def test_one_worker_that_does_not_stop_well_keeps_nothing_open(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = FaultyDriver()
    qc = QueueCraft(drivers=[driver])
    workers = [qc.worker(name).on(order_placed, Ledger().recording(name)) for name in ("a", "b")]

    async def broken(**options: object) -> None:
        raise RuntimeError("a bug")

    async with qc:
        for worker in workers:
            await worker.start()
        stop = workers[0].stop
        monkeypatch.setattr(workers[0], "stop", broken)
    assert qc.connection_state == "closed"
    assert workers[1].state == "stopped"
    assert any("did not stop well" in text for text in caplog.messages)
    await stop()


async def test_an_async_observer_is_waited_for_at_the_end(qc: QueueCraft) -> None:
    told: list[Fact] = []

    async def slow(fact: Shutdown) -> None:
        await quiet()
        told.append(fact)

    qc.observe(Shutdown, slow)
    async with qc:
        pass
    assert len(told) == 1


# -- publishing ------------------------------------------------------------------------------


async def test_many_payloads_give_as_many_ids(stage: Stage) -> None:
    worker = stage.qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    await stage.driver.declare(worker.definition)
    given = await stage.qc.publish_many(order_placed, [Order(f"o-{n}") for n in range(3)])
    assert await ids(stage.driver, "billing") == given


async def test_of_many_the_bad_ones_are_told_and_the_good_ones_sent(stage: Stage) -> None:
    worker = stage.qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    await stage.driver.declare(worker.definition)
    mixed: list[Any] = [Order("o-1"), {"not": "an order"}, Order("o-2")]
    with pytest.raises(PublishError, match="1 of 3") as caught:
        await stage.qc.publish_many(order_placed, mixed)
    results = caught.value.results
    assert [isinstance(each, str) for each in results] == [True, False, True]
    assert isinstance(results[1], PayloadError)
    assert caught.value.outcome == "rejected"
    assert len(await ids(stage.driver, "billing")) == 2


async def test_of_many_the_errors_may_be_returned(stage: Stage) -> None:
    worker = stage.qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    await stage.driver.declare(worker.definition)
    mixed: list[Any] = [Order("o-1"), "no order"]
    good, bad = await stage.qc.publish_many(order_placed, mixed, return_exceptions=True)
    assert isinstance(good, str)
    assert isinstance(bad, PayloadError)


async def test_of_none_nothing_is_sent(stage: Stage) -> None:
    assert await stage.qc.publish_many(order_placed, []) == []


async def test_many_cannot_share_one_id(stage: Stage) -> None:
    with pytest.raises(ConfigError, match="an id of its own"):
        await stage.qc.publish_many(order_placed, [Order("o-1")], message_id="m-1")


async def test_a_send_goes_through_no_exchange(stage: Stage) -> None:
    with pytest.raises(ConfigError, match="not through an exchange"):
        await stage.qc.send("billing", 1, exchange="shop")


async def test_a_send_to_nowhere_is_refused(stage: Stage) -> None:
    with pytest.raises(PublishError, match="no such queue") as caught:
        await stage.qc.send("nowhere", 1)
    assert caught.value.outcome == "rejected"


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 300])
async def test_a_queue_name_that_cannot_be_is_refused(stage: Stage, name: str) -> None:
    with pytest.raises(ConfigError):
        await stage.qc.send(name, 1)


async def test_a_queue_by_name_and_as_a_value_are_the_same_queue(stage: Stage) -> None:
    queue: Queue[Any] = Queue("billing")
    await stage.driver.declare(queue)
    await stage.qc.send(queue, {"id": "o-1"})
    await stage.qc.send("billing", {"id": "o-1"})
    one, two = await contents(stage.driver, "billing")
    assert (one.body, one.routing_key) == (two.body, two.routing_key)


async def test_names_made_of_user_data_do_not_pile_up(stage: Stage) -> None:
    for number in range(10_000):
        with pytest.raises(PublishError):
            await stage.qc.send(f"user.{number}", 1)
    assert len(stage.qc._named_queues) <= 4096


@pytest.mark.parametrize("event", [None, 5, Order])
async def test_what_is_no_event_cannot_be_published(stage: Stage, event: Any) -> None:
    with pytest.raises((TypeError, ConfigError)):
        await stage.qc.publish(event, 1)


async def test_an_event_of_another_exchange_goes_there(stage: Stage) -> None:
    seen = Ledger()
    event = Event("order.placed", Order, exchange=Exchange("shop", "direct"))
    worker = stage.qc.worker("billing").on(event, seen.recording("billing"))
    other = stage.qc.worker("other").on("order.placed", seen.recording("other"))
    async with running(worker, other):
        await stage.qc.publish(event, Order("o-1"))
        await stage.clock.settle()
    assert [call.name for call in seen.calls] == ["billing"]


# -- watching --------------------------------------------------------------------------------


async def test_an_observer_is_told_until_it_is_stopped(stage: Stage) -> None:
    told: list[MessagesPublished] = []
    worker = stage.qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    await stage.driver.declare(worker.definition)
    stop = stage.qc.observe(MessagesPublished, told.append)
    await stage.qc.publish(order_placed, Order("o-1"))
    stop()
    stop()
    await stage.qc.publish(order_placed, Order("o-2"))
    assert len(told) == 1


async def test_an_observer_that_fails_touches_no_message(stage: Stage) -> None:
    seen = Ledger()

    def broken(fact: Fact) -> None:
        raise RuntimeError("a bug")

    stage.qc.observe(Fact, broken)
    worker = stage.qc.worker("billing").on(order_placed, seen.failing("billing", times=1))
    async with running(worker):
        seen.published(await stage.qc.publish(order_placed, Order("o-1")))
        await stage.clock.advance(5)
    seen.check()


async def test_health_follows_the_connection(stage: Stage) -> None:
    assert stage.qc.health_check().ok
    worker = stage.qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    await stage.driver.declare(worker.definition)
    await stage.qc.publish(order_placed, Order("o-1"))
    now = datetime.fromtimestamp(stage.clock.now(), UTC)
    assert stage.qc.health_check().last_message_at == now
    stage.driver.refuse(opens=1)
    await stage.driver.drop()
    publishing = asyncio.ensure_future(stage.qc.publish(order_placed, Order("o-2")))
    await stage.clock.settle()
    lost = stage.qc.health_check()
    assert (lost.status, lost.connection_state) == ("unhealthy", "reconnecting")
    assert lost.disconnected_at == now
    assert lost.last_error
    await stage.clock.advance(40)
    await publishing
    back = stage.qc.health_check()
    assert back.ok
    assert back.disconnected_at is None


async def test_health_names_what_cannot_be_consumed_until_it_can(stage: Stage) -> None:
    stage.driver.fail("subscribe", QueueError("access refused"), times=2)
    worker = stage.qc.worker("billing").on("order.placed", print)
    async with running(worker):
        await eventually(lambda: not stage.qc.health_check().ok)
        (reason,) = stage.qc.health_check().paused.values()
        assert reason.startswith("cannot consume: access refused")
        for _ in range(20):
            await stage.clock.advance(1)
        assert stage.qc.health_check().ok


async def test_health_names_what_is_paused(stage: Stage) -> None:
    worker = stage.qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    async with running(worker):
        worker.pause("lunch")
        health = stage.qc.health_check()
        assert (health.ok, health.paused) == (False, {"billing": "lunch"})
        worker.resume()
        assert stage.qc.health_check().ok


async def test_metrics_count_in_all_and_for_each_queue(stage: Stage) -> None:
    seen = Ledger()
    one = stage.qc.worker("one").on(order_placed, seen.recording("one"))
    two = stage.qc.worker("two", retry=NoRetry()).on(order_placed, seen.failing("two", times=None))
    async with running(one, two):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
        metrics = stage.qc.get_metrics()
    assert (metrics.messages_sent, metrics.messages_received) == (1, 2)
    assert (metrics.messages_succeeded, metrics.messages_failed) == (1, 1)
    assert (metrics.messages_dead_lettered, metrics.in_flight) == (1, 0)
    assert metrics.queues["one"].messages_succeeded == 1
    assert metrics.queues["two"].messages_failed == 1


async def test_counts_survive_a_restart_of_the_worker(stage: Stage) -> None:
    worker = stage.qc.worker("one").on(order_placed, Ledger().recording("one"))
    for _ in range(2):
        async with running(worker):
            await stage.qc.publish(order_placed, Order("o-1"))
            await stage.clock.settle()
    assert stage.qc.get_metrics().messages_succeeded == 2


# -- defaults --------------------------------------------------------------------------------


def test_defaults_are_laid_over_one_another(qc: QueueCraft) -> None:
    qc.configure(default_queue=Policy(ttl=60))
    qc.configure(default_queue=Policy(ack_timeout=5))
    policy = qc.worker("billing").policy
    assert (policy.ttl, policy.ack_timeout, policy.retry) == (60, 5, Retry())


def test_the_workers_are_shown_and_cannot_be_changed(qc: QueueCraft) -> None:
    worker = qc.worker("billing")
    assert qc.workers == (worker,)


async def test_a_handler_may_publish(stage: Stage) -> None:
    seen = Ledger()
    worker = stage.qc.worker("billing")

    @worker.on(order_placed)
    async def charge(order: Order) -> None:
        await stage.qc.publish(order_paid, order)

    audit = stage.qc.worker("audit").on(order_paid, seen.recording("audit"))
    async with running(audit, worker):
        await stage.qc.publish(order_placed, Order("o-1"))
        await seen.wait_for(audit=1)


async def test_a_failed_message_tells_its_observers(stage: Stage) -> None:
    told: list[MessageFailed] = []
    stage.qc.observe(MessageFailed, told.append)
    worker = stage.qc.worker("billing", retry=NoRetry())
    worker.on(order_placed, Ledger().failing("billing", times=None, error=ValueError("no")))
    async with running(worker):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
    (fact,) = told
    assert (fact.worker, fact.attempt, fact.reason) == ("billing", 1, "handler-error")
    assert fact.failure is not None
    assert fact.failure.error == "no"


async def test_workers_that_share_a_queue_must_handle_the_same() -> None:
    qc = QueueCraft("local://")
    qc.worker("billing").on("order.placed", print)
    qc.worker("billing").on("order.paid", print)
    with pytest.raises(ConfigError, match=r"share queue 'billing'.*order\.paid, order\.placed"):
        await qc.open()
    await qc.shutdown()


async def test_workers_that_handle_the_same_may_share_a_queue() -> None:
    qc = QueueCraft("local://")
    qc.worker("billing").on("order.placed", print)
    qc.worker("billing").on("order.placed", print)
    async with qc:
        assert len(qc.workers) == 2
