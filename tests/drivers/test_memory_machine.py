"""The queue in memory against a model of itself, through whatever Hypothesis thinks of."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace as changed

from queuecraft.drivers.base import (
    ACCEPTED,
    Binding,
    Delivery,
    Exchange,
    Move,
    Outgoing,
    Queue,
    Subscription,
)
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.testing import FakeClock

R = TypeVar("R")

EVENTS = Exchange("events")
QUEUES: dict[str, Queue[Any]] = {
    "one": Queue("one", bindings=(Binding(EVENTS, "a.*"),)),
    "two": Queue("two", bindings=(Binding(EVENTS, "*.b"), Binding(EVENTS, "a.b"))),
}
ROUTES = {"a.a": ("one",), "a.b": ("one", "two"), "b.b": ("two",), "b.a": ()}
PREFETCH = 4

NAMES = st.sampled_from(sorted(QUEUES))
SEVERAL = st.integers(1, 5)


@dataclass(frozen=True)
class Waiting:
    """A message as the model knows it."""

    id: str
    priority: int = 0
    redeliveries: int = 0


@dataclass
class Consumer:
    queue: str
    subscription: Subscription
    held: dict[Delivery, Waiting] = field(default_factory=dict)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock(start=1000.0, turns=3)
        self.driver = MemoryDriver(self.clock)
        self.ready: dict[str, list[Waiting]] = {name: [] for name in QUEUES}
        self.delayed: list[tuple[float, int, str, Waiting]] = []
        self.consumers: list[Consumer] = []
        self.stale: list[Delivery] = []
        self.sent = 0
        self.run(self.driver.open())
        for queue in QUEUES.values():
            self.run(self.driver.declare(queue))

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        self.run(self.driver.close())
        self.loop.close()

    # -- the model -----------------------------------------------------------------------------

    def put(self, queue: str, message: Waiting) -> None:
        self.ready[queue].append(message)
        self.ready[queue].sort(key=lambda each: -each.priority)  # stable: first come, first served

    def put_back(self, queue: str, messages: list[Waiting]) -> None:
        self.ready[queue][:0] = messages
        self.ready[queue].sort(key=lambda each: -each.priority)

    def put_later(self, due: float, queue: str, message: Waiting) -> None:
        if due <= self.clock.now():
            self.put(queue, message)
        else:
            self.delayed.append((due, len(self.delayed) + self.sent * 1000, queue, message))

    def outgoing(self, **fields: Any) -> Outgoing:
        self.sent += 1
        return Outgoing(b"", f"m-{self.sent}", **fields)

    # -- what may happen -----------------------------------------------------------------------

    @rule(queue=NAMES, count=SEVERAL, priority=st.sampled_from([0, 0, 1, 5]))
    def send(self, queue: str, count: int, priority: int) -> None:
        batch = [self.outgoing(queue=queue, priority=priority) for _ in range(count)]
        assert self.run(self.driver.send(batch)) == [ACCEPTED] * count
        for message in batch:
            self.put(queue, Waiting(message.id, priority))

    @rule(events=st.lists(st.sampled_from(sorted(ROUTES)), min_size=1, max_size=5))
    def publish(self, events: list[str]) -> None:
        batch = [self.outgoing(exchange="events", routing_key=event) for event in events]
        receipts = self.run(self.driver.send(batch))
        assert [each is ACCEPTED for each in receipts] == [bool(ROUTES[event]) for event in events]
        for message in batch:
            for queue in ROUTES[message.routing_key]:
                self.put(queue, Waiting(message.id))

    @rule(queue=NAMES, delay=st.integers(-1, 5))
    def send_later(self, queue: str, delay: int) -> None:
        message = self.outgoing(queue=queue, due_at=self.clock.now() + delay)
        assert self.run(self.driver.send([message])) == [ACCEPTED]
        self.put_later(self.clock.now() + delay, queue, Waiting(message.id))

    @rule(seconds=st.integers(0, 4))
    def time_passes(self, seconds: int) -> None:
        self.run(self.clock.advance(seconds))
        now = self.clock.now()
        for _, _, queue, message in sorted(each for each in self.delayed if each[0] <= now):
            self.put(queue, message)
        self.delayed = [each for each in self.delayed if each[0] > now]

    @precondition(lambda self: len(self.consumers) < 3)
    @rule(queue=NAMES)
    def subscribe(self, queue: str) -> None:
        subscription = self.run(self.driver.subscribe(QUEUES[queue], prefetch=PREFETCH))
        self.consumers.append(Consumer(queue, subscription))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), limit=SEVERAL)
    def receive(self, data: st.DataObject, limit: int) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        got = self.run(consumer.subscription.receive(limit, 0))
        count = min(limit, PREFETCH - len(consumer.held))
        queue = self.ready[consumer.queue]
        expected, queue[:count] = queue[:count], []
        assert [Waiting(d.sent.id, d.sent.priority, d.redeliveries) for d in got] == expected
        consumer.held.update(zip(got, expected, strict=True))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), turns=st.integers(0, 3), count=st.integers(0, 2))
    def cancel_a_receive(self, data: st.DataObject, turns: int, count: int) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        batch = [self.outgoing(queue=consumer.queue) for _ in range(count)]

        async def cancelled() -> list[Delivery]:
            waiting = asyncio.ensure_future(consumer.subscription.receive(10, 60))
            await asyncio.sleep(0)
            await self.driver.send(batch)
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            return [] if waiting.cancelled() else list(waiting.result())

        got = self.run(cancelled())
        for message in batch:
            self.put(consumer.queue, Waiting(message.id))
        queue = self.ready[consumer.queue]
        expected, queue[: len(got)] = queue[: len(got)], []
        assert [each.sent.id for each in got] == [each.id for each in expected]
        consumer.held.update(zip(got, expected, strict=True))

    def some_held(self, data: st.DataObject) -> tuple[Consumer, list[Delivery]]:
        consumer = data.draw(st.sampled_from([each for each in self.consumers if each.held]))
        held = list(consumer.held)
        chosen = data.draw(st.lists(st.sampled_from(range(len(held))), min_size=1, unique=True))
        return consumer, [held[at] for at in sorted(chosen)]

    @precondition(lambda self: any(each.held for each in self.consumers))
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        consumer, chosen = self.some_held(data)
        assert self.run(consumer.subscription.ack([*self.stale, *chosen])) == self.stale
        for delivery in chosen:
            del consumer.held[delivery]
        self.stale = chosen

    @precondition(lambda self: any(each.held for each in self.consumers))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        consumer, chosen = self.some_held(data)
        self.run(consumer.subscription.release([*self.stale, *chosen]))
        self.put_back(consumer.queue, [consumer.held.pop(delivery) for delivery in chosen])
        self.stale = chosen

    @precondition(lambda self: any(each.held for each in self.consumers))
    @rule(data=st.data(), to=st.sampled_from([*sorted(QUEUES), "missing"]), delay=st.integers(0, 3))
    def move(self, data: st.DataObject, to: str, delay: int) -> None:
        consumer, chosen = self.some_held(data)
        due = self.clock.now() + delay
        batch = [
            Move(delivery, changed(delivery.sent, queue=to, exchange="", due_at=due))
            for delivery in [*self.stale, *chosen]
        ]
        receipts = self.run(consumer.subscription.move(batch))
        accepted = [receipt is ACCEPTED for receipt in receipts]
        assert accepted == [False] * len(self.stale) + [to != "missing"] * len(chosen)
        if to == "missing":
            return
        for delivery in chosen:
            message = consumer.held.pop(delivery)
            self.sent += 1
            self.put_later(due, to, replace(message, redeliveries=0))
        self.stale = chosen

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def close_a_consumer(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.run(consumer.subscription.close())
        self.consumers.remove(consumer)
        self.gone(consumer)

    def gone(self, consumer: Consumer) -> None:
        back = [replace(m, redeliveries=m.redeliveries + 1) for m in consumer.held.values()]
        self.put_back(consumer.queue, back)
        self.stale = list(consumer.held)

    @rule()
    def reconnect(self) -> None:
        self.run(self.driver.close())
        self.run(self.driver.open())
        for consumer in self.consumers:
            self.gone(consumer)
        self.consumers.clear()

    @rule(queue=NAMES)
    def purge(self, queue: str) -> None:
        assert self.run(self.driver.purge(queue)) == len(self.ready[queue])
        self.ready[queue].clear()

    # -- what must hold ------------------------------------------------------------------------

    @invariant()
    def what_it_tells_is_what_there_is(self) -> None:
        for info in self.run(self.driver.inspect()):
            consumers = [each for each in self.consumers if each.queue == info.name]
            assert info.ready == len(self.ready[info.name])
            assert info.in_flight == sum(len(each.held) for each in consumers)
            assert info.delayed == sum(each[2] == info.name for each in self.delayed)
            assert info.consumers == len(consumers)

    @invariant()
    def the_order_is_the_models(self) -> None:
        for queue, expected in self.ready.items():
            peeked = self.run(self.driver.peek(queue, 10_000))
            assert [each.sent.id for each in peeked] == [each.id for each in expected]
            assert [each.redeliveries for each in peeked] == [e.redeliveries for e in expected]


Machine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestMemoryDriverAgainstItsModel = Machine.TestCase
