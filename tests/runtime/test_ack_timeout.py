"""A handler that takes too long has failed its message, whatever it does afterwards."""

from __future__ import annotations

import asyncio
import threading

import pytest

from queuecraft import AlreadySettled, ConfigError, Message, NoRetry, Retry
from queuecraft.facts import MessageFailed
from queuecraft.testing import Ledger
from tests.runtime.consuming import Gate, at_rest, both, lines, number, reasons, state, tidy, word
from tests.runtime.support import eventually, quiet, running

SOON = Retry(max_retries=1, initial_delay=1)


@both
async def test_a_handler_past_its_time_is_cancelled_and_its_message_retried(inline: bool) -> None:
    seen = Ledger()
    cancelled: list[int] = []
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", ack_timeout=5, retry=SOON)

        @worker.on(number)
        async def slow(n: int, message: Message) -> None:
            seen.record("numbers", message)
            if message.attempt == 1:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(n)
                    raise

        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await stage.clock.advance(4.9)
            assert cancelled == []
            await stage.clock.advance(0.1)
            assert cancelled == [1]
            assert worker.counters.ack_timeouts == 1
            await stage.clock.advance(1)
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")
    assert seen.attempts() == [1, 2]
    assert worker.counters.failed == 1


@both
async def test_a_handler_that_never_returns_ends_as_a_dead_letter(inline: bool) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", ack_timeout=5, retry=SOON).on(number, gate.handle)
        async with running(worker):
            await stage.qc.publish(number, 1)
            for attempt in (1, 2):
                await gate.entered(1)
                await stage.clock.advance(5)
                await eventually(lambda: gate.inside == [])
                await stage.clock.advance(1)
                assert worker.counters.ack_timeouts == attempt
            await at_rest(stage.driver, "numbers", dead=1)
        assert await reasons(stage.driver, "numbers") == ["ack-timeout"]


@both
async def test_one_late_handler_does_not_touch_its_neighbours(inline: bool) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2, ack_timeout=5, retry=NoRetry())

        @worker.on(word)
        async def in_time(text: str, message: Message) -> None:
            await stage.clock.sleep(4)
            seen.record("words", message)

        worker.on(number, gate.handle)
        async with running(worker):
            await stage.qc.publish(number, 1)
            await gate.entered(1)
            await stage.clock.advance(2)
            await stage.qc.publish(word, "a")
            await stage.clock.advance(4)
            await seen.wait_for(words=1)
            await at_rest(stage.driver, "numbers", dead=1)


@both
async def test_the_time_of_one_message_is_not_charged_to_the_next(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", prefetch=10, ack_timeout=5)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            await stage.clock.sleep(4)
            seen.record("numbers", message)

        async with running(worker):
            await stage.qc.publish_many(number, range(10))
            await stage.clock.advance(60)
            await seen.wait_for(numbers=10)
            await at_rest(stage.driver, "numbers")
    assert worker.counters.ack_timeouts == 0


# -- more time ---------------------------------------------------------------------------------


@both
async def test_a_handler_may_ask_for_more_time_again_and_again(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", ack_timeout=5)

        @worker.on(number)
        async def slow(n: int, message: Message) -> None:
            for _ in range(10):
                await stage.clock.sleep(4)
                message.extend(5)
            seen.record("numbers", message)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await stage.clock.advance(45)
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers")
    assert worker.counters.ack_timeouts == 0


async def test_a_handler_that_asked_for_more_time_and_used_it_up_is_late_all_the_same() -> None:
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", ack_timeout=5, retry=NoRetry())

        @worker.on(number)
        async def slow(n: int, message: Message) -> None:
            message.extend(20)
            await asyncio.Event().wait()

        async with running(worker):
            await stage.qc.publish(number, 1)
            await stage.clock.advance(19.9)
            assert worker.counters.ack_timeouts == 0
            await stage.clock.advance(0.1)
            assert worker.counters.ack_timeouts == 1
            await at_rest(stage.driver, "numbers", dead=1)


@both
async def test_more_time_where_no_time_is_set_changes_nothing(inline: bool) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            if n == 0:
                message.extend(5)
            await gate.handle(n, message)

        async with running(worker):
            await stage.qc.publish(number, 0)
            await gate.entered(1)
            await stage.clock.advance(60)
            assert worker.counters.ack_timeouts == 0
            gate.open()
            await at_rest(stage.driver, "numbers")


async def test_more_time_for_one_message_does_not_end_the_next() -> None:
    gate = Gate()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", ack_timeout=100)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            if n == 0:
                message.extend(5)
            else:
                await gate.handle(n, message)

        async with running(worker):
            await stage.qc.publish_many(number, range(2))
            await gate.entered(1)
            await stage.clock.advance(60)
            assert worker.counters.ack_timeouts == 0
            gate.open()
            await at_rest(stage.driver, "numbers")


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
async def test_more_time_must_be_a_number_of_seconds(seconds: float) -> None:
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", ack_timeout=5)
        refused = asyncio.Event()

        @worker.on(number)
        async def handle(message: Message[int]) -> None:
            with pytest.raises(ConfigError):
                message.extend(seconds)
            refused.set()

        async with running(worker):
            await stage.qc.publish(number, 1)
            await refused.wait()


async def test_more_time_after_the_end_is_refused() -> None:
    kept: list[Message] = []
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", ack_timeout=5)

        @worker.on(number)
        async def handle(message: Message[int]) -> None:
            kept.append(message)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await at_rest(stage.driver, "numbers")
            with pytest.raises(AlreadySettled):
                kept[0].extend(5)


# -- handlers that do not obey -----------------------------------------------------------------


@pytest.mark.parametrize("ending", ["returns", "raises"])
@both
async def test_a_handler_that_swallows_its_cancellation_leaves_a_sound_worker_behind(
    ending: str, inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Ledger()
    failed: list[str] = []
    async with tidy(inline=inline) as stage:
        stage.qc.observe(MessageFailed, lambda fact: failed.append(fact.reason))
        worker = stage.qc.worker("numbers", ack_timeout=5, retry=SOON)

        @worker.on(number)
        async def stubborn(n: int, message: Message) -> None:
            seen.record("numbers", message)
            if message.attempt == 1:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if ending == "raises":
                        raise ValueError("instead") from None

        @worker.on(word)
        async def gives_up(text: str, message: Message) -> None:
            seen.record("words", message)
            raise asyncio.CancelledError

        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await stage.clock.advance(5)
            await stage.clock.advance(1)
            await seen.wait_for(numbers=2)
            # A cancellation that still counted would now be taken for the worker's own end.
            await stage.qc.publish(word, "a")
            await seen.wait_for(words=1)
            await stage.clock.advance(1)
            await seen.wait_for(words=2)
            await at_rest(stage.driver, "numbers", dead=1)
    assert failed == ["ack-timeout", "handler-error", "handler-error"]
    assert "after its" in lines(caplog)


@both
async def test_a_handler_that_ignores_every_cancellation_does_not_keep_the_queue(
    inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Ledger()
    let_go = False
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", ack_timeout=5, retry=NoRetry())

        @worker.on(number)
        async def deaf(n: int) -> None:
            while not let_go:
                try:
                    await asyncio.sleep(0.001)
                except asyncio.CancelledError:
                    pass

        worker.on(word, seen.recording("words"))
        async with running(worker):
            try:
                await stage.qc.publish(number, 1)
                await quiet()
                await stage.qc.publish(word, "waits")
                await stage.clock.advance(5)
                await stage.clock.advance(10)
                await seen.wait_for(words=1)
                await at_rest(stage.driver, "numbers", dead=1)
                assert "ignores" in lines(caplog)
            finally:
                let_go = True
            await stage.qc.publish_many(word, ["a", "b"])
            await seen.wait_for(words=3)
        assert await reasons(stage.driver, "numbers") == ["ack-timeout"]


@both
async def test_a_key_goes_on_without_the_handler_that_ignores_its_cancellation(
    inline: bool,
) -> None:
    seen = Ledger()
    leave = asyncio.Event()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", ordering="key", ack_timeout=5, retry=SOON)

        @worker.on(number)
        async def deaf(n: int, message: Message) -> None:
            seen.record("numbers", message)
            while n == 0 and message.attempt == 1 and not leave.is_set():
                try:
                    await leave.wait()
                except asyncio.CancelledError:
                    pass

        async with running(worker):
            try:
                await stage.qc.publish(number, 0, key="a")
                await stage.qc.publish(number, 1, key="a")
                await seen.wait_for(numbers=1)
                await stage.clock.advance(5)
                await stage.clock.advance(9)
                assert len(seen.calls) == 1
                await stage.clock.advance(1)
                await seen.wait_for(numbers=3)
                await at_rest(stage.driver, "numbers")
            finally:
                leave.set()
    assert seen.payloads() == [0, 0, 1]


async def test_a_handler_left_behind_that_fails_in_the_end_harms_nobody() -> None:
    seen = Ledger()
    leave = asyncio.Event()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", ack_timeout=5, retry=NoRetry())

        @worker.on(number)
        async def deaf(n: int) -> None:
            while not leave.is_set():
                try:
                    await leave.wait()
                except asyncio.CancelledError:
                    pass
            raise ValueError("at last")

        worker.on(word, seen.recording("words"))
        async with running(worker):
            try:
                await stage.qc.publish(number, 1)
                await quiet()
                await stage.clock.advance(15)
            finally:
                leave.set()
            await stage.qc.publish_many(word, ["a", "b", "c"])
            await seen.wait_for(words=3)
            await at_rest(stage.driver, "numbers", dead=1)
    assert worker.counters.failed == 1


async def test_a_thread_may_ask_for_more_time() -> None:
    asked, leave = threading.Event(), threading.Event()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", ack_timeout=5)

        @worker.on(number)
        def slow(message: Message[int]) -> None:
            message.extend(100)
            asked.set()
            leave.wait(10)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await eventually(asked.is_set)
            await stage.clock.advance(50)
            assert worker.counters.ack_timeouts == 0
            leave.set()
            await at_rest(stage.driver, "numbers")


@both
async def test_a_thread_past_its_time_is_left_behind_and_cannot_settle_any_more(
    inline: bool,
) -> None:
    leave = threading.Event()
    late: list[Exception] = []
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", ack_timeout=5, retry=SOON)

        @worker.on(number)
        def blocks(n: int, message: Message) -> None:
            first = message.attempt == 1
            seen.record("numbers", message)
            if first:
                leave.wait(10)
                try:
                    _ = message.ack()
                except AlreadySettled as error:
                    late.append(error)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await stage.clock.advance(5)
            await stage.clock.advance(1)
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")
            leave.set()
            await eventually(lambda: late)
    assert seen.attempts() == [1, 2]


@both
async def test_a_handler_that_is_cancelled_can_tell_a_lapse_from_the_end_of_its_worker(
    inline: bool,
) -> None:
    lapsed: list[tuple[int, bool]] = []
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", ack_timeout=5, retry=NoRetry(), concurrency=2)

        @worker.on(number)
        async def slow(n: int, message: Message) -> None:
            assert not message.lapsed
            if n == 2:
                message.extend(60)
            try:
                await asyncio.Event().wait()
            finally:
                lapsed.append((n, message.lapsed))

        async with running(worker):
            await stage.qc.publish_many(number, [1, 2])
            await stage.clock.advance(5)
            assert lapsed == [(1, True)]
            await worker.stop(drain=False)
        assert lapsed == [(1, True), (2, False)]


async def test_a_message_settled_by_hand_is_not_late_however_long_its_handler_goes_on() -> None:
    done = asyncio.Event()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", ack_timeout=5)

        @worker.on(number)
        async def early(message: Message[int]) -> None:
            await message.ack()
            await stage.clock.sleep(60)
            done.set()

        async with running(worker):
            await stage.qc.publish(number, 1)
            await stage.clock.advance(60)
            await done.wait()
            await at_rest(stage.driver, "numbers")
    assert worker.counters.ack_timeouts == 0


# -- together with a lost connection -----------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 2])
@both
async def test_a_handler_that_hangs_after_its_connection_was_lost_is_late_too(
    concurrency: int, inline: bool
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=concurrency, ack_timeout=5)

        @worker.on(number)
        async def hang(n: int, message: Message) -> None:
            seen.record("numbers", message)
            if len(seen.calls) == 1:
                await asyncio.Event().wait()

        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await stage.driver.drop()
            await quiet()
            assert len(seen.calls) == 1
            await stage.clock.advance(5)
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")
    assert seen.attempts() == [1, 1]  # its failure could not be recorded: the broker has it


@both
async def test_a_late_message_whose_retry_was_lost_with_the_connection_comes_again(
    inline: bool,
) -> None:
    seen = Ledger()
    clean = asyncio.Event()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2, ack_timeout=5)

        @worker.on(number)
        async def hang(n: int, message: Message) -> None:
            seen.record("numbers", message)
            if len(seen.calls) == 1:
                try:
                    await asyncio.Event().wait()
                finally:
                    await clean.wait()  # takes its time to tidy up

        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            stage.driver.fail("move")
            await stage.clock.advance(5)
            await quiet()
            clean.set()
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")


@both
async def test_a_message_waiting_for_its_own_earlier_run_is_not_charged_for_it(
    inline: bool,
) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2, ack_timeout=50)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            if n == 0:
                message.extend(1000)
                await gate.handle(n, message)
            seen.record("numbers", message)

        async with running(worker):
            await stage.qc.publish(number, 0)
            await gate.entered(1)
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)  # leaves the deadline of its slot behind
            await stage.driver.drop()
            await quiet()
            await stage.clock.advance(60)
            assert worker.counters.ack_timeouts == 0
            gate.open()
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")
            assert (await state(stage.driver, "numbers")).dead == 0
