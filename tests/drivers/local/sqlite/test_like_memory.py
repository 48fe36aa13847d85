"""In a file or in memory, the embedded queue behaves the same, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from queuecraft.drivers.base import (
    Binding,
    Delivery,
    Driver,
    Exchange,
    Move,
    Outgoing,
    Queue,
    Receipt,
    Rejected,
    Subscription,
)
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.drivers.local.sqlite import SqliteDriver
from queuecraft.model.queue import DeadLetterTarget
from queuecraft.testing import FakeClock
from tests.drivers.local.sqlite.file import scratch

EVENTS = Exchange("events")
LABELS = Exchange("labels", type="headers")
QUEUES: dict[str, Queue[Any]] = {
    "one": Queue(
        "one",
        bindings=(Binding(EVENTS, "a.*"), Binding(LABELS, "", {"x-match": "any", "to": "one"})),
        dead_letters=DeadLetterTarget("dead", "one.dlq", "one"),
    ),
    "two": Queue("two", bindings=(Binding(EVENTS, "#"),)),
}
NAMES = st.sampled_from(["one", "two"])
SOME = st.integers(1, 6)
MESSAGES: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.builds(
        dict,
        to=st.sampled_from(["one", "two", "missing", "a.x", "b.x", "label"]),
        priority=st.sampled_from([0, 0, 3, 255]),
        delay=st.sampled_from([None, None, 0, 2, 5]),
    ),
    min_size=1,
    max_size=5,
)
Step: TypeAlias = tuple[Any, ...]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), MESSAGES, st.booleans()),
        st.tuples(st.just("receive"), NAMES, SOME),
        st.tuples(st.just("ack"), NAMES, st.sets(st.integers(0, 5), min_size=1)),
        st.tuples(st.just("release"), NAMES),
        st.tuples(st.just("move"), NAMES, st.sampled_from(["one", "one.dlq", "missing"]), SOME),
        st.tuples(st.just("leave"), NAMES),
        st.tuples(st.just("wait"), SOME),
        st.tuples(st.just("purge"), NAMES),
        st.tuples(st.just("unbind")),
        st.tuples(st.just("reopen")),
    ),
    min_size=5,
    max_size=40,
)


class Player:
    """Does what is asked of a driver, and writes down what comes of it."""

    def __init__(self, driver: Driver, clock: FakeClock) -> None:
        self.driver = driver
        self.clock = clock
        self.subscriptions: dict[str, Subscription] = {}
        self.held: dict[str, list[Delivery]] = {name: [] for name in QUEUES}
        self.log: list[object] = []
        self.sent = 0

    async def play(self, steps: Sequence[Step]) -> list[object]:
        await self.driver.open()
        for queue in QUEUES.values():
            await self.driver.declare(queue)
        for step in steps:
            await getattr(self, step[0])(*step[1:])
            await self.look()
        topology = await self.driver.topology()
        self.log.append((set(topology.queues), {each.name for each in topology.exchanges}))
        self.log.append(
            sorted(
                (b.exchange.name, b.pattern, str(sorted(b.headers)), q)
                for b, q in topology.bindings
            )
        )
        await self.driver.close()
        return self.log

    async def look(self) -> None:
        infos = await self.driver.inspect()
        self.log.append(sorted(infos, key=lambda info: info.name))
        for info in infos:
            self.log.append(_facts(await self.driver.peek(info.name, 1000)))

    async def subscription(self, queue: str) -> Subscription:
        if queue not in self.subscriptions:
            subscription = await self.driver.subscribe(QUEUES[queue], prefetch=8)
            self.subscriptions[queue] = subscription
        return self.subscriptions[queue]

    async def send(self, wanted: list[dict[str, Any]], atomic: bool) -> None:
        batch: list[Outgoing] = []
        for each in wanted:
            self.sent += 1
            to, delay = each["to"], each["delay"]
            where: dict[str, Any] = {"queue": to}
            if to == "label":
                where = {"exchange": "labels", "headers": {"to": "one"}}
            elif "." in to:
                where = {"exchange": "events", "routing_key": to}
            due = None if delay is None else self.clock.now() + delay
            id, at = f"m-{self.sent}", self.clock.now()
            batch.append(
                Outgoing(b"", id, timestamp=at, priority=each["priority"], due_at=due, **where)
            )
        self.log.append([_answer(r) for r in await self.driver.send(batch, atomic=atomic)])

    async def receive(self, queue: str, limit: int) -> None:
        taken = await (await self.subscription(queue)).receive(limit, 0)
        self.held[queue] += taken
        self.log.append(_facts(taken))

    async def ack(self, queue: str, chosen: set[int]) -> None:
        held = self.held[queue]
        done = [each for at, each in enumerate(held) if at in chosen]
        subscription = await self.subscription(queue)
        self.log.append(_facts(await subscription.ack(done)))
        self.log.append(_facts(await subscription.ack(done)))  # by now they are stale
        self.held[queue] = [each for each in held if each not in done]

    async def release(self, queue: str) -> None:
        await (await self.subscription(queue)).release(self.held[queue])
        self.held[queue] = []

    async def move(self, queue: str, to: str, count: int) -> None:
        moving = self.held[queue][:count]
        moves = [Move(each, replace(each.sent, queue=to, due_at=None)) for each in moving]
        receipts = await (await self.subscription(queue)).move(moves)
        self.log.append([_answer(receipt) for receipt in receipts])
        if to != "missing":
            self.held[queue] = self.held[queue][count:]

    async def leave(self, queue: str) -> None:
        await (await self.subscription(queue)).close()
        del self.subscriptions[queue]
        self.held[queue] = []

    async def wait(self, seconds: int) -> None:
        await self.clock.advance(seconds)

    async def purge(self, queue: str) -> None:
        self.log.append(await self.driver.purge(queue))

    async def unbind(self) -> None:
        await self.driver.unbind("two", [Binding(EVENTS, "#")])

    async def reopen(self) -> None:
        await self.driver.close()
        await self.driver.open()
        self.subscriptions.clear()
        self.held = {name: [] for name in QUEUES}


def _facts(deliveries: Sequence[Delivery]) -> list[tuple[str, int, str, int]]:
    return [(d.sent.id, d.sent.priority, d.queue, d.redeliveries) for d in deliveries]


def _answer(receipt: Receipt) -> str:
    return str(receipt.error) if isinstance(receipt, Rejected) else type(receipt).__name__


@settings(max_examples=60)
@given(STEPS)
def test_both_give_the_same_answers(steps: list[Step]) -> None:
    async def both() -> tuple[list[object], list[object]]:
        one, two = FakeClock(turns=10), FakeClock(turns=10)
        with scratch() as folder:
            file = Player(SqliteDriver(Path(folder) / "queue.db", one), one)
            return await file.play(steps), await Player(MemoryDriver(two), two).play(steps)

    in_file, in_memory = asyncio.run(both())
    assert in_file == in_memory
