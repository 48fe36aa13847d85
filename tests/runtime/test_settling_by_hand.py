"""Handlers that decide for themselves: once, at once, and from threads too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from queuecraft import (
    AlreadySettled,
    ConfigError,
    Message,
    NoDeadLetter,
    NoRetry,
    QueueCraft,
    Retry,
)
from queuecraft.facts import MessageDropped, MessagesSucceeded
from queuecraft.testing import Ledger
from tests.runtime.consuming import (
    AT_ONCE,
    at_rest,
    both,
    choked,
    lines,
    number,
    reasons,
    state,
    tidy,
    word,
)
from tests.runtime.support import contents, eventually, quiet, running

SETTLE: dict[str, Callable[[Message[Any]], Awaitable[None]]] = {
    "ack": lambda message: message.ack(),
    "nack": lambda message: message.nack(),
    "nack for good": lambda message: message.nack(requeue=False),
    "requeue": lambda message: message.requeue(),
    "retry": lambda message: message.retry(),
    "retry at once": lambda message: message.retry(delay=0),
    "dead_letter": lambda message: message.dead_letter("tired of it"),
}
any_way = pytest.mark.parametrize("how", SETTLE)


@any_way
@both
async def test_settling_twice_is_refused_and_the_first_word_stands(how: str, inline: bool) -> None:
    seen = Ledger()
    refused: list[AlreadySettled] = []
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=Retry(max_retries=1, initial_delay=0))

        @worker.on(number)
        async def twice(message: Message[int]) -> None:
            seen.record("numbers", message)
            await SETTLE[how](message)
            for again in SETTLE.values():
                try:
                    await again(message)
                except AlreadySettled as error:
                    refused.append(error)

        async with running(worker):
            await stage.qc.publish(number, 1, message_id="m-1")
            times = 2 if how in ("nack", "requeue", "retry", "retry at once") else 1
            await seen.wait_for(numbers=times)
            await at_rest(stage.driver, "numbers", dead=0 if how == "ack" else 1)
    assert len(refused) == times * len(SETTLE)
    assert (refused[0].queue, refused[0].message_id) == ("numbers", "m-1")
    assert seen.attempts() == [1, 2][:times]


@any_way
@both
async def test_a_message_settled_by_hand_stays_so_when_its_handler_fails(
    how: str, inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=NoRetry())

        @worker.on(number)
        async def fails(message: Message[int]) -> None:
            await SETTLE[how](message)
            raise ValueError("too late to matter")

        async with running(worker):
            await stage.qc.publish(number, 1)
            await at_rest(stage.driver, "numbers", dead=0 if how == "ack" else 1)
    assert "failed after its message was settled" in lines(caplog)
    assert worker.counters.failed == (0 if how == "ack" else 1)


@any_way
@both
async def test_settling_takes_effect_at_once_while_the_handler_goes_on(
    how: str, inline: bool
) -> None:
    leave = asyncio.Event()
    settled = asyncio.Event()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=Retry(initial_delay=60))

        @worker.on(number)
        async def goes_on(message: Message[int]) -> None:
            if message.attempt == 1:
                await SETTLE[how](message)
                settled.set()
                await leave.wait()

        async with running(worker):
            await stage.qc.publish(number, 1)
            await settled.wait()
            info = await state(stage.driver, "numbers")
            assert info.in_flight == 0
            leave.set()
            await stage.clock.advance(60)
            await at_rest(stage.driver, "numbers", dead=how in ("nack for good", "dead_letter"))


@any_way
async def test_what_is_not_awaited_is_done_all_the_same(how: str) -> None:
    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", retry=NoRetry())

        @worker.on(number)
        async def forgets(message: Message[int]) -> None:
            seen.record("numbers", message)
            _ = SETTLE[how](message)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers", dead=0 if how == "ack" else 1)


@any_way
@both
async def test_a_thread_settles_its_message_too(how: str, inline: bool) -> None:
    seen = Ledger()
    twice: list[str] = []
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=NoRetry())

        @worker.on(number)
        def in_thread(message: Message[int]) -> None:
            _ = SETTLE[how](message)
            try:
                _ = message.ack()
            except AlreadySettled:
                twice.append("refused")
            seen.record("numbers", message)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers", dead=0 if how == "ack" else 1)
    assert twice == ["refused"]


@any_way
async def test_settling_after_the_handler_returned_is_refused(how: str) -> None:
    kept: list[Message[int]] = []
    async with tidy() as stage:
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def keep(message: Message[int]) -> None:
            kept.append(message)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await at_rest(stage.driver, "numbers")
            with pytest.raises(AlreadySettled):
                await SETTLE[how](kept[0])
            await stage.qc.publish(number, 2)
            await eventually(lambda: len(kept) == 2)
            await at_rest(stage.driver, "numbers")
        with pytest.raises(AlreadySettled):
            await SETTLE[how](kept[1])


async def test_a_foreign_thread_that_comes_too_late_spoils_no_other_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check and the settlement of a thread are two steps; the handler may end in between."""
    seen = Ledger()
    kept: list[Message[int]] = []
    between, go_on = asyncio.Event(), threading.Event()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", prefetch=10)

        @worker.on(number)
        async def handle(message: Message[int]) -> None:
            seen.record("numbers", message)
            if message.payload == 0:
                kept.append(message)
                await between.wait()

        async with running(worker):
            await stage.qc.publish(number, 0)
            await seen.wait_for(numbers=1)
            assert worker._shift is not None
            consumer = worker._shift.consumer
            loop = asyncio.get_running_loop()
            found = consumer.slots[0]

            def ack_late() -> None:
                message = kept[0]
                control: Any = message._control
                original = control._slot

                def slow(delivery: Any) -> Any:
                    slot = original(delivery)
                    loop.call_soon_threadsafe(between.set)
                    go_on.wait(5)
                    return slot

                monkeypatch.setattr(control, "_slot", slow)
                _ = message.ack()

            settling = asyncio.create_task(asyncio.to_thread(ack_late))
            await between.wait()
            await at_rest(stage.driver, "numbers")
            assert found.delivery is None
            go_on.set()
            await settling
            await quiet()
            monkeypatch.undo()
            await stage.qc.publish_many(number, [1, 2, 3])
            await seen.wait_for(numbers=4)
            await at_rest(stage.driver, "numbers")
    assert worker.counters.succeeded == 4


def test_a_thread_that_outlives_its_loop_is_told_that_its_message_is_gone() -> None:
    leave = threading.Event()
    ended = threading.Event()
    told: list[Exception] = []

    async def main() -> None:
        inside = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with QueueCraft() as qc:
            worker = qc.worker("numbers")

            @worker.on(number)
            def handle(message: Message[int]) -> None:
                loop.call_soon_threadsafe(inside.set)
                leave.wait(10)
                try:
                    _ = message.ack()
                except AlreadySettled as error:
                    told.append(error)
                ended.set()

            await worker.start()
            await qc.publish(number, 1)
            await inside.wait()
            await qc.shutdown(timeout=0.01)

    asyncio.run(main())
    leave.set()
    assert ended.wait(10)
    assert len(told) == 1


# -- each of them ------------------------------------------------------------------------------


async def test_an_ack_counts_as_a_success_of_this_moment() -> None:
    told: list[int] = []
    async with tidy() as stage:
        stage.qc.observe(MessagesSucceeded, lambda fact: told.append(len(fact.deliveries)))
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def handle(message: Message[int]) -> None:
            await message.ack()

        async with running(worker):
            await stage.clock.advance(100)
            await stage.qc.publish(number, 1)
            await at_rest(stage.driver, "numbers")
            await stage.clock.advance(100)
            await stage.qc.publish(number, 2, delay=1000)
        last = stage.qc.get_metrics().messages_succeeded, worker.counters.last_success
        assert last == (1, stage.clock.now() - 100)
    assert told == [1]


async def test_an_ack_does_not_wait_for_a_broker_that_takes_no_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acked: list[int] = []
    async with tidy(inline=False) as stage, choked(monkeypatch) as flows:
        worker = stage.qc.worker("numbers", prefetch=50, retry=AT_ONCE)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            if n == 0 and message.attempt == 1:
                raise ValueError("the first of all")
            await message.ack()
            acked.append(n)

        await stage.driver.declare(worker.definition)
        await stage.qc.publish_many(number, range(20))
        async with running(worker):
            await eventually(lambda: len(acked) == 19)
            await stage.clock.advance(100)
            await eventually(lambda: worker.in_flight == 1)
            flows.set()
            await eventually(lambda: len(acked) == 20)
            await at_rest(stage.driver, "numbers")


@both
async def test_requeue_comes_back_at_once_and_cannot_loop_for_ever(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=Retry(max_retries=3, initial_delay=60))

        @worker.on(number)
        async def again(n: int, message: Message) -> None:
            seen.record("numbers", message)
            await message.requeue()

        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=4)
            await at_rest(stage.driver, "numbers", dead=1)
        assert seen.attempts() == [1, 2, 3, 4]
        assert await reasons(stage.driver, "numbers") == ["requeue"]


@both
async def test_retry_waits_as_long_as_the_handler_says(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=Retry(max_retries=1, initial_delay=1))

        @worker.on(number)
        async def later(n: int, message: Message) -> None:
            seen.record("numbers", message)
            await message.retry(delay=100)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await quiet()
            await stage.clock.advance(99.9)
            assert len(seen.calls) == 1
            await stage.clock.advance(0.1)
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers", dead=1)
    assert seen.attempts() == [1, 2]


@pytest.mark.parametrize("delay", [-1, float("inf"), float("nan")])
async def test_a_wait_that_is_none_is_refused_and_the_message_still_open(delay: float) -> None:
    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def handle(message: Message[int]) -> None:
            with pytest.raises(ConfigError):
                await message.retry(delay=delay)
            await message.ack()
            seen.record("numbers", message)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers")


@both
async def test_nack_goes_to_the_retry_policy(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=AT_ONCE)

        @worker.on(number)
        async def refuse(n: int, message: Message) -> None:
            seen.record("numbers", message)
            await message.nack(reason="not mine")

        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=4)
            await at_rest(stage.driver, "numbers", dead=1)
        assert seen.attempts() == [1, 2, 3, 4]
        assert await reasons(stage.driver, "numbers") == ["not mine"]


@both
async def test_nack_without_requeue_dead_letters_at_once(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=AT_ONCE)

        @worker.on(number)
        async def refuse(n: int, message: Message) -> None:
            seen.record("numbers", message)
            await message.nack(requeue=False)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await at_rest(stage.driver, "numbers", dead=1)
        assert seen.attempts() == [1]
        assert await reasons(stage.driver, "numbers") == ["nack"]


@both
async def test_nack_without_requeue_drops_and_counts_where_dead_letters_are_off(
    inline: bool,
) -> None:
    dropped: list[str] = []
    async with tidy(inline=inline) as stage:
        stage.qc.observe(MessageDropped, lambda fact: dropped.append(fact.reason))
        worker = stage.qc.worker("numbers", dead_letter=NoDeadLetter())

        @worker.on(number)
        async def refuse(message: Message[int]) -> None:
            await message.nack(requeue=False)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await eventually(lambda: dropped)
            await at_rest(stage.driver, "numbers")
    assert dropped == ["nack"]
    assert (worker.counters.dropped, worker.counters.dead_lettered) == (1, 0)


@both
async def test_dead_letter_keeps_the_reason_of_the_handler(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("words")

        @worker.on(word)
        async def refuse(message: Message[str]) -> None:
            await message.dead_letter("no such customer")

        async with running(worker):
            await stage.qc.publish(word, "a", headers={"user": "ada"})
            await at_rest(stage.driver, "words", dead=1)
        (letter,) = await contents(stage.driver, "words.dlq")
        assert letter.body == b'"a"'
        assert letter.headers["user"] == "ada"
        assert letter.headers["x-reason"] == "no such customer"


# -- on a connection that is gone --------------------------------------------------------------


@any_way
@pytest.mark.parametrize("concurrency", [1, 2])
@both
async def test_settling_on_a_lost_connection_leaves_the_message_to_its_redelivery(
    how: str, concurrency: int, inline: bool
) -> None:
    seen = Ledger()
    inside, leave = asyncio.Event(), asyncio.Event()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=concurrency)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.record("numbers", message)
            if len(seen.calls) == 1:
                inside.set()
                await leave.wait()
                await SETTLE[how](message)

        async with running(worker):
            await stage.qc.publish(number, 1)
            await inside.wait()
            await stage.driver.drop()
            await quiet()
            leave.set()
            await seen.wait_for(numbers=1 if how == "ack" else 2)
            await at_rest(stage.driver, "numbers")
    assert len(seen.calls) == (1 if how == "ack" else 2)
    assert all(attempt == 1 for attempt in seen.attempts())
