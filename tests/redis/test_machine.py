"""The scripts against a model of them: two drivers, several consumers, lists and streams."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace as changed

from queuecraft.drivers.base import ACCEPTED, Binding, Delivery, Move, Outgoing, Queue, Subscription
from queuecraft.drivers.redis import drivers, scripts
from queuecraft.drivers.redis.driver import RedisDriver
from queuecraft.drivers.target import Target
from queuecraft.model.errors import QueueError
from queuecraft.model.routing import matches
from tests.redis.place import EVENTS

R = TypeVar("R")

LATER = 4e9  # long after this test has ended
DECLARED = {"one": ("a.*",), "two": ("*.b", "a.b"), "three": ()}
PATTERNS = ("a.*", "*.b", "a.b", "#")
NAMES = st.sampled_from(sorted(DECLARED))
TARGETS = st.sampled_from([*sorted(DECLARED), "missing"])
KEYS = st.sampled_from(["a.a", "a.b", "b.b", "b.a"])
PRIORITIES = st.sampled_from([0, 0, 0, 1, 9])
DELAYS = st.sampled_from([None, None, None, 1.0, LATER])


@dataclass(frozen=True)
class Waiting:
    """A message as the model knows it."""

    id: str
    priority: int
    place: int
    redeliveries: int = 0


@dataclass
class Consumer:
    driver: int
    queue: str
    prefetch: int
    subscription: Subscription
    held: dict[Delivery, Waiting] = field(default_factory=dict[Delivery, Waiting])
    void: bool = False  # its queue was deleted


class Machine(RuleBasedStateMachine):
    url: ClassVar[str]
    mode: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.place = f"{self.url}-{os.urandom(4).hex()}&mode={self.mode}"
        self.loop = asyncio.new_event_loop()
        self.drivers = [self.new_driver(), self.new_driver()]
        self.bound: dict[str, set[str]] = {}
        self.ready: dict[str, list[Waiting]] = {}
        self.delayed: dict[str, list[Outgoing]] = {}
        self.events: list[Outgoing] = []
        self.undelivered: list[str] = []
        self.consumers: list[Consumer] = []
        self.void: list[Delivery] = []  # settled, or taken away
        self.sent = 0
        self.places = 0

    def new_driver(self) -> RedisDriver:
        driver = drivers(Target(self.place))[0]
        assert isinstance(driver, RedisDriver)
        self.run(driver.open())
        return driver

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        async def clean(driver: RedisDriver) -> None:
            client = driver._open()
            keys = await client.call("KEYS", f"{driver.base}*")
            await client.call("UNLINK", *keys)

        for consumer in self.consumers:
            self.run(consumer.subscription.close())
        self.run(clean(self.drivers[0]))
        for driver in self.drivers:
            self.run(driver.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    # -- the model -----------------------------------------------------------------------------

    def put(self, queue: str, message: Outgoing) -> None:
        self.places += 1
        priority = message.priority if self.mode == "list" else 0
        self.ready[queue].append(Waiting(message.id, priority, self.places))
        self.ready[queue].sort(key=lambda each: -each.priority)

    def put_back(self, queue: str, messages: Sequence[Waiting]) -> None:
        if self.mode == "list":
            self.ready[queue] = [*messages, *self.ready[queue]]
            self.ready[queue].sort(key=lambda each: -each.priority)
        else:
            self.ready[queue] += messages
            self.ready[queue].sort(key=lambda each: each.place)

    def put_later(self, queue: str, message: Outgoing) -> None:
        if message.due_at == LATER:
            self.delayed[queue].append(message)
        else:
            self.put(queue, message)

    def route(self, key: str) -> list[str]:
        return [
            name
            for name, patterns in self.bound.items()
            if any(matches("topic", pattern, {}, key, {}) for pattern in patterns)
        ]

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
        self.delayed.setdefault(name, [])

    # -- messages ------------------------------------------------------------------------------

    @rule(
        at=st.integers(0, 1),
        wanted=st.lists(st.tuples(TARGETS, PRIORITIES, DELAYS), min_size=1, max_size=5),
    )
    def send(self, at: int, wanted: list[tuple[str, int, float | None]]) -> None:
        batch = [self.outgoing(queue=q, priority=p, due_at=due) for q, p, due in wanted]
        receipts = self.run(self.drivers[at].send(batch))
        assert [each is ACCEPTED for each in receipts] == [q in self.bound for q, _, _ in wanted]
        for message in batch:
            if message.queue in self.bound:
                self.put_later(message.queue, message)

    @rule(
        at=st.integers(0, 1),
        wanted=st.lists(st.tuples(KEYS, PRIORITIES, DELAYS), min_size=1, max_size=5),
        atomic=st.booleans(),
    )
    def publish(self, at: int, wanted: list[tuple[str, int, float | None]], atomic: bool) -> None:
        batch = [
            self.outgoing(exchange="events", routing_key=key, priority=priority, due_at=due)
            for key, priority, due in wanted
        ]
        receipts = self.run(self.drivers[at].send(batch, atomic=atomic))
        routed = [self.route(message.routing_key) for message in batch]
        stored = [bool(queues) and not (atomic and not all(routed)) for queues in routed]
        assert [each is ACCEPTED for each in receipts] == stored
        for message, queues, kept in zip(batch, routed, stored, strict=True):
            if kept and message.due_at == LATER:
                self.events.append(message)
            elif kept:
                for queue in queues:
                    self.put(queue, message)

    @rule(name=NAMES)
    def time_passes(self, name: str) -> None:
        """As if all that is delayed in a queue were due by now."""
        if name in self.bound:
            self.fall_due(f"delayed:{name}")
            delayed, self.delayed[name] = self.delayed[name], []
            for message in delayed:
                self.put(name, message)

    @rule()
    def time_passes_for_events(self) -> None:
        self.fall_due("events")
        events, self.events = self.events, []
        for message in events:
            queues = self.route(message.routing_key)
            for queue in queues:
                self.put(queue, message)
            if not queues and self.bound:
                self.undelivered.append(message.id)

    def fall_due(self, key: str) -> None:
        async def rewrite(driver: RedisDriver) -> None:
            client = driver._open()
            for member in await client.call("ZRANGE", driver.base + key, 0, -1):
                await client.call("ZADD", driver.base + key, 1, member)
            await driver.inspect()

        self.run(rewrite(self.drivers[0]))

    # -- consumers -----------------------------------------------------------------------------

    @precondition(lambda self: len(self.consumers) < 4)
    @rule(at=st.integers(0, 1), name=NAMES, prefetch=st.sampled_from([1, 4, 12]))
    def subscribe(self, at: int, name: str, prefetch: int) -> None:
        # Of two that end together, either may give back first.
        if any((each.driver, each.queue) == (at, name) for each in self.consumers):
            return
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
        assert [(d.sent.id, d.redeliveries) for d in got] == [
            (each.id, each.redeliveries) for each in expected
        ]
        consumer.held.update(zip(got, expected, strict=True))

    def some_held(self, data: st.DataObject) -> tuple[Consumer, list[Delivery]]:
        """Some of what a consumer holds, in any order."""
        consumer = data.draw(st.sampled_from([each for each in self.consumers if each.held]))
        held = list(consumer.held)
        if data.draw(st.booleans()):
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
        back = [message for delivery, message in consumer.held.items() if delivery in chosen]
        for delivery in chosen:
            del consumer.held[delivery]
        if not consumer.void:
            self.put_back(consumer.queue, back)
        self.void = chosen

    @precondition(lambda self: any(each.held for each in self.consumers))
    @rule(data=st.data(), ways=st.lists(st.tuples(TARGETS, DELAYS), min_size=1, max_size=3))
    def move(self, data: st.DataObject, ways: list[tuple[str, float | None]]) -> None:
        consumer, chosen = self.some_held(data)
        asked = [*self.void, *chosen, *chosen[:1]]  # the same one twice: once is enough
        moves: list[Move] = []
        for number, delivery in enumerate(asked):
            queue, due = ways[number % len(ways)]
            to = changed(delivery.sent, queue=queue, exchange="", due_at=due)
            moves.append(Move(delivery, to))
        receipts = self.run(consumer.subscription.move(moves))
        held: set[Delivery] = set() if consumer.void else set(chosen)
        moved: list[Delivery] = []
        for move, receipt in zip(moves, receipts, strict=True):
            to, there = move.to, move.to.queue in self.bound
            assert (receipt is ACCEPTED) == (there and move.delivery in held), move
            held.discard(move.delivery)
            if receipt is ACCEPTED and to.queue is not None:
                moved.append(move.delivery)
                self.put_later(to.queue, to)
        for delivery in chosen if consumer.void else moved:
            del consumer.held[delivery]
        self.void = list(moved)

    # -- what happens now and then ---------------------------------------------------------------

    @rule(data=st.data(), at=st.integers(0, 1), name=NAMES)
    def upheaval(self, data: st.DataObject, at: int, name: str) -> None:
        what = data.draw(
            st.sampled_from(["close", "restart", "bury", "purge", "delete", "bind", "unbind"])
        )
        driver = self.drivers[at]
        if what in ("restart", "bury"):
            self.restart(at, buried=what == "bury")
        elif what == "close":
            if self.consumers:
                consumer = data.draw(st.sampled_from(self.consumers))
                self.run(consumer.subscription.close())
                self.consumers.remove(consumer)
                self.gone(consumer)
        elif name not in self.bound:
            self.declare(at, name)
        elif what == "purge":
            assert self.run(driver.purge(name)) == len(self.ready[name])
            self.ready[name].clear()
        elif what == "delete":
            self.run(driver.delete(name))
            del self.bound[name], self.ready[name], self.delayed[name]
            for consumer in self.consumers:
                consumer.void = consumer.void or consumer.queue == name
        else:
            pattern = data.draw(st.sampled_from(PATTERNS))
            change = driver.bind if what == "bind" else driver.unbind
            self.run(change(name, [Binding(EVENTS, pattern)]))
            (self.bound[name].add if what == "bind" else self.bound[name].discard)(pattern)

    def restart(self, at: int, buried: bool) -> None:
        driver = self.drivers[at]
        if buried and driver._session is not None:
            other = self.drivers[1 - at]
            self.run(other._eval("test", scripts.BURY, [driver._session.name]))
        self.run(driver.close())
        self.run(driver.open())
        for consumer in [each for each in self.consumers if each.driver == at]:
            self.consumers.remove(consumer)
            self.gone(consumer)

    # -- what must hold ------------------------------------------------------------------------

    @invariant()
    def both_tell_what_there_is(self) -> None:
        for driver in self.drivers:
            infos = {info.name: info for info in self.run(driver.inspect())}
            undelivered = infos.pop("qc.undelivered.dlq", None)
            assert (undelivered.ready if undelivered else 0) == len(self.undelivered)
            assert infos.keys() == self.bound.keys()
            for name, info in infos.items():
                consumers = [e for e in self.consumers if e.queue == name and not e.void]
                assert info.ready == len(self.ready[name]), name
                assert info.in_flight == sum(len(each.held) for each in consumers), name
                assert info.delayed == len(self.delayed[name]), name
                assert info.consumers == len(consumers), name

    @invariant()
    def both_show_the_same_order(self) -> None:
        for driver in self.drivers:
            for name, expected in self.ready.items():
                peeked = self.run(driver.peek(name, 10_000))
                assert [(each.sent.id, each.redeliveries) for each in peeked] == [
                    (each.id, each.redeliveries) for each in expected
                ]


@pytest.mark.parametrize("kept_in", ["list", "stream"])
def test_the_scripts_do_as_their_model(redis_url: str, kept_in: str) -> None:
    class OnThisServer(Machine):
        url = redis_url
        mode = kept_in

    run_state_machine_as_test(
        OnThisServer,
        settings=settings(
            max_examples=20,
            stateful_step_count=30,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
