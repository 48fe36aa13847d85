"""A rate limit lets so many messages through, and holds no runner for the rest."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from queuecraft import ConfigError, Message
from queuecraft.middleware import RateLimit, rate_limit
from queuecraft.testing import message_of
from tests.middleware.stage import number, stage


async def test_messages_come_at_the_rate_after_a_burst() -> None:
    async with stage() as (qc, clock):
        times: list[float] = []
        worker = qc.worker(
            "limited", concurrency=1, prefetch=50, middleware=[RateLimit(10, burst=3)]
        )

        @worker.on(number)
        async def handle(n: int) -> None:
            times.append(round(clock.monotonic(), 3))

        await worker.start()
        await qc.publish_many(number, range(8))
        await clock.advance(2)
        assert times == [0, 0, 0, 0.1, 0.2, 0.3, 0.4, 0.5]
        assert qc.get_metrics().messages_failed == 0


async def test_each_keeps_its_place() -> None:
    async with stage() as (qc, clock):
        seen: list[int] = []
        worker = qc.worker("numbers", concurrency=1, prefetch=50, middleware=[RateLimit(10)])

        @worker.on(number)
        async def handle(n: int) -> None:
            seen.append(n)

        await worker.start()
        await qc.publish_many(number, range(5))
        await clock.advance(0.25)
        await qc.publish_many(number, range(5, 8))
        await clock.advance(2)
        assert seen == list(range(8))


async def test_all_handlers_share_one_limit() -> None:
    async with stage(middleware=[RateLimit(10)]) as (qc, clock):
        times: list[float] = []

        async def handle(n: int) -> None:
            times.append(round(clock.monotonic(), 3))

        for queue in ("one", "two"):
            worker = qc.worker(queue)
            worker.on(number)(handle)
            worker.on("other", handle)
            await worker.start()
        await qc.publish(number, 1)
        await qc.publish("other", 1)
        await clock.advance(1)
        assert times == [0, 0.1, 0.2, 0.3]


async def test_a_bucket_for_each_key_does_not_hold_up_the_others() -> None:
    async with stage() as (qc, clock):
        seen: list[str | None] = []
        limit = RateLimit(1, per="key")
        worker = qc.worker("numbers", concurrency=1, prefetch=50, middleware=[limit])

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.append(message.key)

        await worker.start()
        for key in ("a", "a", "a", "b", "c"):
            await qc.publish(number, 1, key=key)
        await clock.settle()
        assert seen == ["a", "b", "c"]
        await clock.advance(2)
        assert seen == ["a", "b", "c", "a", "a"]


async def test_an_event_that_waits_in_one_queue_does_not_wait_in_another() -> None:
    async with stage(middleware=[RateLimit(1, per="queue")]) as (qc, clock):
        times: list[tuple[str, float]] = []

        async def handle(n: int, message: Message) -> None:
            times.append((message.queue, clock.monotonic()))

        for queue in ("one", "two"):
            await qc.worker(queue).on(number, handle).on(f"only.{queue}", handle).start()
        await qc.publish("only.one", 1)
        await clock.settle()
        await qc.publish(number, 1)
        await qc.publish("only.two", 1)
        await clock.advance(2)
        assert sorted(times) == [("one", 0), ("one", 1), ("two", 0), ("two", 1)]


async def test_with_another_clock_nothing_is_promised() -> None:
    limit = RateLimit(1)
    for start in (1000, 0):
        async with stage(middleware=[limit]) as (qc, clock):
            await clock.advance(start)
            seen: list[int] = []
            worker = qc.worker("numbers")

            @worker.on(number)
            async def handle(n: int) -> None:
                seen.append(n)  # noqa: B023

            await worker.start()
            await qc.publish_many(number, range(3))
            await clock.settle()
            assert seen == [0]


def test_many_that_wait_are_not_looked_through_for_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = 0

    class Counted(dict[Any, Any]):
        def items(self) -> Any:
            nonlocal looked
            looked += len(self)
            return super().items()

    monkeypatch.setattr(rate_limit, "REMEMBERED", 10)
    limit = RateLimit(1)
    vars(limit)["_promised"] = Counted()
    for n in range(1000):
        limit.wait(message_of(n, id=f"m-{n}"))
    assert looked < 4000


def test_many_buckets_are_not_looked_through_for_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = 0

    class Counted:
        def __init__(self, made: float) -> None:
            self.made = made

        def look(self) -> float:
            nonlocal looked
            looked += 1
            return self.made

        def change(self, made: float) -> None:
            self.made = made

        next = property(look, change)

    monkeypatch.setattr(rate_limit, "REMEMBERED", 10)
    monkeypatch.setattr(rate_limit, "Bucket", Counted)
    limit = RateLimit(0.001, per="key")
    for n in range(1000):
        limit.wait(message_of(n, id=f"m-{n}", key=str(n)))
    assert looked < 5000


@pytest.mark.parametrize("per", ["all", "queue"])
@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_a_backlog_stays_in_the_queue_and_comes_in_its_order_at_the_rate(
    per: Any, ordering: Any
) -> None:
    async with stage() as (qc, clock):
        seen: list[tuple[int, float]] = []
        limit = RateLimit(2, per=per)
        worker = qc.worker("numbers", prefetch=30, ordering=ordering, middleware=[limit])

        @worker.on(number)
        async def handle(n: int) -> None:
            seen.append((n, round(clock.monotonic(), 3)))

        await worker.declare()
        await qc.publish_many(number, range(200))
        await worker.start()
        for done in (1, 7, 13, 19, 25, 31, 37, 43):
            await clock.settle()
            info = await qc.admin.inspect("numbers")
            assert (info.in_flight, info.delayed, info.ready) == (30, 0, 170 - done)
            assert len(vars(limit)["_promised"]) <= 30
            await clock.advance(3)
        assert seen == [(n, n / 2) for n in range(49)]


async def test_slower_than_a_message_may_be_held_at_once_it_holds_back_the_queue() -> None:
    async with stage() as (qc, clock):
        times: list[tuple[int, float]] = []
        worker = qc.worker("numbers", prefetch=10, middleware=[RateLimit(0.1)])

        @worker.on(number)
        async def handle(n: int) -> None:
            times.append((n, round(clock.monotonic(), 3)))

        await worker.start()
        await qc.publish_many(number, range(3))
        await clock.settle()
        assert len(times) == 1
        assert (await qc.admin.inspect("numbers")).delayed == 0
        await clock.advance(21)
        assert times == [(0, 0), (1, 10), (2, 20)]


async def test_a_key_with_a_backlog_waits_at_the_broker_and_holds_up_no_other() -> None:
    async with stage() as (qc, clock):
        seen: list[tuple[str | None, float]] = []
        limit = RateLimit(1, per="key")
        worker = qc.worker("numbers", concurrency=1, prefetch=10, middleware=[limit])

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.append((message.key, clock.monotonic()))

        await worker.declare()
        for _ in range(60):
            await qc.publish(number, 1, key="many")
        await qc.publish(number, 1, key="one")
        await worker.start()
        await clock.settle()
        assert seen == [("many", 0), ("one", 0)]
        assert len(vars(limit)["_promised"]) <= 10
        await clock.advance(120)
        times = [at for key, at in seen if key == "many"]
        assert len(times) == 60
        assert all(after - before >= 0.999 for before, after in pairwise(times))
        assert times[-1] < 70
        assert qc.get_metrics().messages_postponed < 3 * 60
        assert vars(limit)["_promised"] == {}


@pytest.mark.parametrize(
    "options",
    [
        {"max_per_second": 0},
        {"max_per_second": "10"},
        {"burst": 0},
        {"burst": 1.5},
        {"per": "planet"},
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="RateLimit"):
        RateLimit(**(dict[str, Any](max_per_second=10) | options))
