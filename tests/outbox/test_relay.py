"""From a table to the broker: what is committed arrives, in order, and nothing else does."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    ConnectionLost,
    Event,
    Exchange,
    NoRetry,
    QueueCraft,
    QueueError,
    Retry,
)
from queuecraft.drivers.base import Outgoing, Receipt, Unknown
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.outbox import Outbox, lease
from queuecraft.outbox.database import Database
from queuecraft.outbox.relay import Relay
from queuecraft.outbox.table import OutboxTable
from queuecraft.testing.failpoints import failing
from tests.features.life import until
from tests.outbox.conftest import connected

SOON = Retry(max_retries=2, initial_delay=0.02)
PATIENT = Retry(max_retries=1000, initial_delay=0.02, factor=1)


@dataclass
class Order:
    id: str
    customer: str = ""


order_placed = Event("order.placed", Order, key=lambda order: order.customer)
number = Event("number", int)
outbox = Outbox()


@pytest.fixture
async def qc():
    async with QueueCraft() as made:
        await made.admin.declare("billing", "order.placed", "number")
        yield made


async def found(qc: QueueCraft, queue: str = "billing") -> list[Any]:
    return [each.payload for each in await qc.admin.peek(queue, limit=5000)]


def commit(database: str, event: Event[Any] | str, *payloads: Any, **options: Any) -> list[str]:
    with connected(database) as shop:
        ids = [outbox.publish(shop, event, payload, **options) for payload in payloads]
        shop.commit()
    return ids


def waiting(database: str) -> int:
    with connected(database) as shop:
        return outbox.waiting(shop)


# -- a transaction ---------------------------------------------------------------------------------


async def test_what_is_committed_is_published_and_gone_from_the_table(
    database: str, qc: QueueCraft
) -> None:
    with connected(database) as shop:
        shop.cursor().execute("INSERT INTO orders VALUES ('o-1')")
        id = outbox.publish(shop, order_placed, Order("o-1", "c-1"), headers={"tenant": "t1"})
        shop.commit()
    assert waiting(database) == 1

    await outbox.relay(qc, database, once=True)

    (peeked,) = await qc.admin.peek("billing")
    assert (peeked.id, peeked.payload["id"], peeked.headers["tenant"]) == (id, "o-1", "t1")
    assert waiting(database) == 0
    assert qc.get_metrics().messages_sent == 1


async def test_what_is_rolled_back_is_not_published(database: str, qc: QueueCraft) -> None:
    with connected(database) as shop:
        shop.cursor().execute("INSERT INTO orders VALUES ('o-1')")
        outbox.publish(shop, order_placed, Order("o-1"))
        shop.rollback()

    await outbox.relay(qc, database, once=True)

    assert await found(qc) == []


async def test_a_message_is_as_if_it_had_been_published_at_once(
    database: str, qc: QueueCraft
) -> None:
    options: Any = {"correlation_id": "c-1", "headers": {"n": 1}, "delay": 0.0, "priority": 3}
    await qc.publish(order_placed, Order("o-1", "c-7"), **options)
    commit(database, order_placed, Order("o-1", "c-7"), **options)
    with connected(database) as shop:
        outbox.send(shop, "billing", {"id": "o-2"}, message_id="m-2")
        shop.commit()

    await outbox.relay(qc, database, once=True)

    direct, relayed, sent = await qc.admin.peek("billing")
    for name in ("payload", "headers", "routing_key", "key", "correlation_id", "content_type"):
        if hasattr(direct, name):
            assert getattr(relayed, name) == getattr(direct, name), name
    assert (sent.id, sent.payload) == ("m-2", {"id": "o-2"})


async def test_a_delay_counts_from_the_transaction_and_what_has_expired_is_dropped(
    database: str, qc: QueueCraft
) -> None:
    commit(database, number, 1, delay=60)
    commit(database, number, 2, ttl=0.001)
    await asyncio.sleep(0.005)

    await outbox.relay(qc, database, once=True)

    state = await qc.admin.inspect("billing")
    assert (state.ready, state.delayed) == (0, 1)
    assert waiting(database) == 0


# -- order -----------------------------------------------------------------------------------------


async def test_messages_of_a_key_keep_their_order(database: str, qc: QueueCraft) -> None:
    orders = [Order(str(at), f"c-{at % 7}") for at in range(1200)]  # more than one batch
    commit(database, order_placed, *orders)

    await outbox.relay(qc, database, once=True)

    by_customer: dict[str, list[int]] = {}
    for order in await found(qc):
        by_customer.setdefault(order["customer"], []).append(int(order["id"]))
    assert sum(map(len, by_customer.values())) == 1200
    assert all(ids == sorted(ids) for ids in by_customer.values())


async def test_the_next_of_a_key_flies_when_the_one_before_is_confirmed(
    database: str, qc: QueueCraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights: list[list[str]] = []
    doubtful = ["o-2"]
    send = MemoryDriver.send

    async def sending(
        self: MemoryDriver, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        flights.append([message.id for message in messages])
        receipts = list(await send(self, messages, atomic=atomic))
        for at, message in enumerate(messages):
            if message.id in doubtful:
                doubtful.remove(message.id)
                receipts[at] = Unknown(QueueError("no answer"))
        return receipts

    monkeypatch.setattr(MemoryDriver, "send", sending)
    with connected(database) as shop:
        for id, key in (("o-1", "a"), ("o-2", "a"), ("o-3", "a"), ("p-1", "b"), ("q-1", None)):
            options: Any = {"key": key} if key else {}
            outbox.publish(shop, "number", 1, message_id=id, **options)
        shop.commit()

    await outbox.relay(qc, database, once=True)

    assert flights == [["o-1", "p-1", "q-1"], ["o-2"], ["o-2"], ["o-3"]]


async def test_a_refused_message_holds_back_its_key_alone(database: str, qc: QueueCraft) -> None:
    commit(database, "order.lost", 1, key="a")
    commit(database, number, 2, key="a")
    commit(database, number, 3, key="b")
    commit(database, "order.lost", 4)
    commit(database, number, 5)

    async with outbox.relaying(qc, database, retry=PATIENT):
        await until(lambda: waiting(database) == 3)
        assert sorted(await found(qc)) == [3, 5]

        await qc.admin.bind("billing", "order.lost")
        await until(lambda: waiting(database) == 0)

    payloads = await found(qc)
    assert sorted(payloads) == [1, 2, 3, 4, 5]
    assert payloads.index(1) < payloads.index(2)


async def test_what_was_held_back_and_is_gone_is_forgotten(database: str, qc: QueueCraft) -> None:
    engine, source = qc._engine, Database.of(database)
    relay = Relay(engine, source, OutboxTable(), poll=0.01, retry=SOON)
    commit(database, "order.lost", 1, key="a")
    assert await relay._round()
    assert list(relay._held) == ["a"]

    with connected(database) as shop:
        shop.cursor().execute("DELETE FROM queuecraft_outbox")
        shop.commit()
    await asyncio.sleep(relay._held["a"].until - engine.clock.monotonic())
    assert not await relay._round()

    assert not relay._held
    await source.close()


async def test_a_driver_that_fails_in_a_way_of_its_own_is_tried_again(
    database: str, qc: QueueCraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(database, number, 1)
    send = MemoryDriver.send
    failures = [ValueError("a mistake")]

    async def sending(
        self: MemoryDriver, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        if failures:
            raise failures.pop()
        return await send(self, messages, atomic=atomic)

    monkeypatch.setattr(MemoryDriver, "send", sending)

    await outbox.relay(qc, database, once=True)

    assert await found(qc) == [1]


# -- what is refused -------------------------------------------------------------------------------


async def test_what_is_refused_for_good_is_kept_aside_and_told(
    database: str, qc: QueueCraft, caplog: pytest.LogCaptureFixture
) -> None:
    (lost,) = commit(database, "order.lost", 1, key="a")
    commit(database, number, 2, key="a")

    with caplog.at_level(logging.WARNING):
        await outbox.relay(qc, database, once=True, retry=SOON)

    assert await found(qc) == [2]
    assert f"message {lost} is kept aside" in caplog.text
    with connected(database) as shop:
        (refused,) = outbox.refused(shop)
        assert (refused.id, refused.target, refused.key) == (lost, "order.lost", "a")
        assert "no queue is bound" in refused.error

        await qc.admin.bind("billing", "order.lost")
        assert outbox.put_back(shop, ["another"]) == 0
        assert outbox.put_back(shop, [lost]) == 1
        shop.commit()
        await outbox.relay(qc, database, once=True)
        assert await found(qc) == [2, 1]


async def test_what_was_kept_aside_may_be_discarded(database: str, qc: QueueCraft) -> None:
    commit(database, "order.lost", 1, 2, 3)
    await outbox.relay(qc, database, once=True, retry=NoRetry())

    with connected(database) as shop:
        assert len(outbox.refused(shop)) == 3
        assert outbox.discard(shop, [outbox.refused(shop)[0].id]) == 1
        assert outbox.discard(shop) == 2
        shop.commit()
        assert outbox.refused(shop) == []


async def test_an_event_nobody_wants_is_dropped_if_that_was_allowed(
    database: str, qc: QueueCraft
) -> None:
    commit(database, "order.lost", 1, unroutable="drop")

    await outbox.relay(qc, database, once=True)

    assert waiting(database) == 0
    with connected(database) as shop:
        assert outbox.refused(shop) == []


async def test_a_row_that_nobody_can_read_does_no_harm(database: str, qc: QueueCraft) -> None:
    commit(database, number, 1, 2)
    with connected(database) as shop:
        shop.cursor().execute("UPDATE queuecraft_outbox SET message = 'x' WHERE position = 1")
        shop.commit()

    await outbox.relay(qc, database, once=True)

    assert await found(qc) == [2]
    with connected(database) as shop:
        assert [each.error for each in outbox.refused(shop)] == ["the row cannot be read"]


async def test_what_this_broker_can_never_take_is_kept_aside_at_once(
    database: str, qc: QueueCraft
) -> None:
    connection = qc._engine.connection
    kinds: frozenset[Any] = frozenset({"topic"})
    connection.traits = replace(connection.traits, priority=False, exchange_types=kinds)
    commit(database, number, 1, priority=5)
    commit(database, number, 2, exchange=Exchange("loud", "fanout"))
    commit(database, number, 3)

    await outbox.relay(qc, database, once=True)

    assert await found(qc) == [3]
    with connected(database) as shop:
        errors = [each.error for each in outbox.refused(shop)]
    assert errors == ["this broker has no priorities", "this broker has no fanout exchanges"]


async def test_an_exchange_that_cannot_be_made_fails_its_messages_alone(
    database: str, qc: QueueCraft
) -> None:
    await qc.admin.declare_exchange(Exchange("loud", "topic"))
    commit(database, number, 1, 2, exchange=Exchange("loud", "fanout"))
    commit(database, number, 3)

    await outbox.relay(qc, database, once=True, retry=NoRetry())

    assert await found(qc) == [3]
    with connected(database) as shop:
        assert len(outbox.refused(shop)) == 2


async def test_an_exchange_that_the_driver_fails_at_is_kept_aside_with_its_messages_alone(
    database: str, qc: QueueCraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = MemoryDriver.prepare

    async def preparing(self: MemoryDriver, exchanges: Sequence[Exchange]) -> None:
        if any(each.arguments for each in exchanges):
            raise OverflowError("int too big to convert")
        await prepare(self, exchanges)

    monkeypatch.setattr(MemoryDriver, "prepare", preparing)
    commit(database, number, 1, 2, exchange=Exchange("odd", arguments={"x": 2**63}))
    commit(database, number, 3)

    async with asyncio.timeout(10):
        await outbox.relay(qc, database, once=True)

    assert await found(qc) == [3]
    with connected(database) as shop:
        first, second = (each.error for each in outbox.refused(shop))
    assert first == second
    assert "exchange 'odd' cannot be made: OverflowError" in first


async def test_a_message_that_the_driver_fails_at_holds_back_its_key_alone(
    database: str, qc: QueueCraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = MemoryDriver.send

    async def sending(
        self: MemoryDriver, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        if any(message.id == bad for message in messages):
            raise OverflowError("int too big to convert")
        return await send(self, messages, atomic=atomic)

    monkeypatch.setattr(MemoryDriver, "send", sending)
    (bad,) = commit(database, number, 1, key="a")
    commit(database, number, 2, key="a")
    commit(database, number, 3, 4)

    async with asyncio.timeout(10):
        await outbox.relay(qc, database, once=True, retry=SOON)

    assert await found(qc) == [3, 4, 2]
    with connected(database) as shop:
        (refused,) = outbox.refused(shop)
    assert refused.id == bad
    assert "OverflowError" in refused.error


async def test_a_relay_does_not_give_up_when_the_connection_does(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [ConnectionLost("no answer")] * 3
    opening = MemoryDriver.open

    async def failing_to_open(self: MemoryDriver) -> None:
        if failures:
            raise failures.pop()
        await opening(self)

    monkeypatch.setattr(MemoryDriver, "open", failing_to_open)
    commit(database, number, 1, unroutable="drop")
    qc = QueueCraft(reconnect_attempts=1)

    await outbox.relay(qc, database, once=True)

    await qc.shutdown()
    assert not failures
    assert waiting(database) == 0
    assert "gave up after one attempt" in caplog.text


async def test_no_text_of_a_message_reaches_the_log_as_it_is(
    database: str, qc: QueueCraft, caplog: pytest.LogCaptureFixture
) -> None:
    commit(database, "order.lost", 1, message_id="red\x1b[31m\n")

    await outbox.relay(qc, database, once=True, retry=NoRetry())

    told = [record.getMessage() for record in caplog.records if "outbox" in record.getMessage()]
    assert any("kept aside" in each for each in told)
    assert all(each.isprintable() for each in told)


# -- trouble ---------------------------------------------------------------------------------------


async def test_when_the_database_fails_after_a_publish_it_is_not_repeated(
    database: str, qc: QueueCraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(database, number, *range(5))

    with failing("outbox.before_commit", OSError("the disk is full"), times=2) as passes:
        await outbox.relay(qc, database, once=True)

    assert passes.count == 3
    assert sorted(await found(qc)) == list(range(5))


async def test_a_lost_database_is_connected_to_again(postgres_url: str, qc: QueueCraft) -> None:
    with connected(postgres_url) as shop:
        outbox.create(shop)
        shop.commit()
        async with outbox.relaying(qc, postgres_url, poll=0.01):
            for each in range(5):
                commit(postgres_url, number, each)
                await until(lambda: waiting(postgres_url) == 0)
                shop.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'queuecraft outbox'"
                )
                shop.commit()

    assert sorted(await found(qc)) == list(range(5))


async def test_large_messages_are_read_a_few_at_a_time(
    database: str, qc: QueueCraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    read = OutboxTable.read

    def reading(self: OutboxTable, *arguments: Any) -> Any:
        rows = read(self, *arguments)
        sizes.append(len(rows))
        return rows

    monkeypatch.setattr(OutboxTable, "read", reading)
    await qc.admin.bind("billing", "large")
    commit(database, "large", *["x" * 200_000] * 80)

    await outbox.relay(qc, database, once=True)

    assert sizes[1] == 32  # before it was a look whether the table is there
    assert 8 <= max(sizes[2:]) <= 20  # within four megabytes
    assert (await qc.admin.inspect("billing")).ready == 80


async def test_a_lost_connection_is_waited_for(
    database: str, qc: QueueCraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(database, number, *range(5))
    send = MemoryDriver.send
    failures = [ConnectionLost("cut"), ConnectionLost("cut again")]

    async def sending(
        self: MemoryDriver, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        if failures:
            raise failures.pop()
        return await send(self, messages, atomic=atomic)

    monkeypatch.setattr(MemoryDriver, "send", sending)
    monkeypatch.setattr(MemoryDriver, "close", MemoryDriver.open)  # so that the queue stays

    await outbox.relay(qc, database, once=True)

    assert not failures
    assert waiting(database) == 0


async def test_a_relay_ends_with_its_queuecraft(database: str) -> None:
    qc = QueueCraft()
    await qc.open()
    relay = asyncio.create_task(outbox.relay(qc, database, poll=0.01))
    await qc.shutdown()
    commit(database, number, 1)

    with pytest.raises(ConnectionLost, match="shut down"):
        await relay

    assert waiting(database) == 1


async def test_missing_tables_are_told_at_once(qc: QueueCraft, database: str) -> None:
    with pytest.raises(QueueError, match=r"'other' cannot be read.*queuecraft outbox create"):
        await Outbox(table="other").relay(qc, database)


async def test_a_wrong_database_is_told_at_once(qc: QueueCraft, tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="postgresql://host/shop"):
        await outbox.relay(qc, "mysql://user:s3cret@host/shop")
    with pytest.raises(ConfigError, match=r"no database '.*/nowhere.db'; an outbox is kept in"):
        await outbox.relay(qc, f"sqlite:///{tmp_path}/nowhere.db")
    with pytest.raises(ConfigError, match=r"no database '.*/gone/shop.db', nor its folder"):
        await outbox.relay(qc, f"sqlite:///{tmp_path}/gone/shop.db")
    with pytest.raises(ConfigError, match="in memory"):
        await outbox.relay(qc, "sqlite://")
    with pytest.raises(ConfigError, match="a function"):
        await outbox.relay(qc, 5)


async def test_a_cancelled_relay_writes_down_what_it_has_published(
    database: str, qc: QueueCraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(database, number, 1)
    sent, go_on = asyncio.Event(), asyncio.Event()
    send = MemoryDriver.send

    async def sending(
        self: MemoryDriver, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        receipts = await send(self, messages, atomic=atomic)
        sent.set()
        await go_on.wait()
        return receipts

    monkeypatch.setattr(MemoryDriver, "send", sending)
    relay = asyncio.create_task(outbox.relay(qc, database))
    await sent.wait()
    relay.cancel()
    go_on.set()
    with suppress(asyncio.CancelledError):
        await relay

    assert waiting(database) == 0


# -- several relays --------------------------------------------------------------------------------


async def test_of_several_relays_one_is_at_work_and_another_takes_over(
    database: str, qc: QueueCraft
) -> None:
    ids: list[str] = []
    relays = [asyncio.create_task(outbox.relay(qc, database, poll=0.01)) for _ in range(3)]
    try:
        while relays:
            for _ in range(5):
                ids += commit(database, number, *range(10))
                await asyncio.sleep(0)
            if len(relays) > 1:
                relays.pop().cancel()  # whether it is at work or stands by
            await until(lambda: waiting(database) == 0)
            if len(relays) == 1:
                break
    finally:
        for relay in relays:
            relay.cancel()
        await asyncio.wait(relays)

    counts = Counter(each.id for each in await qc.admin.peek("billing", limit=5000))
    assert counts == Counter(ids)  # none missing, none twice


async def test_a_relay_that_is_stopped_as_it_begins_leaves_the_work_to_others(
    database: str, qc: QueueCraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = lease.Lease._take
    stop: list[Callable[[], object]] = []

    def taking(self: lease.Lease, *arguments: Any) -> Any:
        found = take(self, *arguments)
        if stop:
            stop.pop()()
        return found

    monkeypatch.setattr(lease.Lease, "_take", taking)
    loop = asyncio.get_running_loop()
    first = asyncio.create_task(outbox.relay(qc, database))
    stop.append(lambda: loop.call_soon_threadsafe(first.cancel))
    with suppress(asyncio.CancelledError):
        await first

    with connected(database) as shop:
        cursor = shop.cursor()
        cursor.execute("SELECT owner FROM queuecraft_outbox_relay")
        assert cursor.fetchall() == [("",)]


async def test_a_relay_that_stops_giving_signs_of_life_is_replaced(
    database: str, qc: QueueCraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LENGTH", 0.3)
    with connected(database) as shop:
        cursor = shop.cursor()
        cursor.execute("INSERT INTO queuecraft_outbox_relay VALUES ('relay', 'somebody dead', 7)")
        shop.commit()
    commit(database, number, 1)

    await outbox.relay(qc, database, once=True)

    assert await found(qc) == [1]
