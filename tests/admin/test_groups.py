"""Which dead letters are looked at next, so that a broker hardly notices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from queuecraft.admin import groups as module
from queuecraft.admin.groups import FailureGroups
from queuecraft.drivers.base import Delivery, Driver
from tests.runtime.support import Stage, dead_letter, declared, staged


def followed(stage: Stage) -> FailureGroups:
    async def ready() -> Driver:
        return stage.driver

    return FailureGroups(ready)


async def a_round(groups: FailureGroups, stage: Stage) -> None:
    task = groups.start(stage.clock.monotonic)
    assert task is not None
    await asyncio.wait_for(task, 10)


def queues_of(groups: FailureGroups) -> list[str]:
    return [each.queue for each in groups.groups]


async def filled(stage: Stage, **counts: int) -> dict[str, int]:
    for name, count in counts.items():
        await declared(stage.driver, name)
        await stage.driver.send([dead_letter(f"m-{n}", to=name) for n in range(count)])
    return counts


async def test_ten_queues_a_round_the_largest_first() -> None:
    async with staged() as stage:
        groups = followed(stage)
        groups.note(await filled(stage, **{f"q{n}": n for n in range(1, 26)}), 0.0)
        assert groups.due(0.0) == [f"q{n}" for n in range(25, 15, -1)]
        await a_round(groups, stage)
        assert stage.driver.calls["peek"] == 10
        assert groups.due(0.0) == [f"q{n}" for n in range(15, 5, -1)]


async def test_those_that_grew_last_come_first() -> None:
    async with staged() as stage:
        groups = followed(stage)
        groups.note({"old": 9, "new": 3}, 1.0)
        groups.note({"old": 9, "new": 4}, 2.0)
        assert groups.due(2.0) == ["new", "old"]


async def test_no_more_than_so_many_letters_are_looked_at() -> None:
    async with staged() as stage:
        groups = followed(stage)
        groups.note(await filled(stage, a=2500, b=2500, c=2500), 0.0)
        await a_round(groups, stage)
        assert groups.looked_at == 4000
        assert [(group.queue, group.count) for group in groups.groups] == [("a", 2000), ("b", 2000)]


async def test_fewer_are_looked_at_where_that_marks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged() as stage:
        monkeypatch.setattr(stage.driver, "traits", replace(stage.driver.traits, peek="marks"))
        groups = followed(stage)
        groups.note(await filled(stage, a=500), 0.0)
        await a_round(groups, stage)
        assert groups.looked_at == 200


async def test_rounds_keep_their_distance() -> None:
    async with staged() as stage:
        groups = followed(stage)
        groups.note(await filled(stage, a=1), 0.0)
        await a_round(groups, stage)
        groups.note({"a": 2}, 11.0)
        assert groups.start(stage.clock.monotonic) is None
        await stage.clock.advance(11)
        await a_round(groups, stage)


async def test_what_cannot_be_looked_into_keeps_nothing_else_from_it() -> None:
    async with staged() as stage:
        groups = followed(stage)
        groups.note({"gone": 99, **await filled(stage, a=1)}, 0.0)
        await a_round(groups, stage)
        assert [group.queue for group in groups.groups] == ["a"]


async def test_a_lost_connection_ends_the_round_and_the_next_one_goes_on() -> None:
    async with staged() as stage:
        groups = followed(stage)
        groups.note(await filled(stage, a=1), 0.0)
        stage.driver.fail("peek")
        await a_round(groups, stage)
        assert groups.groups == ()
        await stage.clock.advance(2)
        await a_round(groups, stage)
        assert len(groups.groups) == 1


async def test_a_broker_that_hangs_ends_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged() as stage:

        async def hang(queue: str, limit: int) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(stage.driver, "peek", hang)
        monkeypatch.setattr(module, "ANSWER", 0.01)
        groups = followed(stage)
        groups.note({"a": 1}, 0.0)
        await a_round(groups, stage)
        assert groups.groups == ()


async def test_letters_that_were_sent_back_and_died_again_are_looked_at_again() -> None:
    async with staged() as stage:
        groups = followed(stage)
        groups.note(await filled(stage, a=2), 0.0, {"a": 2})
        await a_round(groups, stage)
        await stage.driver.purge("a")
        await stage.driver.send([dead_letter("m-9", to="a"), dead_letter("m-10", to="a")])
        await stage.clock.advance(11)
        groups.note({"a": 2}, 11.0, {"a": 2})
        assert groups.start(stage.clock.monotonic) is None
        groups.note({"a": 2}, 11.0, {"a": 4})
        await a_round(groups, stage)
        (group,) = groups.groups
        assert group.example == "m-10"


async def test_a_queue_that_hangs_keeps_the_others_waiting_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged() as stage:
        peek = stage.driver.peek

        async def hang(queue: str, limit: int) -> Sequence[Delivery]:
            if queue == "hangs":
                await asyncio.Event().wait()
            return await peek(queue, limit)

        groups = followed(stage)
        groups.note(await filled(stage, hangs=9, a=1), 0.0)
        monkeypatch.setattr(stage.driver, "peek", hang)
        monkeypatch.setattr(module, "ANSWER", 0.01)
        await a_round(groups, stage)
        assert groups.groups == ()
        await stage.clock.advance(2)
        await a_round(groups, stage)
        assert queues_of(groups) == ["a"]
        monkeypatch.setattr(stage.driver, "peek", peek)
        await stage.clock.advance(11)
        await a_round(groups, stage)
        assert queues_of(groups) == ["hangs", "a"]
