"""A commit that fails is tried again; what was never committed is handled again, and not lost."""

from __future__ import annotations

from math import inf
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from queuecraft import Queue, QueueCraft
from queuecraft.drivers.kafka import forwarding, member
from queuecraft.drivers.kafka.commits import Commits
from queuecraft.drivers.kafka.names import FORWARDERS
from queuecraft.testing import Ledger
from tests.kafka.place import Order, order_placed, running, until

commit = Commits._commit


def failing(times: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let so many commits fail; how many have been asked for."""
    asked: list[int] = []

    def fail(self: Commits, offsets: list[TopicPartition]) -> None:
        asked.append(len(offsets))
        if len(asked) <= times:
            raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        commit(self, offsets)

    monkeypatch.setattr(Commits, "_commit", fail)
    return asked


async def test_a_commit_that_fails_is_tried_until_it_is_done(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Ledger()
    asked = failing(3, monkeypatch)
    qc = QueueCraft(url)
    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with qc, running(billing):
        await qc.publish_many(order_placed, [Order(f"o-{n}") for n in range(5)])
        await seen.wait_for(timeout=20, billing=5)
        await until(lambda: qc.admin.inspect("billing"), lambda info: info.ready == 0)
    assert len(asked) > 3
    assert len(seen.calls) == 5


async def test_what_could_never_be_committed_is_handled_by_the_next(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Ledger()
    orders = [Order(f"o-{n}") for n in range(5)]
    for name in ("first", "second"):
        with monkeypatch.context() as patch:
            if name == "first":
                failing(1000, patch)
            qc = QueueCraft(url)
            billing = qc.worker("billing", prefetch=5).on(order_placed, seen.recording(name))
            async with qc, running(billing):
                if name == "first":
                    await qc.publish_many(order_placed, orders)
                await seen.wait_for(timeout=20, **{name: 5})
    assert sorted(seen.ids("first")) == sorted(seen.ids("second"))


class Stubborn:
    """A consumer whose commits fail for a while."""

    failures: ClassVar[float] = 0
    asked: ClassVar[int] = 0

    def __init__(self, settings: dict[str, Any]) -> None:
        self._real: Any = Consumer(settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> Any:
        Stubborn.asked += 1
        if Stubborn.failures > 0:
            Stubborn.failures -= 1
            if asynchronous:
                return None  # nobody ever answers
            raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        return self._real.commit(offsets=offsets, asynchronous=asynchronous)


async def test_who_leaves_says_how_far_he_came_until_it_is_heard(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Ledger()
    monkeypatch.setattr(member, "Consumer", Stubborn)
    monkeypatch.setattr(Stubborn, "failures", inf)
    qc = QueueCraft(url)
    billing = qc.worker("billing", prefetch=5).on(order_placed, seen.recording("billing"))
    async with qc:
        async with running(billing):
            await qc.publish_many(order_placed, [Order(f"o-{n}") for n in range(5)])
            await seen.wait_for(timeout=20, billing=5)
            assert (await qc.admin.inspect("billing")).ready == 5
            Stubborn.failures = 2
        assert (await qc.admin.inspect("billing")).ready == 0


async def test_while_commits_fail_no_more_is_handled_than_may_be_handled_twice(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Ledger()
    monkeypatch.setattr(member, "Consumer", Stubborn)
    monkeypatch.setattr(Stubborn, "failures", inf)
    qc = QueueCraft(url)
    billing = qc.worker("billing", prefetch=8).on(order_placed, seen.recording("billing"))
    async with qc, running(billing):
        await qc.publish_many(order_placed, [Order(f"o-{n}") for n in range(40)])
        await seen.wait_for(timeout=20, billing=8)
        asked = Stubborn.asked
        await until(lambda: commits_asked_for(asked + 4), bool)
        assert len(seen.calls) == 8
        Stubborn.failures = 0
        await seen.wait_for(timeout=20, billing=40)
    assert len(set(seen.ids())) == len(seen.calls) == 40


async def test_who_cannot_commit_and_waits_for_it_still_shares_with_one_who_comes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit may fail until the group is shared out anew, and that takes a member who polls."""
    seen = Ledger()
    monkeypatch.setattr(member, "Consumer", Stubborn)
    monkeypatch.setattr(Stubborn, "failures", inf)
    one, two = QueueCraft(url), QueueCraft(url)
    queue = Queue("billing", Order)
    first, second = one.worker(queue, prefetch=8), two.worker(queue, prefetch=8)
    for name, worker in (("first", first), ("second", second)):
        worker.on(order_placed, seen.recording(name)).on(queue, seen.recording(name))
    orders = [Order(f"o-{n}") for n in range(40)]
    async with one, two, running(first):
        for each in orders:  # by their keys they are in all partitions, of which both have some
            await one.publish(order_placed, each, key=each.id)
            await one.send(queue, each, key=each.id)
        await seen.wait_for(timeout=20, first=8)
        async with running(second):
            await seen.wait_for(timeout=20, second=1)
            assert len(seen.ids("first")) == 8
            Stubborn.failures = 0
            await until(lambda: one.admin.inspect("billing"), lambda info: not info.ready)
    assert {each.id for each in seen.payloads()} == {each.id for each in orders}


class Reluctant(Stubborn):
    """The same, if it is of those who move on what has waited."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._moves_on = settings["group.id"].endswith(FORWARDERS)

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> Any:
        if self._moves_on:
            return super().commit(offsets=offsets, asynchronous=asynchronous)
        return self._real.commit(offsets=offsets, asynchronous=asynchronous)


async def test_while_commits_fail_no_more_is_moved_on_than_may_come_twice(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Ledger()
    monkeypatch.setattr(member, "Consumer", Reluctant)
    monkeypatch.setattr(Stubborn, "failures", inf)
    monkeypatch.setattr(forwarding, "BATCH", 5)
    monkeypatch.setattr(forwarding, "AT_RISK", 10)
    qc = QueueCraft(url)
    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with qc, running(billing):
        await qc.publish_many(order_placed, [Order(f"o-{n}") for n in range(40)], delay=0.2)
        await seen.wait_for(timeout=20, billing=1)
        asked = Stubborn.asked
        await until(lambda: commits_asked_for(asked + 4), bool)
        assert 1 <= len(seen.calls) <= 10
        Stubborn.failures = 0
        await seen.wait_for(timeout=20, billing=40)
    assert len(set(seen.ids())) == len(seen.calls) == 40


async def commits_asked_for(count: int) -> bool:
    return Stubborn.asked >= count
