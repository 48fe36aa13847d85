"""The queue in a file against a model of itself: two drivers, many consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import apsw
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
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
from queuecraft.drivers.local.sqlite import SqliteDriver, contents, storage
from queuecraft.drivers.local.sqlite import driver as driver_module
from queuecraft.drivers.local.sqlite import session as session_module
from queuecraft.model.errors import QueueError
from queuecraft.model.routing import matches
from queuecraft.testing import FakeClock
from tests.drivers.local.sqlite.crash import crash
from tests.drivers.local.sqlite.file import scratch

R = TypeVar("R")

EVENTS = Exchange("events")
DECLARED = {"one": ("a.*",), "two": ("*.b", "a.b"), "three": ()}
PATTERNS = ("a.*", "*.b", "a.b", "#")
NAMES = st.sampled_from(sorted(DECLARED))
TARGETS = st.sampled_from([*sorted(DECLARED), "missing"])
KEYS = st.sampled_from(["a.a", "a.b", "b.b", "b.a"])
PRIORITIES = st.sampled_from([0, 0, 0, 1, 9, 255])
DELAYS = st.sampled_from([None, None, None, -1, 0, 1, 2, 5])


@dataclass(frozen=True)
class Waiting:
    """A message as the model knows it."""

    id: str
    priority: int
    place: int
    redeliveries: int = 0


@dataclass(frozen=True)
class Delayed:
    due: float
    number: int
    queue: str
    id: str
    priority: int


@dataclass
class Consumer:
    driver: int
    queue: str
    prefetch: int
    subscription: Subscription
    held: dict[Delivery, Waiting] = field(default_factory=dict[Delivery, Waiting])
    void: bool = False  # its queue was deleted


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patches: list[Any] = [
            mock.patch.object(driver_module, "POLL", 3600.0),  # bells alone must do
            mock.patch.object(session_module, "LEASE", 1e9),
            mock.patch.object(contents, "SOME", 3),
            mock.patch.object(storage, "DUE_AT_ONCE", 2),
        ]
        for patch in self.patches:
            patch.start()
        self.folder = scratch()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock(start=1000.0, turns=12)
        self.drivers = [self.new_driver(), self.new_driver()]
        self.bound: dict[str, set[str]] = {}
        self.ready: dict[str, list[Waiting]] = {}
        self.delayed: list[Delayed] = []
        self.consumers: list[Consumer] = []
        self.void: list[Delivery] = []  # settled, or taken away
        self.sent = 0
        self.places = 0

    def new_driver(self) -> SqliteDriver:
        driver = SqliteDriver(Path(self.folder.name) / "queue.db", self.clock)
        self.run(driver.open())
        return driver

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        async def then_listen() -> R:
            result = await coroutine
            for _ in range(3):
                await asyncio.sleep(0)
            return result

        return self.loop.run_until_complete(then_listen())

    def teardown(self) -> None:
        for driver in self.drivers:
            self.run(driver.close())
        self.loop.close()
        self.folder.cleanup()
        for patch in self.patches:
            patch.stop()

    # -- the model -----------------------------------------------------------------------------

    def put(self, queue: str, id: str, priority: int) -> None:
        self.places += 1
        self.ready[queue].append(Waiting(id, priority, self.places))
        self.ready[queue].sort(key=lambda each: (-each.priority, each.place))

    def put_back(self, queue: str, messages: Sequence[Waiting]) -> None:
        self.ready[queue] += messages
        self.ready[queue].sort(key=lambda each: (-each.priority, each.place))

    def put_later(self, due: float | None, queue: str, id: str, priority: int) -> None:
        if due is None or due <= self.clock.now():
            self.put(queue, id, priority)
        else:
            self.sent += 1
            self.delayed.append(Delayed(due, self.sent, queue, id, priority))

    def route(self, key: str) -> list[str]:
        return [
            name
            for name, patterns in self.bound.items()
            if any(matches("topic", pattern, {}, key, {}) for pattern in patterns)
        ]

    def due(self, delay: int | None) -> float | None:
        return None if delay is None else self.clock.now() + delay

    def outgoing(self, **fields: Any) -> Outgoing:
        self.sent += 1
        return Outgoing(b"", f"m-{self.sent}", **fields)

    def gone(self, consumer: Consumer) -> None:
        back = [replace(m, redeliveries=m.redeliveries + 1) for m in consumer.held.values()]
        if not consumer.void:
            self.put_back(consumer.queue, back)
        self.void = list(consumer.held)

    # -- what is declared ----------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        for name in DECLARED:
            self.declare(0, name)
        for at, name in ((0, "one"), (1, "one"), (1, "two")):
            self.subscribe(at, name, prefetch=12)
        self.send(0, [(name, number % 2, None) for name in DECLARED for number in range(6)])

    def declare(self, at: int, name: str) -> None:
        bindings = tuple(Binding(EVENTS, pattern) for pattern in DECLARED[name])
        self.run(self.drivers[at].declare(Queue(name, bindings=bindings)))
        self.bound.setdefault(name, set()).update(DECLARED[name])
        self.ready.setdefault(name, [])

    def bind(self, at: int, name: str, pattern: str, more: bool) -> None:
        driver = self.drivers[at]
        change = driver.bind if more else driver.unbind
        self.run(change(name, [Binding(EVENTS, pattern)]))
        if more:
            self.bound[name].add(pattern)
        else:
            self.bound[name].discard(pattern)

    def delete(self, at: int, name: str) -> None:
        self.run(self.drivers[at].delete(name))
        del self.bound[name], self.ready[name]
        self.delayed = [each for each in self.delayed if each.queue != name]
        for consumer in self.consumers:
            consumer.void = consumer.void or consumer.queue == name

    # -- messages ------------------------------------------------------------------------------

    @rule(
        at=st.integers(0, 1),
        wanted=st.lists(st.tuples(TARGETS, PRIORITIES, DELAYS), min_size=1, max_size=5),
    )
    def send(self, at: int, wanted: list[tuple[str, int, int | None]]) -> None:
        batch = [
            self.outgoing(queue=queue, priority=priority, due_at=self.due(delay))
            for queue, priority, delay in wanted
        ]
        receipts = self.run(self.drivers[at].send(batch))
        assert [each is ACCEPTED for each in receipts] == [q in self.bound for q, _, _ in wanted]
        for message in batch:
            if message.queue in self.bound:
                self.put_later(message.due_at, message.queue, message.id, message.priority)

    @rule(
        at=st.integers(0, 1),
        wanted=st.lists(st.tuples(KEYS, PRIORITIES, DELAYS), min_size=1, max_size=5),
        atomic=st.booleans(),
    )
    def publish(self, at: int, wanted: list[tuple[str, int, int | None]], atomic: bool) -> None:
        batch = [
            self.outgoing(
                exchange="events", routing_key=key, priority=priority, due_at=self.due(delay)
            )
            for key, priority, delay in wanted
        ]
        receipts = self.run(self.drivers[at].send(batch, atomic=atomic))
        routed = [self.route(message.routing_key) for message in batch]
        stored = [bool(queues) and not (atomic and not all(routed)) for queues in routed]
        assert [each is ACCEPTED for each in receipts] == stored
        for message, queues, kept in zip(batch, routed, stored, strict=True):
            for queue in queues if kept else ():
                self.put_later(message.due_at, queue, message.id, message.priority)

    @rule(seconds=st.sampled_from([0, 1, 2, 4]))
    def time_passes(self, seconds: int) -> None:
        self.run(self.clock.advance(seconds))
        now = self.clock.now()
        for each in sorted(self.delayed, key=lambda each: (each.due, each.number)):
            if each.due <= now:
                self.put(each.queue, each.id, each.priority)
                self.delayed.remove(each)

    # -- consumers -----------------------------------------------------------------------------

    @precondition(lambda self: len(self.consumers) < 4)
    @rule(at=st.integers(0, 1), name=NAMES, prefetch=st.sampled_from([1, 4, 12]))
    def subscribe(self, at: int, name: str, prefetch: int) -> None:
        if name not in self.bound:
            self.declare(at, name)
        subscription = self.run(self.drivers[at].subscribe(Queue(name), prefetch=prefetch))
        self.consumers.append(Consumer(at, name, prefetch, subscription))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), limits=st.lists(st.integers(1, 5), min_size=1, max_size=5))
    def receive(self, data: st.DataObject, limits: list[int]) -> None:
        for limit in limits:
            self.receive_some(data.draw(st.sampled_from(self.consumers)), limit)

    def receive_some(self, consumer: Consumer, limit: int) -> None:
        room = min(limit, consumer.prefetch - len(consumer.held))
        if consumer.void:
            if room:
                with pytest.raises(QueueError, match="deleted"):
                    self.run(consumer.subscription.receive(limit, 0))
            return
        got = self.run(consumer.subscription.receive(limit, 0))
        queue = self.ready[consumer.queue]
        expected, queue[:room] = queue[:room], []
        assert [(d.sent.id, d.sent.priority, d.redeliveries) for d in got] == [
            (each.id, each.priority, each.redeliveries) for each in expected
        ]
        consumer.held.update(zip(got, expected, strict=True))

    def some_held(self, data: st.DataObject) -> tuple[Consumer, list[Delivery]]:
        """Some of what a consumer holds, in any order."""
        consumer = data.draw(st.sampled_from([each for each in self.consumers if each.held]))
        held = list(consumer.held)
        how = data.draw(st.sampled_from(["all", "head", "any"]))
        if how == "all":
            return consumer, held
        if how == "head":
            return consumer, held[: data.draw(st.integers(1, len(held)))]
        chosen = data.draw(st.lists(st.sampled_from(range(len(held))), min_size=1, unique=True))
        return consumer, [held[at] for at in chosen]

    @precondition(lambda self: any(each.held for each in self.consumers))
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        consumer, chosen = self.some_held(data)
        stale = self.run(consumer.subscription.ack([*self.void, *chosen]))
        assert set(stale) == {*self.void, *(chosen if consumer.void else ())}
        for delivery in chosen:
            del consumer.held[delivery]
        self.void = chosen

    @precondition(lambda self: any(each.held for each in self.consumers))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        consumer, chosen = self.some_held(data)
        self.run(consumer.subscription.release([*self.void, *chosen]))
        back = [consumer.held.pop(delivery) for delivery in chosen]
        if not consumer.void:
            self.put_back(consumer.queue, back)
        self.void = chosen

    @precondition(lambda self: any(each.held for each in self.consumers))
    @rule(data=st.data(), ways=st.lists(st.tuples(TARGETS, DELAYS), min_size=1, max_size=3))
    def move(self, data: st.DataObject, ways: list[tuple[str, int | None]]) -> None:
        consumer, chosen = self.some_held(data)
        asked = [*self.void, *chosen, *chosen[:1]]  # the same one twice: once is enough
        moves: list[Move] = []
        for number, delivery in enumerate(asked):
            queue, delay = ways[number % len(ways)]
            to = changed(delivery.sent, queue=queue, exchange="", due_at=self.due(delay))
            moves.append(Move(delivery, to))
        receipts = self.run(consumer.subscription.move(moves))
        held = set() if consumer.void else set(chosen)
        moved: list[Delivery] = []
        for move, receipt in zip(moves, receipts, strict=True):
            to, there = move.to, move.to.queue in self.bound
            assert (receipt is ACCEPTED) == (there and move.delivery in held), move
            held.discard(move.delivery)
            if receipt is ACCEPTED and to.queue is not None:
                moved.append(move.delivery)
                self.put_later(to.due_at, to.queue, to.id, to.priority)
        for delivery in chosen if consumer.void else moved:
            del consumer.held[delivery]
        self.void = list(moved)

    # -- what happens now and then ---------------------------------------------------------------

    @rule(data=st.data(), at=st.integers(0, 1), name=NAMES)
    def upheaval(self, data: st.DataObject, at: int, name: str) -> None:
        what = data.draw(
            st.sampled_from(["close", "restart", "kill", "purge", "delete", "bind", "unbind"])
        )
        if what in ("restart", "kill"):
            self.restart(at, killed=what == "kill")
        elif what == "close":
            if self.consumers:
                self.close_a_consumer(data.draw(st.sampled_from(self.consumers)))
        elif name not in self.bound:
            self.declare(at, name)
        elif what == "purge":
            self.purge(at, name)
        elif what == "delete":
            self.delete(at, name)
        else:
            pattern = data.draw(st.sampled_from(PATTERNS))
            self.bind(at, name, pattern, more=what == "bind")

    def close_a_consumer(self, consumer: Consumer) -> None:
        self.run(consumer.subscription.close())
        self.consumers.remove(consumer)
        self.gone(consumer)

    def restart(self, at: int, killed: bool) -> None:
        if killed:
            crash(self.drivers[at])
            self.drivers[at] = self.new_driver()
            other = self.drivers[1 - at]
            self.run(other._bury(other._missing()))
        else:
            self.run(self.drivers[at].close())
            self.run(self.drivers[at].open())
        for consumer in [each for each in self.consumers if each.driver == at]:
            self.consumers.remove(consumer)
            self.gone(consumer)

    def purge(self, at: int, name: str) -> None:
        assert self.run(self.drivers[at].purge(name)) == len(self.ready[name])
        self.ready[name].clear()

    # -- what must hold ------------------------------------------------------------------------

    @invariant()
    def both_tell_what_there_is(self) -> None:
        for driver in self.drivers:
            infos = {info.name: info for info in self.run(driver.inspect())}
            assert infos.keys() == self.bound.keys()
            for name, info in infos.items():
                consumers = [e for e in self.consumers if e.queue == name and not e.void]
                assert info.ready == len(self.ready[name])
                assert info.in_flight == sum(len(each.held) for each in consumers)
                assert info.delayed == sum(each.queue == name for each in self.delayed)
                assert info.consumers == len(consumers)

    @invariant()
    def both_show_the_same_order(self) -> None:
        for driver in self.drivers:
            for name, expected in self.ready.items():
                peeked = self.run(driver.peek(name, 10_000))
                assert [(each.sent.id, each.redeliveries) for each in peeked] == [
                    (each.id, each.redeliveries) for each in expected
                ]

    @invariant()
    def nothing_is_left_behind_in_the_file(self) -> None:
        connection = apsw.Connection(str(Path(self.folder.name) / "queue.db"))
        try:
            stored = sum(map(len, self.ready.values()))
            held = sum(len(each.held) for each in self.consumers if not each.void)
            assert connection.execute("SELECT count(*) FROM message").get == stored + held
            assert connection.execute("SELECT count(*) FROM delayed").get == len(self.delayed)
            again = [*(m for ms in self.ready.values() for m in ms)]
            again += [m for e in self.consumers if not e.void for m in e.held.values()]
            counted = sum(each.redeliveries > 0 for each in again)
            assert connection.execute("SELECT count(*) FROM redelivery").get == counted
            if not held:
                assert connection.execute("SELECT count(*) FROM lease").get == 0
            present = sum(not each.void for each in self.consumers)
            assert connection.execute("SELECT count(*) FROM consumer").get == present
            apart = connection.execute(
                "SELECT count(*) FROM lease AS a JOIN lease AS b "
                "ON a.first < b.first AND b.first <= a.last"
            )
            assert apart.get == 0, "two leases cover the same position"
        finally:
            connection.close()


Machine.TestCase.settings = settings(max_examples=30, stateful_step_count=40)
TestSqliteDriverAgainstItsModel = Machine.TestCase
