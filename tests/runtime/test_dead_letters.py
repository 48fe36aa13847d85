"""Dead letters: seen, counted, forgotten, and sent back without a loss."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    ConnectionLost,
    DeadLetter,
    DeadMessage,
    Filter,
    Message,
    NoDeadLetter,
    NoRetry,
    QueueCraft,
    QueueError,
    Redrive,
    Retry,
    fingerprint,
)
from queuecraft.clock import Clock
from queuecraft.drivers.base import Delivery, Outgoing, Queue, QueueInfo
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.drivers.local.subscription import MemorySubscription
from queuecraft.drivers.rabbitmq.consuming import Arrival
from queuecraft.drivers.rabbitmq.envelope import message_of
from queuecraft.drivers.rabbitmq.frames import Properties
from queuecraft.runtime.dead_message import Death
from queuecraft.testing import FaultyDriver, Ledger, failing
from tests.conformance.test_local import PlainDriver
from tests.runtime.support import (
    Order,
    Stage,
    capping,
    changed,
    contents,
    dead_letter,
    declared,
    ids,
    order_paid,
    order_placed,
    quiet,
    renaming,
    running,
    sparing,
    staged,
    with_dead_letters,
)

NOW = 1_750_000_000.0


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


def letters(count: int, **about: Any) -> list[Outgoing]:
    return [dead_letter(f"m-{number}", **about) for number in range(count)]


async def redelivered(stage: Stage, queue: str = "billing.dlq") -> set[int]:
    return {each.redeliveries for each in await stage.driver.peek(queue, 1000)}


# -- looking ---------------------------------------------------------------------------------


async def test_a_list_tells_the_story_of_each(stage: Stage) -> None:
    await with_dead_letters(
        stage.qc, stage.driver, changed(dead_letter(headers={"tenant": "acme"}), key="k")
    )
    (letter,) = await stage.qc.dead_letters.list("billing")
    assert (letter.id, letter.queue, letter.event, letter.key) == (
        "m-1",
        "billing",
        "order.placed",
        "k",
    )
    assert (letter.reason, letter.error, letter.error_type) == (
        "handler-error",
        "no money",
        "ValueError",
    )
    assert letter.failures == 4
    assert letter.failed_at is not None
    assert letter.failed_at.timestamp() == NOW
    assert letter.body == b'{"id":"o-1","total":9.5}'
    assert letter.headers == {"tenant": "acme"}
    assert letter.fingerprint == fingerprint(letter.error_type, letter.error, letter.traceback)


async def test_looking_takes_nothing_away(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3))
    for _ in range(2):
        assert len(await stage.qc.dead_letters.list("billing")) == 3
    assert await stage.qc.dead_letters.count("billing") == 3
    assert await redelivered(stage) == {0}


async def test_a_list_is_oldest_first_and_limited(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(5))
    found = await stage.qc.dead_letters.list("billing", limit=2)
    assert [letter.id for letter in found] == ["m-0", "m-1"]


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_list_of_nothing_is_not_asked_for(stage: Stage, limit: int) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(1))
    with pytest.raises(ConfigError, match="limit"):
        await stage.qc.dead_letters.list("billing", limit=limit)


async def test_the_queue_may_be_named_either_way(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(1))
    for name in ("billing", "billing.dlq"):
        assert await stage.qc.dead_letters.count(name) == 1
        assert len(await stage.qc.dead_letters.list(name)) == 1


async def test_no_worker_is_needed_to_look(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(1))
    async with QueueCraft(drivers=[FaultyDriver(stage.driver.inner)], clock=stage.clock) as other:
        assert await other.dead_letters.count("billing") == 1
        await stage.driver.inner.open()  # the other one has closed what both share


@pytest.mark.parametrize("name", ["unknown", "billing", "unknown.dlq"])
async def test_a_queue_without_dead_letters_is_named(stage: Stage, name: str) -> None:
    worker = stage.qc.worker("billing", dead_letter=NoDeadLetter())
    worker.on(order_placed, Ledger().recording("a"))
    await stage.driver.declare(worker.definition)
    for operation in ("list", "count", "purge", "redrive"):
        with pytest.raises(ConfigError, match=f"queue '{name}' has no dead-letter queue"):
            await getattr(stage.qc.dead_letters, operation)(name)


async def test_a_work_queue_is_never_taken_for_a_dead_letter_queue(stage: Stage) -> None:
    await declared(stage.driver, "plain")
    await stage.driver.send([Outgoing(b"", "m-1", queue="plain")])
    for operation in ("list", "count", "purge", "redrive"):
        with pytest.raises(ConfigError):
            await getattr(stage.qc.dead_letters, operation)("plain")
    assert await ids(stage.driver, "plain") == ["m-1"]


async def test_a_purge_forgets_them_and_says_how_many(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3))
    assert await stage.qc.dead_letters.purge("billing") == 3
    assert await stage.qc.dead_letters.count("billing") == 0


async def test_a_purge_leaves_the_work_queue_alone(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3))
    id = await stage.qc.publish(order_placed, Order("o-1"))
    await stage.qc.dead_letters.purge("billing")
    assert await ids(stage.driver, "billing") == [id]


# -- hostile headers -------------------------------------------------------------------------

ODD = [None, 5, 2.5, True, b"\xff", "", "x" * 100_000, float("nan"), 10**30, -(10**30)]


@pytest.mark.parametrize("value", ODD, ids=lambda value: str(value)[:12])
async def test_a_story_may_be_anything_and_is_still_read(stage: Stage, value: Any) -> None:
    names = ["x-original-queue", "x-original-routing-key", "x-error", "x-error-type"]
    names += ["x-traceback", "x-retry-count", "x-failed-at", "x-reason"]
    odd = changed(dead_letter(), headers=dict.fromkeys(names, value))
    await with_dead_letters(stage.qc, stage.driver, odd)
    (letter,) = await stage.qc.dead_letters.list("billing")
    assert letter.id == "m-1"
    assert isinstance(letter.error, str)
    assert letter.failures >= 0
    assert letter.fingerprint
    for where in (Filter(older_than=0), Filter(error="x"), Filter(event="#"), Filter(reason="")):
        await stage.qc.dead_letters.list("billing", where=where)


async def test_a_message_without_any_story_is_a_dead_letter_too(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, Outgoing(b"", "m-1", queue="billing.dlq"))
    (letter,) = await stage.qc.dead_letters.list("billing")
    assert (letter.queue, letter.error, letter.failed_at) == (None, "", None)


# -- filters ---------------------------------------------------------------------------------

LETTER = DeadMessage(
    id="m-1",
    queue="billing",
    event="order.placed",
    reason="handler-error",
    error="no money",
    error_type="bank.Refused",
)


@pytest.mark.parametrize(
    ("where", "takes"),
    [
        (Filter(), True),
        (Filter(error="money"), True),
        (Filter(error="MONEY"), True),
        (Filter(error="Refused"), True),
        (Filter(error="bank.Refused: no money"), True),
        (Filter(error="KeyError"), False),
        (Filter(event="order.placed"), True),
        (Filter(event="order.*"), True),
        (Filter(event="#"), True),
        (Filter(event="order"), False),
        (Filter(reason="handler-error"), True),
        (Filter(reason="handler"), False),
        (Filter(ids=frozenset({"m-1", "m-2"})), True),
        (Filter(ids=frozenset()), False),
        (Filter(fingerprint=LETTER.fingerprint), True),
        (Filter(fingerprint="0" * 16), False),
        (Filter(error="money", event="user.*"), False),
    ],
)
def test_a_filter_takes_what_it_says(where: Filter, takes: bool) -> None:
    assert where.takes(LETTER) is takes


async def test_filters_by_age_go_by_the_clock(stage: Stage) -> None:
    await with_dead_letters(
        stage.qc,
        stage.driver,
        dead_letter("old", failed_at=NOW - 3600),
        dead_letter("new", failed_at=NOW - 60),
        dead_letter("unknown", failed_at=None),
    )

    async def found(where: Filter) -> list[str]:
        return [letter.id for letter in await stage.qc.dead_letters.list("billing", where=where)]

    assert await found(Filter(older_than=600)) == ["old"]
    assert await found(Filter(newer_than=600)) == ["new"]
    assert await found(Filter(older_than=3600, newer_than=3600)) == ["old"]
    assert await found(Filter(older_than=0)) == ["old", "new"]
    await stage.clock.advance(600)
    assert await found(Filter(older_than=600)) == ["old", "new"]


async def test_a_filter_looks_past_the_limit_of_the_list(stage: Stage) -> None:
    await with_dead_letters(
        stage.qc, stage.driver, *letters(500), dead_letter("found", error="special")
    )
    (letter,) = await stage.qc.dead_letters.list("billing", where=Filter(error="special"), limit=1)
    assert letter.id == "found"


# -- sending back ----------------------------------------------------------------------------


async def test_a_redrive_brings_all_back_in_order(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(5))
    result = await stage.qc.dead_letters.redrive("billing")
    assert result == Redrive(total=5, seen=5, moved=5)
    assert result.done
    assert await ids(stage.driver, "billing") == [f"m-{number}" for number in range(5)]
    assert await ids(stage.driver, "billing.dlq") == []


async def test_what_comes_back_is_what_was_published(stage: Stage) -> None:
    sent = changed(dead_letter(headers={"tenant": "acme", "raw": b"\xff"}), key="k", priority=3)
    await with_dead_letters(stage.qc, stage.driver, sent)
    await stage.qc.dead_letters.redrive("billing")
    (back,) = await contents(stage.driver, "billing")
    headers = dict(back.headers)
    assert str(headers.pop("x-replay-id")).startswith("redrive-")
    assert headers == {"tenant": "acme", "raw": b"\xff"}
    assert (back.id, back.body, back.key, back.priority) == ("m-1", sent.body, "k", 3)
    assert (back.routing_key, back.exchange) == ("order.placed", "")
    assert (back.content_type, back.timestamp) == (sent.content_type, sent.timestamp)


async def test_what_one_redrive_brings_back_can_be_told_from_another(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3))
    await stage.qc.dead_letters.redrive("billing", limit=2)
    await stage.qc.dead_letters.redrive("billing")
    one, two, three = [
        each.headers["x-replay-id"] for each in await contents(stage.driver, "billing")
    ]
    assert one == two != three


async def test_a_redriven_message_reaches_the_queue_that_failed_it_alone(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(1))
    audit = stage.qc.worker("audit").on("#", Ledger().recording("audit"))
    await stage.driver.declare(audit.definition)
    await stage.qc.dead_letters.redrive("billing")
    assert await ids(stage.driver, "audit") == []


async def test_a_redriven_message_starts_with_a_clean_slate_of_attempts(stage: Stage) -> None:
    seen = Ledger()
    worker = stage.qc.worker("billing", retry=Retry(max_retries=2, initial_delay=1))
    worker.on(order_placed, seen.failing("billing", times=5))
    async with running(worker):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.advance(10)
        assert await stage.qc.dead_letters.count("billing") == 1
        await stage.qc.dead_letters.redrive("billing")
        await stage.clock.advance(10)
        assert await stage.qc.dead_letters.count("billing") == 0
    assert seen.attempts() == [1, 2, 3, 1, 2, 3]


async def test_a_redriven_message_does_not_expire_at_once_under_the_ttl_of_its_queue(
    stage: Stage,
) -> None:
    seen = Ledger()
    worker = stage.qc.worker("billing", ttl=60, retry=NoRetry())
    worker.on(order_placed, seen.failing("billing", times=1))
    async with running(worker):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.advance(86_400)
        await stage.qc.dead_letters.redrive("billing")
        await stage.clock.settle()
        assert await stage.qc.dead_letters.count("billing") == 0
    assert seen.attempts() == [1, 1]


async def test_an_expired_message_has_its_full_time_after_a_redrive(stage: Stage) -> None:
    worker = stage.qc.worker("billing", ttl=60).on(order_placed, Ledger().recording("billing"))
    await stage.driver.declare(worker.definition)
    await stage.qc.publish(order_placed, Order("o-1"), ttl=5)
    await stage.clock.advance(61)
    async with running(worker):
        await stage.clock.settle()
        (letter,) = await stage.qc.dead_letters.list("billing")
        assert letter.reason == "expired"
    await stage.qc.dead_letters.redrive("billing")
    await stage.clock.advance(59)
    async with running(worker):
        await stage.clock.settle()
        assert worker.counters.succeeded == 1
    assert await stage.qc.dead_letters.count("billing") == 0


async def test_only_those_of_a_filter_are_sent_back_and_the_rest_stays(stage: Stage) -> None:
    mixed = [dead_letter(f"m-{n}", error="bank" if n % 2 else "code") for n in range(6)]
    await with_dead_letters(stage.qc, stage.driver, *mixed)
    result = await stage.qc.dead_letters.redrive("billing", where=Filter(error="bank"))
    assert result == Redrive(total=6, seen=6, moved=3, kept=3)
    assert await ids(stage.driver, "billing") == ["m-1", "m-3", "m-5"]
    assert await ids(stage.driver, "billing.dlq") == ["m-0", "m-2", "m-4"]
    assert await redelivered(stage) == {0}


async def test_a_limit_is_kept_and_the_rest_stays_in_order(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(250))
    result = await stage.qc.dead_letters.redrive("billing", limit=120)
    assert result.moved == 120
    assert not result.done
    assert await ids(stage.driver, "billing") == [f"m-{n}" for n in range(120)]
    assert await ids(stage.driver, "billing.dlq") == [f"m-{n}" for n in range(120, 250)]
    assert await redelivered(stage) == {0}


async def test_a_limit_counts_what_moved_not_what_was_refused(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(5))
    stage.driver.reject(to="billing", of="move")
    result = await stage.qc.dead_letters.redrive("billing", limit=2)
    assert (result.moved, result.refused) == (2, 1)
    assert await ids(stage.driver, "billing") == ["m-1", "m-2"]
    assert await ids(stage.driver, "billing.dlq") == ["m-0", "m-3", "m-4"]


@pytest.mark.parametrize("name", ["limit", "rate"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
async def test_a_limit_or_rate_that_makes_no_sense_is_refused(
    stage: Stage, name: str, value: float
) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(1))
    options: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=name):
        await stage.qc.dead_letters.redrive("billing", **options)
    assert await ids(stage.driver, "billing.dlq") == ["m-0"]


async def test_an_empty_queue_is_redriven_at_once(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver)
    result = await asyncio.wait_for(stage.qc.dead_letters.redrive("billing"), 5)
    assert result == Redrive(total=0)
    assert result.done


async def test_a_large_queue_is_redriven_whole(stage: Stage) -> None:
    count = 5_000
    await with_dead_letters(stage.qc, stage.driver, *letters(count))
    before = stage.driver.calls["move"]
    result = await stage.qc.dead_letters.redrive("billing")
    assert (result.moved, result.done) == (count, True)
    assert await ids(stage.driver, "billing") == [f"m-{n}" for n in range(count)]
    assert stage.driver.calls["move"] - before <= count / 50  # in batches, not one by one


async def test_what_arrives_meanwhile_is_left_alone(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3))
    task = asyncio.ensure_future(stage.qc.dead_letters.redrive("billing", rate=1))
    for late in ("late-1", "late-2", "late-3"):
        await stage.clock.settle()
        await stage.driver.send([dead_letter(late)])
        await stage.clock.advance(1)
    result = await task
    assert (result.total, result.moved) == (3, 3)
    assert await ids(stage.driver, "billing.dlq") == ["late-1", "late-2", "late-3"]


async def test_a_message_that_fails_again_at_once_is_not_sent_back_twice(stage: Stage) -> None:
    seen = Ledger()
    worker = stage.qc.worker("billing", retry=NoRetry())
    worker.on(order_placed, seen.failing("billing", times=None))
    async with running(worker):
        await stage.qc.publish_many(order_placed, [Order(f"o-{n}") for n in range(3)])
        await stage.clock.settle()
        task = asyncio.ensure_future(stage.qc.dead_letters.redrive("billing", rate=1))
        await stage.clock.advance(60)
        assert (await task).moved == 3
        await stage.clock.settle()
        assert await stage.qc.dead_letters.count("billing") == 3
    assert len(seen.calls) == 6


# -- rate ------------------------------------------------------------------------------------


async def test_a_rate_is_kept(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(10))
    task = asyncio.ensure_future(stage.qc.dead_letters.redrive("billing", rate=2))
    moved: list[int] = []
    await stage.clock.settle()
    for _ in range(5):
        moved.append(len(await ids(stage.driver, "billing")))
        await stage.clock.advance(1)
    assert moved == [1, 3, 5, 7, 9]
    await stage.clock.advance(1)
    assert (await task).moved == 10


async def test_without_a_rate_no_time_passes(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(250))
    before = stage.clock.now()
    await stage.qc.dead_letters.redrive("billing")
    assert stage.clock.now() == before


async def test_what_stays_behind_costs_no_time(stage: Stage) -> None:
    mixed = [dead_letter(f"m-{n}", error="code") for n in range(50)]
    await with_dead_letters(stage.qc, stage.driver, *mixed, dead_letter("bank", error="bank"))
    result = await asyncio.wait_for(
        stage.qc.dead_letters.redrive("billing", where=Filter(error="bank"), rate=0.001), 5
    )
    assert (result.moved, result.kept) == (1, 50)


async def test_a_rated_redrive_holds_nothing_for_longer_than_a_broker_allows(
    stage: Stage,
) -> None:
    mixed = [dead_letter(f"m-{n}", error="bank" if n % 2 else "code") for n in range(20)]
    await with_dead_letters(stage.qc, stage.driver, *mixed)
    told: list[int] = []
    before = stage.driver.calls["subscribe"]
    task = asyncio.ensure_future(
        stage.qc.dead_letters.redrive(
            "billing",
            where=Filter(error="bank"),
            limit=9,
            rate=1 / 300,
            on_progress=lambda redrive: told.append(redrive.moved),
        )
    )
    for minutes in range(0, 40, 5):
        await stage.clock.settle()
        assert len(await ids(stage.driver, "billing")) == minutes / 5 + 1  # the pace goes on
        await stage.clock.advance(300)
    result = await task
    assert stage.driver.calls["subscribe"] - before == 3
    assert (result.total, result.moved, result.kept) == (20, 9, 9)
    assert result.seen == 18
    assert sorted(set(told)) == list(range(1, 10))
    assert await ids(stage.driver, "billing") == [f"m-{n}" for n in range(1, 19, 2)]
    left = [f"m-{n}" for n in range(20) if n % 2 == 0 or n == 19]
    assert await ids(stage.driver, "billing.dlq") == left


async def test_a_redrive_that_waits_for_hours_holds_nothing_meanwhile(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3))
    task = asyncio.ensure_future(stage.qc.dead_letters.redrive("billing", rate=1 / 7200))
    for moved in (1, 2):
        await stage.clock.settle()
        (info,) = await stage.driver.inspect(["billing.dlq"])
        assert (info.ready, info.in_flight) == (3 - moved, 0)
        await stage.clock.advance(7200)
    assert (await task).moved == 3
    assert await ids(stage.driver, "billing") == ["m-0", "m-1", "m-2"]


@pytest.mark.parametrize("batch", [100, 3])
@pytest.mark.parametrize(("canary", "moved"), [(None, 6), (3, 3)])
async def test_a_redrive_gets_on_however_long_it_takes_to_find_the_next(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, canary: int | None, moved: int, batch: int
) -> None:
    monkeypatch.setattr("queuecraft.runtime.redrive.HELD", 0.0)
    monkeypatch.setattr("queuecraft.runtime.redrive.BATCH", batch)  # some with none that is meant
    mixed = [dead_letter(f"m-{n}", error="bank" if n % 5 == 4 else "code") for n in range(30)]
    await with_dead_letters(stage.qc, stage.driver, *mixed)
    redrive = stage.qc.dead_letters.redrive
    task = asyncio.ensure_future(
        redrive("billing", where=Filter(error="bank"), rate=1, canary=canary)
    )
    await stage.clock.settle()
    await stage.clock.advance(60)
    assert (await task).moved == moved  # no worker handles a canary, so the rest does not follow
    meant = [f"m-{n}" for n in range(4, 30, 5)]
    assert await ids(stage.driver, "billing") == meant[:moved]
    stays = [each.id for each in mixed if each.id not in meant[:moved]]
    assert await ids(stage.driver, "billing.dlq") == stays


async def test_what_stays_is_counted_once_in_a_redrive_of_several_walks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuecraft.runtime.redrive.HELD", 0.0)
    odd = dead_letter("odd", queue="nowhere")
    await with_dead_letters(stage.qc, stage.driver, odd, *letters(150), changed(odd, id="last"))
    result = await stage.qc.dead_letters.redrive("billing")
    assert (result.moved, result.refused, result.done) == (150, 2, True)
    assert [error.split(":")[0] for error in result.errors] == ["odd", "last"]


# -- dry run and progress --------------------------------------------------------------------


async def test_a_dry_run_only_counts(stage: Stage) -> None:
    mixed = [dead_letter(f"m-{n}", error="bank" if n % 2 else "code") for n in range(6)]
    await with_dead_letters(stage.qc, stage.driver, *mixed, dead_letter("odd", queue="nowhere"))
    where = Filter(error="bank")
    plan = await stage.qc.dead_letters.redrive("billing", where=where, dry_run=True)
    assert plan == Redrive(total=7, seen=7, moved=3, kept=4, dry_run=True)
    assert len(await ids(stage.driver, "billing.dlq")) == 7
    assert await ids(stage.driver, "billing") == []
    assert await redelivered(stage) == {0}


@pytest.mark.parametrize("limit", [None, 1, 3])
async def test_a_dry_run_foretells_the_redrive(stage: Stage, limit: int | None) -> None:
    mixed = [
        dead_letter("a"),
        dead_letter("b", queue="nowhere"),
        dead_letter("c", error="other"),
        *letters(4),
    ]
    await with_dead_letters(stage.qc, stage.driver, *mixed)
    where = Filter(error="no money")
    plan = await stage.qc.dead_letters.redrive("billing", where=where, limit=limit, dry_run=True)
    done = await stage.qc.dead_letters.redrive("billing", where=where, limit=limit)
    assert (plan.moved, plan.kept, plan.refused) == (done.moved, done.kept, done.refused)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_progress_is_told_as_it_goes(stage: Stage, dry_run: bool) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(250))
    told: list[Redrive] = []
    result = await stage.qc.dead_letters.redrive(
        "billing", dry_run=dry_run, on_progress=told.append
    )
    assert told[-1] == result
    assert len(told) > 1
    seen = [each.seen for each in told]
    assert seen == sorted(seen)
    assert {each.total for each in told} == {250}


async def test_progress_is_told_after_each_message_where_there_is_a_rate(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3))
    told: list[int] = []
    task = asyncio.ensure_future(
        stage.qc.dead_letters.redrive(
            "billing", rate=1, on_progress=lambda redrive: told.append(redrive.moved)
        )
    )
    await stage.clock.advance(5)
    await task
    assert told == [1, 2, 3]


async def test_somebody_who_fails_on_progress_stops_it_without_a_loss(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3))

    def fail(redrive: Redrive) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await stage.qc.dead_letters.redrive("billing", on_progress=fail)
    everywhere = [*await ids(stage.driver, "billing"), *await ids(stage.driver, "billing.dlq")]
    assert sorted(everywhere) == ["m-0", "m-1", "m-2"]


# -- targets ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "queue", ["nowhere", None, "", "billing.dlq", "../billing", "\x1b[31m", "x" * 100_000]
)
@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_hostile_origin_is_refused_and_the_letter_stays(
    stage: Stage, queue: str | None, dry_run: bool
) -> None:
    await with_dead_letters(
        stage.qc, stage.driver, dead_letter("odd", queue=queue), dead_letter("good")
    )
    result = await stage.qc.dead_letters.redrive("billing", dry_run=dry_run)
    assert (result.moved, result.refused) == (1, 1)
    assert "odd" in result.errors[0]
    assert "odd" in await ids(stage.driver, "billing.dlq")
    assert "nowhere" not in (await stage.driver.topology()).queues


async def test_a_refused_letter_keeps_its_story(stage: Stage) -> None:
    letter = dead_letter("odd", queue="nowhere")
    await with_dead_letters(stage.qc, stage.driver, letter)
    await stage.qc.dead_letters.redrive("billing")
    (stayed,) = await contents(stage.driver, "billing.dlq")
    assert stayed.headers == letter.headers


async def test_errors_are_told_up_to_a_bound(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(500, queue="nowhere"))
    result = await stage.qc.dead_letters.redrive("billing")
    assert result.refused == 500
    assert 0 < len(result.errors) <= 100
    assert sum(map(len, result.errors)) < 100_000


async def test_another_queue_may_be_named_to_send_to(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(2), dead_letter("x", queue=None))
    await declared(stage.driver, "other")
    result = await stage.qc.dead_letters.redrive("billing", to="other")
    assert result.moved == 3
    assert await ids(stage.driver, "other") == ["m-0", "m-1", "x"]
    (first, *_) = await contents(stage.driver, "other")
    assert first.routing_key == "order.placed"


@pytest.mark.parametrize("to", ["nowhere", "", "billing.dlq"])
async def test_a_queue_that_cannot_be_sent_to_is_refused_before_anything_moves(
    stage: Stage, to: str
) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(2))
    with pytest.raises(ConfigError, match="redrive"):
        await stage.qc.dead_letters.redrive("billing", to=to)
    assert len(await ids(stage.driver, "billing.dlq")) == 2


async def test_a_queue_that_will_not_take_them_leaves_them_where_they_are(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3))
    stage.driver.reject(to="billing", of="move", times=None)
    result = await stage.qc.dead_letters.redrive("billing")
    assert (result.moved, result.refused) == (0, 3)
    assert await ids(stage.driver, "billing.dlq") == ["m-0", "m-1", "m-2"]
    assert "rejects" in result.errors[0]


async def test_the_queue_may_vanish_meanwhile(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3))

    task = asyncio.ensure_future(stage.qc.dead_letters.redrive("billing", rate=1))
    await stage.clock.settle()
    await stage.driver.delete("billing")
    await stage.clock.advance(10)
    result = await task
    assert (result.moved, result.refused) == (1, 2)
    assert await ids(stage.driver, "billing.dlq") == ["m-1", "m-2"]


# -- names of one's own ----------------------------------------------------------------------


def shared(stage: Stage, name: str) -> Any:
    worker = stage.qc.worker(name, retry=NoRetry(), dead_letter=DeadLetter(queue="graveyard"))
    return worker.on(order_placed, Ledger().failing(name, times=None))


async def test_a_dead_letter_queue_may_have_any_name(stage: Stage) -> None:
    seen = Ledger()
    worker = stage.qc.worker(
        "billing",
        retry=NoRetry(),
        dead_letter=DeadLetter(exchange="dead", queue="failed.billing", routing_key="failed"),
    ).on(order_placed, seen.failing("billing", times=1))
    async with running(worker):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
        for name in ("billing", "failed.billing"):
            assert await stage.qc.dead_letters.count(name) == 1
            assert len(await stage.qc.dead_letters.list(name)) == 1
        assert (await stage.qc.dead_letters.redrive("billing")).moved == 1
        await stage.clock.settle()
    assert len(seen.calls) == 2


async def test_a_shared_dead_letter_queue_gives_each_queue_its_own(stage: Stage) -> None:
    one, two = shared(stage, "one"), shared(stage, "two")
    async with running(one, two):
        id = await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
    assert await ids(stage.driver, "graveyard") == [id, id]
    assert [each.queue for each in await stage.qc.dead_letters.list("one")] == ["one"]
    assert await stage.qc.dead_letters.count("one") == 1
    assert await stage.qc.dead_letters.count("graveyard") == 2
    result = await stage.qc.dead_letters.redrive("one")
    assert (result.moved, result.kept) == (1, 1)
    assert await ids(stage.driver, "two") == []


async def test_purging_one_queue_leaves_the_dead_letters_of_its_neighbours(stage: Stage) -> None:
    one, two = shared(stage, "one"), shared(stage, "two")
    async with running(one, two):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
    assert await stage.qc.dead_letters.purge("one") == 1
    assert [each.queue for each in await stage.qc.dead_letters.list("graveyard")] == ["two"]
    assert await stage.qc.dead_letters.purge("graveyard") == 1


# -- interrupted -----------------------------------------------------------------------------


async def everywhere(stage: Stage) -> list[str]:
    return [*await ids(stage.driver, "billing"), *await ids(stage.driver, "billing.dlq")]


@pytest.mark.parametrize("moved", range(3))
async def test_cancelled_in_the_middle_nothing_is_lost_or_out_of_order(
    stage: Stage, moved: int
) -> None:
    await with_dead_letters(
        stage.qc, stage.driver, *letters(2), dead_letter("kept", error="code"), *letters(4)[2:]
    )
    task = asyncio.ensure_future(
        stage.qc.dead_letters.redrive("billing", where=Filter(error="money"), rate=1)
    )
    await stage.clock.advance(moved)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stage.clock.settle()
    gone = [f"m-{n}" for n in range(moved + 1)]
    rest = [each for each in ("m-0", "m-1", "kept", "m-2", "m-3") if each not in gone]
    assert await ids(stage.driver, "billing") == gone
    assert await ids(stage.driver, "billing.dlq") == rest
    assert await redelivered(stage) == {0}


@pytest.mark.parametrize("turns", range(0, 30, 2))
async def test_cancelled_at_any_moment_nothing_is_lost(turns: int) -> None:
    async with staged(inline=False) as stage:
        await with_dead_letters(stage.qc, stage.driver, *letters(5))
        task = asyncio.ensure_future(stage.qc.dead_letters.redrive("billing"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await quiet()
        assert sorted(set(await everywhere(stage))) == [f"m-{n}" for n in range(5)]
        assert (await stage.driver.topology()).consumers == ()


async def test_a_cancelled_redrive_can_be_finished_later(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(5))
    task = asyncio.ensure_future(stage.qc.dead_letters.redrive("billing", rate=1))
    await stage.clock.advance(2)
    task.cancel()
    await asyncio.wait([task])
    result = await stage.qc.dead_letters.redrive("billing")
    assert result.moved == 2
    assert await ids(stage.driver, "billing") == [f"m-{n}" for n in range(5)]


async def test_a_connection_lost_in_the_middle_loses_nothing(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(5))
    task = asyncio.ensure_future(stage.qc.dead_letters.redrive("billing", rate=1))
    await stage.clock.advance(2)
    await stage.driver.drop()
    await stage.clock.advance(1)
    with pytest.raises(ConnectionLost):
        await task
    await stage.clock.advance(40)
    assert sorted(await everywhere(stage)) == [f"m-{n}" for n in range(5)]
    assert (await stage.qc.dead_letters.redrive("billing")).moved == 2


@pytest.mark.parametrize("stored", [True, False])
async def test_an_answer_that_never_came_loses_nothing(stage: Stage, stored: bool) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3))
    stage.driver.lose_answers([1], stored=stored, of="move")
    with pytest.raises(ConnectionLost):
        await stage.qc.dead_letters.redrive("billing")
    await stage.clock.advance(40)
    found = await everywhere(stage)
    assert sorted(set(found)) == ["m-0", "m-1", "m-2"]
    assert len(found) == (4 if stored else 3)


@pytest.mark.parametrize(
    "operation", ["inspect", "subscribe", "receive", "move", "release", "peek", "purge"]
)
async def test_whoever_meets_a_lost_connection_starts_the_reconnecting(
    stage: Stage, operation: Any
) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3), dead_letter("x", error="y"))
    stage.driver.fail(operation)
    letters_of = stage.qc.dead_letters
    with contextlib.ExitStack() as stack:
        if operation != "release":  # by then the work is done
            stack.enter_context(pytest.raises(ConnectionLost))
        if operation == "peek":
            await letters_of.list("billing")
        elif operation == "purge":
            await letters_of.purge("billing")
        else:
            await letters_of.redrive("billing", where=Filter(error="money"))
    await stage.clock.advance(40)
    assert stage.driver.calls["open"] == 2
    assert stage.qc.connection_state == "connected"
    assert sorted(await everywhere(stage)) == ["m-0", "m-1", "m-2", "x"]


@pytest.mark.parametrize("driver", [MemoryDriver, PlainDriver])
@pytest.mark.parametrize(
    "point", ["move.after_send", "ack.before", "move.after_ack", "redrive.after_move"]
)
@pytest.mark.parametrize("skip", [0, 1])
async def test_interrupted_at_a_failpoint_nothing_is_lost(
    driver: type[MemoryDriver], point: str, skip: int
) -> None:
    inner = driver(Clock())
    async with QueueCraft(drivers=[inner]) as qc:
        await with_dead_letters(qc, inner, *letters(250))
        with failing(point, RuntimeError("the power is gone"), skip=skip) as passes:
            try:
                await qc.dead_letters.redrive("billing")
            except RuntimeError:
                assert passes.count
        found = [*await ids(inner, "billing"), *await ids(inner, "billing.dlq")]
        assert set(found) == {f"m-{n}" for n in range(250)}
        assert len(found) <= 250 + 100  # at most one batch twice
        assert (await inner.topology()).consumers == ()
        await qc.dead_letters.redrive("billing")
        assert await ids(inner, "billing.dlq") == []
        assert set(await ids(inner, "billing")) == {f"m-{n}" for n in range(250)}


async def test_two_redrives_at_once_share_the_work(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(300))
    tasks = [
        asyncio.ensure_future(stage.qc.dead_letters.redrive("billing", rate=100)) for _ in range(2)
    ]
    await stage.clock.advance(10)
    results = [await task for task in tasks]
    assert sum(result.moved for result in results) == 300
    assert sorted(await ids(stage.driver, "billing")) == sorted(f"m-{n}" for n in range(300))


# -- a worker of dead letters ----------------------------------------------------------------


async def test_a_worker_may_consume_a_dead_letter_queue(stage: Stage) -> None:
    got: list[tuple[str, Any, str]] = []
    worker = stage.qc.worker("billing.dlq")

    @worker.on(order_placed)
    async def placed(order: Order, message: Message[Order]) -> None:
        got.append(("placed", order, str(message.headers["x-error"])))

    @worker.on(order_paid)
    async def paid(order: Order) -> None:
        got.append(("paid", order, ""))

    await with_dead_letters(
        stage.qc, stage.driver, dead_letter("m-1"), dead_letter("m-2", event="order.paid")
    )
    async with running(worker):
        await stage.clock.settle()
    assert got == [("placed", Order("o-1"), "no money"), ("paid", Order("o-1"), "")]
    assert await ids(stage.driver, "billing.dlq") == []


async def test_a_worker_of_dead_letters_gets_no_living_events(stage: Stage) -> None:
    seen = Ledger()
    billing = stage.qc.worker("billing").on(order_placed, seen.recording("billing"))
    dead = stage.qc.worker("billing.dlq").on("#", seen.recording("dead"))
    async with running(billing, dead):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
    assert len(seen.ids("billing")) == 1
    assert seen.ids("dead") == []


@pytest.mark.parametrize("dead_first", [True, False])
async def test_a_worker_of_a_dead_letter_queue_with_a_name_of_its_own_gets_none_either(
    stage: Stage, dead_first: bool
) -> None:
    seen = Ledger()

    def make_dead() -> Any:
        return stage.qc.worker("graveyard").on(order_placed, seen.recording("dead"))

    def make_billing() -> Any:
        return stage.qc.worker(
            "billing", retry=NoRetry(), dead_letter=DeadLetter(queue="graveyard")
        ).on(order_placed, seen.failing("billing", times=None))

    workers = [make() for make in ((make_dead, make_billing)[:: 1 if dead_first else -1])]
    async with running(*workers):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
    assert [call.name for call in seen.calls] == ["billing", "dead"]


async def test_with_a_worker_on_it_the_name_still_means_the_dead_letters(stage: Stage) -> None:
    dead = stage.qc.worker("billing.dlq").on("#", Ledger().recording("dead"))
    await with_dead_letters(stage.qc, stage.driver, *letters(2))
    await stage.driver.declare(dead.definition)
    assert await stage.qc.dead_letters.count("billing.dlq") == 2
    assert (await stage.qc.dead_letters.redrive("billing.dlq")).moved == 2
    assert len(await ids(stage.driver, "billing")) == 2


@pytest.mark.parametrize(("own", "handled"), [({}, 1), ({"ttl": 60}, 0)], ids=["none", "its own"])
async def test_a_ttl_for_all_queues_is_none_of_a_worker_of_dead_letters(
    own: dict[str, Any], handled: int
) -> None:
    async with staged(ttl=60) as stage:
        seen = Ledger()
        billing = stage.qc.worker("billing", retry=NoRetry())
        billing.on(order_placed, seen.failing("billing", times=None))
        async with running(billing):
            await stage.qc.publish(order_placed, Order("o-1"))
            await stage.clock.settle()
        await stage.clock.advance(3600)
        dead = stage.qc.worker("billing.dlq", **own).on(order_placed, seen.recording("dead"))
        async with running(dead):
            await stage.clock.settle()
        assert len(seen.ids("dead")) == handled


async def test_a_dead_letter_that_fails_again_is_kept_a_level_deeper(stage: Stage) -> None:
    dead = stage.qc.worker("billing.dlq", retry=NoRetry())
    dead.on("#", Ledger().failing("dead", times=None, error=KeyError("again")))
    await with_dead_letters(stage.qc, stage.driver, *letters(1))
    async with running(dead):
        await stage.clock.settle()
    (letter,) = await stage.qc.dead_letters.list("billing.dlq.dlq")
    assert (letter.queue, letter.event, letter.error_type) == (
        "billing.dlq",
        "order.placed",
        "KeyError",
    )


async def test_a_worker_of_dead_letters_has_attempts_of_its_own(stage: Stage) -> None:
    seen = Ledger()
    dead = stage.qc.worker("billing.dlq", retry=Retry(max_retries=2, initial_delay=1))
    dead.on("#", seen.failing("dead", times=None))
    await with_dead_letters(stage.qc, stage.driver, *letters(1))
    async with running(dead):
        await stage.clock.advance(60)
    assert seen.attempts() == [1, 2, 3]
    (letter,) = await stage.qc.dead_letters.list("billing.dlq.dlq")
    assert letter.failures == 3
    assert letter.headers == {}


async def test_a_dead_letter_waiting_for_another_try_keeps_its_story(stage: Stage) -> None:
    dead = stage.qc.worker("billing.dlq").on("#", Ledger().failing("dead", times=1))
    await with_dead_letters(stage.qc, stage.driver, *letters(1))
    async with running(dead):
        await stage.clock.settle()
    await stage.clock.advance(60)
    (letter,) = await stage.qc.dead_letters.list("billing")
    assert (letter.queue, letter.failures, letter.error) == ("billing", 4, "no money")
    await stage.qc.dead_letters.redrive("billing")
    (back,) = await contents(stage.driver, "billing")
    assert back.headers.keys() == {"x-replay-id"}


async def test_a_handler_of_the_dead_letter_queue_itself_takes_them_all(stage: Stage) -> None:
    seen = Ledger()
    queue: Queue[Any] = Queue("billing.dlq")
    dead = stage.qc.worker(queue).on(queue, seen.recording("dead"))
    await with_dead_letters(
        stage.qc, stage.driver, dead_letter("m-1"), dead_letter("m-2", event="order.paid")
    )
    async with running(dead):
        await stage.qc.send("billing.dlq", {"id": "o-3"}, message_id="m-3")
        await stage.clock.settle()
    assert seen.ids() == ["m-1", "m-2", "m-3"]


async def test_a_plain_message_in_between_does_not_change_who_takes_dead_letters(
    stage: Stage,
) -> None:
    seen = Ledger()
    dead = stage.qc.worker("billing.dlq").on("#", seen.recording("any"))
    dead.on(order_placed, seen.recording("placed"))
    await with_dead_letters(stage.qc, stage.driver)
    async with running(dead):
        await stage.qc.send("billing.dlq", {"id": "o-1"})
        await stage.clock.settle()
        await stage.driver.send([dead_letter("m-1")])
        await stage.clock.settle()
    assert [call.name for call in seen.calls] == ["any", "placed"]


async def test_crashes_before_do_not_condemn_a_redriven_message(stage: Stage) -> None:
    seen = Ledger()
    worker = stage.qc.worker("billing", max_redeliveries=2)
    worker.on(order_placed, seen.recording("billing"))
    await stage.driver.declare(worker.definition)
    await stage.qc.publish(order_placed, Order("o-1"))
    for _ in range(3):  # three crashes
        subscription = await stage.driver.subscribe(Queue("billing"), prefetch=1)
        await subscription.receive(1, 0)
        await subscription.close()
    async with running(worker):
        await stage.clock.settle()
        (letter,) = await stage.qc.dead_letters.list("billing")
        assert letter.reason == "crash-loop"
        await stage.qc.dead_letters.redrive("billing")
        await stage.clock.settle()
    assert seen.attempts() == [1]


def test_a_dead_message_reads_only_what_is_there() -> None:
    letter = DeadMessage.of(
        Delivery(Outgoing(b"", "m-1", routing_key="billing.dlq"), "billing.dlq")
    )
    assert (letter.queue, letter.event, letter.failures) == (None, "billing.dlq", 0)


# -- one of them, what failed alike, and what is forgotten -----------------------------------


async def test_one_is_found_by_its_id_wherever_it_is(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(1500))
    for id in ("m-0", "m-999", "m-1499"):
        found = await stage.qc.dead_letters.find("billing", id)
        assert found is not None
        assert found.id == id
    assert await stage.qc.dead_letters.find("billing", "m-1500") is None


async def test_one_is_looked_for_no_further_than_asked(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(10))
    assert await stage.qc.dead_letters.find("billing", "m-4", look=5) is not None
    assert await stage.qc.dead_letters.find("billing", "m-5", look=5) is None
    with pytest.raises(ConfigError, match="look=0"):
        await stage.qc.dead_letters.find("billing", "m-5", look=0)


async def test_in_an_empty_queue_nothing_is_found(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver)
    assert await stage.qc.dead_letters.find("billing", "m-0") is None


async def test_groups_tell_what_failed_alike(stage: Stage) -> None:
    mixed = [
        dead_letter("a", error="order 'o-1' not found", failed_at=NOW),
        dead_letter("b", error="bank is down", error_type="TimeoutError"),
        dead_letter("c", error="order 'o-2' not found", failed_at=NOW + 60),
    ]
    await with_dead_letters(stage.qc, stage.driver, *mixed)
    first, second = await stage.qc.dead_letters.groups("billing")
    assert (first.queue, first.count, first.example) == ("billing.dlq", 2, "c")
    assert (first.error, first.event) == ("order 'o-2' not found", "order.placed")
    assert first.first is not None
    assert first.last is not None
    assert (first.last - first.first).total_seconds() == 60
    assert (second.count, second.error_type) == (1, "TimeoutError")
    assert await stage.qc.dead_letters.groups("billing", where=Filter(error="bank")) == [second]
    (only,) = await stage.qc.dead_letters.groups("billing", limit=1)
    assert only.example == "a"


async def test_what_is_meant_is_forgotten_and_the_rest_stays_in_order(stage: Stage) -> None:
    mixed = [dead_letter(f"m-{n}", error="bank" if n % 2 else "code") for n in range(250)]
    await with_dead_letters(stage.qc, stage.driver, *mixed)
    told: list[Redrive] = []
    result = await stage.qc.dead_letters.delete(
        "billing", where=Filter(error="bank"), on_progress=told.append
    )
    assert result == Redrive(total=250, seen=250, moved=125, kept=125)
    assert told[-1] == result
    assert [each.seen for each in told] == [100, 200, 250]
    assert await ids(stage.driver, "billing.dlq") == [f"m-{n}" for n in range(0, 250, 2)]
    assert await ids(stage.driver, "billing") == []
    assert await redelivered(stage) == {0}


async def test_a_dry_run_forgets_nothing(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(5))
    plan = await stage.qc.dead_letters.delete("billing", limit=2, dry_run=True)
    assert plan == Redrive(total=5, seen=2, moved=2, dry_run=True)
    assert len(await ids(stage.driver, "billing.dlq")) == 5


@pytest.mark.parametrize("operation", ["delete", "redrive"])
async def test_a_dry_run_that_was_not_shown_everything_says_so(
    operation: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    capping(monkeypatch, MemoryDriver, 3)
    await with_dead_letters(stage.qc, stage.driver, *letters(9), dead_letter("last", error="bank"))
    told: list[Redrive] = []
    count = getattr(stage.qc.dead_letters, operation)
    plan = await count("billing", dry_run=True, on_progress=told.append)
    assert (plan.total, plan.seen, plan.moved) == (10, 3, 3)
    assert plan.stopped == "only 3 of 10 could be looked at"
    assert told[-1] == plan
    assert (await count("billing", limit=4, dry_run=True)).stopped == plan.stopped
    assert (await count("billing", limit=3, dry_run=True)).stopped is None
    none = await count("billing", where=Filter(error="bank"), limit=1, dry_run=True)
    assert (none.moved, none.stopped) == (0, plan.stopped)


@pytest.mark.parametrize(
    "letter",
    [
        Outgoing(b"{}", "foreign-f00", headers={"x-reason": "expired", "x-failed-at": 1000}),
        Outgoing(b"{}", "7-c0ffee-1-10"),  # as Redis gives what another program has pushed
    ],
    ids=["rabbitmq", "redis"],
)
async def test_letters_without_an_id_of_their_own_are_forgotten_as_many_as_were_counted(
    letter: Outgoing, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    renaming(monkeypatch, MemoryDriver)
    alike = changed(letter, queue="billing.dlq")
    await with_dead_letters(stage.qc, stage.driver, alike, alike, alike)
    chosen: list[DeadMessage] = []
    plan = await stage.qc.dead_letters.delete("billing", dry_run=True, on_chosen=chosen.append)
    await stage.driver.send([changed(alike, body=b"another", priority=9), alike])
    counted = Filter(deaths=frozenset(each.death for each in chosen))
    done = await stage.qc.dead_letters.delete("billing", where=counted, limit=plan.moved)
    assert (plan.moved, done.moved) == (3, 3)
    assert [each.body for each in await contents(stage.driver, "billing.dlq")] == [
        b"another",
        b"{}",
    ]


def test_a_letter_without_an_id_is_known_by_what_it_is() -> None:
    def death(body: bytes = b"{}", id: str | None = None, **headers: Any) -> Death:
        note = {"queue": "billing", "reason": "expired", "time": 1, **headers.pop("note", {})}
        given = {"tenant": "t1", "x-death": [note], **headers}
        properties = Properties(None, None, given, 2, None, None, None, None, id)
        message, _, again = message_of(Arrival(1, False, "", "b.dlq", properties, body), "b.dlq")
        return DeadMessage.of(Delivery(message, "b.dlq", again)).death

    assert death() == death()
    seen_again: dict[str, Any] = {"x-delivery-count": 2, "x-acquired-count": 3}  # by a quorum queue
    assert death(**seen_again) == death()
    others = [
        death(b"[]"),
        death(tenant="t2"),
        death(note={"time": 2}),
        death(note={"queue": "audit"}),
        death(note={"reason": "maxlen"}),
        death(id="m-1"),
        death(id="m-2"),
    ]
    assert len({death(), *others}) == 8
    assert death(b"[]", id="m-1") == death(id="m-1")


async def test_no_more_are_forgotten_than_were_asked_for(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(250))
    result = await stage.qc.dead_letters.delete("billing", limit=130)
    assert result.moved == 130
    assert await ids(stage.driver, "billing.dlq") == [f"m-{n}" for n in range(130, 250)]
    with pytest.raises(ConfigError, match="limit"):
        await stage.qc.dead_letters.delete("billing", limit=0)


async def test_each_that_is_forgotten_is_told(stage: Stage) -> None:
    mixed = [dead_letter("m-1"), dead_letter("m-2", error="bank"), dead_letter("m-3")]
    await with_dead_letters(stage.qc, stage.driver, *mixed)
    for dry_run in (True, False):
        told: list[DeadMessage] = []
        await stage.qc.dead_letters.delete(
            "billing", where=Filter(error="money"), dry_run=dry_run, on_chosen=told.append
        )
        assert [each.id for each in told] == ["m-1", "m-3"]


async def test_what_another_has_by_now_was_not_forgotten(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3))

    async def ack(_: MemorySubscription, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return deliveries[1:]  # as when the lease ended meanwhile

    monkeypatch.setattr(MemorySubscription, "ack", ack)
    told: list[Redrive] = []
    result = await stage.qc.dead_letters.delete("billing", on_progress=told.append)
    assert (result.seen, result.moved, result.kept) == (3, 1, 2)
    assert result.stopped == "the broker has given 2 to another meanwhile; run it again"
    assert told[-1] == result


@pytest.mark.parametrize("operation", ["delete", "redrive"])
async def test_a_walk_that_is_not_given_everything_says_how_far_it_came(
    operation: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparing(monkeypatch, MemoryDriver, 3)
    await with_dead_letters(stage.qc, stage.driver, *letters(9), dead_letter("last", error="bank"))
    told: list[Redrive] = []
    walk = getattr(stage.qc.dead_letters, operation)
    task = asyncio.ensure_future(
        walk("billing", where=Filter(error="bank"), on_progress=told.append)
    )
    await stage.clock.advance(1)
    result = await task
    assert (result.total, result.seen, result.moved, result.kept) == (10, 3, 0, 3)
    assert result.stopped == "only 3 of 10 could be looked at; run it again"
    assert told[-1] == result
    assert await ids(stage.driver, "billing.dlq") == [*(f"m-{n}" for n in range(9)), "last"]


async def test_what_the_broker_cannot_count_is_not_taken_for_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(3))
    inspect = MemoryDriver.inspect

    async def uncounted(
        self: MemoryDriver, queues: Sequence[str] | None = None
    ) -> Sequence[QueueInfo]:
        return [replace(each, ready=None) for each in await inspect(self, queues)]

    with monkeypatch.context() as patch:
        patch.setattr(MemoryDriver, "inspect", uncounted)
        for asked in (
            stage.qc.dead_letters.redrive("billing"),
            stage.qc.dead_letters.delete("billing"),
            stage.qc.admin.move("billing.dlq", "billing"),
        ):
            with pytest.raises(QueueError, match=r"cannot tell how many .* 'billing\.dlq'"):
                await asked
    sparing(monkeypatch, MemoryDriver, 2)
    walk = asyncio.ensure_future(stage.qc.dead_letters.redrive("billing", where=Filter(error="x")))
    await stage.clock.settle()
    monkeypatch.setattr(MemoryDriver, "inspect", uncounted)
    await stage.clock.advance(1)
    assert str((await walk).stopped).startswith("only 2 of 3 could be looked at; the broker cannot")


async def test_where_what_is_kept_is_in_the_way_it_says_so(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparing(monkeypatch, MemoryDriver, 3)
    vars(stage.driver)["traits"] = replace(stage.driver.traits, partitioned=True)
    await with_dead_letters(stage.qc, stage.driver, *letters(10))
    delete = stage.qc.dead_letters.delete("billing", where=Filter(error="bank"))
    task = asyncio.ensure_future(delete)
    await stage.clock.advance(1)
    assert str((await task).stopped).endswith(
        "run it again; if that gets no further, move or delete the oldest first"
    )


async def test_a_canary_that_was_not_found_because_nothing_more_came_is_no_empty_choice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparing(monkeypatch, MemoryDriver, 3)
    await with_dead_letters(stage.qc, stage.driver, *letters(9), dead_letter("last", error="bank"))
    redrive = stage.qc.dead_letters.redrive("billing", where=Filter(error="bank"), canary=1)
    task = asyncio.ensure_future(redrive)
    await stage.clock.advance(1)
    assert (await task).stopped == "only 3 of 10 could be looked at; run it again"


@pytest.mark.parametrize("handled", [True, False])
async def test_what_another_has_taken_meanwhile_is_not_missed(stage: Stage, handled: bool) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(150))
    task = asyncio.ensure_future(stage.qc.dead_letters.redrive("billing", rate=1))
    await stage.clock.advance(1)
    other = await stage.driver.subscribe(Queue("billing.dlq"), prefetch=50)
    taken = await other.receive(50, 0)
    if handled:
        await other.ack(taken)
    await stage.clock.advance(200)
    result = await task
    assert (result.total, result.seen, len(taken)) == (150, 100, 50)
    assert (result.moved, result.stopped) == (100, None)


async def test_somebody_else_s_dead_letters_are_not_forgotten(stage: Stage) -> None:
    one, two = shared(stage, "one"), shared(stage, "two")
    async with running(one, two):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
    assert (await stage.qc.dead_letters.delete("one")).moved == 1
    (left,) = await stage.qc.dead_letters.list("graveyard")
    assert left.queue == "two"


async def test_a_connection_lost_while_forgetting_loses_nothing_else(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(250))
    acks = 0

    def drop_later(state: Redrive) -> None:
        nonlocal acks
        acks += 1
        stage.driver.fail("ack")

    with pytest.raises(ConnectionLost):
        await stage.qc.dead_letters.delete("billing", on_progress=drop_later)
    assert acks == 1
    await stage.clock.advance(60)
    assert await ids(stage.driver, "billing.dlq") == [f"m-{n}" for n in range(100, 250)]


async def test_forgetting_can_be_cancelled(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(250))

    def enough(state: Redrive) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await stage.qc.dead_letters.delete("billing", on_progress=enough)
    assert await ids(stage.driver, "billing.dlq") == [f"m-{n}" for n in range(100, 250)]


async def test_where_they_are_is_nowhere_to_redrive_to(stage: Stage) -> None:
    await with_dead_letters(stage.qc, stage.driver, *letters(1))
    with pytest.raises(ConfigError, match="redrive them to another queue"):
        await stage.qc.dead_letters.redrive("billing", to="billing.dlq")
