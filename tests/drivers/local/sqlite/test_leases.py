"""Ranges of messages in hand: extended, split, taken from the head, whatever the order of settling.

A wrong range would be the worst of errors here: it deletes or delivers what it should not.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from queuecraft.drivers.base import ACCEPTED, Delivery, Move, Outgoing, Queue, Subscription
from queuecraft.drivers.local.sqlite import SqliteDriver
from tests.drivers.local.sqlite.conftest import Opener
from tests.drivers.local.sqlite.file import messages, rows, scratch

JOBS = Queue[Any]("jobs")
CONSUMERS = st.integers(0, 1)
PICK = st.lists(st.integers(0, 15), min_size=1, max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.lists(st.sampled_from([0, 0, 0, 4]), min_size=1, max_size=6)),
        st.tuples(st.just("receive"), CONSUMERS, st.integers(1, 6)),
        st.tuples(st.just("receive"), CONSUMERS, st.integers(1, 6)),
        st.tuples(st.just("ack"), CONSUMERS, PICK),
        st.tuples(st.just("release"), CONSUMERS, PICK),
        st.tuples(st.just("move"), CONSUMERS, PICK),
    ),
    min_size=8,
    max_size=40,
)


@dataclass
class Hands:
    """Two consumers of one queue, and what must be in it: (urgency, number) of each message."""

    driver: SqliteDriver
    consumers: list[Subscription]
    ready: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    held: list[dict[Delivery, tuple[int, int]]] = field(default_factory=lambda: [{}, {}])
    moved: list[str] = field(default_factory=list[str])
    sent: int = 0

    async def send(self, priorities: list[int]) -> None:
        batch: list[Outgoing] = []
        for priority in priorities:
            self.sent += 1
            batch.append(Outgoing(b"", str(self.sent), queue="jobs", priority=priority))
            self.ready.append((-priority, self.sent))
        self.ready.sort()
        assert await self.driver.send(batch) == [ACCEPTED] * len(batch)

    async def receive(self, who: int, limit: int) -> None:
        taken = await self.consumers[who].receive(limit, 0)
        expected, self.ready = self.ready[:limit], self.ready[limit:]
        assert [each.sent.id for each in taken] == [str(number) for _, number in expected]
        self.held[who].update(zip(taken, expected, strict=True))

    def pick(self, who: int, numbers: list[int]) -> list[Delivery]:
        held = list(self.held[who])
        return list(dict.fromkeys(held[n % len(held)] for n in numbers)) if held else []

    async def ack(self, who: int, numbers: list[int]) -> None:
        chosen = self.pick(who, numbers)
        assert await self.consumers[who].ack(chosen) == []
        for each in chosen:
            del self.held[who][each]

    async def release(self, who: int, numbers: list[int]) -> None:
        chosen = self.pick(who, numbers)
        await self.consumers[who].release(chosen)
        self.ready = sorted([*self.ready, *(self.held[who].pop(each) for each in chosen)])

    async def move(self, who: int, numbers: list[int]) -> None:
        chosen = self.pick(who, numbers)
        # Every other one cannot be moved, and stays in hand.
        targets = ["done" if at % 2 == 0 else "missing" for at in range(len(chosen))]
        moves = [
            Move(each, Outgoing(b"", each.sent.id, queue=to))
            for each, to in zip(chosen, targets, strict=True)
        ]
        receipts = await self.consumers[who].move(moves)
        assert [receipt is ACCEPTED for receipt in receipts] == [to == "done" for to in targets]
        for each in chosen[::2]:
            del self.held[who][each]
            self.moved.append(each.sent.id)

    async def check(self) -> None:
        info, done = await self.driver.inspect(["jobs", "done"])
        assert (info.ready, info.in_flight) == (len(self.ready), sum(map(len, self.held)))
        assert done.ready == len(self.moved)
        peeked = await self.driver.peek("jobs", 1000)
        assert [each.sent.id for each in peeked] == [str(number) for _, number in self.ready]
        assert [each.sent.id for each in await self.driver.peek("done", 1000)] == self.moved


@settings(max_examples=120)
@given(STEPS)
@example([("send", [0] * 6), ("receive", 0, 6), ("ack", 0, [2]), ("ack", 0, [0, 1, 2, 3, 4])])
@example(
    [
        ("send", [0] * 6),
        ("receive", 0, 5),
        ("release", 0, [1, 3]),
        ("receive", 1, 1),
        ("ack", 1, [0]),
    ]
)
def test_every_message_is_ready_or_in_one_hand_or_gone(steps: list[tuple[Any, ...]]) -> None:
    async def play() -> None:
        with scratch() as folder:
            driver = SqliteDriver(Path(folder) / "queue.db")
            await driver.open()
            for name in ("jobs", "done"):
                await driver.declare(Queue(name))
            consumers = [await driver.subscribe(JOBS, prefetch=1000) for _ in range(2)]
            hands = Hands(driver, consumers)
            for step in steps:
                await getattr(hands, step[0])(*step[1:])
                await hands.check()
            for who in (0, 1):  # what is left can be settled to the last
                await hands.ack(who, list(range(len(hands.held[who]))))
            await hands.receive(0, 1000)
            await hands.ack(0, list(range(len(hands.held[0]))))
            await hands.check()
            path = Path(folder) / "queue.db"
            assert rows(path, "SELECT * FROM lease") == []
            await driver.close()

    asyncio.run(play())


@pytest.fixture
async def driver(open_driver: Opener) -> SqliteDriver:
    driver = await open_driver()
    await driver.declare(JOBS)
    return driver


async def test_a_long_row_of_messages_is_one_lease(driver: SqliteDriver, path: Path) -> None:
    await driver.send(messages("jobs", *map(str, range(100))))
    subscription = await driver.subscribe(JOBS, prefetch=100)
    for _ in range(10):
        taken = await subscription.receive(10, 0)
        await subscription.ack(taken[:3])  # it goes on covering what is gone
    assert len(rows(path, "SELECT * FROM lease")) == 1
    assert [(info.ready, info.in_flight) for info in await driver.inspect()] == [(0, 70)]


async def test_urgent_messages_get_ahead_of_a_lease_that_reaches_far(driver: SqliteDriver) -> None:
    await driver.send(messages("jobs", "a", "b"))
    subscription = await driver.subscribe(JOBS, prefetch=9)
    await subscription.receive(1, 0)
    await driver.send(messages("jobs", "urgent", priority=1))
    await driver.send(messages("jobs", "most urgent", priority=255))
    assert [each.sent.id for each in await subscription.receive(9, 0)] == [
        "most urgent",
        "urgent",
        "b",
    ]


async def test_what_is_purged_leaves_no_count_for_what_takes_its_place(
    driver: SqliteDriver, path: Path
) -> None:
    await driver.send(messages("jobs", "a", "b"))
    subscription = await driver.subscribe(JOBS, prefetch=2)
    await subscription.receive(2, 0)
    await subscription.close()
    assert [each.redeliveries for each in await driver.peek("jobs", 2)] == [1, 1]

    assert await driver.purge("jobs") == 2

    assert rows(path, "SELECT * FROM redelivery") == []


async def test_delayed_messages_come_in_the_order_of_their_times(open_driver: Opener) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    now = driver._now()
    for id, due in (("c", 3), ("a", 1), ("b", 2), ("a too", 1)):
        await driver.send(messages("jobs", id, due_at=now + 1000 + due))
    driver._now = lambda: now + 2000

    assert [each.sent.id for each in await driver.peek("jobs", 9)] == ["a", "a too", "b", "c"]
