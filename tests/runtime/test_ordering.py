"""Messages of one key in order, keys side by side: through retries, stops and lost connections."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft import ConfigError, Message, NoRetry, Retry
from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.runtime.lanes import Lanes
from queuecraft.testing import Ledger
from tests.runtime.consuming import (
    AT_ONCE,
    Gate,
    at_rest,
    both,
    choked,
    flowing,
    number,
    state,
    tidy,
    word,
)
from tests.runtime.support import Stage, eventually, ids, quiet, running


async def bodies(stage: Stage, queue: str) -> list[bytes]:
    """What is ready in a queue, in order."""
    return [each.sent.body for each in await stage.driver.inner.peek(queue, 100)]


async def publish(stage: Stage, seen: Ledger, *numbers: int, keys: str = "a") -> None:
    """Number n with key n of the keys, counted in turn."""
    for n in numbers:
        key = keys[n % len(keys)]
        id = await stage.qc.publish(number, n, key=key, message_id=f"{key}-{n}")
        seen.published(id, key=key)


@both
async def test_messages_of_one_key_run_one_after_the_other_and_keys_side_by_side(
    inline: bool,
) -> None:
    running_now: dict[str, int] = defaultdict(int)
    most_keys = 0
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=4, prefetch=40, ordering="key")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            nonlocal most_keys
            assert message.key is not None
            running_now[message.key] += 1
            assert running_now[message.key] == 1
            most_keys = max(most_keys, sum(running_now.values()))
            for _ in range(n % 3):
                await asyncio.sleep(0)
            running_now[message.key] -= 1
            seen.record("numbers", message)

        await worker.start()
        await worker.stop()
        await publish(stage, seen, *range(60), keys="abc")
        async with running(worker):
            await seen.wait_for(numbers=60)
            await at_rest(stage.driver, "numbers")
    seen.check(ordered=["numbers"])
    assert most_keys == 3


@both
async def test_messages_without_a_key_run_side_by_side(inline: bool) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=3, ordering="key").on(number, gate.handle)
        async with running(worker):
            await stage.qc.publish_many(number, range(3))
            await gate.entered(3)
            gate.open()
            await at_rest(stage.driver, "numbers")


@both
async def test_a_retry_waits_in_the_lane_of_its_key_while_other_keys_go_on(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker(
            "numbers", concurrency=2, prefetch=20, ordering="key", retry=Retry(initial_delay=10)
        )
        fails = seen.failing("numbers", times=1)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            await fails(n, message) if n == 0 else seen.record("numbers", message)

        async with running(worker):
            await publish(stage, seen, *range(6), keys="ab")
            await seen.wait_for(numbers=4)
            await stage.clock.advance(9.9)
            assert seen.order("b") == ["b-1", "b-3", "b-5"]
            assert seen.order("a") == []
            await stage.clock.advance(0.1)
            await seen.wait_for(numbers=7)
            await at_rest(stage.driver, "numbers")
    seen.check(ordered=["numbers"])
    assert [each.attempt for each in seen.calls if each.id == "a-0"] == [1, 2]


@pytest.mark.parametrize("concurrency", [1, 2])
@both
async def test_waiting_retries_do_not_hold_up_other_keys_when_nothing_is_set(
    concurrency: int, inline: bool
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker(
            "numbers", concurrency=concurrency, ordering="key", retry=Retry(initial_delay=30)
        )
        fails = seen.failing("fails", times=1)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            await fails(n, message) if n < 4 else seen.record("works", message)

        async with running(worker):
            await publish(stage, seen, *range(10), keys="abcdefghij")
            await seen.wait_for(fails=4, works=6)
            await stage.clock.advance(30)
            await seen.wait_for(fails=8)
            await at_rest(stage.driver, "numbers")


@both
async def test_a_lone_runner_waiting_for_messages_takes_a_retry_when_it_is_due(
    inline: bool,
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", prefetch=10, ordering="key", retry=AT_ONCE)
        worker.on(number, seen.failing("numbers", times=2))
        async with running(worker):
            await publish(stage, seen, 0)
            await seen.wait_for(numbers=3, timeout=2)
            await at_rest(stage.driver, "numbers")
    assert seen.attempts() == [1, 2, 3]


@both
async def test_a_key_goes_on_after_its_first_message_is_dead_lettered(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", prefetch=10, ordering="key", retry=AT_ONCE)
        fails = seen.failing("numbers", times=None)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            await fails(n, message) if n == 0 else seen.record("numbers", message)

        async with running(worker):
            await publish(stage, seen, 0, 1, 2)
            await seen.wait_for(numbers=6)
            await at_rest(stage.driver, "numbers", dead=1)
    assert seen.attempts() == [1, 2, 3, 4, 1, 1]
    seen.check(dead_letters=["a-0"], ordered=["numbers"])


@both
@pytest.mark.parametrize("why", ["it fails", "it is too old", "nobody knows it"])
async def test_a_key_waits_until_its_first_message_is_a_dead_letter_and_other_keys_do_not(
    inline: bool, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[int] = []
    async with tidy(inline=inline) as stage, choked(monkeypatch) as flows:
        worker = stage.qc.worker("numbers", concurrency=2, ordering="key", retry=NoRetry())

        @worker.on(number)
        async def handle(n: int) -> None:
            if n == 1:
                raise ValueError("never")
            handled.append(n)

        await worker.declare()
        if why == "nobody knows it":
            await stage.qc.admin.bind("numbers", "unheard")
            await stage.qc.publish("unheard", 1, key="a")
        else:
            await stage.qc.publish(number, 1, key="a", ttl=5 if why == "it is too old" else 60)
        await stage.clock.advance(6)
        await stage.qc.publish_many(number, [2, 3], key="a")
        await stage.qc.publish_many(number, [4, 5], key="b")
        async with running(worker):
            await stage.clock.advance(1)
            assert handled == [4, 5]
            flows.set()
            await eventually(lambda: handled == [4, 5, 2, 3])
            await at_rest(stage.driver, "numbers", dead=1)


@both
@pytest.mark.parametrize("how", ["refused", "lost"])
async def test_what_does_not_become_a_dead_letter_comes_again_before_what_is_behind_it(
    inline: bool, how: str
) -> None:
    handled: list[tuple[int, int]] = []
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker(
            "numbers", concurrency=2, ordering="key", retry=Retry(max_retries=1, initial_delay=1)
        )

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            handled.append((n, message.attempt))
            if n == 1 and len(handled) < 3:
                raise ValueError("not yet")

        if how == "refused":
            stage.driver.reject(to="numbers.dlq", times=None, of="move")
        else:
            stage.driver.lose_answers(stored=False, of="move")
        async with running(worker):
            await stage.qc.publish_many(number, [1, 2, 3], key="a")
            await stage.clock.advance(1)
            if how == "refused":
                await eventually(lambda: worker.paused and not worker.in_flight)
                assert await bodies(stage, "numbers") == [b"1", b"2", b"3"]
                stage.driver.heal()
                worker.resume()
            await stage.clock.advance(60)
            await at_rest(stage.driver, "numbers")
    assert handled == [(1, 1), (1, 2), (1, 2), (2, 1), (3, 1)]


@both
async def test_a_key_waits_for_a_handler_that_goes_on_after_a_dead_letter_that_was_refused(
    inline: bool,
) -> None:
    go_on, begun = asyncio.Event(), list[tuple[int, int]]()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2, ordering="key")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            begun.append((n, message.attempt))
            if len(begun) == 1:
                await message.dead_letter("no such account")
                await go_on.wait()

        stage.driver.reject(to="numbers.dlq", times=None, of="move")
        async with running(worker):
            await stage.qc.publish_many(number, [1, 2], key="a")
            await eventually(lambda: worker.paused)
            stage.driver.heal()
            worker.resume()
            await quiet()
            assert begun == [(1, 1)]
            go_on.set()
            await at_rest(stage.driver, "numbers")
            assert worker.in_flight == 0
    assert begun == [(1, 1), (1, 1), (2, 1)]


@both
async def test_order_survives_a_stop_in_the_middle_of_a_retry(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker(
            "numbers", concurrency=3, prefetch=20, ordering="key", retry=Retry(initial_delay=60)
        )
        fails = seen.failing("numbers", times=1)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            await fails(n, message) if n == 0 else seen.record("numbers", message)

        async with running(worker):
            await publish(stage, seen, *range(9), keys="abc")
            await seen.wait_for(numbers=7)
            await eventually(lambda: worker.in_flight == 3)  # a-0 waits, a-3 and a-6 behind it
        assert (await state(stage.driver, "numbers")).in_flight == 0
        assert await ids(stage.driver, "numbers") == ["a-0", "a-3", "a-6"]
        async with running(worker):
            await seen.wait_for(numbers=10)
            await at_rest(stage.driver, "numbers")
    seen.check(duplicates_at_most=1, ordered=["numbers"])


@both
async def test_order_survives_a_stop_that_cancels_the_handler(inline: bool) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", prefetch=20, ordering="key")
        worker.on(number, gate.handle)
        await worker.start()
        await publish(stage, seen, 0, 1, 2)
        await gate.entered(1)
        await worker.stop(drain=False)
        assert await ids(stage.driver, "numbers") == ["a-0", "a-1", "a-2"]
        gate.open()
        async with running(worker):
            await at_rest(stage.driver, "numbers")
    assert gate.passed == [0, 1, 2]


@both
async def test_a_failure_while_draining_goes_back_in_front_of_its_followers(inline: bool) -> None:
    seen = Ledger()
    inside, leave = asyncio.Event(), asyncio.Event()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", prefetch=20, ordering="key")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            first = not seen.calls
            seen.record("numbers", message, failed=first)
            inside.set()
            if first:
                await leave.wait()
                raise ValueError("not now")

        await worker.start()
        await publish(stage, seen, 0, 1, 2)
        await inside.wait()
        stopping = asyncio.create_task(worker.stop())
        await quiet()
        leave.set()
        await stopping
        assert await ids(stage.driver, "numbers") == ["a-0", "a-1", "a-2"]
        async with running(worker):
            await seen.wait_for(numbers=4)
            await at_rest(stage.driver, "numbers")
    assert seen.payloads() == [0, 0, 1, 2]


@pytest.mark.parametrize("succeeds", [True, False])
@both
async def test_the_followers_of_a_run_that_lost_its_connection_wait_for_its_redelivery(
    succeeds: bool, inline: bool
) -> None:
    seen = Ledger()
    inside, leave = asyncio.Event(), asyncio.Event()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=3, prefetch=20, ordering="key")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            if n == 0 and not inside.is_set():
                inside.set()
                await leave.wait()
                if not succeeds:
                    seen.record("numbers", message, failed=True)
                    raise ValueError("the connection was my only friend")
            for _ in range(3 - n):
                await asyncio.sleep(0)
            seen.record("numbers", message)

        async with running(worker):
            await publish(stage, seen, 0, 1, 2)
            await inside.wait()
            await stage.driver.drop()
            await eventually(lambda: worker.in_flight == 3)
            await quiet()
            assert seen.calls == []
            leave.set()
            await seen.wait_for(numbers=3 if succeeds else 4)
            await at_rest(stage.driver, "numbers")
    assert seen.payloads() == ([0, 1, 2] if succeeds else [0, 0, 1, 2])


@both
async def test_a_waiting_retry_keeps_its_count_and_its_time_through_losses_and_pauses(
    inline: bool,
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker(
            "numbers", ordering="key", retry=Retry(max_retries=2, initial_delay=10, factor=1)
        )
        fails = seen.failing("numbers", times=None)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            await fails(n, message) if n == 0 else seen.record("others", message)

        async with running(worker):
            await publish(stage, seen, 0, 1)
            await seen.wait_for(numbers=1)
            await stage.clock.advance(4)
            await stage.driver.drop()
            await eventually(lambda: worker.in_flight == 2)
            await stage.clock.advance(5.9)
            assert seen.attempts() == [1]
            await stage.clock.advance(0.1)
            await seen.wait_for(numbers=2)
            worker.pause()
            await quiet()
            worker.resume()
            await stage.clock.advance(9.9)
            assert seen.attempts() == [1, 2]
            await stage.clock.advance(0.1)
            await seen.wait_for(numbers=3, others=1)
            await at_rest(stage.driver, "numbers", dead=1)
    assert seen.attempts("numbers") == [1, 2, 3]


@both
async def test_pausing_keeps_the_order_of_what_waits_behind_a_running_message(
    inline: bool,
) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=3, prefetch=20, ordering="key")
        worker.on(number, gate.handle)
        async with running(worker):
            await publish(stage, seen, *range(4))
            await gate.entered(1)
            worker.pause()
            await eventually(lambda: worker.in_flight == 1)
            worker.resume()
            await eventually(lambda: worker.in_flight == 4)
            assert gate.inside == [0]
            gate.open()
            await at_rest(stage.driver, "numbers")
    assert gate.passed == [0, 1, 2, 3]


@pytest.mark.parametrize("concurrency", [1, 2])
@both
async def test_what_fails_while_its_worker_is_paused_is_tried_again_only_after_resuming(
    concurrency: int, inline: bool
) -> None:
    seen = Ledger()
    inside, leave = asyncio.Event(), asyncio.Event()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker(
            "numbers",
            concurrency=concurrency,
            prefetch=20,
            ordering="key",
            retry=Retry(max_retries=2, initial_delay=10, factor=1),
        )

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.record("numbers", message, failed=n == 0)
            if n == 0:
                inside.set()
                await leave.wait()
                raise ConnectionError("the bank is down")

        async with running(worker):
            await publish(stage, seen, 0, 1, 2)
            await inside.wait()
            worker.pause("the bank is down")
            leave.set()
            await stage.clock.advance(100)
            assert seen.attempts() == [1]
            assert await ids(stage.driver, "numbers") == ["a-0", "a-1", "a-2"]
            worker.resume()
            await stage.clock.settle()
            assert seen.attempts() == [1, 2]  # its time has come meanwhile
            await stage.clock.advance(9.9)
            assert seen.attempts() == [1, 2]
            await stage.clock.advance(0.1)
            await seen.wait_for(numbers=5)
            await at_rest(stage.driver, "numbers", dead=1)
    assert seen.payloads() == [0, 0, 0, 1, 2]
    assert seen.attempts() == [1, 2, 3, 1, 1]


@both
async def test_what_fails_beside_a_fallen_runner_stays_in_front_of_its_followers(
    inline: bool,
) -> None:
    seen = Ledger()
    inside, leave = asyncio.Event(), asyncio.Event()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker(
            "numbers", concurrency=2, prefetch=20, ordering="key", retry=Retry(initial_delay=10)
        )

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            failed = message.attempt == 1 and n == 0
            seen.record("numbers", message, failed=failed)
            if n == 1 and seen.ids().count(message.id) == 1:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()  # as nobody should
                await asyncio.sleep(0)
            if failed:
                inside.set()
                await leave.wait()
                raise ValueError("not now")

        async with running(worker):
            await publish(stage, seen, *range(4), keys="ab")
            await inside.wait()
            await eventually(lambda: worker.state == "paused")
            leave.set()
            await stage.clock.advance(100)
            assert seen.ids() == ["a-0", "b-1"]
            worker.resume()
            await at_rest(stage.driver, "numbers")
    assert [each.id for each in seen.calls if each.key == "a"] == ["a-0", "a-0", "a-2"]
    assert [each.id for each in seen.calls if each.key == "b"] == ["b-1", "b-1", "b-3"]


@both
async def test_a_retry_by_hand_waits_for_its_handler_to_return(inline: bool) -> None:
    """Two runs of one message at once would be two runs of one key at once."""
    inside = most = 0
    attempts: list[int] = []
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=3, prefetch=20, ordering="key")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            seen.record("numbers", message)
            if message.attempt == 1:
                await message.retry(delay=0)
                await stage.clock.sleep(1)
                attempts.append(message.attempt)
            inside -= 1

        async with running(worker):
            await publish(stage, seen, 0)
            await seen.wait_for(numbers=1)
            await stage.clock.advance(2)
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")
    assert most == 1
    assert seen.attempts() == [1, 2]
    assert attempts == [1]  # what a handler is told does not change under it


@both
async def test_an_ack_timeout_retries_in_the_lane(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker(
            "numbers", prefetch=20, ordering="key", ack_timeout=5, retry=Retry(initial_delay=1)
        )

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.record("numbers", message)
            if n == 0 and message.attempt == 1:
                await asyncio.Event().wait()

        async with running(worker):
            await publish(stage, seen, 0, 1)
            await seen.wait_for(numbers=1)
            await stage.clock.advance(5)
            await stage.clock.advance(1)
            await seen.wait_for(numbers=3)
            await at_rest(stage.driver, "numbers")
    assert seen.payloads() == [0, 0, 1]


async def test_failures_of_one_message_are_not_those_of_another_with_the_same_id() -> None:
    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("all", concurrency=4, prefetch=50, ordering="key")
        worker.on(number, seen.failing("numbers", times=9)).on(word, seen.recording("words"))
        async with running(worker):
            await stage.qc.publish(number, 1, key="a", message_id="order-1")
            for n in range(20):
                await stage.clock.advance(1)
                await stage.qc.publish(word, str(n), key="b", message_id="order-1")
            await stage.clock.advance(30)
            await at_rest(stage.driver, "all", dead=1)
    assert seen.attempts("numbers") == [1, 2, 3, 4]
    assert seen.attempts("words") == [1] * 20


async def test_two_workers_on_one_ordered_queue_are_refused() -> None:
    async with tidy() as stage:
        stage.qc.worker("numbers", ordering="key")
        with pytest.raises(ConfigError, match="only one"):
            stage.qc.worker("numbers")


@both
async def test_nothing_is_received_before_what_was_given_back_has_arrived(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=3, ordering="key")
        fails = seen.failing("numbers")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            await fails(n, message) if n == 0 else seen.record("numbers", message)

        async with running(worker):
            await publish(stage, seen, 0, 1)
            await seen.wait_for(numbers=1)
            await eventually(lambda: worker.in_flight == 2)
            worker.pause()
            await publish(stage, seen, 2)
            worker.resume()
            await quiet()
            await stage.clock.advance(1)
            await seen.wait_for(numbers=4)
            await at_rest(stage.driver, "numbers")
    seen.check(ordered=["numbers"])


async def test_what_arrives_while_an_ack_finds_the_connection_lost_leaves_its_key_free() -> None:
    seen = Ledger()
    async with tidy(inline=False) as stage:
        worker = stage.qc.worker("numbers", concurrency=3, prefetch=6, ordering="key")
        worker.on(number, seen.recording("numbers"))
        async with running(worker):
            await quiet()
            for turns in range(12):  # one of them lets the two meet
                stage.driver.fail("ack")
                seen.published(await stage.qc.publish(number, 1))
                for _ in range(turns):
                    await asyncio.sleep(0)
                seen.published(await stage.qc.publish(number, 2, key="a"), key="a")
                await stage.clock.advance(2)
                await at_rest(stage.driver, "numbers")
    seen.check(duplicates_at_most=12, ordered=["numbers"])


@both
async def test_a_key_waits_for_a_handler_that_settled_early_though_its_connection_is_lost(
    inline: bool,
) -> None:
    inside = most = 0
    settled, leave = asyncio.Event(), asyncio.Event()
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=3, ordering="key")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            if n == 0:
                await message.nack(requeue=False)
                settled.set()
                await leave.wait()
            seen.record("numbers", message)
            inside -= 1

        async with running(worker):
            await publish(stage, seen, 0, 1)
            await settled.wait()
            await stage.driver.drop()
            await eventually(lambda: worker.in_flight == 1)
            await quiet()
            leave.set()
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers", dead=1)
    assert most == 1
    assert seen.payloads() == [0, 1]


@pytest.mark.parametrize("seed", range(6))
@both
async def test_order_holds_through_failures_drops_pauses_and_stops(seed: int, inline: bool) -> None:
    chance = random.Random(seed)
    seen = Ledger()
    failures: dict[str, int] = defaultdict(int)
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker(
            "numbers",
            concurrency=3,
            prefetch=12,
            ordering="key",
            retry=Retry(max_retries=50, initial_delay=0.5, factor=1),
            max_redeliveries=1000,
        )

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            fails = chance.random() < 0.2 and failures[message.id] < 3
            failures[message.id] += fails
            seen.record("numbers", message, failed=fails)
            if fails:
                raise ValueError("by chance")

        async with running(worker), flowing(stage.clock):
            for n in range(100):
                await publish(stage, seen, n, keys="abcd")
                event = chance.random()
                if event < 0.05:
                    await stage.driver.drop()
                elif event < 0.1:
                    worker.pause()
                    await asyncio.sleep(0)
                    worker.resume()
                elif event < 0.15:
                    await worker.stop(drain=chance.random() < 0.5)
                    await worker.start()
                elif event < 0.3:
                    await stage.clock.settle()
            await at_rest(stage.driver, "numbers")
    seen.check(duplicates_at_most=1000, ordered=["numbers"])


# -- lanes alone -------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=30), st.randoms())
def test_lanes_let_one_of_each_key_run_and_keep_its_order(
    keys: list[str | None], chance: random.Random
) -> None:
    deliveries = [Delivery(Outgoing(b"", str(n), key=key), "q") for n, key in enumerate(keys)]
    lanes = Lanes()
    at_work: list[Delivery] = []
    done: list[Delivery] = []
    waiting = list(deliveries)
    while waiting or at_work:
        if waiting and (not at_work or chance.random() < 0.5):
            batch, waiting = waiting[:3], waiting[3:]
            at_work += lanes.admit(batch)
        else:
            finished = at_work.pop(chance.randrange(len(at_work)))
            done.append(finished)
            if (following := lanes.leave(finished)) is not None:
                at_work.append(following)
        busy = [each.sent.key for each in at_work if each.sent.key is not None]
        assert len(busy) == len(set(busy))
    for key in set(keys) - {None}:
        assert [each for each in done if each.sent.key == key] == [
            each for each in deliveries if each.sent.key == key
        ]
    assert sorted(done, key=lambda each: int(each.sent.id)) == deliveries


def test_what_left_with_a_lost_session_does_not_let_its_followers_in() -> None:
    old, new, following = (Delivery(Outgoing(b"", "m", key="a"), "q") for _ in range(3))
    lanes = Lanes()
    assert lanes.admit([old]) == [old]
    lanes.clear(())
    assert lanes.admit([new, following]) == [new]
    assert lanes.leave(old) is None
    assert lanes.leave(new) is following


def test_giving_back_keeps_the_lane_of_what_runs() -> None:
    first, second, third = (Delivery(Outgoing(b"", "m", key="a"), "q") for _ in range(3))
    lanes = Lanes()
    lanes.admit([first, second])
    assert lanes.clear([first]) == [second]
    assert lanes.admit([third]) == []
    assert lanes.leave(first) is third


async def test_a_failing_key_without_retries_is_dead_lettered_in_order() -> None:
    seen = Ledger()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers", prefetch=9, ordering="key", retry=NoRetry())
        worker.on(number, seen.failing("numbers", times=None))
        async with running(worker):
            await publish(stage, seen, 0, 1, 2)
            await at_rest(stage.driver, "numbers", dead=3)
        assert await ids(stage.driver, "numbers.dlq") == ["a-0", "a-1", "a-2"]
