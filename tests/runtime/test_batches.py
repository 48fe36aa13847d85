"""Handlers that take a list get many messages at once, and each message has its own end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from queuecraft import (
    AlreadySettled,
    BatchFailed,
    Event,
    Message,
    NoRetry,
    Queue,
    Retry,
)
from queuecraft.facts import MessageFailed, MessagesAcked, MessagesSucceeded
from queuecraft.runtime.intake import WAIT, Intake
from queuecraft.runtime.slot import Slot
from tests.runtime.batching import ONE_TO_FIVE, Batches, publish
from tests.runtime.consuming import (
    AT_ONCE,
    at_rest,
    both,
    flowing,
    lines,
    number,
    reasons,
    tidy,
    word,
)
from tests.runtime.support import eventually, ids, quiet, running

# -- what a batch is -------------------------------------------------------------------------------


@both
async def test_a_handler_of_lists_gets_what_is_there_up_to_its_batch_size(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        seen = Batches()
        worker = stage.qc.worker("numbers").on(number, seen.handle, batch_size=2)
        await worker.declare()
        await publish(stage, *ONE_TO_FIVE)
        async with running(worker):
            await at_rest(stage.driver, "numbers")
        assert seen.ended == [[1, 2], [3, 4], [5]]


async def test_a_lone_message_waits_for_nobody() -> None:
    async with tidy() as stage:
        seen = Batches()
        async with running(stage.qc.worker("numbers").on(number, seen.handle, batch_size=100)):
            await publish(stage, 1)
            await at_rest(stage.driver, "numbers")
        assert seen.ended == [[1]]


async def test_the_messages_come_as_a_list_beside_their_payloads() -> None:
    async with tidy() as stage:
        seen: list[list[tuple[int, int, str]]] = []
        worker = stage.qc.worker("numbers", batch_size=10)

        @worker.on(number)
        async def store(numbers: list[int], messages: list[Message[int]], unit: str = "m") -> None:
            pairs = zip(numbers, messages, strict=True)
            seen.append([(each, message.payload, unit) for each, message in pairs])

        await worker.declare()
        await publish(stage, 1, 2)
        async with running(worker):
            await at_rest(stage.driver, "numbers")
        assert seen == [[(1, 1, "m"), (2, 2, "m")]]


async def test_a_handler_may_take_the_messages_alone() -> None:
    async with tidy() as stage:
        seen: list[list[str]] = []
        worker = stage.qc.worker("numbers")

        @worker.on(number, batch_size=10)
        async def note(messages: list[Message[int]]) -> None:
            seen.append([message.routing_key for message in messages])

        await worker.declare()
        await publish(stage, 1, 2)
        async with running(worker):
            await at_rest(stage.driver, "numbers")
        assert seen == [["number", "number"]]


async def test_a_sync_handler_of_lists_runs_in_a_thread() -> None:
    async with tidy() as stage:
        seen: list[tuple[list[int], bool]] = []

        def store(numbers: Sequence[int]) -> None:
            main = threading.current_thread() is threading.main_thread()
            seen.append(([*numbers], main))

        worker = stage.qc.worker("numbers").on(number, store, batch_size=10)
        await worker.declare()
        await publish(stage, 1, 2)
        async with running(worker):
            await at_rest(stage.driver, "numbers")
        assert seen == [([1, 2], False)]


async def test_a_batch_holds_messages_of_its_own_handler_and_leaves_the_others() -> None:
    async with tidy() as stage:
        seen = Batches()
        words: list[str] = []
        worker = stage.qc.worker("mixed", prefetch=10).on(number, seen.handle, batch_size=2)

        @worker.on(word)
        async def note(text: str) -> None:
            words.append(text)

        await worker.declare()
        for each in (1, 2, 3):
            await publish(stage, each)
            await stage.qc.publish(word, f"w-{each}")
        async with running(worker):
            await at_rest(stage.driver, "mixed")
        assert (seen.ended, words) == ([[1, 2], [3]], ["w-1", "w-2", "w-3"])


async def test_a_batch_is_one_unit_of_concurrency() -> None:
    async with tidy() as stage:
        seen = Batches(closed=True)
        worker = stage.qc.worker("numbers", concurrency=2).on(number, seen.handle, batch_size=2)
        await worker.declare()
        await publish(stage, *ONE_TO_FIVE)
        async with running(worker):
            await quiet()
            assert seen.begun == [[1, 2], [3, 4]]
            seen.open()
            await at_rest(stage.driver, "numbers")


async def test_a_worker_holds_the_next_batches_beside_those_it_is_at() -> None:
    async with tidy() as stage:
        seen = Batches(closed=True)
        worker = stage.qc.worker("numbers", concurrency=3).on(number, seen.handle, batch_size=5)
        await worker.declare()
        await publish(stage, *range(100))
        async with running(worker):
            await eventually(lambda: len(seen.begun) == 3)
            await quiet()
            assert worker.in_flight == 30
            seen.open()
            await at_rest(stage.driver, "numbers")
        assert {len(batch) for batch in seen.ended} == {5}


async def test_a_payload_that_is_a_list_comes_in_a_list_of_lists() -> None:
    async with tidy() as stage:
        totals = Event("totals", list[int])
        seen: list[list[list[int]]] = []
        worker = stage.qc.worker("totals")

        @worker.on(totals, batch_size=5)
        async def add(batch: list[list[int]]) -> None:
            seen.append(batch)

        await worker.declare()
        await stage.qc.publish_many(totals, [[1, 2], [3]])
        async with running(worker):
            await at_rest(stage.driver, "totals")
        assert seen == [[[1, 2], [3]]]


async def test_a_batch_of_an_untyped_event_is_read_as_its_handler_says() -> None:
    async with tidy() as stage:
        seen: list[list[int]] = []
        worker = stage.qc.worker("numbers")

        @worker.on("number", batch_size=5)
        async def store(numbers: list[int]) -> None:
            seen.append(numbers)

        await worker.declare()
        await stage.qc.publish("number", 1)
        await stage.qc.publish("number", "two")
        async with running(worker):
            await at_rest(stage.driver, "numbers", dead=1)
        assert seen == [[1]]


async def test_with_a_batch_size_of_one_a_handler_gets_lists_of_one() -> None:
    async with tidy(batch_size=100) as stage:
        seen = Batches()
        worker = stage.qc.worker("numbers", batch_size=1).on(number, seen.handle)
        await worker.declare()
        await publish(stage, 1, 2)
        async with running(worker):
            await at_rest(stage.driver, "numbers")
        assert seen.ended == [[1], [2]]


async def test_the_setting_says_how_many_where_nobody_else_does() -> None:
    async with tidy(batch_size=3) as stage:
        seen = Batches()
        worker = stage.qc.worker("numbers").on(number, seen.handle)
        single: list[int] = []

        async def note(each: int) -> None:
            single.append(each)

        other = stage.qc.worker("others").on(number, note)
        await worker.declare()
        await other.declare()
        await publish(stage, *ONE_TO_FIVE)
        async with running(worker, other):
            await at_rest(stage.driver, "numbers", "others")
        assert seen.ended == [[1, 2, 3], [4, 5]]
        assert single == ONE_TO_FIVE


# -- waiting for more ------------------------------------------------------------------------------


@both
async def test_a_batch_that_waits_begins_as_soon_as_it_is_full(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        seen = Batches()
        worker = stage.qc.worker("numbers", batch_size=3, batch_wait=60).on(number, seen.handle)
        async with running(worker):
            await publish(stage, 1)
            await publish(stage, 2)
            await quiet()
            assert seen.begun == []
            await publish(stage, 3)
            await eventually(lambda: seen.ended == [[1, 2, 3]])


@both
async def test_a_batch_that_waits_begins_when_its_time_is_over(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        seen = Batches()
        worker = stage.qc.worker("numbers").on(number, seen.handle, batch_size=9, batch_wait=2)
        async with running(worker):
            await publish(stage, 1)
            await stage.clock.advance(1.9)
            await publish(stage, 2)
            assert seen.begun == []
            await stage.clock.advance(0.2)
            assert seen.ended == [[1, 2]]


@both
async def test_what_is_for_another_handler_does_not_wait_with_a_batch(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        seen = Batches()
        words: list[str] = []
        worker = stage.qc.worker("mixed", concurrency=2)
        worker.on(number, seen.handle, batch_size=9, batch_wait=60)

        @worker.on(word)
        async def note(text: str) -> None:
            words.append(text)

        async with running(worker):
            await publish(stage, 1)
            await quiet()
            for count, each in enumerate(("one", "two", "three"), 1):
                await stage.qc.publish(word, each)
                await eventually(partial(lambda count: len(words) == count, count))
            assert seen.begun == []
            await stage.clock.advance(60)
            assert seen.ended == [[1]]


@both
@pytest.mark.parametrize("prefetch", [3, 9])
async def test_batches_that_wait_do_not_wake_each_other_for_what_neither_takes(
    inline: bool, prefetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    fetch = Intake.fetch

    async def counted(self: Intake, slot: Slot, wait: float = WAIT) -> bool:
        looks.append(wait)
        return await fetch(self, slot, wait)

    async with tidy(inline=inline) as stage:
        numbers, words, others = Batches(), list[list[str]](), list[bool]()
        other = Event("other", bool)
        worker = stage.qc.worker("mixed", concurrency=2, prefetch=prefetch, batch_wait=60)
        worker.on(number, numbers.handle, batch_size=3)

        @worker.on(word, batch_size=3)
        async def store(texts: list[str]) -> None:
            words.append(texts)

        @worker.on(other)
        async def note(each: bool) -> None:
            others.append(each)

        async with running(worker):
            await publish(stage, 1)
            await stage.qc.publish(word, "one")
            await quiet()
            monkeypatch.setattr(Intake, "fetch", counted)
            await stage.qc.publish(other, True)
            await quiet()
            assert len(looks) < 10, "each looks for more, and then waits"
            assert (numbers.begun, words, others) == ([], [], [])
            await stage.clock.advance(60)
            await eventually(lambda: (numbers.ended, words, others) == ([[1]], [["one"]], [True]))


@both
@pytest.mark.parametrize("ordering", ["none", "key"])
@pytest.mark.parametrize("how", ["pause", "drain", "stop at once"])
async def test_a_batch_that_still_waits_goes_back_when_nothing_more_is_to_begin(
    inline: bool, how: str, ordering: Any
) -> None:
    async with tidy(inline=inline) as stage:
        seen = Batches()
        worker = stage.qc.worker("numbers", batch_size=9, batch_wait=60, ordering=ordering)
        worker.on(number, seen.handle)
        await worker.start()
        await publish(stage, 1, 2, 3, key="a")
        await quiet()
        if how == "pause":
            worker.pause()
            await quiet()
            assert worker.in_flight == 0
            await stage.clock.advance(100)
        else:
            await worker.stop(drain=how == "drain")
        assert seen.begun == []
        left = await stage.driver.inner.peek("numbers", 10)
        assert [each.sent.body for each in left] == [b"1", b"2", b"3"]
        worker.resume()
        await worker.start()
        await stage.clock.advance(60)
        assert seen.ended == [[1, 2, 3]]
        await worker.stop()


@both
async def test_batches_that_wait_go_back_at_once_though_others_have_to_be_woken_too(
    inline: bool,
) -> None:
    async with tidy(inline=inline) as stage:
        numbers, words = Batches(), list[list[str]]()
        worker = stage.qc.worker("mixed", concurrency=5, prefetch=50, batch_size=9, batch_wait=60)
        worker.on(number, numbers.handle)

        @worker.on(word)
        async def store(texts: list[str]) -> None:
            words.append(texts)

        async with running(worker):
            await quiet()
            await publish(stage, 1)
            await stage.qc.publish(word, "one")
            await quiet()
            assert worker.in_flight == 2
            worker.pause()
            await quiet()
            assert worker.in_flight == 0
            assert len(await ids(stage.driver, "mixed")) == 2
            assert (numbers.begun, words) == ([], [])


@both
async def test_a_batch_that_waits_when_the_connection_breaks_comes_again(inline: bool) -> None:
    async with tidy(inline=inline, reconnect_delay=1.0) as stage:
        seen = Batches()
        worker = stage.qc.worker("numbers", batch_size=3, batch_wait=60).on(number, seen.handle)
        async with running(worker):
            await publish(stage, 1, 2)
            await quiet()
            await stage.driver.drop()
            async with flowing(stage.clock):
                await eventually(lambda: stage.qc.connection_state == "connected")
                await publish(stage, 3)
                await at_rest(stage.driver, "numbers")
        assert seen.ended == [[1, 2, 3]]


# -- how the messages of a batch end ---------------------------------------------------------------


@both
async def test_a_batch_is_acknowledged_in_one_call_after_its_handler(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        acked: list[list[bytes]] = []
        done: list[tuple[int, set[float]]] = []
        stage.qc.observe(
            MessagesAcked, lambda fact: acked.append([each.sent.body for each in fact.deliveries])
        )
        stage.qc.observe(
            MessagesSucceeded,
            lambda fact: done.append((len(fact.deliveries), set(fact.durations))),
        )
        seen = Batches(closed=True)
        worker = stage.qc.worker("numbers").on(number, seen.handle, batch_size=5)
        await worker.declare()
        await publish(stage, *ONE_TO_FIVE)
        async with running(worker):
            await eventually(lambda: seen.begun)
            await quiet()
            assert acked == []
            seen.open()
            await at_rest(stage.driver, "numbers")
        assert acked == [[b"1", b"2", b"3", b"4", b"5"]]
        ((count, durations),) = done
        assert (count, len(durations)) == (5, 1)
        assert stage.qc.get_metrics().messages_succeeded == 5


@both
async def test_a_handler_that_raises_fails_each_message_by_its_own_count(inline: bool) -> None:
    async with tidy(inline=inline, retry=Retry(max_retries=1, initial_delay=0)) as stage:
        seen: list[list[tuple[int, int]]] = []
        failed: list[MessageFailed] = []
        stage.qc.observe(MessageFailed, failed.append)
        worker = stage.qc.worker("numbers", batch_size=10)

        @worker.on(number)
        async def store(numbers: list[int], messages: list[Message[int]]) -> None:
            attempts = [message.attempt for message in messages]
            seen.append(list(zip(numbers, attempts, strict=True)))
            raise ValueError("the disk is full")

        await worker.declare()
        await publish(stage, 1, 2)
        async with running(worker):
            await at_rest(stage.driver, "numbers", dead=2)
        assert sorted(each for batch in seen for each in batch) == [(1, 1), (1, 2), (2, 1), (2, 2)]
        assert [fact.failure and fact.failure.error for fact in failed] == ["the disk is full"] * 4
        assert await reasons(stage.driver, "numbers") == ["handler-error"] * 2


@both
@pytest.mark.parametrize("by", ["place", "message"])
async def test_only_those_fail_that_the_handler_names(inline: bool, by: str) -> None:
    async with tidy(inline=inline, retry=NoRetry()) as stage:
        worker = stage.qc.worker("numbers", batch_size=10)

        @worker.on(number)
        async def store(numbers: list[int], messages: list[Message[int]]) -> None:
            odd = [place for place, each in enumerate(numbers) if each % 2]
            raise BatchFailed(
                {
                    place if by == "place" else messages[place]: ValueError(f"odd: {place}")
                    for place in odd
                }
            )

        await worker.declare()
        await publish(stage, *ONE_TO_FIVE)
        async with running(worker):
            await at_rest(stage.driver, "numbers", dead=3)
        dead = await stage.driver.inner.peek("numbers.dlq", 10)
        told = [(each.sent.body, each.sent.headers["x-error"]) for each in dead]
        assert told == [(b"1", "odd: 0"), (b"3", "odd: 2"), (b"5", "odd: 4")]
        assert stage.qc.get_metrics().messages_succeeded == 2


@pytest.mark.parametrize("place", [7, -1])
async def test_a_handler_that_names_nobody_of_the_batch_fails_all_of_it(place: int) -> None:
    async with tidy(retry=NoRetry()) as stage:
        worker = stage.qc.worker("numbers", batch_size=10)

        @worker.on(number)
        async def store(numbers: list[int]) -> None:
            raise BatchFailed({place: ValueError("odd")})

        await worker.declare()
        await publish(stage, 1, 2)
        async with running(worker):
            await at_rest(stage.driver, "numbers", dead=2)
        (dead, _) = await stage.driver.inner.peek("numbers.dlq", 10)
        assert f"BatchFailed names {place}" in str(dead.sent.headers["x-error"])


async def test_a_payload_that_cannot_be_read_takes_nobody_with_it() -> None:
    async with tidy() as stage:
        seen = Batches()
        worker = stage.qc.worker(Queue("numbers"), batch_size=10).on(number, seen.handle)
        await worker.declare()
        await stage.qc.publish("number", "one")
        await publish(stage, 2)
        await stage.qc.publish("number", "three")
        await publish(stage, 4)
        async with running(worker):
            await at_rest(stage.driver, "numbers", dead=2)
        assert seen.ended == [[2, 4]]
        assert await reasons(stage.driver, "numbers") == ["invalid-payload"] * 2


async def test_if_nothing_can_be_read_the_handler_is_not_called() -> None:
    async with tidy() as stage:
        seen = Batches()
        worker = stage.qc.worker("numbers", batch_size=10).on(number, seen.handle)
        await worker.declare()
        await stage.qc.publish("number", "one")
        async with running(worker):
            await at_rest(stage.driver, "numbers", dead=1)
        assert seen.begun == []


async def test_a_handler_of_messages_that_looks_into_a_bad_one_condemns_no_other() -> None:
    async with tidy(retry=AT_ONCE) as stage:
        handled: list[int] = []
        worker = stage.qc.worker("numbers", batch_size=10)

        @worker.on(number)
        async def store(messages: list[Message[int]]) -> None:
            numbers = [message.payload for message in messages]
            handled.extend(numbers)

        await worker.declare()
        await publish(stage, 1)
        await stage.qc.publish("number", "two")
        await publish(stage, 3)
        async with running(worker):
            await at_rest(stage.driver, "numbers", dead=1)
        assert sorted(handled) == [1, 3]
        assert await reasons(stage.driver, "numbers") == ["invalid-payload"]


async def test_an_expired_message_is_not_given_to_the_handler() -> None:
    async with tidy() as stage:
        seen = Batches()
        worker = stage.qc.worker("numbers", batch_size=10).on(number, seen.handle)
        await worker.declare()
        await publish(stage, 1)
        await publish(stage, 2, ttl=5)
        await publish(stage, 3)
        await stage.clock.advance(10)
        async with running(worker):
            await at_rest(stage.driver, "numbers", dead=1)
        assert seen.ended == [[1, 3]]
        assert await reasons(stage.driver, "numbers") == ["expired"]


# -- by hand ---------------------------------------------------------------------------------------


@both
async def test_messages_of_a_batch_can_be_settled_by_hand(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        seen: list[list[int]] = []
        worker = stage.qc.worker("numbers", batch_size=10)

        @worker.on(number)
        async def store(numbers: list[int], messages: list[Message[int]]) -> None:
            seen.append(numbers)
            if len(numbers) == 1:
                return
            await messages[0].ack()
            await messages[1].dead_letter("no good")
            await messages[2].retry(delay=5)
            with pytest.raises(AlreadySettled):
                await messages[0].nack()
            raise ValueError("and the rest")

        await worker.declare()
        await publish(stage, *ONE_TO_FIVE[:4])
        async with running(worker):
            await eventually(lambda: seen)
            await stage.clock.advance(1)  # the rest is retried by the policy
            assert seen == [[1, 2, 3, 4], [4]]
            await stage.clock.advance(4)
            assert seen[2:] == [[3]]
            await at_rest(stage.driver, "numbers", dead=1)
        assert await reasons(stage.driver, "numbers") == ["no good"]


async def test_a_thread_may_settle_messages_of_its_batch() -> None:
    async with tidy(retry=NoRetry()) as stage:

        def store(numbers: list[int], messages: list[Message[int]]) -> None:
            for each, message in zip(numbers, messages, strict=True):
                if each % 2:
                    _ = message.dead_letter("odd")

        worker = stage.qc.worker("numbers", batch_size=10).on(number, store)
        await worker.declare()
        await publish(stage, *ONE_TO_FIVE)
        async with running(worker):
            await at_rest(stage.driver, "numbers", dead=3)
        assert stage.qc.get_metrics().messages_succeeded == 2


# -- time ------------------------------------------------------------------------------------------


@both
async def test_a_batch_that_takes_too_long_fails_as_a_whole(
    inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with tidy(inline=inline, retry=NoRetry()) as stage:
        seen = Batches(closed=True)
        worker = stage.qc.worker("numbers", batch_size=10, ack_timeout=5).on(number, seen.handle)
        await worker.declare()
        await publish(stage, 1, 2)
        async with running(worker):
            await eventually(lambda: seen.begun)
            await stage.clock.advance(5)
            await at_rest(stage.driver, "numbers", dead=2)
            seen.open()
            await publish(stage, 3)
            await at_rest(stage.driver, "numbers", dead=2)
        assert seen.ended == [[3]]
        assert await reasons(stage.driver, "numbers") == ["ack-timeout"] * 2
        metrics = stage.qc.get_metrics()
        assert (metrics.ack_timeouts, metrics.messages_failed) == (2, 2)
        assert "returned after its ack timeout" not in lines(caplog)


async def test_what_was_settled_by_hand_does_not_time_out() -> None:
    async with tidy(retry=NoRetry()) as stage:
        worker = stage.qc.worker("numbers", batch_size=10, ack_timeout=5)

        @worker.on(number)
        async def store(numbers: list[int], messages: list[Message[int]]) -> None:
            if len(numbers) > 1:
                await messages[0].ack()
                await asyncio.Event().wait()

        await worker.declare()
        await publish(stage, 1, 2, 3)
        async with running(worker):
            await quiet()
            await stage.clock.advance(5)
            await at_rest(stage.driver, "numbers", dead=2)
            await publish(stage, 4)
            await at_rest(stage.driver, "numbers", dead=2)
            assert worker.state == "running"
        assert stage.qc.get_metrics().messages_succeeded == 2


async def test_any_message_may_ask_for_more_time_for_all() -> None:
    async with tidy(retry=NoRetry()) as stage:
        seen = Batches(closed=True)
        worker = stage.qc.worker("numbers", batch_size=10, ack_timeout=5)

        @worker.on(number)
        async def store(numbers: list[int], messages: list[Message[int]]) -> None:
            messages[-1].extend(60)
            await seen.handle(numbers)

        await worker.declare()
        await publish(stage, 1, 2)
        async with running(worker):
            await eventually(lambda: seen.begun)
            await stage.clock.advance(50)
            seen.open()
            await at_rest(stage.driver, "numbers")
        assert seen.ended == [[1, 2]]


async def test_the_time_of_a_handler_begins_when_its_batch_does() -> None:
    async with tidy(retry=NoRetry()) as stage:
        seen = Batches()
        worker = stage.qc.worker("numbers", batch_size=2, batch_wait=60, ack_timeout=5)
        worker.on(number, seen.handle)
        async with running(worker):
            await publish(stage, 1)
            await stage.clock.advance(30)
            assert seen.begun == []
            await publish(stage, 2)
            await at_rest(stage.driver, "numbers")
        assert seen.ended == [[1, 2]]


@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_a_handler_that_ignores_its_cancellation_is_left_alone_with_its_batch(
    ordering: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with tidy(retry=NoRetry()) as stage:
        leave = asyncio.Event()
        seen: list[list[int]] = []
        worker = stage.qc.worker("numbers", batch_size=10, ack_timeout=5, ordering=ordering)

        @worker.on(number)
        async def store(numbers: list[int]) -> None:
            seen.append(numbers)
            while len(numbers) > 1 and not leave.is_set():
                try:
                    await leave.wait()
                except asyncio.CancelledError:
                    continue

        await worker.declare()
        await publish(stage, 1, key="a")
        await publish(stage, 2, key="b")
        async with running(worker):
            await eventually(lambda: seen)
            await stage.clock.advance(20)
            await publish(stage, 3, key="b")
            await at_rest(stage.driver, "numbers", dead=2)
            leave.set()
            await quiet()
        assert seen == [[1, 2], [3]]
        assert "ignores its cancellation" in lines(caplog)
