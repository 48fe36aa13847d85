"""Publishing through whatever Hypothesis thinks of: what a caller is told is always true."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from queuecraft import Exchange, PublishError, QueueCraft, QueueError, QueueFull, TopologyMismatch
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.testing import FakeClock, FaultyDriver
from tests.runtime.publishing import Order, order_placed, started

STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 5)),
    st.tuples(st.just("many"), st.integers(1, 600)),
    st.tuples(st.just("atomic"), st.integers(1, 5)),
    st.tuples(st.just("misfit"), st.just(None)),
    st.tuples(st.just("cancel"), st.integers(0, 50)),
    st.tuples(st.just("turns"), st.integers(1, 5)),
    st.tuples(st.just("advance"), st.sampled_from([0.01, 0.06, 1.0, 10.0, 31.0])),
    st.tuples(st.just("drop"), st.just(None)),
    st.tuples(st.just("refuse"), st.integers(1, 5)),
    st.tuples(st.just("fail"), st.sampled_from(["send", "prepare", "declare"])),
    st.tuples(st.just("lose"), st.tuples(st.booleans(), st.sets(st.integers(0, 3)))),
    st.tuples(st.just("reject"), st.integers(1, 3)),
    st.tuples(st.just("hang"), st.booleans()),
    st.tuples(st.just("release"), st.just(None)),
)


@dataclass
class World:
    """An app, its broker, and what became of everything that was published."""

    inline: bool
    options: Any
    clock: FakeClock = field(default_factory=lambda: FakeClock(turns=20))
    calls: list[tuple[list[str], asyncio.Task[Any]]] = field(default_factory=list[Any])
    hangs: list[Any] = field(default_factory=list[Any])
    made: int = 0

    async def open(self) -> None:
        self.driver = FaultyDriver(MemoryDriver(self.clock), inline=self.inline)
        self.qc = QueueCraft(drivers=[self.driver], clock=self.clock, **self.options)
        self.qc.worker("billing").on("order.#", print)
        await self.qc.open()

    async def do(self, step: str, value: Any) -> None:
        match step:
            case "publish":
                for _ in range(value):
                    self._publish()
            case "misfit":
                self._publish(exchange=Exchange("events", "fanout"))
            case "many" | "atomic":
                orders = [Order(self._id()) for _ in range(value)]
                work = self.qc.publish_many(
                    order_placed, orders, atomic=step == "atomic", return_exceptions=True
                )
                self.calls.append(([order.id for order in orders], started(work)))
            case "cancel" if self.calls:
                self.calls[value % len(self.calls)][1].cancel()
            case "turns":
                for _ in range(value):
                    await asyncio.sleep(0)
            case "advance":
                await self.clock.advance(value)
            case "drop":
                await self.driver.drop()
            case "refuse":
                self.driver.refuse(opens=value)
            case "fail":
                self.driver.fail(value)
            case "lose":
                stored, positions = value
                self.driver.lose_answers(positions or None, stored=stored)
            case "reject":
                self.driver.reject(times=value)
            case "hang" if not self.inline:
                self.hangs.append(self.driver.hang(stored=value))
            case "release":
                self._release()
            case _:
                pass

    async def end(self) -> None:
        """Mend everything, and wait for every answer."""
        self.driver.heal()
        for _ in range(2):
            self._release()
            await self.clock.advance(100)
        if self.calls:
            _, waiting = await asyncio.wait([task for _, task in self.calls], timeout=5)
            assert not waiting, "a caller still waits"

    async def stored(self) -> Counter[str]:
        """How often the broker has each order."""
        await self.driver.inner.open()
        bodies = [each.sent.body for each in await self.driver.inner.peek("billing", 1_000_000)]
        return Counter(body.split(b'"')[3].decode() for body in bodies)

    def _publish(self, **options: Any) -> None:
        id = self._id()
        self.calls.append(([id], started(self.qc.publish(order_placed, Order(id), **options))))

    def _release(self) -> None:
        for hang in self.hangs:
            hang.release()

    def _id(self) -> str:
        self.made += 1
        return f"o-{self.made}"


def _outcomes(ids: list[str], task: asyncio.Task[Any]) -> list[tuple[str, Any]]:
    if task.cancelled():
        return [(id, "cancelled") for id in ids]
    error = task.exception()
    if error is not None:
        return [(id, error) for id in ids]
    result = task.result()
    return list(zip(ids, result if isinstance(result, list) else [result], strict=True))


@settings(max_examples=150)
@given(
    st.lists(STEPS, max_size=40),
    st.booleans(),
    st.fixed_dictionaries(
        {},
        optional={
            "on_outage": st.just("fail"),
            "max_pending": st.just(5),
            "auto_reconnect": st.just(False),
            "reconnect_attempts": st.just(2),
            "publish_timeout": st.just(5.0),
        },
    ),
)
async def test_what_a_caller_is_told_is_true(
    steps: list[tuple[str, Any]], inline: bool, options: Any
) -> None:
    world = World(inline, options)
    await world.open()
    for step, value in steps:
        await world.do(step, value)
    await world.end()

    sender = world.qc._engine.publisher._sender
    assert not sender.entries
    assert sender._waiting == 0
    assert sender._task is None
    await world.qc.shutdown()
    stored = await world.stored()
    for ids, task in world.calls:
        for id, result in _outcomes(ids, task):
            match result:
                case str() if result == "cancelled":
                    pass
                case str():
                    assert stored[id] >= 1, f"{id} was confirmed and is not stored"
                case PublishError(outcome="unknown"):
                    pass
                case PublishError() | QueueFull() | TopologyMismatch():
                    assert stored[id] == 0, f"{id} was rejected and is stored: {result}"
                case _:
                    raise AssertionError(f"{id} ended with {result!r}")
    assert world.qc.get_metrics().messages_sent <= sum(stored.values())


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["drop", "fail", "refuse", "none"]), max_size=12))
async def test_order_is_kept_through_every_lost_connection(breaks: list[str]) -> None:
    """As long as the broker itself loses no answer, everything arrives once and in order."""
    world = World(False, {"publish_timeout": 1000.0})
    await world.open()
    for each in breaks:
        await world.do("publish", 3)
        if each == "refuse":
            await world.do("refuse", 2)
            await world.do("drop", None)
        elif each == "fail":
            await world.do("fail", "send")
        elif each == "drop":
            await world.do("drop", None)
        await world.do("turns", 2)
    await world.end()
    await world.end()
    results: list[str | QueueError] = [task.result() for _, task in world.calls]
    assert all(isinstance(each, str) for each in results)
    stored = [each.sent for each in await world.driver.inner.peek("billing", 1_000_000)]
    first = list(dict.fromkeys(message.id for message in stored))
    assert first == results
    await world.qc.shutdown()
