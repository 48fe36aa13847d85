"""What an operator sees and makes: queues, exchanges, bindings, messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from queuecraft import (
    Admin,
    ConfigError,
    ConnectionLost,
    Exchange,
    NoDeadLetter,
    Policy,
    Queue,
    QueueCraft,
    TopologyMismatch,
    UnknownQueue,
    Unroutable,
    UnsupportedFeature,
)
from queuecraft.drivers.base import Outgoing
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.testing import FaultyDriver
from tests.runtime.support import Stage, declared, staged


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


async def bindings(admin: Admin, queue: str) -> list[tuple[str, str]]:
    told = await admin.topology()
    return [(each.exchange.name, each.pattern) for each, name in told.bindings if name == queue]


# -- seeing ----------------------------------------------------------------------------------


async def test_queues_are_listed_by_name(stage: Stage) -> None:
    await declared(stage.driver, "b", "c", "a")
    assert [info.name for info in await stage.qc.admin.queues()] == ["a", "b", "c"]


async def test_one_queue_is_inspected(stage: Stage) -> None:
    await declared(stage.driver, "billing")
    await stage.qc.send("billing", {"id": "o-1"})
    info = await stage.qc.admin.inspect("billing")
    assert (info.name, info.ready, info.in_flight, info.consumers) == ("billing", 1, 0, 0)


ASKING: list[tuple[str, Callable[[Admin], Awaitable[Any]]]] = [
    ("inspect", lambda admin: admin.inspect("biling")),
    ("peek", lambda admin: admin.peek("biling")),
    ("purge", lambda admin: admin.purge("biling")),
    ("delete", lambda admin: admin.delete("biling")),
    ("bind", lambda admin: admin.bind("biling", "order.placed")),
    ("unbind", lambda admin: admin.unbind("biling", "order.placed")),
    ("move", lambda admin: admin.move("biling", "billing")),
    ("move", lambda admin: admin.move("billing", "biling")),
]


@pytest.mark.parametrize(("operation", "ask"), ASKING)
async def test_a_queue_that_does_not_exist_is_named_with_those_that_may_be_meant(
    stage: Stage, operation: str, ask: Callable[[Admin], Awaitable[Any]]
) -> None:
    await declared(stage.driver, "billing", "audit")
    with pytest.raises(
        UnknownQueue, match=r"there is no queue 'biling'; did you mean 'billing'\?"
    ) as at:
        await ask(stage.qc.admin)
    assert (at.value.queue, at.value.operation, at.value.broker) == ("biling", operation, "local")


async def test_where_nothing_is_like_it_the_queues_there_are_are_told_up_to_a_bound(
    stage: Stage,
) -> None:
    await declared(stage.driver, *(f"queue-{number:02}" for number in range(30)))
    with pytest.raises(UnknownQueue, match=r"there are 'queue-00', .*'queue-09' and 20 more"):
        await stage.qc.admin.inspect("zzz")


async def test_a_broker_without_queues_says_how_they_come_about(stage: Stage) -> None:
    with pytest.raises(UnknownQueue, match="none yet"):
        await stage.qc.admin.inspect("billing")


async def test_the_topology_is_what_the_broker_tells(stage: Stage) -> None:
    stage.qc.worker("billing").on("order.placed", print)
    await stage.qc.open()
    told = await stage.qc.admin.topology()
    assert set(told.queues) == {"billing", "billing.dlq"}
    assert {each.name for each in told.exchanges} == {"events", "events.dlx"}


# -- peeking ---------------------------------------------------------------------------------


async def test_a_peeked_message_tells_everything_a_person_asks(stage: Stage) -> None:
    await declared(stage.driver, "billing")
    await stage.driver.send(
        [
            Outgoing(
                b'{"id":"o-1"}',
                "m-1",
                routing_key="order.placed",
                timestamp=1_700_000_000.0,
                content_type="application/json",
                key="k",
                queue="billing",
                headers={"tenant": "t1", "x-retry-count": 2},
                expires_at=1_900_000_000.0,
                priority=3,
                correlation_id="c-1",
            )
        ]
    )
    (message,) = await stage.qc.admin.peek("billing")
    assert (message.id, message.queue, message.routing_key) == ("m-1", "billing", "order.placed")
    assert message.headers == {"tenant": "t1", "x-retry-count": 2}
    assert message.published_at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert message.expires_at == datetime.fromtimestamp(1_900_000_000, UTC)
    assert message.due_at is None
    assert (message.attempt, message.redeliveries, message.priority) == (3, 0, 3)
    assert (message.key, message.correlation_id) == ("k", "c-1")
    assert (message.body, message.size) == (b'{"id":"o-1"}', 12)
    assert message.payload == {"id": "o-1"}
    assert message.unreadable is None


@pytest.mark.parametrize(
    ("body", "content_type", "encoding"),
    [
        (b"\xff\xfe", "application/json", None),
        (b"{", None, None),
        (b"[" * 100_000, "application/json", None),
        (b"hello", "text/x-strange", None),
        (b"{}", "application/json", "br"),
        (b"not gzip", "application/json", "gzip"),
    ],
)
async def test_a_body_that_cannot_be_read_is_shown_as_it_is_and_why(
    stage: Stage, body: bytes, content_type: str | None, encoding: str | None
) -> None:
    await declared(stage.driver, "billing")
    odd = Outgoing(
        body, "m-1", content_type=content_type, content_encoding=encoding, queue="billing"
    )
    await stage.driver.send([odd])
    (message,) = await stage.qc.admin.peek("billing")
    assert message.body == body
    assert message.payload is None
    assert message.unreadable


async def test_times_that_no_calendar_has_are_left_empty(stage: Stage) -> None:
    await declared(stage.driver, "billing")
    odd = Outgoing(b"1", "m-1", timestamp=1e300, expires_at=float("inf"), queue="billing")
    await stage.driver.send([odd])
    (message,) = await stage.qc.admin.peek("billing")
    assert (message.published_at, message.expires_at) == (None, None)


async def test_peeking_is_limited_and_takes_nothing(stage: Stage) -> None:
    await declared(stage.driver, "billing")
    sent = [await stage.qc.send("billing", number) for number in range(12)]
    for _ in range(2):
        assert [each.id for each in await stage.qc.admin.peek("billing")] == sent[:10]
    assert [each.id for each in await stage.qc.admin.peek("billing", 2)] == sent[:2]
    for wrong in (0, -1):
        with pytest.raises(ConfigError, match="limit"):
            await stage.qc.admin.peek("billing", wrong)


@pytest.fixture
async def marking() -> AsyncIterator[QueueCraft]:
    """A broker where peeking leaves its mark, with a queue that is consumed and one that is not."""
    driver = FaultyDriver(MemoryDriver())
    vars(driver)["traits"] = replace(driver.traits, peek="marks")
    async with QueueCraft(drivers=[driver]) as qc:
        await declared(driver, "busy", "idle", "busy.dlq")
        for name in ("busy", "busy.dlq"):
            await driver.subscribe(Queue(name), prefetch=1)
        yield qc


async def test_peeking_that_marks_is_refused_where_somebody_consumes(marking: QueueCraft) -> None:
    with pytest.raises(UnsupportedFeature, match=r"marks .* force it"):
        await marking.admin.peek("busy")
    await marking.send("busy", 1)
    with pytest.raises(UnsupportedFeature):
        await marking.admin.move("busy", "idle", dry_run=True)
    await marking.admin.peek("busy", force=True)
    await marking.admin.peek("idle")


async def test_peeking_at_dead_letters_is_never_refused(marking: QueueCraft) -> None:
    assert await marking.admin.peek("busy.dlq") == []


# -- making ----------------------------------------------------------------------------------


async def test_a_queue_is_declared_as_its_worker_would(stage: Stage) -> None:
    await stage.qc.admin.declare("billing", "order.*")
    before = await stage.qc.admin.topology()
    billing = stage.qc.worker("billing")
    billing.on("order.*", print)
    await stage.driver.declare(billing.definition)
    assert await stage.qc.admin.topology() == before
    assert set(before.queues) == {"billing", "billing.dlq"}


async def test_declaring_again_only_adds(stage: Stage) -> None:
    for event in ("order.placed", "order.paid", "order.placed"):
        await stage.qc.admin.declare("billing", event)
    assert await bindings(stage.qc.admin, "billing") == [
        ("events", "order.placed"),
        ("events", "order.paid"),
    ]


async def test_a_queue_may_be_declared_without_dead_letters(stage: Stage) -> None:
    await stage.qc.admin.declare("plain", dead_letters=False)
    await stage.qc.admin.declare(Queue("told", policy=Policy(dead_letter=NoDeadLetter())))
    await stage.qc.admin.declare("kept.dlq")  # dead letters have none of their own
    names = [info.name for info in await stage.qc.admin.queues()]
    assert names == ["kept.dlq", "plain", "told"]


async def test_properties_of_a_queue_are_kept(stage: Stage) -> None:
    await stage.qc.admin.declare(Queue("urgent", max_priority=5))
    with pytest.raises(TopologyMismatch):
        await stage.qc.admin.declare(Queue("urgent", max_priority=9))


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 300])
async def test_a_name_no_broker_takes_is_refused(stage: Stage, name: str) -> None:
    with pytest.raises(ConfigError):
        await stage.qc.admin.declare(name)
    with pytest.raises(ConfigError):
        await stage.qc.admin.declare("billing", name)
    assert await stage.qc.admin.queues() == []


async def test_a_broker_that_keeps_nothing_cannot_set_a_queue_back(stage: Stage) -> None:
    await stage.qc.admin.declare("billing")
    with pytest.raises(UnsupportedFeature, match=r"local keeps nothing.*lake replay"):
        await stage.qc.admin.rewind("billing", datetime.now(UTC))
    with pytest.raises(ConfigError, match="time zone"):
        await stage.qc.admin.rewind("billing", datetime(2030, 1, 1))  # noqa: DTZ001


async def test_virtual_hosts_are_refused_where_there_are_none(stage: Stage) -> None:
    with pytest.raises(UnsupportedFeature, match="local has no virtual hosts; give each tenant"):
        await stage.qc.admin.virtual_hosts()
    with pytest.raises(UnsupportedFeature):
        await stage.qc.admin.make_virtual_host("shop")
    with pytest.raises(ConfigError, match="a virtual host needs a name"):
        await stage.qc.admin.make_virtual_host("")


async def test_a_deleted_queue_does_not_come_back_with_the_next_connection(stage: Stage) -> None:
    await stage.qc.admin.declare("scratch", dead_letters=False)
    await stage.qc.admin.delete("scratch")
    await stage.driver.drop()
    with pytest.raises(ConnectionLost):
        await stage.qc.admin.queues()
    await stage.clock.advance(40)
    assert await stage.qc.admin.queues() == []


async def test_binding_and_unbinding_decide_what_arrives(stage: Stage) -> None:
    admin = stage.qc.admin
    await admin.declare("audit")
    await admin.bind("audit", "order.*", "user.created")
    await stage.qc.publish("order.placed", 1)
    await stage.qc.publish("user.created", 2)
    await admin.unbind("audit", "user.created", "never.bound")
    with pytest.raises(Unroutable):
        await stage.qc.publish("user.created", 3)
    assert [each.payload for each in await admin.peek("audit")] == [1, 2]


async def test_an_exchange_named_is_taken_as_it_exists(stage: Stage) -> None:
    admin = stage.qc.admin
    await admin.declare_exchange(Exchange("news", "fanout"))
    await admin.declare("everyone")
    await admin.bind("everyone", exchange="news")
    await stage.qc.publish("whatever", 1, exchange=Exchange("news", "fanout"))
    assert [each.payload for each in await admin.peek("everyone")] == [1]
    await admin.unbind("everyone", exchange="news")
    assert await bindings(admin, "everyone") == []


async def test_a_new_exchange_is_of_the_type_that_is_set(stage: Stage) -> None:
    await stage.qc.admin.declare_exchange("extra")
    await stage.qc.admin.declare("audit", "a.*", exchange="other")
    types = {each.name: each.type for each in (await stage.qc.admin.topology()).exchanges}
    assert (types["extra"], types["other"]) == ("topic", "topic")


async def test_headers_are_wanted_of_a_headers_exchange_only(stage: Stage) -> None:
    admin = stage.qc.admin
    reports = Exchange("reports", "headers")
    await admin.declare("pdf")
    await admin.bind("pdf", exchange=reports, headers={"format": "pdf"})
    await stage.qc.publish("r", 1, exchange=reports, headers={"format": "pdf"})
    with pytest.raises(Unroutable):
        await stage.qc.publish("r", 2, exchange=reports, headers={"format": "text"})
    with pytest.raises(ConfigError, match="headers exchange"):
        await admin.bind("pdf", "order.*", headers={"format": "pdf"})


async def test_a_binding_to_nothing_is_refused(stage: Stage) -> None:
    await stage.qc.admin.declare("audit")
    with pytest.raises(ConfigError, match="which events"):
        await stage.qc.admin.bind("audit")


async def test_a_type_of_exchange_the_broker_lacks_is_refused_before_anything_is_made() -> None:
    driver = FaultyDriver(MemoryDriver())
    vars(driver)["traits"] = replace(driver.traits, exchange_types=frozenset({"topic"}))
    async with QueueCraft(drivers=[driver]) as qc:
        with pytest.raises(UnsupportedFeature, match="no fanout exchanges"):
            await qc.admin.declare_exchange(Exchange("news", "fanout"))
        assert driver.calls["prepare"] == 0


# -- removing --------------------------------------------------------------------------------


async def test_purging_says_how_many_and_leaves_what_is_held(stage: Stage) -> None:
    await declared(stage.driver, "billing")
    for number in range(4):
        await stage.qc.send("billing", number)
    await stage.qc.send("billing", "later", delay=60)
    held = await stage.driver.subscribe(Queue("billing"), prefetch=1)
    await held.receive(1, 0)
    assert await stage.qc.admin.purge("billing") == 3
    info = await stage.qc.admin.inspect("billing")
    assert (info.ready, info.in_flight, info.delayed) == (0, 1, 1)


async def test_deleting_leaves_the_dead_letters(stage: Stage) -> None:
    await stage.qc.admin.declare("billing", "order.placed")
    await stage.qc.admin.delete("billing")
    assert [info.name for info in await stage.qc.admin.queues()] == ["billing.dlq"]


async def test_dead_letters_are_the_same_engine(stage: Stage) -> None:
    await stage.qc.admin.declare("billing")
    assert await stage.qc.admin.dead_letters.count("billing") == 0


async def test_a_dead_letter_queue_of_any_name_is_found_by_that_name(stage: Stage) -> None:
    await declared(stage.driver, "graveyard")
    await stage.qc.send("graveyard", 1)
    with pytest.raises(ConfigError):
        await stage.qc.admin.dead_letters.count("graveyard")
    assert await stage.qc.admin.dead_letters_by_name.count("graveyard") == 1


# -- outages ---------------------------------------------------------------------------------


LOSING: list[tuple[Any, Callable[[Admin], Awaitable[Any]]]] = [
    ("inspect", lambda admin: admin.queues()),
    ("topology", lambda admin: admin.topology()),
    ("peek", lambda admin: admin.peek("billing")),
    ("declare", lambda admin: admin.declare("more")),
    ("prepare", lambda admin: admin.declare_exchange("more")),
    ("bind", lambda admin: admin.bind("billing", "a")),
    ("unbind", lambda admin: admin.unbind("billing", "a")),
    ("purge", lambda admin: admin.purge("billing")),
    ("delete", lambda admin: admin.delete("billing")),
]


@pytest.mark.parametrize(("operation", "ask"), LOSING)
async def test_whoever_meets_a_lost_connection_starts_the_reconnecting(
    stage: Stage, operation: Any, ask: Callable[[Admin], Awaitable[Any]]
) -> None:
    await declared(stage.driver, "billing")
    stage.driver.fail(operation)
    with pytest.raises(ConnectionLost):
        await ask(stage.qc.admin)
    await stage.clock.advance(40)
    assert stage.driver.calls["open"] == 2
    assert stage.qc.connection_state == "connected"
    await ask(stage.qc.admin)
