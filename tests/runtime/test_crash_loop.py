"""Messages that keep killing their worker: counted, handled alone, and ended in time."""

from __future__ import annotations

import asyncio

import pytest

from queuecraft import Message, NoDeadLetter, Retry, Worker
from queuecraft.drivers.base import Queue
from queuecraft.facts import MessagesSucceeded
from queuecraft.testing import Ledger
from tests.runtime.consuming import Gate, at_rest, both, choked, number, reasons, state, tidy, word
from tests.runtime.support import Stage, eventually, ids, quiet, running


async def redelivered(stage: Stage, worker: Worker, times: int) -> None:
    """Count redeliveries onto all that is ready, as so many crashes would."""
    await stage.driver.declare(worker.definition)
    inner = stage.driver.inner
    for _ in range(times):
        subscription = await inner.subscribe(Queue(worker.queue_name), prefetch=1000)
        await subscription.receive(1000, 0)
        await subscription.close()


@both
async def test_a_message_redelivered_too_often_is_dead_lettered_as_a_crash_loop(
    inline: bool,
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", max_redeliveries=5).on(number, seen.recording("seen"))
        await stage.driver.declare(worker.definition)
        await stage.qc.publish(number, 1)
        await redelivered(stage, worker, 6)
        async with running(worker):
            await at_rest(stage.driver, "numbers", dead=1)
        assert seen.calls == []
        assert await reasons(stage.driver, "numbers") == ["crash-loop"]


async def test_the_last_redelivery_allowed_is_still_handled() -> None:
    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", max_redeliveries=5).on(number, seen.recording("seen"))
        await stage.driver.declare(worker.definition)
        await stage.qc.publish(number, 1)
        await redelivered(stage, worker, 5)
        async with running(worker):
            await seen.wait_for(seen=1)
            await at_rest(stage.driver, "numbers")
    assert [each.redeliveries for each in seen.calls] == [5]


async def test_twenty_redeliveries_are_the_limit_when_nothing_is_set() -> None:
    async with tidy() as stage:
        assert stage.qc.worker("numbers").policy.max_redeliveries == 20


async def test_a_crash_loop_is_dropped_and_counted_where_dead_letters_are_off() -> None:
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", max_redeliveries=0, dead_letter=NoDeadLetter())
        worker.on(number, Gate().handle)
        await stage.driver.declare(worker.definition)
        await stage.qc.publish(number, 1)
        await redelivered(stage, worker, 1)
        async with running(worker):
            await at_rest(stage.driver, "numbers")
        assert worker.counters.dropped == 1


@both
async def test_failures_and_redeliveries_do_not_inflate_each_other(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=Retry(max_retries=5, initial_delay=0))
        fails = seen.failing("numbers", times=2)
        inside = asyncio.Event()

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            if message.attempt == 2 and message.redeliveries < 2:
                seen.record("numbers", message, failed=True)
                inside.set()
                await asyncio.Event().wait()
            await fails(n, message)

        await worker.start()
        await stage.qc.publish(number, 1)
        for _ in range(2):
            await inside.wait()
            inside.clear()
            await worker.stop(drain=False, requeue_in_flight=False)  # as a crash would
            await worker.start()
        await seen.wait_for(numbers=5)
        await at_rest(stage.driver, "numbers")
        await worker.stop()
    assert [(each.attempt, each.redeliveries) for each in seen.calls] == [
        (1, 0),
        (2, 0),
        (2, 1),
        (2, 2),
        (3, 0),  # a retry is a new message to the broker
    ]


@pytest.mark.parametrize(
    ("concurrency", "limit", "times"), [(1, 20, 3), (2, 20, 3), (4, 20, 3), (4, 2, 2), (4, 1, 1)]
)
@both
async def test_a_message_is_handled_alone_before_it_is_given_up(
    concurrency: int, limit: int, times: int, inline: bool
) -> None:
    alone: list[tuple[int, int | None]] = []
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker(
            "numbers", concurrency=concurrency, prefetch=8, max_redeliveries=limit
        )
        others = 0

        @worker.on(word)
        async def neighbour(text: str, message: Message) -> None:
            nonlocal others
            others += 1
            for _ in range(5):
                await asyncio.sleep(0)
            others -= 1
            seen.record("words", message)

        @worker.on(number)
        async def killer(n: int, message: Message) -> None:
            for _ in range(10):
                await asyncio.sleep(0)
                alone.append((others, (await state(stage.driver, "numbers")).in_flight))
            seen.record("numbers", message)

        await stage.driver.declare(worker.definition)
        await stage.qc.publish(number, 1)
        await redelivered(stage, worker, times)
        await stage.qc.publish_many(word, ["a"] * 12)
        await stage.driver.send([])
        async with running(worker):
            await seen.wait_for(numbers=1, words=12)
            await at_rest(stage.driver, "numbers")
    assert set(alone) == {(0, 1)}
    assert {each.redeliveries for each in seen.calls if each.name == "words"} == {0}


@both
async def test_it_waits_for_neighbours_at_work_and_lets_no_other_begin(inline: bool) -> None:
    gate, seen = Gate(), Ledger()
    order: list[str] = []
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=3, prefetch=3)

        @worker.on(word)
        async def neighbour(text: str, message: Message) -> None:
            await gate.handle(text, message)
            order.append(text)

        @worker.on(number)
        async def killer(n: int) -> None:
            order.append("killer")

        await stage.driver.declare(worker.definition)
        await stage.qc.publish(number, 1)
        await redelivered(stage, worker, 3)
        suspect = await stage.driver.inner.subscribe(Queue("numbers"), prefetch=1)
        held = await suspect.receive(1, 0)
        async with running(worker):
            await stage.qc.publish(word, "first")
            await gate.entered(1)
            await suspect.release(held)
            await stage.qc.publish(word, "later")
            await quiet()
            assert gate.inside == ["first"]
            assert order == []
            gate.open()
            await eventually(lambda: len(order) == 3)
            await at_rest(stage.driver, "numbers")
        await suspect.close()
    assert order == ["first", "killer", "later"]
    seen.check()


@pytest.mark.parametrize("concurrency", [1, 2, 3, 8])
@both
async def test_many_such_messages_at_once_take_turns(concurrency: int, inline: bool) -> None:
    inside = most = 0
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=concurrency, prefetch=8)

        @worker.on(number)
        async def killer(n: int, message: Message) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1
            seen.record("numbers", message)

        await stage.driver.declare(worker.definition)
        for n in range(6):
            seen.published(await stage.qc.publish(number, n))
        await redelivered(stage, worker, 3)
        async with running(worker):
            await seen.wait_for(numbers=6)
            await at_rest(stage.driver, "numbers")
    assert most == 1
    seen.check()


@both
async def test_a_failing_one_is_retried_as_any_other(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2, retry=Retry(initial_delay=0))
        worker.on(number, seen.failing("numbers", times=1)).on(word, seen.recording("words"))
        await stage.driver.declare(worker.definition)
        await stage.qc.publish(number, 1)
        await redelivered(stage, worker, 3)
        async with running(worker):
            await stage.qc.publish(word, "a")
            await seen.wait_for(numbers=2, words=1)
            await at_rest(stage.driver, "numbers")
    assert seen.attempts("numbers") == [1, 2]


@both
async def test_in_order_by_key_too(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=3, prefetch=9, ordering="key")
        worker.on(number, seen.recording("numbers"))
        await stage.driver.declare(worker.definition)
        for n in range(9):
            key = "abc"[n % 3]
            seen.published(await stage.qc.publish(number, n, key=key), key=key)
        await redelivered(stage, worker, 3)
        async with running(worker):
            await seen.wait_for(numbers=9)
            await at_rest(stage.driver, "numbers")
    seen.check(ordered=["numbers"])


@both
@pytest.mark.parametrize("ending", ["stop", "pause"])
async def test_it_is_not_begun_if_its_worker_is_to_begin_nothing_more_while_it_waits(
    inline: bool, ending: str
) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2, prefetch=3)
        worker.on(word, gate.handle).on(number, seen.recording("numbers"))
        await stage.driver.declare(worker.definition)
        await stage.qc.publish(number, 1, message_id="suspect")
        await redelivered(stage, worker, 3)
        suspect = await stage.driver.inner.subscribe(Queue("numbers"), prefetch=1)
        held = await suspect.receive(1, 0)
        await worker.start()
        await stage.qc.publish(word, "first")
        await gate.entered(1)
        await suspect.release(held)
        await suspect.close()
        await quiet()
        if ending == "pause":
            worker.pause()
            await eventually(lambda: worker.in_flight == 1)
        stopping = asyncio.create_task(worker.stop() if ending == "stop" else asyncio.sleep(0))
        await quiet()
        gate.open()
        await asyncio.wait_for(stopping, 5)
        await eventually(lambda: gate.passed == ["first"])
        await eventually(lambda: worker.in_flight == 0)
        assert seen.calls == []
        assert await ids(stage.driver, "numbers") == ["suspect"]
        assert (await state(stage.driver, "numbers")).in_flight == 0
        await worker.stop()


async def test_the_time_it_waits_to_be_alone_is_not_its_handlers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate()
    took: list[float] = []
    async with tidy() as stage:
        monkeypatch.setattr("queuecraft.runtime.runner.perf_counter", stage.clock.monotonic)
        worker = stage.qc.worker("numbers", concurrency=2, prefetch=3)

        @worker.on(number)
        async def suspect(n: int) -> None: ...

        worker.on(word, gate.handle)
        stage.qc.observe(MessagesSucceeded, lambda fact: took.extend(fact.durations))
        await stage.driver.declare(worker.definition)
        await stage.qc.publish(number, 1)
        await redelivered(stage, worker, 3)
        other = await stage.driver.inner.subscribe(Queue("numbers"), prefetch=1)
        held = await other.receive(1, 0)
        async with running(worker):
            await stage.qc.publish(word, "first")
            await gate.entered(1)
            await other.release(held)
            await stage.clock.advance(10)
            assert worker.in_flight == 2
            gate.open()
            await at_rest(stage.driver, "numbers")
        await other.close()
    assert sorted(took) == [0, 10]


@both
async def test_a_connection_lost_while_it_waits_to_be_alone_leaves_nothing_stuck(
    inline: bool,
) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=3, prefetch=3)
        worker.on(word, gate.handle).on(number, seen.recording("numbers"))
        await stage.driver.declare(worker.definition)
        await stage.qc.publish_many(number, [1, 2])
        await redelivered(stage, worker, 3)
        suspects = await stage.driver.inner.subscribe(Queue("numbers"), prefetch=2)
        held = await suspects.receive(2, 0)
        async with running(worker):
            await stage.qc.publish(word, "first")
            await gate.entered(1)
            await suspects.release(held)
            await quiet()
            await stage.driver.drop()
            await quiet()
            gate.open()
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")


@both
async def test_a_neighbour_that_never_returns_does_not_keep_it_waiting_for_ever(
    inline: bool,
) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2, prefetch=3)
        worker.on(word, gate.handle).on(number, seen.recording("numbers"))
        await stage.driver.declare(worker.definition)
        await stage.qc.publish(number, 1)
        await redelivered(stage, worker, 3)
        suspect = await stage.driver.inner.subscribe(Queue("numbers"), prefetch=1)
        held = await suspect.receive(1, 0)
        async with running(worker):
            await stage.qc.publish(word, "hangs")
            await gate.entered(1)
            await suspect.release(held)
            await suspect.close()
            await quiet()
            assert seen.calls == []
            await stage.clock.advance(60)
            await seen.wait_for(numbers=1)
            gate.open()
            await at_rest(stage.driver, "numbers")


@pytest.mark.parametrize("waits", [True, False], ids=["for a while", "not for ever"])
@pytest.mark.parametrize("concurrency", [2, 3])
async def test_it_waits_for_the_retries_of_its_neighbours_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, waits: bool, concurrency: int
) -> None:
    seen = Ledger()
    async with tidy(inline=False) as stage, choked(monkeypatch) as flows:
        worker = stage.qc.worker(
            "numbers", concurrency=concurrency, prefetch=4, retry=Retry(initial_delay=100)
        )
        fails = seen.failing("fails")

        @worker.on(word)
        async def neighbour(text: str, message: Message) -> None:
            await fails(text, message) if text == "bad" else seen.record("words", message)

        worker.on(number, seen.recording("numbers"))
        await stage.driver.declare(worker.definition)
        await stage.qc.publish(number, 1)
        await redelivered(stage, worker, 3)
        suspect = await stage.driver.inner.subscribe(Queue("numbers"), prefetch=1)
        held = await suspect.receive(1, 0)
        async with running(worker):
            await stage.qc.publish(word, "bad")
            await stage.qc.publish(word, "good")
            await seen.wait_for(fails=1, words=1)
            await suspect.release(held)
            await suspect.close()
            await stage.qc.publish(word, "later")
            await quiet()
            assert (await state(stage.driver, "numbers")).in_flight == 2  # the good one is acked
            await stage.clock.advance(29)
            assert [each.name for each in seen.calls] == ["fails", "words"]
            if waits:
                flows.set()
            else:
                await stage.clock.advance(1)
            await seen.wait_for(numbers=1, words=2)
            await eventually(lambda: worker.in_flight == (0 if waits else 1))
            flows.set()
            await stage.clock.advance(100)
            await at_rest(stage.driver, "numbers")
    assert [each.name for each in seen.calls] == ["fails", "words", "numbers", "words", "fails"]
