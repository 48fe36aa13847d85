"""A queue that is shared out anew while its messages are handled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from queuecraft import BatchFailed, Message, QueueCraft, Retry, Worker
from queuecraft.drivers.base import Delivery, Queue
from queuecraft.model.outcome import Postponed, UnreadablePayload
from queuecraft.runtime.plan import Ordering
from queuecraft.testing import FakeClock, Ledger
from tests.runtime.consuming import AT_ONCE, Gate, at_rest, both, choked, number, word
from tests.runtime.sharing import SharingDriver
from tests.runtime.support import eventually, quiet, running


class Scene:
    """An application whose broker gives messages to others in the middle of things."""

    def __init__(self, qc: QueueCraft, driver: SharingDriver, clock: FakeClock) -> None:
        self.qc, self.driver, self.clock = qc, driver, clock

    async def publish(self, *ids: str, key: str = "") -> None:
        """A message for each id, with its number."""
        for id in ids:
            if key:
                await self.qc.publish(number, int(id[2:]), message_id=id, key=key)
            else:
                await self.qc.publish(number, int(id[2:]), message_id=id)

    async def waiting(self, worker: Worker, *ids: str, key: str = "") -> None:
        """The same for a worker that does not run yet, and gets them together."""
        await worker.start()
        await worker.stop()
        await self.publish(*ids, key=key)

    def others(self) -> list[str]:
        """What others have."""
        return [each.id for each in self.driver.others]


@asynccontextmanager
async def sharing(*, inline: bool) -> AsyncGenerator[Scene]:
    """A scene that leaves no task, no timer and no delivery behind."""
    clock = FakeClock()
    driver = SharingDriver(clock, inline=inline)
    async with QueueCraft(drivers=[driver], clock=clock) as qc:
        yield Scene(qc, driver, clock)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert clock.pending == ()


def nothing_held(worker: Worker) -> bool:
    """Whether it has room for all that it may hold."""
    return worker.in_flight == 0


@both
@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_what_no_handler_has_begun_on_goes_at_once_and_what_runs_is_finished(
    inline: bool, ordering: Ordering
) -> None:
    gate = Gate()
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker("numbers", prefetch=5, ordering=ordering).on(number, gate.handle)
        await scene.waiting(worker, "m-1", "m-2", "m-3", "m-4", "m-5")
        async with running(worker):
            await gate.entered(1)
            await eventually(lambda: worker.in_flight == 5)
            await scene.driver.ask_for("m-1", "m-2", "m-4")
            await eventually(lambda: scene.others() == ["m-2", "m-4"])
            gate.open()
            await at_rest(scene.driver, "numbers")
            await eventually(lambda: nothing_held(worker))
    assert gate.passed == [1, 3, 5]
    assert worker.counters.succeeded == 3


@both
@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_what_outlasts_its_partition_ends_here_without_a_trace_and_takes_nobody_with_it(
    inline: bool, ordering: Ordering, fails: bool
) -> None:
    gate, seen = Gate(), Ledger()
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker(
            "numbers", prefetch=3, concurrency=2, ordering=ordering, retry=AT_ONCE
        )

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            await gate.handle(n, message)
            if fails and n == 1:
                raise ValueError("nobody may hear of it")
            seen.record("numbers", message)

        await scene.waiting(worker, "m-1", "m-2", "m-3")
        async with running(worker):
            await gate.entered(2)
            await eventually(lambda: worker.in_flight == 3)
            await scene.driver.ask_for("m-1")
            await scene.driver.give("m-1")
            await eventually(lambda: worker.in_flight == 2)
            gate.open()
            await at_rest(scene.driver, "numbers")
            await eventually(lambda: nothing_held(worker))
            await scene.publish("m-4", "m-5", "m-6")  # there is room for as many as before
            await seen.wait_for(numbers=5 if fails else 6)
            await at_rest(scene.driver, "numbers")
    assert scene.others() == ["m-1"]
    assert worker.counters.retried == 0
    assert worker.counters.succeeded == (5 if fails else 6)
    assert scene.driver.calls["subscribe"] == 1  # the session went on


@both
@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_what_comes_back_while_it_runs_waits_for_that_run(
    inline: bool, ordering: Ordering
) -> None:
    gate, seen = Gate(), Ledger()
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker("numbers", prefetch=4, concurrency=2, ordering=ordering)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.record("numbers", message)
            await gate.handle(n, message)

        async with running(worker):
            await scene.publish("m-1", key="a")
            await gate.entered(1)
            await scene.driver.give("m-1")
            await scene.publish("m-1", key="a")  # and Kafka gives us the partition again
            await eventually(lambda: worker.in_flight == 1)
            await quiet()
            gate.open()
            await at_rest(scene.driver, "numbers")
            await eventually(lambda: nothing_held(worker))
    assert len(seen.calls) == 1
    assert worker.counters.succeeded == 1


@both
@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_what_comes_back_after_its_run_has_failed_is_run_again(
    inline: bool, ordering: Ordering
) -> None:
    gate, seen = Gate(), Ledger()
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker(
            "numbers", prefetch=4, concurrency=2, ordering=ordering, retry=AT_ONCE
        )

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            first = not seen.calls
            seen.record("numbers", message, failed=first)
            await gate.handle(n, message)
            if first:
                raise ValueError("it failed where it was not ours any more")

        async with running(worker):
            await scene.publish("m-1", key="a")
            await gate.entered(1)
            await scene.driver.give("m-1")
            await scene.publish("m-1", key="a")
            await eventually(lambda: worker.in_flight == 1)
            await quiet()
            gate.open()
            await seen.wait_for(numbers=2)
            await at_rest(scene.driver, "numbers")
    assert seen.attempts("numbers") == [1, 1]


@both
async def test_the_next_of_a_key_goes_on_when_the_one_before_it_went_to_others(
    inline: bool,
) -> None:
    seen = Ledger()
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker(
            "numbers", prefetch=5, ordering="key", retry=Retry(max_retries=1, initial_delay=60)
        )

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.record("numbers", message, failed=n == 1)
            if n == 1:
                raise ValueError("wait a minute")

        await scene.waiting(worker, "m-1", "m-2", "m-3", key="a")
        async with running(worker):
            await seen.wait_for(numbers=1)  # which waits a minute, and the others behind it
            await quiet()
            await scene.driver.ask_for("m-1", "m-2")
            await seen.wait_for(numbers=2)
            await at_rest(scene.driver, "numbers")
            await eventually(lambda: nothing_held(worker))
    assert [each.id for each in seen.calls] == ["m-1", "m-3"]
    assert scene.others() == ["m-1", "m-2"]


@both
async def test_what_was_put_off_here_is_not_tried_here_again(inline: bool) -> None:
    tries: list[int] = []
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker("numbers", prefetch=3)

        @worker.on(number)
        async def handle(n: int) -> None:
            tries.append(n)
            if n == 1:
                raise Postponed(5, "not now")

        async with running(worker):
            await scene.publish("m-1", "m-2")
            await eventually(lambda: tries == [1, 2])
            await quiet()
            await scene.driver.ask_for("m-1")
            await eventually(lambda: scene.others() == ["m-1"])
            await scene.clock.advance(20)
            await at_rest(scene.driver, "numbers")
    assert tries == [1, 2]


@both
async def test_who_has_no_room_but_for_what_others_are_to_have_goes_on(inline: bool) -> None:
    tries: list[int] = []
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker("numbers")  # one message at a time

        @worker.on(number)
        async def handle(n: int) -> None:
            tries.append(n)
            if n == 1:
                raise Postponed(5, "not now")

        async with running(worker):
            await scene.publish("m-1")
            await eventually(lambda: tries == [1])
            await quiet()
            await scene.driver.ask_for("m-1")
            await eventually(lambda: scene.others() == ["m-1"])
            await scene.publish("m-2")
            await eventually(lambda: tries == [1, 2])
            await at_rest(scene.driver, "numbers")


@both
async def test_where_all_that_is_held_waits_behind_a_key_it_goes_on_too(inline: bool) -> None:
    tries: list[int] = []
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker(
            "numbers", prefetch=2, ordering="key", retry=Retry(initial_delay=5)
        )

        @worker.on(number)
        async def handle(n: int) -> None:
            tries.append(n)
            if n == 1:
                raise ValueError("not now")

        await scene.waiting(worker, "m-1", "m-2", key="a")
        async with running(worker):
            await eventually(lambda: tries == [1])
            await quiet()
            await scene.driver.ask_for("m-1", "m-2")
            await eventually(lambda: scene.others() == ["m-1", "m-2"])
            await scene.publish("m-3", key="b")
            await eventually(lambda: tries == [1, 3])
            await at_rest(scene.driver, "numbers")


@both
@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_of_a_batch_each_has_its_own_end(inline: bool, ordering: Ordering) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()
    batches: list[list[int]] = []
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker(
            "numbers", prefetch=6, batch_size=3, batch_wait=1, ordering=ordering, retry=AT_ONCE
        )

        @worker.on(number)
        async def handle(numbers: list[int]) -> None:
            batches.append(numbers)
            entered.set()
            await leave.wait()
            if len(batches) == 1:
                raise ValueError("all of it")

        async with running(worker):
            await scene.publish("m-1", "m-2", "m-3")
            await entered.wait()
            await scene.driver.give("m-1", "m-3")
            leave.set()
            await eventually(lambda: len(batches) > 1 or scene.clock.pending)
            await scene.clock.advance(2)
            await at_rest(scene.driver, "numbers")
            await eventually(lambda: nothing_held(worker))
    assert batches == [[1, 2, 3], [2]]
    assert scene.others() == ["m-1", "m-3"]


@both
async def test_a_batch_that_waits_for_more_begins_when_others_are_to_have_some_of_it(
    inline: bool,
) -> None:
    handled: list[list[int]] = []
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker("numbers", prefetch=6, batch_size=4, batch_wait=60)

        @worker.on(number)
        async def handle(numbers: list[int]) -> None:
            handled.append(numbers)

        async with running(worker):
            await scene.publish("m-1", "m-2")
            await eventually(lambda: worker.in_flight == 2)
            await quiet()
            await scene.driver.ask_for("m-1")
            await at_rest(scene.driver, "numbers")  # while no time passes
            assert handled == [[1, 2]]
            await scene.publish("m-3")
            await eventually(lambda: worker.in_flight == 1)
            await quiet()
            assert handled == [[1, 2]]
            await scene.clock.advance(61)
            await at_rest(scene.driver, "numbers")
    assert handled == [[1, 2], [3]]
    assert scene.others() == []


@both
@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_a_batch_that_waits_for_more_does_not_begin_what_others_have(
    inline: bool, ordering: Ordering
) -> None:
    handled: list[list[int]] = []
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker(
            "numbers", prefetch=6, batch_size=4, batch_wait=60, ordering=ordering
        )

        @worker.on(number)
        async def handle(numbers: list[int]) -> None:
            handled.append(numbers)

        async with running(worker):
            await scene.publish("m-1", "m-2", key="a")
            await scene.publish("m-3", key="b")
            await eventually(lambda: worker.in_flight == 3)
            await quiet()
            await scene.driver.give("m-1", "m-2")
            await eventually(lambda: worker.in_flight == 1)
            await quiet()
            await scene.publish("m-4", key="a")
            await quiet()
            await scene.clock.advance(61)
            await at_rest(scene.driver, "numbers")
            await eventually(lambda: nothing_held(worker))
    assert sorted(each for batch in handled for each in batch) == [3, 4]
    assert scene.others() == ["m-1", "m-2"]


@both
async def test_what_is_behind_a_batch_that_others_have_some_of_waits_until_it_is_back(
    inline: bool,
) -> None:
    handled: list[int] = []
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker(
            "numbers", prefetch=6, concurrency=2, batch_wait=60, ordering="key"
        )

        @worker.on(number, batch_size=4)
        async def handle(numbers: list[int]) -> None:
            handled.extend(numbers)

        @worker.on(word)
        async def note(text: str) -> None:
            handled.append(int(text))

        await scene.waiting(worker)
        await scene.publish("m-1", key="a")
        await scene.qc.publish(word, "2", message_id="m-2", key="a")
        await scene.publish("m-9", key="z")
        async with running(worker):
            await eventually(lambda: worker.in_flight == 3)
            await quiet()
            await scene.driver.give("m-9")
            await quiet()
            await scene.clock.advance(61)
            await at_rest(scene.driver, "numbers")
            await eventually(lambda: nothing_held(worker))
    assert handled == [1, 2]
    assert scene.others() == ["m-9"]


@both
async def test_another_message_with_the_id_of_one_that_others_had_is_handled(
    inline: bool,
) -> None:
    gate = Gate()
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker("numbers", prefetch=5).on(number, gate.handle)
        async with running(worker):
            await scene.qc.publish(number, 1, message_id="daily")
            await gate.entered(1)
            await scene.driver.give("daily")
            gate.open()
            await eventually(lambda: gate.passed == [1])
            await scene.clock.advance(300)
            await scene.qc.publish(number, 2, message_id="daily")
            await eventually(lambda: gate.passed == [1, 2])
            await at_rest(scene.driver, "numbers")


@both
async def test_a_batch_that_is_not_begun_when_its_worker_pauses_goes_back_but_for_what_left(
    inline: bool,
) -> None:
    handled: list[int] = []
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker("numbers", prefetch=6, batch_size=4, batch_wait=60)

        @worker.on(number)
        async def handle(numbers: list[int]) -> None:
            handled.extend(numbers)

        async with running(worker):
            await scene.publish("m-1", "m-2", "m-3")
            await eventually(lambda: worker.in_flight == 3)
            await quiet()
            await scene.driver.give("m-1")
            worker.pause()
            await eventually(lambda: nothing_held(worker))
            worker.resume()
            await eventually(lambda: worker.in_flight == 2)
            await quiet()
            await scene.clock.advance(61)
            await at_rest(scene.driver, "numbers")
    assert sorted(handled) == [2, 3]
    assert scene.others() == ["m-1"]


@both
async def test_a_message_that_was_late_and_waits_for_its_next_try_goes_too(inline: bool) -> None:
    calls: list[int] = []
    stuck = asyncio.Event()
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker(
            "numbers", prefetch=3, ordering="key", ack_timeout=5, retry=Retry(initial_delay=30)
        )

        @worker.on(number)
        async def handle(n: int) -> None:
            calls.append(n)
            try:
                await asyncio.Event().wait()
            finally:
                await stuck.wait()  # it is cancelled, and takes its time

        async with running(worker):
            await scene.publish("m-1", key="a")
            await eventually(lambda: calls == [1])
            await scene.clock.advance(6)
            assert worker.counters.ack_timeouts == 1
            await scene.driver.give("m-1")
            stuck.set()
            await eventually(lambda: nothing_held(worker))
            await scene.clock.advance(60)
    assert calls == [1]
    assert scene.others() == ["m-1"]


@both
@pytest.mark.parametrize("ordering", ["none", "key"])
@pytest.mark.parametrize("seed", range(10))
async def test_whatever_is_given_away_everything_is_handled_somewhere_and_room_comes_back(
    inline: bool, ordering: Ordering, seed: int
) -> None:
    chance = random.Random(seed)
    seen = Ledger()
    async with sharing(inline=inline) as scene:
        worker = scene.qc.worker(
            "numbers", prefetch=8, concurrency=3, ordering=ordering, retry=AT_ONCE
        )

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            if chance.random() < 0.2 and message.attempt < 3:
                raise ValueError("once more")
            seen.record("numbers", message)

        ids = [f"m-{n}" for n in range(60)]
        async with running(worker):
            for n, id in enumerate(ids):
                await scene.publish(id, key="abc"[n % 3])
                held = list(scene.driver.consumer.held) if scene.driver.consumer else []
                some = chance.sample(held, chance.randrange(len(held) + 1))
                if chance.random() < 0.3:
                    await scene.driver.ask_for(*some)
                if chance.random() < 0.3:
                    await scene.driver.give(*some)
                await asyncio.sleep(0)
            await at_rest(scene.driver, "numbers")
            await eventually(lambda: nothing_held(worker))
    assert scene.driver.calls["subscribe"] == 1
    assert {each.id for each in seen.calls} | set(scene.others()) == set(ids)


async def test_a_message_that_others_have_while_it_is_put_back_is_counted_once() -> None:
    gate, free = Gate(), asyncio.Event()
    async with sharing(inline=False) as scene:
        worker = scene.qc.worker("numbers", concurrency=2, prefetch=3)
        worker.on(word, gate.handle).on(number, gate.handle)
        await scene.waiting(worker, "m-1")
        for _ in range(3):  # as so many crashes would
            crashed = await scene.driver.inner.subscribe(Queue("numbers"), prefetch=1)
            held = await crashed.receive(1, 0)
            await crashed.close()
        crashed = await scene.driver.inner.subscribe(Queue("numbers"), prefetch=1)
        held = await crashed.receive(1, 0)
        async with running(worker):
            await scene.qc.publish(word, "first")
            await gate.entered(1)
            await crashed.release(held)
            await eventually(lambda: worker.in_flight == 2)
            await quiet()  # it waits to be alone
            assert scene.driver.consumer is not None
            release = scene.driver.consumer.release

            async def slow(deliveries: Sequence[Delivery]) -> None:
                await free.wait()
                await release(deliveries)

            vars(scene.driver.consumer)["release"] = slow
            worker.pause()
            await quiet()
            await scene.driver.give("m-1")
            free.set()
            await quiet()
            assert worker.in_flight == 1
            gate.open()
            await eventually(lambda: nothing_held(worker))
        await crashed.close()
    assert gate.passed == ["first"]


async def test_what_is_to_be_tried_again_beside_a_dead_letter_goes_with_its_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[list[int]] = []
    async with sharing(inline=False) as scene, choked(monkeypatch) as flows:
        worker = scene.qc.worker(
            "numbers", batch_size=2, ordering="key", retry=Retry(initial_delay=1)
        )

        @worker.on(number)
        async def handle(numbers: list[int]) -> None:
            begun.append(numbers)
            raise BatchFailed({0: UnreadablePayload("no"), 1: ValueError("not yet")})

        await scene.waiting(worker, "m-1", key="a")
        await scene.publish("m-2", key="b")
        async with running(worker):
            await eventually(lambda: begun == [[1, 2]])
            await quiet()  # one is on its way to the dead letters
            await scene.driver.give("m-2")
            flows.set()
            await scene.clock.advance(60)
            assert begun == [[1, 2]]
            assert scene.others() == ["m-2"]
            assert nothing_held(worker)
            await at_rest(scene.driver, "numbers", dead=1)
