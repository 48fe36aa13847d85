"""A commit that fails is tried again; what was never committed is handled again, and not lost."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from queuecraft import QueueCraft
from queuecraft.drivers.kafka import subscription
from queuecraft.drivers.kafka.subscription import KafkaSubscription, Place
from queuecraft.testing import Ledger
from tests.kafka.place import Order, order_placed, running, until

say = KafkaSubscription._say


def failing(times: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let so many commits fail; how many have been asked for."""
    asked: list[int] = []

    def fail(self: KafkaSubscription, places: Iterable[Place]) -> None:
        known = list(places)
        if known:
            asked.append(len(known))
            if len(asked) <= times:
                raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        say(self, known)

    monkeypatch.setattr(KafkaSubscription, "_say", fail)
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
            billing = qc.worker("billing").on(order_placed, seen.recording(name))
            async with qc, running(billing):
                if name == "first":
                    await qc.publish_many(order_placed, orders)
                await seen.wait_for(timeout=20, **{name: 5})
    assert sorted(seen.ids("first")) == sorted(seen.ids("second"))


class Stubborn:
    """A consumer whose commits fail for a while."""

    failures: ClassVar[float] = 0

    def __init__(self, settings: dict[str, Any]) -> None:
        self._real: Any = Consumer(settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> Any:
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
    monkeypatch.setattr(subscription, "Consumer", Stubborn)
    monkeypatch.setattr(Stubborn, "failures", inf)
    qc = QueueCraft(url)
    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with qc:
        async with running(billing):
            await qc.publish_many(order_placed, [Order(f"o-{n}") for n in range(5)])
            await seen.wait_for(timeout=20, billing=5)
            assert (await qc.admin.inspect("billing")).ready == 5
            Stubborn.failures = 2
        assert (await qc.admin.inspect("billing")).ready == 0
