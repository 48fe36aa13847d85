"""Sync handlers: in threads, never in the way of the loop."""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
from collections.abc import Callable
from typing import Annotated, Any

import pytest

from queuecraft import Depends, Message, NoRetry, QueueCraft, Retry
from queuecraft.runtime.threads import AT_LEAST, NoThread, Threads
from queuecraft.testing import FaultyDriver, Ledger
from tests.runtime.consuming import AT_ONCE, at_rest, both, number, reasons, tidy, word
from tests.runtime.support import eventually, quiet, running


class Doors:
    """A sync handler that stays inside until the test opens."""

    def __init__(self) -> None:
        self.inside: list[Any] = []
        self.most = 0
        self.passed: list[Any] = []
        self._open = threading.Event()
        self._lock = threading.Lock()

    def handle(self, payload: Any) -> None:
        with self._lock:
            self.inside.append(payload)
            self.most = max(self.most, len(self.inside))
        self._open.wait(20)
        with self._lock:
            self.inside.remove(payload)
            self.passed.append(payload)

    async def entered(self, count: int) -> None:
        await eventually(lambda: len(self.inside) >= count)

    def open(self) -> None:
        self._open.set()


@both
async def test_a_sync_handler_that_blocks_does_not_block_the_loop(inline: bool) -> None:
    doors, seen = Doors(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2)
        worker.on(number, doors.handle).on(word, seen.recording("words"))
        async with running(worker):
            await stage.qc.publish(number, 1)
            await doors.entered(1)
            await stage.qc.publish_many(word, ["a", "b"])
            await seen.wait_for(words=2)
            assert doors.passed == []
            doors.open()
            await eventually(lambda: doors.passed == [1])
            await at_rest(stage.driver, "numbers")


@both
async def test_as_many_sync_handlers_run_at_once_as_asked_for_and_no_more(inline: bool) -> None:
    doors = Doors()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=3, prefetch=10).on(number, doors.handle)
        async with running(worker):
            await stage.qc.publish_many(number, range(9))
            await doors.entered(3)
            await quiet()
            doors.open()
            await eventually(lambda: len(doors.passed) == 9)
            await at_rest(stage.driver, "numbers")
    assert doors.most == 3


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        StopIteration(),
        asyncio.CancelledError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_sync_handler_raises_fails_its_message(error: BaseException) -> None:
    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", retry=Retry(max_retries=1, initial_delay=0))

        @worker.on(number)
        def fails(n: int, message: Message) -> None:
            seen.record("numbers", message)
            raise error

        worker.on(word, seen.recording("words"))
        async with running(worker):
            await stage.qc.publish(number, 1)
            await stage.qc.publish(word, "next")
            await seen.wait_for(numbers=2, words=1)
            await at_rest(stage.driver, "numbers", dead=1)
        assert await reasons(stage.driver, "numbers") == ["handler-error"]


async def test_a_sync_handler_sees_the_context_of_its_caller_and_leaves_none_behind() -> None:
    shade: contextvars.ContextVar[str] = contextvars.ContextVar("shade", default="none")
    seen: list[str] = []

    def shaded(handle: Callable[..., Any]) -> Callable[..., Any]:
        async def inner(message: Message[Any]) -> object:
            token = shade.set("blue")
            try:
                return await handle(message)
            finally:
                shade.reset(token)

        return inner

    async with tidy() as stage:
        worker = stage.qc.worker("numbers", middleware=[shaded])

        @worker.on(number)
        def handle(n: int) -> None:
            seen.append(shade.get())
            shade.set("left behind")

        async with running(worker):
            await stage.qc.publish_many(number, range(2))
            await eventually(lambda: len(seen) == 2)
    assert seen == ["blue", "blue"]


async def test_a_lambda_around_an_async_function_is_awaited() -> None:
    seen = Ledger()
    record = seen.recording("numbers")
    async with tidy() as stage:
        worker = stage.qc.worker("numbers")
        worker.on("number", lambda message: record(message.payload, message))
        worker = stage.qc.worker("others")

        def handler(message: Message[int]) -> object:
            return record(message.payload, message)

        worker.on(number, handler)
        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "others")


@both
async def test_a_thread_still_at_work_at_the_end_gives_its_message_back(inline: bool) -> None:
    doors, seen = Doors(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, doors.handle)
        await worker.start()
        await stage.qc.publish(number, 1)
        await doors.entered(1)
        await worker.stop(timeout=0.01)
        other = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(other):
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers")
        doors.open()
        await eventually(lambda: doors.passed == [1])
    assert [each.redeliveries for each in seen.calls] == [1]


async def test_threads_are_used_again_and_end_with_their_worker() -> None:
    def ours() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == "queuecraft-numbers"]

    used: set[int] = set()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", retry=NoRetry())

        @worker.on(number)
        def handle(n: int) -> None:
            used.add(threading.get_ident())

        for _ in range(3):
            async with running(worker):
                await stage.qc.publish_many(number, range(20))
                await at_rest(stage.driver, "numbers")
                assert len(ours()) == 1
            for thread in ours():
                thread.join(5)
            assert ours() == []
    assert 1 <= len(used) <= 3


async def test_a_thread_busy_at_the_end_ends_with_its_call() -> None:
    threads = Threads("busy")
    leave = threading.Event()
    call = threads.run(leave.wait, 10)
    threads.close()
    leave.set()
    assert await call
    for thread in threading.enumerate():
        if thread.name == "queuecraft-busy":
            thread.join(5)
            assert not thread.is_alive()


def test_a_thread_whose_loop_is_gone_ends_quietly() -> None:
    threads = Threads("orphan")
    leave = threading.Event()

    async def begin() -> None:
        _ = threads.run(leave.wait, 10)

    asyncio.run(begin())
    leave.set()
    for thread in [each for each in threading.enumerate() if each.name == "queuecraft-orphan"]:
        thread.join(5)
        assert not thread.is_alive()


@both
async def test_retries_of_a_sync_handler_go_on_in_threads(inline: bool) -> None:
    seen = Ledger()
    loop_thread = threading.get_ident()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=AT_ONCE)

        @worker.on(number)
        def handle(n: int, message: Message) -> None:
            assert threading.get_ident() != loop_thread
            seen.record("numbers", message, failed=message.attempt < 3)
            if message.attempt < 3:
                raise ValueError("again")

        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=3)
            await at_rest(stage.driver, "numbers")
    assert seen.attempts() == [1, 2, 3]


@pytest.mark.parametrize("seed", range(4))
@both
async def test_threads_and_lost_connections_lose_nothing(seed: int, inline: bool) -> None:
    chance = random.Random(seed)
    seen = Ledger()
    driver = FaultyDriver(inline=inline)
    async with QueueCraft(drivers=[driver], reconnect_delay=0.001) as qc:
        worker = qc.worker(
            "numbers", concurrency=4, prefetch=8, retry=AT_ONCE, max_redeliveries=1000
        )

        @worker.on(number)
        def handle(n: int, message: Message) -> None:
            fails = message.attempt == 1 and n % 3 == 0
            seen.record("numbers", message, failed=fails)
            if n % 5 == 0 and not fails:
                _ = message.ack()
            if fails:
                raise ValueError("the first time")

        async with running(worker):
            drops = 0
            for n in range(100):
                seen.published(await qc.publish(number, n))
                if chance.random() < 0.08:
                    drops += 1
                    await driver.drop()
                elif chance.random() < 0.3:
                    await asyncio.sleep(0)
            await at_rest(driver, "numbers")
    seen.check(duplicates_at_most=drops * 8)


def threads_of(name: str) -> int:
    return sum(each.name == f"queuecraft-{name}" for each in threading.enumerate())


@pytest.mark.parametrize("lists", [False, True], ids=["one", "lists"])
async def test_handlers_that_hang_in_threads_stop_the_worker_and_fail_no_others(
    lists: bool, caplog: pytest.LogCaptureFixture
) -> None:
    hung, leave, seen = list[int](), threading.Event(), set[int]()

    def handle(n: int) -> None:
        if n < 100:
            hung.append(n)
            leave.wait(30)
        else:
            seen.add(n)

    def handle_all(numbers: list[int]) -> None:
        for n in numbers:
            handle(n)

    async with tidy() as stage:
        worker = stage.qc.worker("numbers", concurrency=4, ack_timeout=1000, retry=NoRetry())
        handler: Any = handle_all if lists else handle
        worker.on(number, handler, batch_size=2 if lists else None)
        async with running(worker):
            await stage.qc.publish_many(number, range(AT_LEAST * (1 + lists)))
            for count in range(4, AT_LEAST + 1, 4):
                await eventually(lambda: len(hung) == count)  # noqa: B023
                await stage.clock.advance(1000)
            await stage.qc.publish_many(number, range(100, 150))
            await stage.clock.advance(30)
            assert threads_of("numbers") == AT_LEAST
            assert seen == set()
            assert "32 sync handlers" in stage.qc.health_check().paused["numbers"]
            dead = await stage.qc.dead_letters.count("numbers")
            leave.set()
            while len(seen) < 50:
                await stage.clock.advance(1)
                await asyncio.sleep(0.001)
            assert stage.qc.health_check().ok
        assert await stage.qc.dead_letters.count("numbers") == dead == AT_LEAST * (1 + lists)
    warnings = [each.getMessage() for each in caplog.records if "sync handlers" in each.message]
    assert len(warnings) == 1


def three() -> int:
    return 3


@pytest.mark.parametrize("depends", [False, True], ids=["plain", "depends"])
async def test_a_thread_that_cannot_be_started_is_no_failure_of_the_handler(
    depends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refused, seen = threading.Thread.start, list[str](), Ledger()

    def starts(self: threading.Thread) -> None:
        if self.name == "queuecraft-numbers" and len(refused) < 2:
            refused.append(self.name)
            raise RuntimeError("can't start new thread")
        start(self)

    def handle(n: int, message: Message) -> None:
        seen.record("numbers", message)

    def handle_with(n: int, message: Message, most: Annotated[int, Depends(three)]) -> None:
        seen.record("numbers", message)

    monkeypatch.setattr(threading.Thread, "start", starts)
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", retry=NoRetry())
        worker.on(number, handle_with if depends else handle)
        async with running(worker):
            await stage.qc.publish(number, 1)
            for count in (1, 2):
                await eventually(lambda: len(refused) == count)  # noqa: B023
                await stage.clock.advance(1)
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers")
        metrics = stage.qc.get_metrics()
        assert (metrics.messages_failed, metrics.messages_postponed) == (0, 2)
    assert len(refused) == 2


async def test_what_has_begun_is_cleaned_up_though_there_are_no_threads() -> None:
    threads, leave = Threads("full", limit=1), threading.Event()
    hangs = threads.run(leave.wait, 10)
    hangs.cancel()
    with pytest.raises(NoThread, match="1 sync handlers"):
        await threads.run(str)
    assert await threads.clean_up(str, 5) == "5"
    leave.set()
    await eventually(lambda: threads.exhausted is None)
    assert await threads.run(str, 6) == "6"
    threads.close()
