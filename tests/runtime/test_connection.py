"""The connection: opened when needed, lost and found again, and given up only when it should be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    ConnectionLost,
    PublishError,
    Queue,
    QueueCraft,
    QueueError,
    TopologyMismatch,
)
from queuecraft.drivers.base import Binding, Exchange
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.facts import (
    ConnectionStateChanged,
    Disconnected,
    Fact,
    Reconnected,
    ReconnectFailed,
    Reconnecting,
    Shutdown,
)
from queuecraft.testing import FakeClock, FaultyDriver, Ledger
from tests.runtime.publishing import Order, Shop, messages, order_placed, outcome, started


@pytest.fixture(params=[True, False], ids=["inline", "network"])
def inline(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def shop(inline: bool) -> AsyncIterator[Shop]:
    async with Shop(inline=inline) as shop:
        yield shop


def hosts(count: int, *, inline: bool = False) -> list[FaultyDriver]:
    return [FaultyDriver(inline=inline) for _ in range(count)]


def states(facts: Sequence[Fact]) -> list[str]:
    """The states the connection went through, the first one included."""
    changes = [fact for fact in facts if isinstance(fact, ConnectionStateChanged)]
    for earlier, later in pairwise(changes):
        assert earlier.new == later.old
    return [changes[0].old, *(change.new for change in changes)] if changes else []


async def lose(shop: Shop) -> None:
    """Cut the connection and let it be found again."""
    await shop.driver.drop()
    shop.qc._engine.connection.lost(shop.driver, shop.driver.lost("the cable is cut"))
    await shop.clock.settle()


# -- the first connection --------------------------------------------------------------------------


async def test_nothing_is_connected_until_it_is_needed(inline: bool) -> None:
    shop = Shop(inline=inline)
    assert shop.state == "disconnected"
    assert not shop.driver.calls
    await shop.qc.shutdown()
    assert not shop.driver.calls


async def test_opening_connects_and_declares_the_queues_of_workers(inline: bool) -> None:
    async with Shop(inline=inline) as shop:
        assert shop.state == "connected"
        assert "billing" in (await shop.driver.topology()).queues


async def test_opening_twice_connects_once(inline: bool) -> None:
    shop = Shop(inline=inline)
    await asyncio.gather(shop.qc.open(), shop.qc.open(), shop.qc.open())
    await shop.qc.open()
    assert shop.driver.calls["open"] == 1
    await shop.qc.shutdown()


async def test_opening_and_publishing_at_once_connects_once(inline: bool) -> None:
    shop = Shop(inline=inline)
    publish = shop.publish("m-1", unroutable="drop")
    await asyncio.gather(publish, shop.qc.open(), shop.publish("m-2", unroutable="drop"))
    assert shop.driver.calls["open"] == 1
    await shop.qc.shutdown()


async def test_opening_fails_fast_when_the_broker_does_not_answer(inline: bool) -> None:
    shop = Shop(inline=inline)
    shop.driver.refuse()
    with pytest.raises(ConnectionLost, match="the test refuses the connection") as caught:
        async with shop.qc:
            raise AssertionError("it must not get here")
    assert caught.value.broker == "local"
    assert shop.driver.calls["open"] == 1
    assert shop.state == "closed"


async def test_opening_may_be_tried_again(inline: bool) -> None:
    shop = Shop(inline=inline)
    shop.driver.refuse()
    with pytest.raises(ConnectionLost):
        await shop.qc.open()
    assert shop.state == "disconnected"
    await shop.qc.open()
    assert shop.state == "connected"
    await shop.qc.shutdown()


async def test_opening_tries_each_host_once_without_waiting() -> None:
    drivers = hosts(3)
    for driver in drivers:
        driver.refuse(opens=100)
    shop = Shop(drivers=drivers)
    with pytest.raises(ConnectionLost):
        await shop.qc.open()
    assert [driver.calls["open"] for driver in drivers] == [1, 1, 1]
    drivers[1].heal()
    await shop.qc.open()
    assert drivers[1].connected
    await shop.qc.shutdown()


async def test_opening_fails_fast_though_a_publish_waits_for_the_connection() -> None:
    shop = Shop(inline=False)
    shop.driver.refuse(opens=1_000_000)
    publish = shop.publish("m-1")
    await shop.clock.settle()
    opening = started(shop.qc.open())
    await shop.clock.advance(3)
    with pytest.raises(ConnectionLost):
        await opening
    assert not publish.done()
    shop.driver.heal()
    await shop.clock.advance(25)
    assert "m-1" in str(await outcome(publish))
    await shop.qc.shutdown(timeout=0)


async def test_a_publish_waits_on_though_opening_failed() -> None:
    shop = Shop(inline=False, unroutable="drop")
    shop.driver.refuse(opens=2)
    opening = started(shop.qc.open())
    await asyncio.sleep(0)
    publish = shop.publish("m-1")
    assert isinstance(await outcome(opening), ConnectionLost)
    await shop.clock.advance(5)
    assert await publish == "m-1"
    await shop.qc.shutdown()


async def test_an_open_that_is_cancelled_leaves_nothing_half_open() -> None:
    held = asyncio.Event()

    class Slow(FaultyDriver):
        async def open(self) -> None:
            await super().open()
            await held.wait()

    driver = Slow(inline=False)
    shop = Shop(drivers=[driver])
    entering = started(shop.qc.__aenter__())
    await shop.clock.settle()
    assert driver.connected
    entering.cancel()
    assert isinstance(await outcome(entering), asyncio.CancelledError)
    assert not driver.connected
    assert shop.state == "closed"


class Stuck(FaultyDriver):
    """Hangs for ever in the methods named."""

    def __init__(self, *names: str) -> None:
        super().__init__(inline=False)
        self.names = set(names)

    async def open(self) -> None:
        await super().open()
        await self._stick("open")

    async def declare(self, queue: Queue) -> None:
        await self._stick("declare")
        await super().declare(queue)

    async def close(self) -> None:
        await super().close()
        await self._stick("close")

    async def _stick(self, name: str) -> None:
        if name in self.names:
            await asyncio.Event().wait()


async def test_an_open_that_hangs_is_bounded() -> None:
    driver = Stuck("open")
    shop = Shop(drivers=[driver], timeout=0.01)
    with pytest.raises(ConnectionLost, match=r"no answer within 0\.01 s"):
        await shop.qc.open()
    assert not driver.connected
    driver.names.clear()
    await shop.qc.open()
    await shop.qc.shutdown()


async def test_a_close_that_hangs_is_bounded() -> None:
    shop = Shop(drivers=[Stuck("close")], timeout=0.01)
    await shop.qc.open()
    await shop.qc.shutdown()
    assert shop.state == "closed"


async def test_a_close_that_hangs_does_not_keep_it_from_reconnecting() -> None:
    driver = Stuck("close")
    shop = Shop(drivers=[driver], timeout=0.01)
    await shop.qc.open()
    await driver.drop()
    assert await shop.publish("m-1") == "m-1"
    driver.names.clear()
    await shop.qc.shutdown()


async def test_many_queues_may_take_their_time_each() -> None:
    """The limit holds for each answer of the broker, not for all of them together."""

    class Steady(FaultyDriver):
        async def declare(self, queue: Queue) -> None:
            await asyncio.sleep(0.05)
            await super().declare(queue)

    driver = Steady(inline=False)
    shop = Shop(drivers=[driver], timeout=0.25)
    for n in range(8):
        shop.qc.worker(f"q-{n}").on("order.#", print)
    await shop.qc.open()
    await driver.drop()
    assert await shop.publish("m-1") == "m-1"
    await shop.qc.shutdown()


BUGS = [RuntimeError("a bug"), OSError("no route"), KeyError(), asyncio.CancelledError()]


@pytest.mark.parametrize("bug", BUGS, ids=repr)
async def test_whatever_a_driver_raises_from_open_is_a_failed_attempt(bug: BaseException) -> None:
    class Buggy(FaultyDriver):
        bugs = 0

        async def open(self) -> None:
            await super().open()
            if self.bugs:
                self.bugs -= 1
                raise bug

    driver = Buggy(inline=False)
    shop = Shop(drivers=[driver])
    driver.bugs = 1
    with pytest.raises(ConnectionLost, match="cannot connect: ") as caught:
        await shop.qc.open()
    assert caught.value.__cause__ is bug
    assert driver.calls["close"] == 1
    await shop.qc.open()
    driver.bugs = 3
    await driver.drop()
    publish = shop.publish("m-1")
    await shop.clock.advance(29)
    assert await publish == "m-1"
    await shop.qc.shutdown()


@pytest.mark.parametrize("bug", [RuntimeError("a bug"), asyncio.CancelledError()], ids=repr)
async def test_whatever_a_driver_raises_from_close_is_overlooked(bug: BaseException) -> None:
    class Buggy(FaultyDriver):
        async def close(self) -> None:
            await super().close()
            raise bug

    driver = Buggy(inline=False)
    shop = Shop(drivers=[driver])
    await shop.qc.open()
    await driver.drop()
    assert await shop.publish("m-1") == "m-1"
    await shop.qc.shutdown()
    assert shop.state == "closed"


class Misplaced(MemoryDriver):
    """One that cannot work where it is, however often it is tried."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0

    async def open(self) -> None:
        self.opened += 1
        raise ConfigError("the file belongs to another program")


async def test_a_mistake_in_the_configuration_is_told_as_such() -> None:
    with pytest.raises(ConfigError, match="belongs to another program"):
        async with QueueCraft(drivers=[Misplaced()]):
            pass


async def test_a_mistake_in_the_configuration_is_not_tried_again() -> None:
    driver = Misplaced()
    qc = QueueCraft(drivers=[driver])
    with pytest.raises(PublishError, match="belongs to another program") as caught:
        await qc.publish("order.placed", {})
    assert caught.value.outcome == "rejected"
    assert driver.opened == 1
    await qc.shutdown()


async def test_what_has_worked_before_is_tried_again_whatever_is_wrong_now() -> None:
    class Removable(FaultyDriver):
        away = 0

        async def open(self) -> None:
            if self.away:
                self.away -= 1
                raise ConfigError("the folder does not exist")
            await super().open()

    driver = Removable(inline=False)
    shop = Shop(drivers=[driver])
    await shop.qc.open()
    driver.away = 3  # unmounted, say
    await driver.drop()
    publish = shop.publish("m-1")
    await shop.clock.advance(29)
    assert await publish == "m-1"
    await shop.qc.shutdown()


async def test_a_worker_without_a_place_to_work_does_not_wait_for_one() -> None:
    qc = QueueCraft(drivers=[Misplaced()])
    worker = qc.worker("billing").on("order.placed", print)
    with pytest.raises(ConfigError, match=r"^the file belongs to another program$"):
        await worker.start()
    await qc.shutdown()


def test_no_drivers_at_all_are_refused() -> None:
    with pytest.raises(ConfigError, match="no driver"):
        QueueCraft(drivers=[])


# -- states and facts ------------------------------------------------------------------------------


async def test_the_states_of_a_life_come_in_order(inline: bool) -> None:
    shop = Shop(inline=inline)
    await shop.qc.open()
    await lose(shop)
    await shop.qc.shutdown()
    assert states(shop.facts) == [
        "disconnected",
        "connecting",
        "connected",
        "reconnecting",
        "connected",
        "closing",
        "closed",
    ]
    assert isinstance(shop.facts[-1], Shutdown)


async def test_a_lost_connection_is_told_in_order(inline: bool) -> None:
    async with Shop(inline=inline) as shop:
        shop.facts.clear()
        shop.driver.refuse(opens=2)
        await lose(shop)
        await shop.clock.advance(10)
        told = [fact for fact in shop.facts if not isinstance(fact, ConnectionStateChanged)]
        assert [type(fact) for fact in told] == [
            Disconnected,
            Reconnecting,
            Reconnecting,
            Reconnected,
        ]
        assert [type(fact) for fact in shop.facts[:2]] == [ConnectionStateChanged, Disconnected]
        assert "the cable is cut" in shop.seen(Disconnected)[0].error
        assert [fact.attempt for fact in shop.seen(Reconnecting)] == [1, 2]
        (back,) = shop.seen(Reconnected)
        assert back.attempt == 3
        assert back.downtime == pytest.approx(sum(f.delay for f in shop.seen(Reconnecting)))


async def test_a_state_that_stays_is_not_told_again(shop: Shop) -> None:
    shop.facts.clear()
    shop.driver.refuse(opens=5)
    await lose(shop)
    assert states(shop.facts) == ["connected", "reconnecting"]


async def test_every_change_of_state_is_a_log_line(
    inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="queuecraft"):
        async with Shop(inline=inline) as shop:
            await lose(shop)
    text = caplog.text
    for change in (
        "disconnected → connecting",
        "connecting → connected",
        "connected → reconnecting: the cable is cut",
        "reconnecting → connected",
        "connected → closing",
        "closing → closed",
    ):
        assert change in text


async def test_a_connection_found_lazily_is_told_the_same_way(inline: bool) -> None:
    shop = Shop(inline=inline, unroutable="drop")
    await shop.publish("m-1")
    assert states(shop.facts) == ["disconnected", "connecting", "connected"]
    await shop.qc.shutdown()


async def test_a_life_without_a_connection_just_ends() -> None:
    shop = Shop()
    await shop.qc.shutdown()
    assert states(shop.facts) == ["disconnected", "closed"]


# -- reconnecting ----------------------------------------------------------------------------------


async def test_the_wait_doubles_up_to_30_seconds_with_jitter(inline: bool) -> None:
    async with Shop(inline=inline) as shop:
        shop.driver.refuse(opens=1_000_000)
        await lose(shop)
        await shop.clock.advance(300)
        delays = [fact.delay for fact in shop.seen(Reconnecting)]
        for delay, longest in zip(delays, [1, 2, 4, 8, 16, 30, 30, 30], strict=False):
            assert longest / 2 <= delay <= longest
        assert len(delays) >= 8
        assert len(set(delays[5:])) > 1


async def test_the_first_wait_is_a_setting(inline: bool) -> None:
    async with Shop(inline=inline, reconnect_delay=5) as shop:
        shop.driver.refuse(opens=1_000_000)
        await lose(shop)
        await shop.clock.advance(100)
        delays = [fact.delay for fact in shop.seen(Reconnecting)]
        for delay, longest in zip(delays, [5, 10, 20, 30], strict=False):
            assert longest / 2 <= delay <= longest


async def test_the_first_attempt_to_reconnect_is_made_at_once(shop: Shop) -> None:
    await lose(shop)
    assert shop.state == "connected"
    assert shop.driver.calls["open"] == 1
    assert not shop.seen(Reconnecting)


async def test_a_new_outage_starts_with_a_short_wait_again(shop: Shop) -> None:
    shop.driver.refuse(opens=6)
    await lose(shop)
    await shop.clock.advance(100)
    assert shop.state == "connected"
    await shop.clock.advance(100)
    shop.facts.clear()
    shop.driver.refuse(opens=1)
    await lose(shop)
    (wait,) = shop.seen(Reconnecting)
    assert wait.delay <= 1


async def test_a_connection_that_breaks_at_once_every_time_is_waited_for(inline: bool) -> None:
    async with Shop(inline=inline) as shop:
        for _ in range(12):
            await lose(shop)
            await shop.clock.advance(0.6)
        assert shop.driver.calls["open"] < 12
        assert shop.seen(Reconnecting)
        await shop.clock.advance(60)
        assert shop.state == "connected"
        shop.facts.clear()
        await lose(shop)
        assert shop.state == "connected"
        assert not shop.seen(Reconnecting)


async def test_hosts_are_walked_without_a_pause_and_waited_for_after_each_round() -> None:
    drivers = hosts(3)
    async with Shop(drivers=drivers) as shop:
        for driver in drivers:
            driver.calls.clear()
            driver.refuse(opens=1_000_000)
        await lose(shop)
        assert [driver.calls["open"] for driver in drivers] == [1, 1, 1]
        await shop.clock.advance(1)
        assert [driver.calls["open"] for driver in drivers] == [2, 2, 2]
        delays = [fact.delay for fact in shop.seen(Reconnecting)]
        assert [delay == 0 for delay in delays] == [True, True, False] * 2
        assert 0.5 <= delays[2] <= 1
        assert 1 <= delays[5] <= 2


async def test_a_host_that_answers_is_kept() -> None:
    drivers = hosts(3)
    async with Shop(drivers=drivers) as shop:
        for driver in drivers[:2]:
            driver.refuse(opens=1_000_000)
        await lose(shop)
        assert [driver.connected for driver in drivers] == [False, False, True]
        await shop.publish("m-1")
        assert [each.id for each in await messages(drivers[2].inner)] == ["m-1"]
        await drivers[2].drop()
        await shop.publish("m-2")
        assert drivers[2].calls["open"] == 2


async def test_what_was_declared_stands_on_the_new_host_too() -> None:
    one, two = hosts(2)
    async with Shop(drivers=[one, two]) as shop:
        await shop.publish("m-1", exchange=Exchange("fan", "fanout"), unroutable="drop")
        one.refuse(opens=1_000_000)
        await lose(shop)
        topology = await two.topology()
        assert Exchange("fan", "fanout") in topology.exchanges
        assert {"billing", "billing.dlq"} <= set(topology.queues)
        assert (Binding(Exchange("events"), "order.#"), "billing") in topology.bindings


async def test_a_queue_that_was_deleted_is_not_made_again() -> None:
    one, two = hosts(2)
    async with Shop(drivers=[one, two]) as shop:
        audit = shop.qc.worker("audit").on("order.#", print)
        await audit.start()
        await audit.stop(timeout=1)
        await shop.qc.admin.delete("billing")
        one.refuse(opens=1_000_000)
        await lose(shop)
        assert set((await two.topology()).queues) == {"audit", "audit.dlq"}


@pytest.mark.parametrize(
    "queue",
    [Queue("mine", auto_delete=True), Queue("mine", exclusive=True)],
    ids=["auto-delete", "exclusive"],
)
async def test_a_queue_that_goes_with_its_worker_is_made_again_only_while_that_works(
    queue: Queue,
) -> None:
    one, two, three = hosts(3)
    async with Shop(drivers=[one, two, three]) as shop:
        mine = shop.qc.worker(queue).on("order.#", print)
        await mine.start()
        one.refuse(opens=1_000_000)
        await lose(shop)
        assert "mine" in (await two.topology()).queues
        await mine.stop(timeout=1)
        two.refuse(opens=1_000_000)
        await two.drop()
        await shop.publish("m-1")
        queues = (await three.topology()).queues
        assert "billing" in queues
        assert "mine" not in queues
        await mine.start()
        assert "mine" in (await three.topology()).queues
        await mine.stop(timeout=1)


async def test_publishes_wait_until_everything_is_declared_again() -> None:
    one, two = hosts(2)
    async with Shop(drivers=[one, two]) as shop:
        one.refuse(opens=1_000_000)
        await one.drop()
        publishes = [shop.publish(f"m-{n}") for n in range(3)]
        assert await asyncio.gather(*publishes) == ["m-0", "m-1", "m-2"]


async def test_a_connection_lost_while_declaring_again_is_a_failed_attempt(shop: Shop) -> None:
    shop.driver.fail("declare", times=2)
    await lose(shop)
    assert shop.state == "reconnecting"
    await shop.clock.advance(10)
    assert shop.state == "connected"
    assert shop.driver.calls["open"] == 3


async def test_a_queue_that_has_changed_meanwhile_keeps_nobody_else_from_connecting(
    inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = hosts(2, inline=inline)
    await two.open()
    await two.declare(Queue("billing", exclusive=True))
    async with Shop(drivers=[one, two]) as shop:
        audit = shop.qc.worker("audit").on("order.#", print)
        await shop.qc.open()
        one.refuse(opens=1_000_000)
        await lose(shop)
        assert shop.state == "connected"
        assert audit.queue_name in (await two.topology()).queues
        assert "exclusive" in caplog.text
        assert await shop.publish("m-1") == "m-1"


async def test_an_exchange_that_has_changed_meanwhile_keeps_nobody_else_from_connecting(
    inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = hosts(2, inline=inline)
    await two.open()
    await two.prepare([Exchange("fan", "direct")])
    async with Shop(drivers=[one, two]) as shop:
        await shop.publish("m-0", exchange=Exchange("fan", "fanout"), unroutable="drop")
        await shop.publish("m-0")
        one.refuse(opens=1_000_000)
        await lose(shop)
        assert "type='direct'" in caplog.text
        assert await shop.publish("m-1") == "m-1"


async def test_an_exchange_made_while_the_connection_moves_stands_where_it_is_now() -> None:
    held = asyncio.Event()

    class Slow(FaultyDriver):
        async def prepare(self, exchanges: Sequence[Exchange]) -> None:
            await super().prepare(exchanges)
            if exchanges[0].name == "fan":
                await held.wait()

    one, two = Slow(inline=False), FaultyDriver(inline=False)
    async with Shop(drivers=[one, two]) as shop:
        publish = shop.publish("m-1", exchange=Exchange("fan", "fanout"), unroutable="drop")
        await shop.clock.settle()
        one.refuse(opens=1_000_000)
        await lose(shop)
        held.set()
        assert await publish == "m-1"
        assert Exchange("fan", "fanout") in (await two.topology()).exchanges


async def test_a_queue_declared_while_the_connection_moves_stands_where_it_is_now() -> None:
    held = asyncio.Event()

    class Slow(FaultyDriver):
        async def declare(self, queue: Queue) -> None:
            await super().declare(queue)
            if queue.name == "audit":
                await held.wait()

    one, two = Slow(inline=False), FaultyDriver(inline=False)
    async with Shop(drivers=[one, two]) as shop:
        audit = shop.qc.worker("audit").on("order.#", print)
        starting = started(audit.start())
        await shop.clock.settle()
        one.refuse(opens=1_000_000)
        await lose(shop)
        held.set()
        await starting
        assert "audit" in (await two.topology()).queues
        await audit.stop(timeout=1)


async def test_an_exchange_that_cannot_be_reached_once_does_not_fail_the_others(
    shop: Shop,
) -> None:
    await shop.publish("m-0")
    shop.driver.fail("prepare")
    publishes = [shop.publish("m-1", exchange="other", unroutable="drop"), shop.publish("m-2")]
    await shop.clock.advance(5)
    assert await asyncio.gather(*publishes) == ["m-1", "m-2"]


async def test_a_report_about_another_host_is_ignored() -> None:
    one, two = hosts(2)
    async with Shop(drivers=[one, two]) as shop:
        shop.facts.clear()
        shop.qc._engine.connection.lost(two, two.lost("not me"))
        await shop.clock.settle()
        assert shop.state == "connected"
        assert not shop.facts


async def test_a_report_from_a_host_left_behind_is_ignored() -> None:
    one, two = hosts(2)
    async with Shop(drivers=[one, two]) as shop:
        one.refuse(opens=1_000_000)
        await lose(shop)
        shop.qc._engine.connection.lost(one, one.lost("an old story"))
        await shop.clock.settle()
        assert two.connected
        assert two.calls["open"] == 1


async def test_many_reports_of_one_loss_are_one_loss(shop: Shop) -> None:
    await shop.driver.drop()
    connection = shop.qc._engine.connection
    for _ in range(10):
        connection.lost(shop.driver, shop.driver.lost("the cable is cut"))
    await shop.clock.settle()
    assert shop.driver.calls["open"] == 1
    assert len(shop.seen(Disconnected)) == 1


async def test_workers_go_on_after_a_reconnect(inline: bool) -> None:
    clock, ledger = FakeClock(), Ledger()
    driver = FaultyDriver(MemoryDriver(clock), inline=inline)
    qc = QueueCraft(drivers=[driver], clock=clock)
    worker = qc.worker("billing").on(order_placed, ledger.recording("billing"))
    async with qc:
        await worker.start()
        await qc.publish(order_placed, Order("1"))
        await clock.settle()
        driver.refuse(opens=3)
        await driver.drop()
        publish = started(qc.publish(order_placed, Order("2")))
        await clock.advance(20)
        await publish
        await clock.settle()
        assert [order.id for order in ledger.payloads()] == ["1", "2"]


# -- giving up -------------------------------------------------------------------------------------


async def test_after_so_many_attempts_reconnecting_is_given_up(inline: bool) -> None:
    async with Shop(inline=inline, reconnect_attempts=3) as shop:
        shop.driver.refuse(opens=1_000_000)
        await lose(shop)
        await shop.clock.advance(300)
        assert shop.driver.calls["open"] == 3
        (failed,) = shop.seen(ReconnectFailed)
        assert failed.attempts == 3
        assert "refuses" in failed.error
        assert states(shop.facts)[-2:] == ["reconnecting", "disconnected"]
        health = shop.qc.health_check()
        assert (health.status, health.connection_state) == ("unhealthy", "disconnected")
        assert "refuses" in str(health.last_error)


async def test_when_it_is_given_up_publishes_are_told_at_once(inline: bool) -> None:
    async with Shop(inline=inline, reconnect_attempts=2) as shop:
        shop.driver.refuse(opens=1_000_000)
        await shop.driver.drop()
        waiting = [shop.publish(f"m-{n}") for n in range(3)]
        await shop.clock.advance(10)
        for publish in waiting:
            with pytest.raises(PublishError, match="gave up after 2 attempts") as caught:
                await publish
            assert caught.value.outcome == "rejected"
        with pytest.raises(PublishError, match="gave up after 2 attempts"):
            await shop.publish("m-4")


async def test_when_it_is_given_up_workers_are_told(inline: bool) -> None:
    async with Shop(inline=inline, reconnect_attempts=2) as shop:
        audit = shop.qc.worker("audit").on("order.#", print)
        await audit.start()
        shop.driver.refuse(opens=1_000_000)
        await lose(shop)
        await shop.clock.advance(40)
        assert "gave up after 2 attempts" in shop.qc.health_check().paused["audit"]
        with pytest.raises(ConnectionLost, match="gave up after 2 attempts"):
            await shop.qc.worker("late").on("order.#", print).start()


async def test_being_told_again_and_again_does_not_pile_up(inline: bool) -> None:
    async with Shop(inline=inline, reconnect_attempts=1) as shop:
        shop.driver.refuse(opens=1_000_000)
        await lose(shop)
        await shop.clock.advance(10)
        errors = [await outcome(shop.publish(f"m-{n}")) for n in range(50)]
        depths: list[int] = []
        for error in errors:
            assert isinstance(error, PublishError)
            assert error.__cause__ is not None
            trace, depth = error.__cause__.__traceback__, 0
            while trace is not None:
                trace, depth = trace.tb_next, depth + 1
            depths.append(depth)
        assert depths[-1] == depths[1]


async def test_a_first_connection_is_given_up_too(inline: bool) -> None:
    shop = Shop(inline=inline, reconnect_attempts=2)
    shop.driver.refuse(opens=1_000_000)
    publish = shop.publish("m-1")
    await shop.clock.advance(10)
    with pytest.raises(PublishError, match="gave up after 2 attempts"):
        await publish
    assert len(shop.seen(ReconnectFailed)) == 1
    await shop.qc.shutdown()


async def test_opening_by_hand_tries_again_after_it_was_given_up(inline: bool) -> None:
    async with Shop(inline=inline, reconnect_attempts=1) as shop:
        shop.driver.refuse(opens=1)
        await lose(shop)
        assert shop.state == "disconnected"
        await shop.qc.open()
        assert shop.state == "connected"
        assert await shop.publish("m-1") == "m-1"


async def test_without_reconnecting_a_loss_is_final(inline: bool) -> None:
    async with Shop(inline=inline, auto_reconnect=False) as shop:
        await lose(shop)
        assert shop.state == "disconnected"
        assert shop.driver.calls["open"] == 0
        assert shop.seen(ReconnectFailed)[0].attempts == 0
        with pytest.raises(PublishError, match=r"not connected: the cable is cut; open\(\)"):
            await shop.publish("m-1")
        await shop.qc.open()
        assert await shop.publish("m-2") == "m-2"


async def test_without_reconnecting_the_lost_connection_is_closed_all_the_same(
    inline: bool,
) -> None:
    async with Shop(inline=inline, auto_reconnect=False) as shop:
        await lose(shop)
        assert shop.driver.calls["close"] == 1


async def test_without_reconnecting_a_first_connection_is_tried_once_each_time(
    inline: bool,
) -> None:
    shop = Shop(inline=inline, auto_reconnect=False, unroutable="drop")
    shop.driver.refuse(opens=2)
    for n in (1, 2):
        with pytest.raises(PublishError, match="refuses"):
            await shop.publish(f"m-{n}")
        assert shop.driver.calls["open"] == n
    assert await shop.publish("m-3") == "m-3"
    await shop.qc.shutdown()


async def test_without_reconnecting_a_worker_is_told(inline: bool) -> None:
    shop = Shop(inline=inline, auto_reconnect=False)
    shop.driver.refuse()
    with pytest.raises(ConnectionLost, match="refuses"):
        await shop.qc.worker("audit").on("order.#", print).start()
    await shop.qc.shutdown()


# -- the end ---------------------------------------------------------------------------------------


async def test_shutdown_closes_the_driver(shop: Shop) -> None:
    await shop.qc.shutdown()
    assert not shop.driver.connected
    assert shop.driver.calls["close"] == 1


async def test_shutdown_while_reconnecting_ends_it(shop: Shop) -> None:
    shop.driver.refuse(opens=1_000_000)
    await lose(shop)
    await shop.qc.shutdown()
    assert states(shop.facts)[-3:] == ["reconnecting", "closing", "closed"]
    opened = shop.driver.calls["open"]
    await shop.clock.advance(300)
    assert shop.driver.calls["open"] == opened


async def test_shutdown_while_a_driver_opens_closes_it() -> None:
    driver = Stuck("open")
    shop = Shop(drivers=[driver])
    publish = shop.publish("m-1")
    await shop.clock.settle()
    assert driver.connected
    await shop.qc.shutdown(timeout=0)
    assert not driver.connected
    with pytest.raises(PublishError, match="shut down"):
        await publish


async def test_shutdown_while_a_lost_connection_is_being_closed_still_closes_it() -> None:
    driver = Stuck("close")
    shop = Shop(drivers=[driver])
    await shop.qc.open()
    connection = shop.qc._engine.connection
    connection.lost(driver, driver.lost("the cable is cut"))
    await shop.clock.settle()
    assert driver.calls["close"] == 1
    driver.names.clear()
    await shop.qc.shutdown()
    assert driver.calls["close"] == 2


async def test_shutdown_twice_is_shutdown_once(shop: Shop) -> None:
    await asyncio.gather(shop.qc.shutdown(), shop.qc.shutdown())
    await shop.qc.shutdown()
    assert shop.driver.calls["close"] == 1
    assert len(shop.seen(Shutdown)) == 1


async def test_what_is_shut_down_cannot_be_opened_again(shop: Shop) -> None:
    await shop.qc.shutdown()
    with pytest.raises(ConnectionLost, match="this QueueCraft is shut down"):
        await shop.qc.open()
    with pytest.raises(ConnectionLost, match="this QueueCraft is shut down"):
        await shop.qc.worker("audit").on("order.#", print).start()
    assert not shop.driver.connected


async def test_a_loss_reported_while_shutting_down_is_ignored(shop: Shop) -> None:
    await shop.qc.shutdown()
    shop.qc._engine.connection.lost(shop.driver, shop.driver.lost("late"))
    await shop.clock.settle()
    assert shop.state == "closed"


async def test_a_worker_started_while_shutting_down_in_an_outage_is_told(inline: bool) -> None:
    async with Shop(inline=inline) as shop:
        shop.driver.refuse(opens=1_000_000)
        await lose(shop)
        starting = started(shop.qc.worker("audit").on("order.#", print).start())
        await shop.clock.settle()
        await shop.qc.shutdown(timeout=0)
        with pytest.raises(ConnectionLost, match="this QueueCraft is shut down"):
            await starting


# -- health ----------------------------------------------------------------------------------------


async def test_health_follows_the_connection(inline: bool) -> None:
    shop = Shop(inline=inline)
    health = shop.qc.health_check()
    assert (health.status, health.connection_state) == ("unhealthy", "disconnected")
    assert (health.last_error, health.disconnected_at, health.last_message_at) == (None,) * 3
    await shop.qc.open()
    health = shop.qc.health_check()
    assert (health.ok, health.connection_state) == (True, "connected")
    await shop.clock.advance(100)
    lost_at = datetime.fromtimestamp(shop.clock.now(), UTC)
    shop.driver.refuse(opens=3)
    await lose(shop)
    health = shop.qc.health_check()
    assert (health.status, health.connection_state) == ("unhealthy", "reconnecting")
    assert health.disconnected_at == lost_at
    assert "refuses" in str(health.last_error)
    await shop.clock.advance(100)
    health = shop.qc.health_check()
    assert (health.ok, health.disconnected_at) == (True, None)
    await shop.qc.shutdown()
    health = shop.qc.health_check()
    assert (health.status, health.connection_state) == ("unhealthy", "closed")


async def test_health_tells_when_a_message_last_went_well(shop: Shop) -> None:
    await shop.clock.advance(5)
    await shop.publish("m-1")
    when = datetime.fromtimestamp(shop.clock.now(), UTC)
    await shop.clock.advance(5)
    assert shop.qc.health_check().last_message_at == when
    with pytest.raises(QueueError):
        await shop.qc.publish("nobody.cares", 1)
    assert shop.qc.health_check().last_message_at == when


async def test_metrics_add_up(inline: bool) -> None:
    clock, ledger = FakeClock(), Ledger()
    driver = FaultyDriver(MemoryDriver(clock), inline=inline)
    qc = QueueCraft(drivers=[driver], clock=clock)
    good = qc.worker("good").on(order_placed, ledger.recording("good"))
    bad = qc.worker("bad").on(order_placed, ledger.failing("bad", times=None))
    async with qc:
        await good.start()
        await bad.start()
        await qc.publish_many(order_placed, [Order("1"), Order("2")])
        await clock.advance(60)
        metrics = qc.get_metrics()
        assert metrics.messages_sent == 2
        assert metrics.messages_received == 2 + 8
        assert metrics.messages_succeeded == 2
        assert metrics.messages_failed == 8
        assert metrics.messages_retried == 6
        assert metrics.messages_dead_lettered == 2
        assert metrics.in_flight == 0
        assert set(metrics.queues) == {"good", "bad"}
        assert metrics.queues["good"].messages_failed == 0
        assert metrics.queues["bad"].messages_failed == 8
        assert metrics.handler_seconds_max <= metrics.handler_seconds_total


# -- secrets ---------------------------------------------------------------------------------------


async def test_a_password_in_the_url_shows_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    from queuecraft.drivers.registry import Drivers

    driver = FaultyDriver(inline=False)
    driver.refuse(opens=2)
    drivers = Drivers()
    drivers.add("faulty", lambda target: [driver])
    with caplog.at_level(logging.DEBUG):
        qc = QueueCraft("faulty://user:s3cret@host", drivers=drivers)
        with pytest.raises(ConnectionLost) as caught:
            await qc.open()
        shown: list[Any] = [repr(qc), repr(qc.settings), str(qc.settings), qc.health_check()]
        shown += [str(caught.value), repr(caught.value), caplog.text]
        await qc.shutdown()
    assert not [text for text in shown if "s3cret" in str(text)]


async def test_a_mismatch_while_opening_is_raised_as_it_is(inline: bool) -> None:
    driver = FaultyDriver(inline=inline)
    await driver.open()
    await driver.declare(Queue("billing", exclusive=True))
    shop = Shop(drivers=[driver])
    with pytest.raises(TopologyMismatch, match="exclusive"):
        await shop.qc.open()
    await shop.qc.shutdown()
