"""Handling, whatever handlers, payloads and brokers do: no message is lost, none is stuck."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    ConnectionLost,
    Message,
    NoDeadLetter,
    NoRetry,
    QueueCraft,
    QueueError,
    Retry,
    Worker,
)
from queuecraft.clock import Clock
from queuecraft.drivers.base import Outgoing
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.facts import (
    MessageDeadLettered,
    MessageDropped,
    MessageFailed,
    MessagesDelivered,
    WorkerPaused,
    WorkerResumed,
)
from queuecraft.runtime.admission import Admission
from queuecraft.testing import FaultyDriver, Ledger, failing
from tests.runtime.consuming import (
    AT_ONCE,
    Gate,
    at_rest,
    both,
    lines,
    number,
    reasons,
    state,
    tidy,
    word,
)
from tests.runtime.support import eventually, ids, quiet, running

# -- handlers that fail ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ValueError,
        SystemExit,
        KeyboardInterrupt,
        GeneratorExit,
        asyncio.CancelledError,
        StopAsyncIteration,
        BaseExceptionGroup("several", [KeyboardInterrupt()]),
    ],
    ids=lambda error: getattr(error, "__name__", "BaseExceptionGroup"),
)
@both
async def test_whatever_a_handler_raises_fails_its_message_and_nothing_else(
    error: BaseException | type[BaseException], inline: bool
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=Retry(max_retries=1, initial_delay=0))
        worker.on(number, seen.failing("fails", times=None, error=error))
        worker.on(word, seen.recording("works"))
        async with running(worker):
            await stage.qc.publish(number, 1)
            await stage.qc.publish(word, "next")
            await seen.wait_for(fails=2, works=1)
            await at_rest(stage.driver, "numbers", dead=1)

        assert seen.attempts("fails") == [1, 2]
        assert await reasons(stage.driver, "numbers") == ["handler-error"]


async def test_an_error_that_cannot_be_printed_still_ends_as_a_dead_letter() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", retry=NoRetry())
        worker.on(number, seen.failing("fails", error=Unprintable()))
        async with running(worker):
            await stage.qc.publish(number, 1)
            await at_rest(stage.driver, "numbers", dead=1)


@both
async def test_a_handler_that_never_returns_holds_its_place_and_no_other(inline: bool) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2)
        worker.on(number, gate.handle).on(word, seen.recording("words"))
        async with running(worker):
            await stage.qc.publish(number, 1)
            await gate.entered(1)
            await stage.qc.publish_many(word, ["a", "b", "c"])
            await seen.wait_for(words=3)
            await eventually(lambda: worker.in_flight == 1)
            gate.open()
            await at_rest(stage.driver, "numbers")


async def test_a_handler_that_cancels_its_own_task_stops_the_worker_in_plain_sight(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def kill(n: int, message: Message) -> None:
            seen.record("numbers", message)
            if len(seen.calls) == 1:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await eventually(lambda: worker.paused)
            assert "cancelled" in str(worker.paused)
            assert stage.qc.health_check().status == "unhealthy"
            assert "cancelled" in lines(caplog, logging.ERROR)

            worker.resume()
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")
    assert seen.attempts() == [1, 1]


def fell(worker: Worker) -> None:
    """Cancel a runner at work."""
    assert worker._shift is not None
    task = worker._shift.consumer.slots[0].task
    assert task is not None
    task.cancel()


@both
async def test_where_a_runner_has_fallen_the_others_begin_nothing(inline: bool) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2, prefetch=10).on(number, gate.handle)
        async with running(worker):
            await stage.qc.publish_many(number, range(10))
            await gate.entered(2)
            await eventually(lambda: worker.in_flight == 10)
            fell(worker)
            await eventually(lambda: worker.in_flight == 2)
            await quiet()
            assert (await state(stage.driver, "numbers")).ready == 8
            gate.open()
            await eventually(lambda: worker.in_flight == 1)  # what the fallen one has begun
            await quiet()
            assert len(gate.passed) == 1
            worker.resume()
            await eventually(lambda: len(gate.passed) == 10)
            await at_rest(stage.driver, "numbers")
    assert sorted(gate.passed) == list(range(10))


@both
async def test_a_fallen_runner_does_not_begin_again_in_a_worker_that_stops(inline: bool) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2).on(number, gate.handle)
        await worker.start()
        await stage.qc.publish_many(number, [1, 2])
        await gate.entered(2)
        fell(worker)
        await eventually(lambda: worker.paused)
        await eventually(lambda: len(gate.inside) == 1)
        stopping = asyncio.create_task(worker.stop())
        await eventually(lambda: worker.state == "stopping")
        worker.resume()
        await quiet()
        assert len(gate.inside) == 1
        gate.open()
        await asyncio.wait_for(stopping, 5)
        assert len(gate.passed) == 1
        assert (await state(stage.driver, "numbers")).ready == 1


@both
async def test_a_fallen_runner_whose_connection_is_lost_too_begins_again(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2)

        @worker.on(number)
        async def kill(n: int, message: Message) -> None:
            seen.record("numbers", message)
            if len(seen.calls) == 1:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await eventually(lambda: worker.paused)
            await stage.driver.drop()
            worker.resume()
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")


async def test_a_runner_that_fails_by_a_bug_of_ours_stops_the_worker_in_plain_sight(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def examine(*_: object) -> None:
        raise RuntimeError("a bug of ours")

    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", ttl=100).on(number, seen.recording("numbers"))
        async with running(worker):
            with monkeypatch.context() as patch:
                patch.setattr(Admission, "examine", examine)
                await stage.qc.publish(number, 1)
                await eventually(lambda: worker.paused)
            assert "a bug of ours" in str(worker.paused)
            assert any(record.exc_info for record in caplog.records)
            worker.resume()
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers")


async def test_a_consumer_left_behind_by_its_loop_dies_without_a_word() -> None:
    """A loop closed under a worker throws GeneratorExit into it; that is no handler's failure."""
    hooked: list[Any] = []

    def leave() -> None:
        loop = asyncio.new_event_loop()
        qc = QueueCraft()
        worker = qc.worker("numbers")
        inside = asyncio.Event()

        @worker.on(number)
        async def hang(n: int) -> None:
            inside.set()
            await asyncio.Event().wait()

        async def begin() -> None:
            await worker.start()
            await qc.publish(number, 1)
            await inside.wait()

        loop.set_exception_handler(lambda loop, context: None)  # it tells of destroyed tasks
        loop.run_until_complete(begin())
        qc._engine.watchdog.stop()
        loop.close()

    before, sys.unraisablehook = sys.unraisablehook, hooked.append
    try:
        await asyncio.to_thread(leave)
        gc.collect()
    finally:
        sys.unraisablehook = before
    assert [str(each.exc_value) for each in hooked] == []


# -- payloads that cannot be read --------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"body": b'"three"'},
        {"body": b"{"},
        {"body": b""},
        {"body": b"\xff\xfe"},
        {"body": b"3", "content_encoding": "br"},
        {"body": b"3", "content_encoding": "gzip"},
        {"body": zlib.compress(b"3", wbits=31)[:-4], "content_encoding": "gzip"},
        {"body": b"3", "content_type": "text/html"},
        {"body": b"[" * 100_000},
    ],
    ids=[
        "another type",
        "broken JSON",
        "nothing",
        "no UTF-8",
        "an unknown encoding",
        "no gzip",
        "cut off",
        "another content type",
        "too deep",
    ],
)
@pytest.mark.parametrize("kind", ["payload", "message"])
async def test_a_payload_that_cannot_be_read_is_dead_lettered_at_once(
    changes: dict[str, Any], kind: str
) -> None:
    seen: list[int] = []
    async with tidy() as stage:
        worker = stage.qc.worker("numbers")

        async def by_payload(n: int) -> None:
            seen.append(n)

        async def by_message(message: Message[int]) -> None:
            seen.append(message.payload)

        worker.on(number, by_payload) if kind == "payload" else worker.on(number, by_message)
        async with running(worker):
            poison: Any = {"id": "m-1", "routing_key": "number", "queue": "numbers", **changes}
            await stage.driver.send([Outgoing(**poison)])
            await stage.qc.publish(number, 4)
            await eventually(lambda: seen == [4])
            await at_rest(stage.driver, "numbers", dead=1)
        assert await reasons(stage.driver, "numbers") == ["invalid-payload"]
        assert stage.qc.get_metrics().messages_retried == 0


async def test_a_bomb_of_100_mb_is_dead_lettered_within_the_memory_a_message_may_take() -> None:
    packer = zlib.compressobj(wbits=31)
    chunk = bytes(1_000_000)
    bomb = b'"' + b"".join([*(packer.compress(chunk) for _ in range(100)), packer.flush()])
    async with tidy(max_message_bytes=1_000_000) as stage:
        worker = stage.qc.worker("words")
        worker.on(word, Gate().handle)
        async with running(worker):
            message = Outgoing(
                bomb[1:], "m-1", routing_key="word", queue="words", content_encoding="gzip"
            )
            tracemalloc.start()
            try:
                await stage.driver.send([message])
                await at_rest(stage.driver, "words", dead=1)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert await reasons(stage.driver, "words") == ["invalid-payload"]
        assert peak < 10_000_000


# -- events nobody handles ---------------------------------------------------------------------


@both
async def test_a_message_without_a_handler_is_retried_then_dead_lettered(inline: bool) -> None:
    seen = Ledger()
    failed: list[tuple[int, str]] = []
    async with tidy(inline=inline) as stage:
        stage.qc.observe(MessageFailed, lambda fact: failed.append((fact.attempt, fact.reason)))
        worker = stage.qc.worker("numbers", retry=AT_ONCE)
        worker.on(number, seen.recording("numbers"))
        async with running(worker):
            stranger = Outgoing(b"1", "m-1", routing_key="unheard.of", queue="numbers")
            await stage.driver.send([stranger])
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers", dead=1)
        assert failed == [(attempt, "no-handler") for attempt in (1, 2, 3, 4)]
        assert await reasons(stage.driver, "numbers") == ["no-handler"]


async def test_a_rolling_deploy_finds_the_message_that_had_no_handler() -> None:
    seen = Ledger()
    async with tidy() as stage:
        old = stage.qc.worker("numbers").on(number, seen.recording("old"))
        new = stage.qc.worker("numbers").on("#", seen.recording("new"))
        async with running(old):
            await stage.driver.send([Outgoing(b"1", "m-1", routing_key="later", queue="numbers")])
            await eventually(lambda: old.counters.retried == 1)
        async with running(new):
            await stage.clock.advance(1)
            await seen.wait_for(new=1)
            await at_rest(stage.driver, "numbers")
    assert seen.attempts("new") == [2]


# -- time to live ------------------------------------------------------------------------------


@both
async def test_a_message_past_its_own_time_to_live_is_dead_lettered_unhandled(
    inline: bool,
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        await worker.start()
        await worker.stop()
        await stage.qc.publish(number, 1, ttl=5)
        await stage.qc.publish(number, 2, ttl=60)
        await stage.clock.advance(5)
        async with running(worker):
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers", dead=1)
        assert seen.payloads() == [2]
        assert await reasons(stage.driver, "numbers") == ["expired"]
        assert worker.counters.expired == 1
        assert worker.counters.failed == 0


async def test_a_queue_has_a_time_to_live_too_and_both_count_from_when_a_message_is_due() -> None:
    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", ttl=10).on(number, seen.recording("numbers"))
        await worker.start()
        await worker.stop()
        await stage.qc.publish(number, 1)
        await stage.qc.publish(number, 2, delay=5)  # expires at 15
        await stage.qc.publish(number, 3, delay=5, ttl=1)  # expires at 6
        await stage.clock.advance(10)
        async with running(worker):
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers", dead=2)
        assert seen.payloads() == [2]
        assert await reasons(stage.driver, "numbers") == ["expired", "expired"]


async def test_an_expired_message_is_dropped_and_counted_where_dead_letters_are_off() -> None:
    dropped: list[str] = []
    async with tidy() as stage:
        stage.qc.observe(MessageDropped, lambda fact: dropped.append(fact.reason))
        worker = stage.qc.worker("numbers", ttl=1, dead_letter=NoDeadLetter())
        worker.on(number, Gate().handle)
        await worker.start()
        await worker.stop()
        await stage.qc.publish(number, 1)
        await stage.clock.advance(1)
        async with running(worker):
            await at_rest(stage.driver, "numbers")
        assert dropped == ["expired"]
        assert (worker.counters.expired, worker.counters.dropped) == (1, 1)


async def test_a_retry_past_the_time_to_live_of_its_message_expires() -> None:
    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", retry=Retry(initial_delay=10))
        worker.on(number, seen.failing("numbers"))
        async with running(worker):
            await stage.qc.publish(number, 1, ttl=5)
            await seen.wait_for(numbers=1)
            await stage.clock.advance(10)
            await at_rest(stage.driver, "numbers", dead=1)
        assert seen.attempts() == [1]
        assert await reasons(stage.driver, "numbers") == ["expired"]


# -- retries -----------------------------------------------------------------------------------


@both
async def test_a_retry_goes_back_to_the_queue_that_failed_and_no_other(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        flaky = stage.qc.worker("flaky", retry=AT_ONCE).on(number, seen.failing("flaky", times=2))
        steady = stage.qc.worker("steady").on(number, seen.recording("steady"))
        async with running(flaky, steady):
            await stage.qc.publish(number, 1)
            await seen.wait_for(flaky=3, steady=1)
            await at_rest(stage.driver, "flaky", "steady")
    assert seen.attempts("flaky") == [1, 2, 3]
    assert seen.attempts("steady") == [1]


@both
async def test_a_message_that_waits_for_its_retry_blocks_nobody(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=Retry(initial_delay=30))
        worker.on(number, seen.failing("fails")).on(word, seen.recording("works"))
        async with running(worker):
            await stage.qc.publish(number, 1)
            await stage.qc.publish_many(word, ["a", "b", "c"])
            await seen.wait_for(fails=1, works=3)
            assert (await state(stage.driver, "numbers")).delayed == 1
            await stage.clock.advance(29.9)
            assert seen.attempts("fails") == [1]
            await stage.clock.advance(0.1)
            await seen.wait_for(fails=2)
            await at_rest(stage.driver, "numbers")


async def test_what_a_publisher_asks_of_retries_holds_within_what_the_consumer_allows() -> None:
    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", retry=Retry(max_retries=2, initial_delay=0))
        worker.on(number, seen.failing("numbers", times=None))
        async with running(worker):
            await stage.qc.publish(number, 1, message_id="none", retry=NoRetry())
            await stage.qc.publish(
                number, 2, message_id="many", retry=Retry(max_retries=100, initial_delay=0)
            )
            await seen.wait_for(numbers=4)
            await at_rest(stage.driver, "numbers", dead=2)
    assert seen.ids().count("none") == 1
    assert seen.ids().count("many") == 3


# -- dead letters that cannot be written -------------------------------------------------------


@both
async def test_a_dead_letter_that_cannot_be_written_pauses_the_queue_and_keeps_the_message(
    inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Ledger()
    told: list[object] = []
    async with tidy(inline=inline) as stage:
        stage.qc.observe(WorkerPaused, lambda fact: told.append(fact.reason))
        stage.qc.observe(WorkerResumed, lambda fact: told.append("resumed"))
        worker = stage.qc.worker("numbers", retry=NoRetry())
        worker.on(number, seen.failing("numbers", times=2)).on(word, seen.recording("words"))
        async with running(worker):
            stage.driver.reject(to="numbers.dlq", times=None)
            await stage.qc.publish(number, 1, message_id="m-1")
            await eventually(lambda: worker.state == "paused")
            await stage.qc.publish(word, "waits", message_id="m-2")
            await quiet()

            health = stage.qc.health_check()
            assert health.status == "unhealthy"
            assert "cannot be written" in health.paused["numbers"]
            assert "cannot be dead-lettered" in lines(caplog, logging.ERROR)
            assert await ids(stage.driver.inner, "numbers") == ["m-1", "m-2"]
            assert (await state(stage.driver, "numbers")).in_flight == 0

            stage.driver.heal()
            worker.resume()
            await seen.wait_for(numbers=2, words=1)
            await at_rest(stage.driver, "numbers", dead=1)
            assert stage.qc.health_check().status == "healthy"
    assert seen.attempts("numbers") == [1, 1]
    assert len(told) == 2
    assert told[1] == "resumed"


# -- pausing -----------------------------------------------------------------------------------


@both
async def test_a_paused_worker_finishes_what_runs_and_gives_back_what_has_not_begun(
    inline: bool,
) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", prefetch=10).on(number, gate.handle)
        async with running(worker):
            await stage.qc.publish_many(number, range(5))
            await gate.entered(1)
            assert worker.in_flight == 5

            worker.pause("for a while")
            await eventually(lambda: worker.in_flight == 1)
            assert worker.state == "paused"
            gate.open()
            await eventually(lambda: worker.in_flight == 0)
            await quiet()
            assert gate.passed == [0]
            assert (await state(stage.driver, "numbers")).ready == 4

            worker.resume()
            await eventually(lambda: gate.passed == [0, 1, 2, 3, 4])
            await at_rest(stage.driver, "numbers")


@both
async def test_pausing_and_resuming_in_one_breath_changes_nothing(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=3).on(number, seen.recording("numbers"))
        async with running(worker):
            for n in range(20):
                worker.pause()
                worker.resume()
                await stage.qc.publish(number, n)
                worker.pause()
                await asyncio.sleep(0)
                worker.resume()
            await seen.wait_for(numbers=20)
            await at_rest(stage.driver, "numbers")
    assert sorted(seen.payloads()) == list(range(20))


@both
async def test_an_observer_may_pause_the_worker_from_within_a_delivery(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def suspend(n: int, message: Message) -> None:
            await asyncio.sleep(0)
            seen.record("numbers", message)

        stop = stage.qc.observe(MessagesDelivered, lambda fact: worker.pause())
        async with running(worker):
            await stage.qc.publish(number, 1)
            await eventually(lambda: worker.state == "paused")
            stop()
            worker.resume()
            await seen.wait_for(numbers=1)
            await stage.qc.publish(number, 2)
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")


async def test_pausing_a_worker_that_has_no_connection_works_and_resuming_too() -> None:
    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(worker):
            await quiet()
            stage.driver.refuse(opens=1)
            await stage.driver.drop()
            await quiet()
            worker.pause()
            await quiet()
            worker.resume()
            await stage.clock.advance(1)
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers")


def runner_of(worker: Worker) -> asyncio.Task[Any]:
    """The one that waits for messages."""
    assert worker._shift is not None
    runner = worker._shift.consumer.intake.fetcher
    assert runner is not None
    return runner


@pytest.mark.parametrize("first", ["the pause", "the cancellation"])
@both
async def test_a_cancellation_in_the_turn_of_a_pause_is_not_taken_for_it(
    first: str, inline: bool
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(worker):
            await quiet()
            runner = runner_of(worker)
            if first == "the pause":
                worker.pause()
                runner.cancel()
            else:
                runner.cancel()
                worker.pause()
            await quiet()
            assert runner.cancelled()  # or the end of the program would wait for it for ever
            worker.resume()
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers")


@both
async def test_a_cancellation_that_a_handler_has_swallowed_does_not_come_with_a_pause(
    inline: bool,
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # as timeouts did before Python 3.11, and took none of it back
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            seen.record("numbers", message)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await at_rest(stage.driver, "numbers")
            await quiet()
            runner = runner_of(worker)
            worker.pause()
            await quiet()
            worker.resume()
            await stage.qc.publish(number, 2)
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")
            assert not runner.done()


# -- brokers that misbehave --------------------------------------------------------------------


@both
async def test_a_queue_deleted_under_its_consumer_is_made_again(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await stage.driver.delete("numbers")
            await stage.clock.settle()
            await stage.clock.advance(1)
            await eventually(lambda: stage.driver.calls["subscribe"] == 2)
            assert stage.driver.calls["open"] == 1
            await stage.qc.publish(number, 2)
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLost("gone"),
        ConfigError("it is no database"),
        QueueError("the queue is gone"),
        RuntimeError("a driver's bug"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("operation", ["receive", "subscribe", "declare"])
@both
async def test_a_consumer_outlives_every_error_of_its_driver(
    operation: Any, error: Any, inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(worker):
            await quiet()
            stage.driver.fail(operation, error, times=2)
            await stage.driver.drop()
            await stage.clock.advance(10)
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers")


@pytest.mark.parametrize("operation", ["receive", "subscribe", "declare"])
@both
async def test_a_mistake_that_shows_on_an_open_connection_is_told_and_tried_again_in_time(
    operation: Any, inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    mistake, seen = ConfigError("it is no database"), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(worker):
            await quiet()
            stage.driver.fail("receive", mistake)
            stage.driver.fail(operation, mistake, times=1000)
            tried = stage.driver.calls[operation]
            await stage.qc.publish(number, 1)
            await stage.clock.advance(2.5)
            assert stage.driver.calls[operation] - tried <= 3
            assert stage.qc.connection_state == "connected"
            assert worker.paused == "cannot consume: it is no database"
            assert stage.qc.health_check().status == "unhealthy"
            assert "cannot consume numbers: it is no database; trying again" in lines(caplog)
            stage.driver.heal()
            await stage.clock.advance(1)
            assert worker.paused is None
            await stage.qc.publish(number, 2)
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (operation, error)
        for operation in ("ack", "move", "release")
        for error in (ConnectionLost("gone"), QueueError("cannot"), RuntimeError("a driver's bug"))
        if (operation, type(error)) != ("move", QueueError)  # refused: it becomes a dead letter
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
@both
async def test_a_settlement_that_fails_loses_nothing_and_the_worker_goes_on(
    operation: Any, error: Any, inline: bool
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", prefetch=4, retry=AT_ONCE)
        worker.on(number, seen.failing("numbers"))
        async with running(worker):
            stage.driver.fail(operation, error)
            for n in range(8):
                seen.published(await stage.qc.publish(number, n))
            await seen.wait_for(numbers=4)
            worker.pause()  # releases what has not begun
            await quiet()
            worker.resume()
            await stage.clock.advance(10)
            await at_rest(stage.driver, "numbers")
    seen.check(duplicates_at_most=8)


@pytest.mark.parametrize(
    "error",
    [ConnectionLost("gone"), QueueError("cannot"), RuntimeError("a driver's bug")],
    ids=lambda error: type(error).__name__,
)
@both
async def test_what_was_handled_and_cannot_be_acked_is_not_handled_again(
    error: Any, inline: bool
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(worker):
            stage.driver.fail("ack", error)
            for n in range(3):
                seen.published(await stage.qc.publish(number, n))
            await stage.clock.advance(10)
            await seen.wait_for(numbers=3)
            await at_rest(stage.driver, "numbers")
    seen.check()


@pytest.mark.parametrize(
    "error",
    [ConnectionLost("gone"), QueueError("cannot"), RuntimeError("a driver's bug")],
    ids=lambda error: type(error).__name__,
)
@both
async def test_what_cannot_be_given_back_comes_back_with_another_session(
    error: Any, inline: bool
) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", prefetch=5).on(number, gate.handle)
        async with running(worker):
            await stage.qc.publish_many(number, range(5))
            await gate.entered(1)
            await eventually(lambda: worker.in_flight == 5)
            stage.driver.fail("release", error)
            worker.pause()
            await eventually(lambda: worker.in_flight == 0)
            assert stage.driver.calls["release"] == 1
            worker.resume()
            gate.open()
            await eventually(lambda: len(gate.passed) == 5)
            await at_rest(stage.driver, "numbers")
    assert gate.passed == [0, 1, 2, 3, 4]


@both
async def test_a_message_is_acked_only_after_its_handler_returned(inline: bool) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, gate.handle)
        async with running(worker):
            await stage.qc.publish(number, 1)
            await gate.entered(1)
            await quiet()
            assert stage.driver.calls["ack"] == 0
            assert (await state(stage.driver, "numbers")).in_flight == 1
            gate.open()
            await at_rest(stage.driver, "numbers")
            assert stage.driver.calls["ack"] == 1


async def test_an_ack_does_not_wait_for_a_neighbour_that_takes_long() -> None:
    gate = Gate()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", prefetch=10)

        @worker.on(number)
        async def first_is_fast(n: int, message: Message) -> None:
            if n:
                await gate.handle(n, message)

        async with running(worker):
            await stage.qc.publish_many(number, range(2))
            await gate.entered(1)
            await stage.clock.advance(0.01)
            assert (await state(stage.driver, "numbers")).in_flight == 1
            gate.open()


@pytest.mark.parametrize("why", ["expired", "no handler"])
@both
async def test_what_ends_without_a_handler_does_not_wait_for_a_neighbour_that_takes_long(
    why: str, inline: bool
) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", prefetch=10, retry=NoRetry())
        worker.on(number, gate.handle)
        await worker.declare()
        if why == "expired":
            await stage.qc.publish(number, 1, ttl=5)
            await stage.clock.advance(5)
        else:
            stranger = Outgoing(b"1", "m-1", routing_key="unheard.of", queue="numbers")
            await stage.driver.send([stranger])
        await stage.qc.publish(number, 2)
        async with running(worker):
            await gate.entered(1)
            await stage.clock.advance(0.01)
            now = await state(stage.driver, "numbers")
            assert (now.in_flight, now.dead) == (1, 1)
            gate.open()
            await at_rest(stage.driver, "numbers", dead=1)


# -- what a handler is given -------------------------------------------------------------------


async def test_what_is_known_of_a_message_cannot_be_changed_by_its_handler() -> None:
    refused: list[str] = []

    def refuses(what: str, change: Callable[[], object]) -> None:
        with pytest.raises((AttributeError, TypeError)):
            change()
        refused.append(what)

    async with tidy() as stage:
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def meddle(message: Message[int]) -> None:
            for name in ("id", "headers", "routing_key", "key", "queue", "attempt", "timestamp"):
                refuses(name, lambda name=name: setattr(message, name, "changed"))  # type: ignore[misc]
            headers: Any = message.headers
            refuses("a header", lambda: headers.update(user="changed"))
            refuses("one header", lambda: headers.__setitem__("user", "changed"))
            refuses("something new", lambda: setattr(message, "note", "new"))
            await message.retry(delay=0) if message.attempt == 1 else None

        async with running(worker):
            await stage.qc.publish(number, 1, headers={"user": "ada"})
            await eventually(lambda: len(refused) == 20)
            await at_rest(stage.driver, "numbers")


# -- busy queues -------------------------------------------------------------------------------


async def test_a_million_delayed_messages_add_no_work_to_a_busy_queue() -> None:
    """Counted in calls, not in seconds: handling costs the same with and without them."""

    async def calls_to_handle(delayed: int) -> int:
        driver = MemoryDriver()
        qc = QueueCraft(drivers=[driver])
        seen = 0
        done = asyncio.Event()
        worker = qc.worker("busy", prefetch=100)

        @worker.on(number)
        async def handle(n: int) -> None:
            nonlocal seen
            seen += 1
            if seen % 1000 == 0:
                done.set()

        async with qc:
            await worker.start()
            later = Clock().now() + 3600
            message = Outgoing(b"1", "m", routing_key="number", queue="busy", due_at=later)
            for _ in range(delayed // 10_000):
                await driver.send([message] * 10_000)
            await qc.publish_many(number, range(1000))
            await done.wait()  # warm
            done.clear()
            calls = 0

            def count(frame: Any, event: str, argument: Any) -> None:
                nonlocal calls
                calls += event == "call"

            sys.setprofile(count)
            try:
                await qc.publish_many(number, range(1000))
                await done.wait()
            finally:
                sys.setprofile(None)
            (info,) = await driver.inspect(["busy"])
            assert info.delayed == delayed
            await driver.delete("busy")
        return calls

    alone, among_many = await calls_to_handle(0), await calls_to_handle(1_000_000)
    assert among_many < alone * 1.2


async def test_a_handler_that_feeds_its_own_queue_does_not_starve_the_loop() -> None:
    turns = 0
    rounds = 0
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", prefetch=100)

        @worker.on(number)
        async def again(n: int) -> None:
            nonlocal rounds
            rounds += 1
            if turns < 5:  # the loop has turned for others: it is not starved
                await stage.qc.publish(number, n)

        async with running(worker):
            await stage.qc.publish_many(number, range(10))
            while turns < 5:
                turns += 1
                before = rounds
                await asyncio.sleep(0)
                assert rounds - before < 50_000
            await at_rest(stage.driver, "numbers")


# -- counts ------------------------------------------------------------------------------------


@both
async def test_the_counts_add_up(inline: bool) -> None:
    seen = Ledger()
    dead: list[str] = []
    async with tidy(inline=inline) as stage:
        stage.qc.observe(MessageDeadLettered, lambda fact: dead.append(fact.delivery.sent.id))
        worker = stage.qc.worker("numbers", retry=Retry(max_retries=1, initial_delay=0))
        worker.on(number, seen.failing("fails", times=None)).on(word, seen.recording("works"))
        async with running(worker):
            await stage.qc.publish_many(word, ["a"] * 10)
            await stage.qc.publish_many(number, range(3))
            await seen.wait_for(fails=6, works=10)
            await at_rest(stage.driver, "numbers", dead=3)
        metrics = stage.qc.get_metrics()
        assert metrics.messages_sent == 13
        assert metrics.messages_received == 16
        assert metrics.messages_succeeded == 10
        assert metrics.messages_failed == 6
        assert metrics.messages_retried == 3
        assert metrics.messages_dead_lettered == len(dead) == 3
        assert metrics.in_flight == 0


async def test_a_failpoint_in_the_ack_duplicates_and_never_loses() -> None:
    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(worker):
            with failing("ack.before", times=1):
                seen.published(await stage.qc.publish(number, 1))
                await seen.wait_for(numbers=1)
                await quiet()
            await at_rest(stage.driver, "numbers")
    seen.check(duplicates_at_most=1)


async def test_handlers_see_a_driver_of_many_hosts_as_one() -> None:
    seen = Ledger()
    first, second = FaultyDriver(), FaultyDriver()
    first.refuse(opens=100)
    async with QueueCraft(drivers=[first, second]) as qc:
        worker = qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(worker):
            await qc.publish(number, 1)
            await seen.wait_for(numbers=1)
