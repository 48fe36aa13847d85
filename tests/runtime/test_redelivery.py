"""A connection lost while handlers run: what was handled is not run again, what was not is."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from queuecraft import ConnectionLost, Message, PublishError, Retry
from queuecraft.codec.headers import REPLAY_ID
from queuecraft.drivers.base import Delivery, Outgoing
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.drivers.local.subscription import MemorySubscription
from queuecraft.facts import Disconnected, MessagesSucceeded
from queuecraft.model.types import HeaderValue
from queuecraft.runtime.orphans import Orphans
from queuecraft.testing import FakeClock, FaultyDriver, Ledger, failing
from tests.runtime.consuming import AT_ONCE, Gate, at_rest, both, number, tidy, word
from tests.runtime.support import eventually, ids, quiet, running

some = pytest.mark.parametrize("concurrency", [1, 3])


def held_by(driver: FaultyDriver) -> list[MemorySubscription]:
    assert isinstance(driver.inner, MemoryDriver)
    return list(driver.inner._subscriptions)


@some
@both
async def test_a_message_handled_while_its_connection_was_lost_is_acked_unrun(
    concurrency: int, inline: bool
) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=concurrency)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.record("numbers", message)
            await gate.handle(n, message)

        async with running(worker):
            seen.published(await stage.qc.publish(number, 1))
            await gate.entered(1)
            await stage.driver.drop()
            await quiet()
            gate.open()
            await at_rest(stage.driver, "numbers")
            assert worker.counters.succeeded == 1
    seen.check()


@some
@both
async def test_a_run_that_failed_without_its_connection_is_run_again(
    concurrency: int, inline: bool
) -> None:
    seen = Ledger()
    inside, leave = asyncio.Event(), asyncio.Event()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=concurrency)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            first = not seen.calls
            seen.record("numbers", message, failed=first)
            if first:
                inside.set()
                await leave.wait()
                raise ValueError("no connection, no luck")

        async with running(worker):
            seen.published(await stage.qc.publish(number, 1))
            await inside.wait()
            await stage.driver.drop()
            await quiet()
            leave.set()
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")
    assert [(each.attempt, each.redeliveries) for each in seen.calls] == [(1, 0), (1, 1)]


@both
@pytest.mark.parametrize("end", ["pause", "stop"])
async def test_what_waits_for_a_run_is_not_begun_once_nothing_is_to_begin(
    end: str, inline: bool
) -> None:
    seen = Ledger()
    inside, leave = asyncio.Event(), asyncio.Event()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            first = not seen.calls
            seen.record("numbers", message, failed=first)
            if first:
                inside.set()
                await leave.wait()
                raise ValueError("no connection, no luck")

        async with running(worker):
            seen.published(await stage.qc.publish(number, 1))
            await inside.wait()
            await stage.driver.drop()
            await eventually(lambda: worker.in_flight == 1 and held_by(stage.driver) != [])
            await quiet()
            stopping = None
            if end == "pause":
                worker.pause()
            else:
                stopping = asyncio.ensure_future(worker.stop())
            await quiet()
            leave.set()
            await quiet()
            (info,) = await stage.driver.inspect(["numbers"])
            assert (info.ready, info.in_flight) == (1, 0)  # for others
            assert len(seen.calls) == 1
            if stopping is not None:
                await stopping
                await worker.start()
            worker.resume()
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")


@both
async def test_several_losses_during_one_run_still_make_one_run(inline: bool) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=4, prefetch=8)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.record("numbers", message)
            await gate.handle(n, message)

        async with running(worker):
            seen.published(await stage.qc.publish(number, 1))
            await gate.entered(1)
            for _ in range(4):
                await stage.driver.drop()
                await eventually(lambda: worker.in_flight == 1)
                await quiet()
            gate.open()
            await at_rest(stage.driver, "numbers")
    seen.check()


@both
async def test_a_run_that_hangs_without_its_connection_keeps_its_own_place_only(
    inline: bool,
) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2)
        worker.on(number, gate.handle).on(word, seen.recording("words"))
        async with running(worker):
            await stage.qc.publish(number, 1)
            await gate.entered(1)
            await stage.driver.drop()
            await quiet()
            await stage.qc.publish_many(word, ["a", "b", "c"])
            await seen.wait_for(words=3)
            gate.open()
            await at_rest(stage.driver, "numbers")
    assert gate.passed == [1]


@both
async def test_a_stop_finishes_the_run_and_acks_its_redelivery(inline: bool) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2).on(number, gate.handle)
        await worker.start()
        await stage.qc.publish(number, 1)
        await gate.entered(1)
        await stage.driver.drop()
        await eventually(lambda: worker.in_flight == 1)
        await quiet()
        stopping = asyncio.create_task(worker.stop())
        await quiet()
        gate.open()
        await stopping
        await at_rest(stage.driver, "numbers")
    assert gate.passed == [1]


@pytest.mark.parametrize("point", ["before", "within"])
@both
async def test_an_ack_lost_with_its_connection_is_made_good_on_redelivery(
    point: str, inline: bool
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", prefetch=10).on(number, seen.recording("numbers"))
        async with running(worker):
            await quiet()
            if point == "before":
                stage.driver.fail("ack")
            for id in await stage.qc.publish_many(number, range(10)):
                seen.published(str(id))
            if point == "within":
                await seen.wait_for(numbers=1)
                await stage.driver.drop()
            await seen.wait_for(numbers=10)
            await at_rest(stage.driver, "numbers")
            assert worker.counters.succeeded == 10
    seen.check()


@both
async def test_what_was_handled_and_not_yet_acked_is_told_and_counted(inline: bool) -> None:
    gate = Gate()
    told: list[str] = []
    async with tidy(inline=inline) as stage:
        stage.qc.observe(
            MessagesSucceeded, lambda fact: told.extend(each.sent.id for each in fact.deliveries)
        )
        worker = stage.qc.worker("numbers", prefetch=10, concurrency=2)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            if n == 3:
                await gate.handle(n, message)

        async with running(worker):
            await stage.qc.publish(number, 3, message_id="slow")
            await gate.entered(1)
            for n in (0, 1):
                await stage.qc.publish(number, n, message_id=f"fast-{n}")
            await stage.driver.drop()
            await quiet()
            gate.open()
            await at_rest(stage.driver, "numbers")
        assert sorted(told) == ["fast-0", "fast-1", "slow"]
        assert worker.counters.succeeded == 3


@both
async def test_a_stale_ack_is_counted_and_harms_nothing(inline: bool) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, gate.handle)
        other = stage.qc.worker("numbers").on(number, seen.recording("other"))
        async with running(worker):
            await stage.qc.publish(number, 1)
            await gate.entered(1)
            # The broker takes it away: a lease ran out, and somebody else has it.
            (subscription,) = held_by(stage.driver)
            await subscription.release(list(subscription.held))
            async with running(other):
                await seen.wait_for(other=1)
            gate.open()
            await eventually(lambda: worker.counters.stale == 1)
            await stage.qc.publish(number, 2)
            await eventually(lambda: gate.passed == [1, 2])
            await at_rest(stage.driver, "numbers")


@both
async def test_a_new_message_with_the_id_of_one_handled_before_is_handled(inline: bool) -> None:
    """Ids of the publisher's own may come again: only a redelivery is the same message."""
    seen = Ledger()
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            await gate.handle(n, message)
            seen.record("numbers", message)

        async with running(worker):
            await stage.qc.publish(number, 1, message_id="daily")
            await gate.entered(1)
            (subscription,) = held_by(stage.driver)
            await subscription.ack(list(subscription.held))  # the answer of this ack gets lost
            stage.driver.fail("ack")
            gate.open()
            await seen.wait_for(numbers=1)
            await quiet()
            await stage.qc.publish(number, 2, message_id="daily")
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")
    assert seen.payloads() == [1, 2]


@both
async def test_workers_that_notice_late_do_not_break_the_new_connection(inline: bool) -> None:
    gates = [Gate() for _ in range(4)]
    losses: list[str] = []
    async with tidy(inline=inline) as stage:
        stage.qc.observe(Disconnected, lambda fact: losses.append(fact.error))
        workers = [
            stage.qc.worker(f"numbers-{n}").on(number, gate.handle) for n, gate in enumerate(gates)
        ]
        async with running(*workers):
            await stage.qc.publish(number, 1)
            for gate in gates:
                await gate.entered(1)
            await stage.driver.drop()
            for gate in gates:  # each notices at its next ack, after the others have reconnected
                gate.open()
                await quiet()
            await at_rest(stage.driver, *(worker.queue_name for worker in workers))
        assert [gate.passed for gate in gates] == [[1]] * 4
    assert len(losses) == 1


@both
async def test_retries_lost_with_the_connection_are_not_counted_as_failures(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=Retry(max_retries=2, initial_delay=0))
        worker.on(number, seen.failing("numbers", times=2))
        async with running(worker):
            stage.driver.fail("move")
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=3)
            await at_rest(stage.driver, "numbers")
    assert [(each.attempt, each.redeliveries) for each in seen.calls] == [(1, 0), (1, 1), (2, 0)]


@both
async def test_a_retry_whose_answer_got_lost_may_come_twice_and_is_never_lost(
    inline: bool,
) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=AT_ONCE)
        worker.on(number, seen.failing("numbers", times=1))
        async with running(worker):
            stage.driver.lose_answers(stored=True, of="move")
            seen.published(await stage.qc.publish(number, 1))
            await seen.wait_for(numbers=3)
            await at_rest(stage.driver, "numbers")
    assert sorted(seen.attempts()) == [1, 1, 2]
    seen.check(duplicates_at_most=2)


@both
async def test_a_worker_without_a_connection_waits_and_goes_on_when_it_is_back(
    inline: bool,
) -> None:
    seen = Ledger()
    async with tidy(inline=inline, reconnect_delay=1.0) as stage:
        worker = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(worker):
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            stage.driver.refuse(opens=5)
            await stage.driver.drop()
            await quiet()
            assert stage.qc.connection_state == "reconnecting"
            await stage.clock.advance(120)
            await stage.qc.publish(number, 2)
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")


@both
async def test_a_worker_whose_connection_is_given_up_says_so_and_resumes_by_hand(
    inline: bool,
) -> None:
    seen = Ledger()
    async with tidy(inline=inline, reconnect_attempts=2) as stage:
        worker = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(worker):
            await quiet()
            stage.driver.refuse(opens=2)
            await stage.driver.drop()
            await stage.clock.advance(60)
            await eventually(lambda: worker.state == "paused")
            assert "gave up" in stage.qc.health_check().paused["numbers"]
            await stage.qc.open()
            worker.resume()
            await stage.qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers")


@pytest.mark.parametrize("settings", [{"auto_reconnect": False}, {"reconnect_attempts": 2}])
@both
async def test_a_run_ends_with_a_connection_that_is_given_up_and_finishes_what_runs(
    settings: dict[str, Any], inline: bool
) -> None:
    gate = Gate()
    async with tidy(inline=inline, **settings) as stage:
        worker = stage.qc.worker("numbers", concurrency=2, prefetch=4).on(number, gate.handle)
        run = asyncio.create_task(worker.run())
        await eventually(lambda: worker.state == "running")
        await stage.qc.publish(number, 1, message_id="m-1")
        await gate.entered(1)
        stage.driver.refuse(opens=2)
        await stage.driver.drop()
        await stage.clock.advance(60)
        assert not run.done()
        gate.open()
        with pytest.raises(ConnectionLost, match=r"open\(\) tries again"):
            await asyncio.wait_for(run, 5)
        assert worker.state == "stopped"
        assert gate.passed == [1]
        stage.driver.heal()
        await stage.qc.open()
        assert await ids(stage.driver, "numbers") == ["m-1"]  # its ack never arrived


@both
async def test_all_that_run_end_with_a_connection_that_is_given_up(inline: bool) -> None:
    gate = Gate()
    async with tidy(inline=inline, auto_reconnect=False) as stage:
        numbers = stage.qc.worker("numbers", concurrency=2).on(number, gate.handle)
        words = stage.qc.worker("words").on(word, gate.handle)
        run = asyncio.create_task(stage.qc.run())
        await eventually(lambda: numbers.state == words.state == "running")
        await stage.qc.publish(number, 1)
        await gate.entered(1)
        await stage.driver.drop()
        await eventually(lambda: words.state == "stopped")
        assert not run.done()
        gate.open()
        with pytest.raises(ConnectionLost, match="not connected"):
            await asyncio.wait_for(run, 5)
        assert numbers.state == "stopped"


@both
async def test_a_paused_worker_does_not_outlive_its_connection_either(inline: bool) -> None:
    async with tidy(inline=inline, auto_reconnect=False) as stage:
        worker = stage.qc.worker("numbers").on(number, Gate().handle)
        run = asyncio.create_task(worker.run())
        await eventually(lambda: worker.state == "running")
        worker.pause("for a while")
        await stage.driver.drop()
        with pytest.raises(PublishError):
            await stage.qc.publish(number, 1)
        with pytest.raises(ConnectionLost, match="not connected"):
            await asyncio.wait_for(run, 5)


@both
async def test_a_worker_goes_on_when_a_connection_that_was_given_up_is_opened_again(
    inline: bool,
) -> None:
    seen = Ledger()
    async with tidy(inline=inline, auto_reconnect=False) as stage:
        worker = stage.qc.worker("numbers", concurrency=2).on(number, seen.recording("numbers"))
        async with running(worker):
            for n in (1, 2):
                await stage.qc.publish(number, n)
                await seen.wait_for(numbers=n)
                await at_rest(stage.driver, "numbers")
                await stage.driver.drop()
                await eventually(lambda: worker.state == "paused")
                await stage.qc.open()
                await eventually(lambda: worker.state == "running")
    seen.check()


@both
async def test_a_worker_that_was_paused_by_hand_meanwhile_stays_so(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline, auto_reconnect=False) as stage:
        worker = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(worker):
            await quiet()
            await stage.driver.drop()
            await eventually(lambda: worker.state == "paused")
            worker.resume()
            await quiet()
            assert "not connected" in str(worker.paused)
            worker.pause("for a while")
            await stage.qc.open()
            await stage.qc.publish(number, 1)
            await quiet()
            assert worker.paused == "for a while"
            assert seen.calls == []
            worker.resume()
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers")


@both
async def test_what_was_received_and_not_begun_is_not_run_on_a_lost_connection(
    inline: bool,
) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", prefetch=10)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            assert message.redeliveries == (n > 0)
            await gate.handle(n, message)

        async with running(worker):
            await stage.qc.publish_many(number, range(5))
            await gate.entered(1)
            await stage.driver.drop()
            gate.open()
            await eventually(lambda: len(gate.passed) == 5)
            await at_rest(stage.driver, "numbers")
    assert gate.passed == [0, 1, 2, 3, 4]


async def test_a_foreign_message_without_an_id_cannot_be_told_apart_and_is_run_again() -> None:
    gate = Gate()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers").on(number, gate.handle)
        async with running(worker):
            await stage.driver.send([Outgoing(b"1", "", routing_key="number", queue="numbers")])
            await gate.entered(1)
            await stage.driver.drop()
            gate.open()
            await at_rest(stage.driver, "numbers")
    assert gate.passed == [1, 1]


@both
async def test_a_crash_between_move_and_ack_duplicates_and_never_loses(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", retry=AT_ONCE)
        worker.on(number, seen.failing("numbers", times=1))
        async with running(worker):
            with failing("move.before", times=1):
                seen.published(await stage.qc.publish(number, 1))
                await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")
    seen.check(duplicates_at_most=1)
    assert await _dead(seen) == []


async def _dead(seen: Ledger) -> list[str]:
    return [each.id for each in seen.calls if each.attempt > 3]


@both
async def test_the_queue_of_a_stopped_worker_holds_what_a_lost_connection_brought_back(
    inline: bool,
) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", prefetch=3).on(number, gate.handle)
        await worker.start()
        for n in range(3):
            await stage.qc.publish(number, n, message_id=f"m-{n}")
        await gate.entered(1)
        stage.driver.refuse(opens=1)
        await stage.driver.drop()
        await worker.stop(drain=False)
        await stage.clock.advance(2)
        await stage.qc.open()
        assert await ids(stage.driver, "numbers") == ["m-0", "m-1", "m-2"]


# -- the memory of what was handled ------------------------------------------------------------


def delivered(id: str, **headers: HeaderValue) -> Delivery:
    """One more delivery of a message."""
    return Delivery(Outgoing(b"", id, headers=headers), "numbers")


def test_what_was_handled_is_known_once() -> None:
    orphans = Orphans(FakeClock())
    orphans.finished(delivered("m-1"))
    assert orphans
    assert orphans.adopt(delivered("m-1"))
    assert not orphans.adopt(delivered("m-1"))
    assert not orphans


def test_only_a_success_counts_as_handled() -> None:
    orphans = Orphans(FakeClock())
    orphans.started(delivered("m-1"))
    orphans.finished(delivered("m-1"), success=False)
    assert not orphans.adopt(delivered("m-1"))


def test_whoever_waits_for_a_run_is_told_how_it_ended() -> None:
    orphans = Orphans(FakeClock())
    told: list[bool] = []
    assert not orphans.wait(delivered("m-1"), told.append)
    orphans.started(delivered("m-1"))
    orphans.started(delivered("m-1"))
    assert orphans.wait(delivered("m-1"), told.append)
    assert orphans.wait(delivered("m-1"), told.append)
    orphans.finished(delivered("m-1"))
    assert told == [True, True]


def test_what_is_sent_back_is_another_message_than_the_one_that_was_handled() -> None:
    orphans = Orphans(FakeClock())
    orphans.finished(delivered("m-1"))
    again = {REPLAY_ID: "redrive-1"}
    assert not orphans.adopt(delivered("m-1", **again))
    orphans.finished(delivered("m-1", **again))
    assert not orphans.adopt(delivered("m-1", **{REPLAY_ID: "redrive-2"}))
    assert orphans.adopt(delivered("m-1", **again))
    assert orphans.adopt(delivered("m-1"))


def test_what_has_the_same_id_is_another_message_if_its_event_or_its_time_is_another() -> None:
    orphans = Orphans(FakeClock())
    same = Outgoing(b"", "m-1", routing_key="order.placed", timestamp=1.0)
    orphans.finished(Delivery(same, "numbers"))
    for other in (
        msgspec.structs.replace(same, routing_key="order.paid"),
        msgspec.structs.replace(same, timestamp=2.0),
    ):
        assert not orphans.adopt(Delivery(other, "numbers"))
    assert orphans.adopt(Delivery(same, "numbers"))


def test_what_was_handled_is_forgotten_in_time() -> None:
    clock = FakeClock()
    orphans = Orphans(clock)
    orphans.finished(delivered("m-1"))
    asyncio.run(clock.advance(400))
    orphans.finished(delivered("m-2"))
    asyncio.run(clock.advance(400))
    assert orphans
    assert not orphans.adopt(delivered("m-1"))
    assert orphans.adopt(delivered("m-2"))
    orphans.finished(delivered("m-3"))
    asyncio.run(clock.advance(601))
    assert not orphans


def test_a_message_without_an_id_is_not_remembered() -> None:
    orphans = Orphans(FakeClock())
    orphans.started(delivered("", **{REPLAY_ID: "redrive-1"}))
    orphans.finished(delivered("", **{REPLAY_ID: "redrive-1"}))
    assert not orphans


def test_the_memory_is_bounded() -> None:
    orphans = Orphans(FakeClock())
    for n in range(20_000):
        orphans.finished(delivered(f"m-{n}"))
    assert not orphans.adopt(delivered("m-0"))
    assert orphans.adopt(delivered("m-19999"))
