"""Batches keep the order of keys, and outlive stops, lost connections and crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from queuecraft import (
    BatchFailed,
    Message,
    NoRetry,
    QueueError,
    Retry,
)
from queuecraft.drivers.base import Delivery
from queuecraft.model.outcome import UnreadablePayload
from tests.runtime.batching import ONE_TO_FIVE, Batches, publish
from tests.runtime.consuming import (
    at_rest,
    both,
    choked,
    flowing,
    lines,
    number,
    state,
    tidy,
    word,
)
from tests.runtime.support import eventually, quiet, running

# -- order -----------------------------------------------------------------------------------------


@both
async def test_a_batch_holds_several_of_one_key_in_order(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        seen = Batches(closed=True)
        worker = stage.qc.worker("numbers", ordering="key", concurrency=4, batch_size=3)
        worker.on(number, seen.handle)
        await worker.declare()
        await publish(stage, *ONE_TO_FIVE, key="a")
        await publish(stage, 11, 12, key="b")
        async with running(worker):
            await quiet()
            # Nothing else of a lane runs meanwhile, though there are runners to spare.
            assert seen.begun == [[1, 2, 3], [11, 12]]
            seen.open()
            await at_rest(stage.driver, "numbers")
        assert sorted(seen.ended) == [[1, 2, 3], [4, 5], [11, 12]]


@both
async def test_a_failing_batch_comes_again_in_order(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        seen: list[list[tuple[int, int]]] = []
        worker = stage.qc.worker(
            "numbers", ordering="key", concurrency=2, batch_size=3, retry=Retry(initial_delay=1)
        )

        @worker.on(number)
        async def store(numbers: list[int], messages: list[Message[int]]) -> None:
            attempts = [message.attempt for message in messages]
            seen.append(list(zip(numbers, attempts, strict=True)))
            if attempts[0] == 1 and numbers[0] == 1:
                raise ValueError("once")

        await worker.declare()
        await publish(stage, *ONE_TO_FIVE, key="a")
        async with running(worker):
            await quiet()
            assert seen == [[(1, 1), (2, 1), (3, 1)]]
            await stage.clock.advance(1)
            await at_rest(stage.driver, "numbers")
        assert seen[1:] == [[(1, 2), (2, 2), (3, 2)], [(4, 1), (5, 1)]]


@both
async def test_one_that_fails_alone_holds_up_the_next_of_its_key_and_no_other(
    inline: bool,
) -> None:
    async with tidy(inline=inline) as stage:
        seen: list[list[int]] = []
        worker = stage.qc.worker(
            "numbers", ordering="key", concurrency=2, batch_size=4, retry=Retry(initial_delay=1)
        )

        @worker.on(number)
        async def store(numbers: list[int], messages: list[Message[int]]) -> None:
            seen.append(numbers)
            failing = {m: ValueError() for m in messages if m.payload in (2, 3) and m.attempt == 1}
            if failing:
                raise BatchFailed(failing)

        await worker.declare()
        await publish(stage, 1, 2, 3, key="a")
        await publish(stage, 11, key="b")
        await publish(stage, 4, 5, key="a")
        await publish(stage, 12, key="b")
        async with running(worker):
            await quiet()
            assert seen == [[1, 2, 3, 4], [11, 12]]
            await stage.clock.advance(1)
            await at_rest(stage.driver, "numbers")
        assert seen[2:] == [[2, 3, 5]]


@both
async def test_what_is_behind_a_batch_waits_until_what_failed_in_it_is_a_dead_letter(
    inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[list[int]] = []
    async with tidy(inline=inline) as stage, choked(monkeypatch) as flows:
        worker = stage.qc.worker(
            "numbers", ordering="key", concurrency=2, batch_size=2, retry=NoRetry()
        )

        @worker.on(number)
        async def handle(numbers: list[int]) -> None:
            begun.append(numbers)
            if 2 in numbers:
                raise BatchFailed({numbers.index(2): ValueError("never")})

        await worker.declare()
        await publish(stage, 1, 2, 3, key="a")
        await publish(stage, 4, 5, key="b")
        async with running(worker):
            await stage.clock.advance(1)
            assert begun == [[1, 2], [4, 5]]
            flows.set()
            await eventually(lambda: begun == [[1, 2], [4, 5], [3]])
            await at_rest(stage.driver, "numbers", dead=1)


@both
@pytest.mark.parametrize("refused", [[1, 2], [1], [2]], ids=str)
async def test_what_a_batch_cannot_make_dead_letters_goes_back_in_order(
    inline: bool, refused: list[int]
) -> None:
    handled: list[tuple[int, int]] = []
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker(
            "numbers", ordering="key", concurrency=2, batch_size=2, retry=Retry(initial_delay=1)
        )

        @worker.on(number)
        async def handle(messages: list[Message[int]]) -> None:
            handled.extend((each.payload, each.attempt) for each in messages)
            if len(handled) > 2:
                return
            raise BatchFailed(
                {
                    place: UnreadablePayload("no") if each.payload in refused else ValueError("no")
                    for place, each in enumerate(messages)
                }
            )

        stage.driver.reject(to="numbers.dlq", times=None, of="move")
        await worker.declare()
        await publish(stage, 1, 2, 3, key="a")
        async with running(worker):
            await eventually(lambda: worker.paused and not worker.in_flight)
            await quiet()
            left = await stage.driver.inner.peek("numbers", 10)
            assert [(each.sent.body, each.redeliveries) for each in left] == [
                (b"1", 0),
                (b"2", 0),
                (b"3", 0),
            ]
            stage.driver.heal()
            worker.resume()
            await stage.clock.advance(60)
            await at_rest(stage.driver, "numbers")
            assert worker.in_flight == 0
    again = [(n, 1 if n in refused else 2) for n in (1, 2)]
    assert handled == [(1, 1), (2, 1), *again, (3, 1)]


@both
async def test_a_failure_counts_though_another_of_its_batch_lost_the_connection(
    inline: bool,
) -> None:
    handled: list[tuple[int, int]] = []
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker(
            "numbers", ordering="key", concurrency=2, batch_size=2, retry=Retry(initial_delay=1)
        )

        @worker.on(number)
        async def handle(messages: list[Message[int]]) -> None:
            handled.extend((each.payload, each.attempt) for each in messages)
            if len(handled) == 2:
                raise BatchFailed({0: UnreadablePayload("no"), 1: ValueError("no")})

        stage.driver.lose_answers(stored=False, of="move")
        await worker.declare()
        await publish(stage, 1, key="a")
        await publish(stage, 2, key="b")
        async with running(worker):
            await stage.clock.advance(60)
            await at_rest(stage.driver, "numbers")
    assert sorted(handled) == [(1, 1), (1, 1), (2, 1), (2, 2)]


@both
async def test_what_waits_for_a_dead_letter_of_its_batch_goes_back_uncounted_when_the_worker_stops(
    inline: bool,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", ordering="key", concurrency=2, batch_size=2)

        @worker.on(number)
        async def handle(numbers: list[int]) -> None:
            begun.set()
            await go_on.wait()
            raise BatchFailed({0: ValueError("not yet"), 1: UnreadablePayload("never")})

        await worker.declare()
        await publish(stage, 1, 2, key="a")
        await worker.start()
        await begun.wait()
        stopping = asyncio.create_task(worker.stop())
        await quiet()
        go_on.set()
        await stopping
        assert worker.in_flight == 0
        (left,) = await stage.driver.inner.peek("numbers", 10)
        assert (left.sent.body, left.redeliveries) == (b"1", 0)
        assert (await state(stage.driver, "numbers")).dead == 1


@both
async def test_order_survives_that_only_what_is_behind_a_batch_cannot_be_given_back(
    inline: bool,
) -> None:
    async with tidy(inline=inline, reconnect_delay=1.0) as stage:
        handled: list[int] = []
        worker = stage.qc.worker("mixed", ordering="key", prefetch=5, batch_wait=60)

        @worker.on(number, batch_size=3)
        async def store(numbers: list[int]) -> None:
            handled.extend(numbers)

        @worker.on(word)
        async def note(text: str) -> None:
            handled.append(int(text))

        await worker.declare()
        await publish(stage, 1, key="a")
        await stage.qc.publish(word, "2", key="a")
        await publish(stage, 3, key="a")
        async with running(worker):
            await eventually(lambda: worker.in_flight == 3)
            await quiet()
            stage.driver.fail("release", QueueError("out of memory"))
            worker.pause()
            await quiet()
            worker.resume()
            async with flowing(stage.clock, 1.0):
                await at_rest(stage.driver, "mixed")
        assert handled == [1, 2, 3]


@both
async def test_the_next_of_a_key_does_not_come_before_its_own_time(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        seen: list[list[int]] = []
        worker = stage.qc.worker("numbers", ordering="key", batch_size=5)

        @worker.on(number)
        async def store(numbers: list[int], messages: list[Message[int]]) -> None:
            seen.append(numbers)
            for message in messages:
                if message.attempt == 1 and message.payload < 3:
                    await message.retry(delay=5 * message.payload)

        await worker.declare()
        await publish(stage, 1, 2, 3, key="a")
        async with running(worker):
            await quiet()
            assert seen == [[1, 2, 3]]
            await stage.clock.advance(5)
            assert seen[1:] == [[1]]
            await stage.clock.advance(5)
            assert seen[2:] == [[2]]
            await at_rest(stage.driver, "numbers")


@both
async def test_a_batch_that_waits_passes_on_what_wakes_it(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        seen = Batches()
        words: list[str] = []
        worker = stage.qc.worker("mixed", ordering="key", concurrency=3)

        @worker.on(number, batch_size=9, batch_wait=60)
        async def store(numbers: list[int], messages: list[Message[int]]) -> None:
            await seen.handle(numbers)

        @worker.on(word)
        async def note(text: str, message: Message[str]) -> None:
            if message.attempt == 1:
                await message.retry(delay=len(text))
            else:
                words.append(text)

        async with running(worker):
            for each in ("a", "aa", "aaa", "aaaa", "aaaaa"):
                await stage.qc.publish(word, each, key=each)
            await publish(stage, 1, key="n")
            for seconds in range(1, 6):
                await stage.clock.advance(1)
                assert len(words) == seconds
            assert seen.begun == []
            await stage.clock.advance(60)
            assert seen.ended == [[1]]


@both
async def test_a_batch_that_waits_wakes_who_fetches_for_what_it_cannot_take(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        tries: list[str] = []
        worker = stage.qc.worker("mixed", ordering="key", concurrency=2, prefetch=20)

        @worker.on(number, batch_size=9, batch_wait=60)
        async def store(messages: list[Message[int]]) -> None:
            tries.append("batch")
            if messages[0].attempt == 1:
                await messages[0].retry(delay=2)

        @worker.on(word)
        async def note(text: str, message: Message[str]) -> None:
            tries.append(text)
            if message.attempt == 1:
                await message.retry(delay=3)

        async with running(worker):
            await publish(stage, 1, key="n")
            await quiet()
            await stage.clock.advance(60)
            assert tries == ["batch"]
            await stage.qc.publish(word, "x", key="x")
            await eventually(lambda: tries == ["batch", "x"])
            await stage.clock.advance(2)  # who was parked waits with the batch, the other fetches
            await stage.clock.advance(1)
            assert tries == ["batch", "x", "x"]
            await stage.clock.advance(60)
            assert tries == ["batch", "x", "x", "batch"]
            await at_rest(stage.driver, "mixed")


@both
async def test_what_a_failing_batch_leaves_goes_back_in_order_when_the_worker_stops(
    inline: bool,
) -> None:
    async with tidy(inline=inline) as stage:
        seen = Batches(closed=True)
        worker = stage.qc.worker("numbers", ordering="key", batch_size=3)

        @worker.on(number)
        async def store(numbers: list[int]) -> None:
            await seen.handle(numbers)
            raise ValueError("no")

        await worker.declare()
        await publish(stage, *ONE_TO_FIVE, key="a")
        await worker.start()
        await eventually(lambda: seen.begun)
        stopping = asyncio.create_task(worker.stop())
        await quiet()
        seen.open()
        await stopping
        left = await stage.driver.inner.peek("numbers", 10)
        assert [each.sent.body for each in left] == [b"1", b"2", b"3", b"4", b"5"]


@both
async def test_pausing_keeps_the_lanes_of_a_running_batch(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        seen = Batches(closed=True)
        worker = stage.qc.worker("numbers", ordering="key", concurrency=3, batch_size=2)
        worker.on(number, seen.handle)
        await worker.declare()
        await publish(stage, *ONE_TO_FIVE, key="a")
        async with running(worker):
            await eventually(lambda: seen.begun)
            worker.pause()
            await quiet()
            worker.resume()
            await quiet()
            assert seen.begun == [[1, 2]]
            seen.open()
            await at_rest(stage.driver, "numbers")
        assert seen.numbers == ONE_TO_FIVE


@both
async def test_a_batch_that_fails_while_its_worker_is_paused_comes_again_after_resuming(
    inline: bool,
) -> None:
    async with tidy(inline=inline) as stage:
        seen: list[list[tuple[int, int]]] = []
        leave = asyncio.Event()
        worker = stage.qc.worker(
            "numbers", ordering="key", concurrency=2, batch_size=3, retry=Retry(initial_delay=1)
        )

        @worker.on(number)
        async def store(numbers: list[int], messages: list[Message[int]]) -> None:
            attempts = [message.attempt for message in messages]
            seen.append(list(zip(numbers, attempts, strict=True)))
            await leave.wait()
            if len(seen) == 1:
                raise ConnectionError("the bank is down")

        await worker.declare()
        await publish(stage, *ONE_TO_FIVE, key="a")
        async with running(worker):
            await eventually(lambda: seen)
            worker.pause("the bank is down")
            leave.set()
            await stage.clock.advance(10)
            assert seen == [[(1, 1), (2, 1), (3, 1)]]
            worker.resume()
            await at_rest(stage.driver, "numbers")
        assert seen[1:] == [[(1, 2), (2, 2), (3, 2)], [(4, 1), (5, 1)]]


# -- connections and crashes -----------------------------------------------------------------------


@both
@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_a_batch_handled_while_the_connection_was_lost_is_not_run_again(
    inline: bool, ordering: Any
) -> None:
    async with tidy(inline=inline, reconnect_delay=1.0) as stage:
        seen = Batches(closed=True)
        worker = stage.qc.worker("numbers", batch_size=3, concurrency=2, ordering=ordering)
        worker.on(number, seen.handle)
        await worker.declare()
        await publish(stage, 1, 2, 3, key="a")
        async with running(worker), flowing(stage.clock):
            await eventually(lambda: seen.begun)
            await stage.driver.drop()
            await eventually(lambda: stage.qc.connection_state != "connected")
            await eventually(lambda: stage.qc.connection_state == "connected")
            await quiet()
            seen.open()
            await at_rest(stage.driver, "numbers")
        assert seen.begun == [[1, 2, 3]]
        assert stage.qc.get_metrics().messages_succeeded == 3


@both
async def test_a_batch_that_fails_while_the_connection_was_lost_comes_again(inline: bool) -> None:
    async with tidy(inline=inline, reconnect_delay=1.0) as stage:
        seen: list[list[int]] = []
        leave = asyncio.Event()
        worker = stage.qc.worker("numbers", batch_size=3, concurrency=2)

        @worker.on(number)
        async def store(numbers: list[int]) -> None:
            seen.append(numbers)
            if len(seen) == 1:
                await leave.wait()
                raise ValueError("once")

        await worker.declare()
        await publish(stage, 1, 2, 3)
        async with running(worker), flowing(stage.clock):
            await eventually(lambda: seen)
            await stage.driver.drop()
            await eventually(lambda: stage.qc.connection_state != "connected")
            await eventually(lambda: stage.qc.connection_state == "connected")
            await quiet()
            leave.set()
            await at_rest(stage.driver, "numbers")
        assert sorted(each for batch in seen[1:] for each in batch) == [1, 2, 3]
        assert stage.qc.get_metrics().messages_failed == 0


async def test_a_message_that_may_have_killed_its_worker_is_handled_alone() -> None:
    async with tidy() as stage:
        seen = Batches()
        worker = stage.qc.worker("numbers", batch_size=10).on(number, seen.handle)
        await worker.declare()
        await publish(stage, 1, 2, 3)
        for _ in range(3):  # taken by somebody who dies
            subscription = await stage.driver.inner.subscribe(worker.definition, prefetch=3)
            taken = await subscription.receive(3, 0)
            await subscription.release([each for each in taken if each.sent.body != b"2"])
            await subscription.close()
        subscription = await stage.driver.inner.subscribe(worker.definition, prefetch=3)
        one, two, three = sorted(await subscription.receive(3, 0), key=lambda each: each.sent.body)
        for each in (three, two, one):  # each to the head of the queue
            await subscription.release([each])
        await subscription.close()
        async with running(worker):
            await at_rest(stage.driver, "numbers")
        assert sorted(seen.ended) == [[1, 3], [2]]


@both
async def test_a_stopped_worker_gives_back_the_batch_it_was_at(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        seen = Batches(closed=True)
        worker = stage.qc.worker("numbers", batch_size=3).on(number, seen.handle)
        await worker.declare()
        await publish(stage, *ONE_TO_FIVE)
        await worker.start()
        await eventually(lambda: seen.begun)
        await worker.stop(drain=False)
        left: Sequence[Delivery] = await stage.driver.inner.peek("numbers", 10)
        assert [each.sent.body for each in left] == [b"1", b"2", b"3", b"4", b"5"]


@both
async def test_a_stopping_worker_waits_for_its_batch(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        seen = Batches(closed=True)
        worker = stage.qc.worker("numbers", batch_size=3).on(number, seen.handle)
        await worker.declare()
        await publish(stage, *ONE_TO_FIVE)
        await worker.start()
        await eventually(lambda: seen.begun)
        stopping = asyncio.create_task(worker.stop())
        await quiet()
        seen.open()
        await stopping
        assert seen.ended == [[1, 2, 3]]
        assert (await state(stage.driver, "numbers")).ready == 2


async def test_a_fallen_runner_handles_its_batch_again_after_resuming(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with tidy() as stage:
        seen: list[list[int]] = []
        worker = stage.qc.worker("numbers", batch_size=3, ordering="key")

        @worker.on(number)
        async def store(numbers: list[int]) -> None:
            seen.append(numbers)
            if len(seen) == 1:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()  # as nobody should
                await asyncio.sleep(0)

        await worker.declare()
        await publish(stage, *ONE_TO_FIVE, key="a")
        async with running(worker):
            await eventually(lambda: worker.state == "paused")
            worker.resume()
            await at_rest(stage.driver, "numbers")
        assert seen == [[1, 2, 3], [1, 2, 3], [4, 5]]
        assert "a runner was cancelled" in lines(caplog)


# -- at random -------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_through_failures_and_cuts_nothing_is_lost_and_keys_keep_their_order(
    inline: bool, ordering: Any
) -> None:
    retry = Retry(max_retries=100, initial_delay=0.1, factor=1)
    async with tidy(inline=inline, reconnect_delay=0.1, retry=retry) as stage:
        handled: list[int] = []
        worker = stage.qc.worker("numbers", batch_size=7, concurrency=3, ordering=ordering)
        calls = 0

        @worker.on(number)
        async def store(numbers: list[int], messages: list[Message[int]]) -> None:
            nonlocal calls
            calls += 1
            turn = calls
            await asyncio.sleep(0)
            if turn % 5 == 0:
                raise ValueError("all of it")
            if turn % 11 == 0:
                await stage.driver.drop()
            if turn % 3 == 0:
                # From one on that fails, all of its key fail.
                bad = {messages[0].key}
                handled.extend(m.payload for m in messages if m.key not in bad)
                raise BatchFailed({m: ValueError() for m in messages if m.key in bad})
            handled.extend(numbers)

        await worker.declare()
        for start in range(0, 300, 10):
            await publish(stage, *range(start, start + 10), key=f"k-{start % 40}")
        async with running(worker), flowing(stage.clock):
            await at_rest(stage.driver, "numbers")
        assert set(handled) == set(range(300))
        if ordering == "key":
            for key in range(0, 40, 10):
                mine = [each for each in handled if each // 10 * 10 % 40 == key]
                firsts = list(dict.fromkeys(mine))
                assert firsts == sorted(firsts)
