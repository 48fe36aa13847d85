"""Everything at once: handlers of every temper on a broker that breaks, pauses and restarts.

Whatever the order of events: a publish that returned is handled, or dead-lettered for a reason
that was its own, and in the end the queues hold nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuecraft import ConnectionLost, Event, Message, PublishError, QueueCraft, QueueError, Retry
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.testing import FakeClock, FaultyDriver, Ledger
from tests.runtime.consuming import flowing

EXAMPLES = int(os.environ.get("QUEUECRAFT_SOAK", "40"))
CONCURRENCY = 3
PREFETCH = 6

tempered = Event("tempered", str)


class Handlers:
    """One for each temper; what a message is to meet is its payload."""

    again: ClassVar = {
        "fails once": "handler-error",
        "fails twice": "handler-error",
        "retries by hand": "nack",
    }
    good: ClassVar = ["ok", "slow", "acks", *again]
    bad: ClassVar = {
        "fails": "handler-error",
        "exits": "handler-error",
        "hangs": "ack-timeout",
        "nacks": "nack",
        "dead-letters": "enough",
        "requeues": "requeue",
        "is poison": "invalid-payload",
    }

    def __init__(self, clock: FakeClock, ledger: Ledger) -> None:
        self.at_work: Counter[str | None] = Counter()
        self.most = 0
        self.most_of_a_key = 0
        self._clock = clock
        self._ledger = ledger

    async def handle(self, temper: str, message: Message) -> None:
        self.at_work[None] += 1
        self.at_work[message.key or message.id] += 1
        self.most = max(self.most, self.at_work[None])
        self.most_of_a_key = max(self.most_of_a_key, self.at_work[message.key or message.id])
        try:
            await self._behave(temper, message)
        finally:
            self.at_work[None] -= 1
            self.at_work[message.key or message.id] -= 1

    async def _behave(self, temper: str, message: Message) -> None:
        succeeds = temper in self.good
        if temper in ("fails once", "retries by hand"):
            succeeds = message.attempt > 1
        elif temper == "fails twice":
            succeeds = message.attempt > 2
        if temper == "slow":
            await self._clock.sleep(0.7)
        else:
            await asyncio.sleep(0)
        self._ledger.record("worker", message, failed=not succeeds)
        if temper == "acks":
            await message.ack()
        elif temper == "retries by hand" and not succeeds:
            await message.retry(delay=0.3)
        elif temper == "nacks":
            await message.nack(requeue=False)
        elif temper == "requeues":
            await message.requeue()
        elif temper == "dead-letters":
            await message.dead_letter("enough")
        elif temper == "hangs":
            await asyncio.Event().wait()
        elif temper == "exits":
            raise SystemExit(1)
        elif not succeeds:
            raise ValueError(temper)


class World:
    """A worker, a broker in the hands of the test, and what was published."""

    def __init__(self, *, inline: bool, ordered: bool) -> None:
        self.clock = FakeClock(turns=20)
        self.driver = FaultyDriver(MemoryDriver(self.clock), inline=inline)
        self.qc = QueueCraft(drivers=[self.driver], clock=self.clock, max_redeliveries=10_000)
        self.ledger = Ledger()
        self.handlers = Handlers(self.clock, self.ledger)
        self.tempers: dict[str, str] = {}
        self.harm = 0  # events that may each bring back all that is held
        self.refused = 0  # moves that may each end a message that was to be tried again
        self.worker = self.qc.worker(
            "worker",
            concurrency=CONCURRENCY,
            prefetch=PREFETCH,
            ordering="key" if ordered else "none",
            retry=Retry(max_retries=3, initial_delay=0.2, factor=1),
            ack_timeout=2,
        )
        self.worker.on(tempered, self.handlers.handle)

    async def act(self, action: str, argument: Any) -> None:
        match action:
            case "publish":
                await self._publish(*argument)
            case "drop":
                self.harm += 1
                await self.driver.drop()
            case "refuse":
                self.driver.refuse(opens=argument)
            case "fail":
                self.harm += 1
                operation, error = argument
                self.refused += operation == "move" and type(error) is QueueError
                self.driver.fail(operation, error)
            case "lose answers":
                self.harm += 1
                self.driver.lose_answers(stored=argument, of="move")
            case "pause":
                self.harm += 1
                self.worker.pause()
            case "resume":
                self.worker.resume()
            case "restart":
                self.harm += 1
                await self.worker.stop(drain=argument, timeout=0.005)
                await self.worker.start()
            case _:
                for _ in range(argument):
                    await asyncio.sleep(0)

    async def _publish(self, temper: str, key: str | None) -> None:
        id = f"{len(self.tempers)}"
        self.tempers[id] = temper
        options: Any = {"message_id": id}
        if key is not None:
            options["key"] = key
        try:
            if temper == "is poison":
                await self.qc.publish(tempered.name, 7, **options)
            else:
                await self.qc.publish(tempered, temper, **options)
        except PublishError:
            return
        self.ledger.published(id, key=key)

    async def come_to_rest(self) -> dict[str, set[str]]:
        """Mend everything, wait until nothing is left, and tell the reasons of dead letters."""
        self.driver.heal()
        self.worker.resume()
        dead: dict[str, set[str]] = {}
        async with asyncio.timeout(20):
            while True:
                await asyncio.sleep(0)
                try:
                    (info,) = await self.driver.inner.inspect(["worker"])
                except ConnectionLost:
                    continue
                if not (info.ready or info.in_flight or info.delayed or self.worker.in_flight):
                    break
        for each in await self.driver.inner.peek("worker.dlq", 10_000):
            dead.setdefault(each.sent.id, set()).add(str(each.sent.headers["x-reason"]))
        return dead


async def live(actions: list[tuple[str, Any]], *, inline: bool, ordered: bool) -> None:
    world = World(inline=inline, ordered=ordered)
    async with world.qc, flowing(world.clock):
        await world.worker.start()
        for action, argument in actions:
            await world.act(action, argument)
        dead = await world.come_to_rest()
        await world.worker.stop()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}

    explained = {**Handlers.bad, **Handlers.again}
    for id, reasons in dead.items():
        assert reasons == {explained.get(world.tempers[id])}, "a dead letter nobody can explain"
    good = [id for id in dead if world.tempers[id] in Handlers.again]
    assert len(good) <= world.refused
    world.ledger.check(
        dead_letters=dead,
        duplicates_at_most=world.harm * PREFETCH * 2,
        ordered=["worker"] if ordered else [],
    )
    assert world.handlers.most <= CONCURRENCY
    if ordered:
        assert world.handlers.most_of_a_key <= 1


tempers = st.sampled_from([*Handlers.good, *Handlers.good, *Handlers.bad])
events = st.one_of(
    st.tuples(st.just("publish"), st.tuples(tempers, st.sampled_from([None, "a", "b", "c"]))),
    st.tuples(st.just("publish"), st.tuples(tempers, st.sampled_from([None, "a", "b", "c"]))),
    st.tuples(st.just("turn"), st.integers(1, 30)),
    st.tuples(st.just("turn"), st.integers(1, 300)),
    st.tuples(st.just("drop"), st.none()),
    st.tuples(st.just("refuse"), st.integers(1, 3)),
    st.tuples(
        st.just("fail"),
        st.tuples(
            st.sampled_from(["ack", "move", "release", "receive", "subscribe"]),
            st.sampled_from([ConnectionLost("by the test"), QueueError("by the test")]),
        ),
    ),
    st.tuples(st.just("lose answers"), st.booleans()),
    st.tuples(st.just("pause"), st.none()),
    st.tuples(st.just("resume"), st.none()),
    st.tuples(st.just("restart"), st.booleans()),
)


@pytest.mark.parametrize("ordered", [False, True], ids=["free", "ordered"])
@pytest.mark.parametrize("inline", [True, False], ids=["inline", "suspending"])
@settings(
    max_examples=EXAMPLES,
    derandomize="QUEUECRAFT_SOAK" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(actions=st.lists(events, min_size=5, max_size=60))
def test_no_message_is_lost_or_stuck_whatever_happens(
    actions: list[tuple[str, Any]], inline: bool, ordered: bool
) -> None:
    asyncio.run(live(actions, inline=inline, ordered=ordered))
