"""Messages as an async iterator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from queuecraft import (
    AlreadySettled,
    ConfigError,
    ConnectionLost,
    DeadLetter,
    Event,
    Message,
    NoDeadLetter,
    NoRetry,
    Retry,
)
from queuecraft.runtime.stream import MessageStream
from tests.runtime.support import (
    Order,
    Stage,
    contents,
    eventually,
    ids,
    order_paid,
    order_placed,
    quiet,
    staged,
)

number = Event("number", int)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


async def opened(
    stage: Stage, *payloads: int, queue: str = "numbers", **options: Any
) -> MessageStream[int]:
    """A stream with something in it."""
    stream = stage.qc.subscribe(queue, number, **options)
    await stream.open()
    if payloads:
        await stage.qc.publish_many(number, payloads)
    return stream


async def left(stage: Stage, queue: str = "numbers") -> tuple[int | None, int | None]:
    """How many are ready and in flight."""
    (info,) = await stage.driver.inspect([queue])
    return info.ready, info.in_flight


async def bodies(stage: Stage, queue: str = "numbers") -> list[int]:
    return [int(each.body) for each in await contents(stage.driver, queue)]


# -- going on --------------------------------------------------------------------------------


async def test_messages_come_in_order_with_their_type(stage: Stage) -> None:
    got: list[int] = []
    async with await opened(stage, 1, 2, 3) as stream:
        async for message in stream:
            got.append(message.payload)
            if message.payload == 3:
                break
    assert got == [1, 2, 3]


async def test_going_on_to_the_next_acknowledges_the_last(stage: Stage) -> None:
    async with await opened(stage, 1, 2) as stream:
        await anext(stream)
        assert await left(stage) == (1, 1)
        await anext(stream)
        await quiet()
        assert await left(stage) == (0, 1)


async def test_a_message_is_not_acknowledged_before_the_loop_goes_on(stage: Stage) -> None:
    async with await opened(stage, 1) as stream:
        await anext(stream)
        await stage.clock.advance(3600)
        assert await left(stage) == (0, 1)


async def test_payloads_are_of_the_type_of_the_event(stage: Stage) -> None:
    async with stage.qc.subscribe("billing", order_placed, order_paid) as stream:
        await stream.open()
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.qc.publish(order_paid, Order("o-2"))
        first, second = await anext(stream), await anext(stream)
    assert (first.payload, second.payload) == (Order("o-1"), Order("o-2"))
    assert (first.routing_key, second.routing_key) == ("order.placed", "order.paid")


async def test_the_first_turn_of_the_loop_opens_the_stream(stage: Stage) -> None:
    stream = stage.qc.subscribe("numbers", number)
    waiting = asyncio.ensure_future(anext(stream))
    await stage.clock.settle()
    await stage.qc.publish(number, 1)
    assert (await waiting).payload == 1
    await stream.close()


async def test_what_was_published_before_the_loop_begins_is_not_missed() -> None:
    async with staged() as stage:
        stream = stage.qc.subscribe("numbers", number)
        await stage.qc.open()  # declares the queues of all workers
        await stage.qc.publish(number, 1)
        async with stream:
            assert (await anext(stream)).payload == 1


async def test_messages_that_come_later_are_waited_for(stage: Stage) -> None:
    async with await opened(stage) as stream:
        waiting = asyncio.ensure_future(anext(stream))
        await stage.clock.advance(3600)
        assert not waiting.done()
        await stage.qc.publish(number, 1)
        assert (await waiting).payload == 1


async def test_the_order_is_kept_whatever_the_concurrency_of_the_facade() -> None:
    async with staged(concurrency=8) as stage:
        got: list[int] = []
        async with await opened(stage, *range(50)) as stream:
            async for message in stream:
                got.append(message.payload)
                if len(got) == 50:
                    break
        assert got == list(range(50))


# -- leaving ---------------------------------------------------------------------------------


async def test_leaving_the_loop_gives_the_message_back(stage: Stage) -> None:
    async with await opened(stage, 1, 2) as stream:
        async for message in stream:
            if message.payload == 2:
                break
    assert await bodies(stage) == [2]
    (again,) = await stage.driver.peek("numbers", 1)
    assert again.redeliveries == 1


@pytest.mark.parametrize("concurrency", [1, 8])
async def test_what_the_loop_never_saw_goes_back_untouched(concurrency: int) -> None:
    async with staged(concurrency=concurrency) as stage:
        async with await opened(stage, *range(5)) as stream:
            await anext(stream)
            await quiet()
        back = await stage.driver.peek("numbers", 10)
        assert [int(each.sent.body) for each in back] == [0, 1, 2, 3, 4]
        assert [each.redeliveries for each in back] == [1, 0, 0, 0, 0]


async def test_an_error_in_the_loop_gives_the_message_back(stage: Stage) -> None:
    async def loop() -> None:
        async with await opened(stage, 1) as stream:
            async for _ in stream:
                raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await loop()
    assert await bodies(stage) == [1]


async def test_cancelling_the_loop_gives_the_message_back(stage: Stage) -> None:
    inside = asyncio.Event()

    async def loop() -> None:
        async with await opened(stage, 1) as stream:
            async for _ in stream:
                inside.set()
                await asyncio.Event().wait()

    task = asyncio.ensure_future(loop())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await bodies(stage) == [1]


async def test_a_message_given_back_comes_again_to_the_next_stream(stage: Stage) -> None:
    async with await opened(stage, 1) as stream:
        first = await anext(stream)
    async with await opened(stage) as stream:
        second = await anext(stream)
    assert (second.id, second.attempt, second.redeliveries) == (first.id, 1, 1)


async def test_a_closed_stream_is_at_its_end(stage: Stage) -> None:
    stream = await opened(stage, 1)
    await stream.close()
    assert [message async for message in stream] == []
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert await bodies(stage) == [1]


async def test_closing_ends_a_loop_that_waits(stage: Stage) -> None:
    stream = await opened(stage)

    async def loop() -> list[int]:
        return [message.payload async for message in stream]

    task = asyncio.ensure_future(loop())
    await stage.clock.settle()
    await stream.close()
    assert await asyncio.wait_for(task, 5) == []


async def test_closing_twice_or_before_opening_is_no_harm(stage: Stage) -> None:
    stream = stage.qc.subscribe("numbers", number)
    await stream.close()
    await stream.close()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_closing_while_the_connection_is_awaited_ends_the_loop(stage: Stage) -> None:
    stage.driver.fail("declare")
    stage.driver.refuse(1)
    stream = stage.qc.subscribe("numbers", number)
    waiting = asyncio.ensure_future(anext(stream))
    await stage.clock.settle()
    await stream.close()
    await stage.clock.advance(5)
    with pytest.raises(StopAsyncIteration):
        await waiting
    (info,) = await stage.driver.inspect(["numbers"])
    assert info.consumers == 0


async def test_a_shutdown_ends_a_loop_that_waits() -> None:
    async with staged() as stage:
        stream = await opened(stage)

        async def loop() -> list[int]:
            return [message.payload async for message in stream]

        task = asyncio.ensure_future(loop())
        await stage.clock.settle()
    assert await asyncio.wait_for(task, 5) == []


async def test_a_shutdown_waits_for_the_message_in_the_loop() -> None:
    go_on = asyncio.Event()
    finished: list[int] = []
    async with staged() as stage:
        stream = await opened(stage, 1, 2)

        async def loop() -> None:
            async for message in stream:
                await go_on.wait()
                finished.append(message.payload)

        task = asyncio.ensure_future(loop())
        await stage.clock.settle()
        stopping = asyncio.ensure_future(stage.qc.shutdown())
        await quiet()
        assert not stopping.done()
        go_on.set()
        await stopping
        await asyncio.wait_for(task, 5)
        await stage.driver.open()
        assert finished == [1]
        assert await bodies(stage) == [2]


@pytest.mark.parametrize("turns", range(12))
async def test_giving_up_waiting_loses_no_message(turns: int) -> None:
    async with staged() as stage:
        stream = await opened(stage)
        waiting = asyncio.ensure_future(anext(stream))
        await stage.clock.settle()
        await stage.qc.publish(number, 1)
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        if waiting.cancelled():
            async with asyncio.timeout(5):
                assert (await anext(stream)).payload == 1
        await stream.close()


# -- by hand ---------------------------------------------------------------------------------


async def test_a_message_acknowledged_by_hand_stays_so(stage: Stage) -> None:
    async with await opened(stage, 1, 2) as stream:
        async for message in stream:
            await message.ack()
            if message.payload == 2:
                break
    assert await left(stage) == (0, 0)


async def test_an_ack_that_nobody_awaits_counts_too(stage: Stage) -> None:
    async with await opened(stage, 1) as stream:
        async for message in stream:
            _ = message.ack()
            break
    assert await left(stage) == (0, 0)


async def test_a_message_dead_lettered_by_hand_is_one(stage: Stage) -> None:
    async with await opened(stage, 1, 2) as stream:
        first = await anext(stream)
        await first.dead_letter("odd")
        await anext(stream)
    (letter,) = await contents(stage.driver, "numbers.dlq")
    assert (letter.id, letter.headers["x-reason"]) == (first.id, "odd")


async def test_a_message_that_failed_by_hand_comes_again_later(stage: Stage) -> None:
    attempts: list[int] = []
    async with await opened(stage, 1, retry=Retry(initial_delay=10)) as stream:
        first = await anext(stream)
        attempts.append(first.attempt)
        await first.nack()
        waiting = asyncio.ensure_future(anext(stream))
        await stage.clock.advance(11)
        attempts.append((await waiting).attempt)
    assert attempts == [1, 2]


async def test_settling_twice_is_refused(stage: Stage) -> None:
    async with await opened(stage, 1) as stream:
        message = await anext(stream)
        await message.ack()
        with pytest.raises(AlreadySettled):
            await message.nack()


async def test_a_message_the_loop_has_left_behind_cannot_be_settled(stage: Stage) -> None:
    async with await opened(stage, 1, 2) as stream:
        first = await anext(stream)
        await anext(stream)
        with pytest.raises(AlreadySettled):
            await first.nack()


# -- what never reaches the loop -------------------------------------------------------------


async def test_poison_never_reaches_the_loop(stage: Stage) -> None:
    async with await opened(stage) as stream:
        await stage.qc.publish("number", "not a number")
        await stage.qc.publish(number, 2)
        assert (await anext(stream)).payload == 2
    (letter,) = await contents(stage.driver, "numbers.dlq")
    assert letter.headers["x-reason"] == "invalid-payload"


async def test_an_expired_message_never_reaches_the_loop(stage: Stage) -> None:
    stream = stage.qc.subscribe("numbers", number, ttl=60)
    await stage.qc.open()
    await stage.qc.publish(number, 1)
    await stage.clock.advance(61)
    await stage.qc.publish(number, 2)
    async with stream:
        assert (await anext(stream)).payload == 2
    (letter,) = await contents(stage.driver, "numbers.dlq")
    assert letter.headers["x-reason"] == "expired"


async def test_a_message_whose_ack_timeout_passed_is_skipped_and_comes_again() -> None:
    async with (
        staged(ack_timeout=10, retry=Retry(initial_delay=1)) as stage,
        await opened(stage, 1) as stream,
    ):
        first = await anext(stream)
        await stage.clock.advance(11)
        with pytest.raises(AlreadySettled):
            await first.ack()
        waiting = asyncio.ensure_future(anext(stream))
        await stage.clock.advance(2)
        assert (await waiting).attempt == 2


# -- policy ----------------------------------------------------------------------------------


async def test_the_policies_of_the_stream_are_those_of_its_worker(stage: Stage) -> None:
    stage.qc.subscribe(
        "numbers",
        number,
        ttl=5,
        retry=NoRetry(),
        dead_letter=DeadLetter(queue="lost.numbers"),
        durable=False,
    )
    (worker,) = stage.qc.workers
    definition = worker.definition
    assert (worker.policy.ttl, worker.policy.retry) == (5, NoRetry())
    assert definition.dead_letters is not None
    assert definition.dead_letters.queue == "lost.numbers"
    assert not definition.durable


async def test_without_dead_letters_poison_is_dropped(stage: Stage) -> None:
    async with await opened(stage, dead_letter=NoDeadLetter()) as stream:
        await stage.qc.publish("number", "no number")
        await stage.qc.publish(number, 2)
        assert (await anext(stream)).payload == 2
        assert stage.qc.get_metrics().messages_dropped == 1


async def test_the_same_event_twice_is_refused_and_leaves_nothing_behind(stage: Stage) -> None:
    with pytest.raises(ConfigError, match="two handlers"):
        stage.qc.subscribe("numbers", number, number)
    assert stage.qc.workers == ()


async def test_two_streams_of_one_queue_share_its_messages(stage: Stage) -> None:
    one, two = await opened(stage), await opened(stage)
    await stage.qc.publish_many(number, [1, 2])
    got = {(await anext(one)).payload, (await anext(two)).payload}
    assert got == {1, 2}
    await one.close()
    await two.close()


async def test_a_lost_connection_does_not_end_the_loop(stage: Stage) -> None:
    got: list[int] = []
    stream = await opened(stage, 1)

    async def loop() -> None:
        async for message in stream:
            got.append(message.payload)  # noqa: PERF401  the test looks while it goes on

    task = asyncio.ensure_future(loop())
    await eventually(lambda: got == [1])
    await stage.clock.settle()
    await stage.driver.drop()
    await stage.clock.advance(40)
    await stage.qc.publish(number, 2)
    await stage.clock.advance(1)
    assert got == [1, 2]
    await stream.close()
    await task


async def test_a_connection_that_is_given_up_ends_the_loop_and_another_loop_goes_on() -> None:
    async with staged(reconnect_attempts=1) as stage:
        async with await opened(stage, 1, 2) as stream:
            assert (await anext(stream)).payload == 1
            stage.driver.refuse(opens=2)
            await stage.driver.drop()
            with pytest.raises(ConnectionLost, match="gave up after one attempt"):
                await asyncio.wait_for(anext(stream), 5)
            with pytest.raises(ConnectionLost, match="refuses"):
                await stage.qc.open()
            with pytest.raises(ConnectionLost, match="refuses"):
                await asyncio.wait_for(anext(stream), 5)
            await stage.qc.open()
            assert (await asyncio.wait_for(anext(stream), 5)).payload == 2  # the first was done
        assert await bodies(stage) == [2]


async def test_a_message_in_the_loop_while_the_connection_breaks_is_not_run_twice(
    stage: Stage,
) -> None:
    async with await opened(stage, 1) as stream:
        first = await anext(stream)
        await stage.driver.drop()
        await stage.clock.advance(40)
        waiting = asyncio.ensure_future(anext(stream))  # done with the first: it succeeded
        await stage.clock.settle()
        await stage.qc.publish(number, 2)
        await stage.clock.advance(1)
        assert (await waiting).payload == 2
    assert first.payload == 1
    assert await ids(stage.driver, "numbers.dlq") == []


async def test_a_stream_is_an_async_iterator_of_messages(stage: Stage) -> None:
    stream = stage.qc.subscribe("numbers", number)
    iterator: AsyncIterator[Message[int]] = stream
    assert aiter(iterator) is stream
    await stream.close()
