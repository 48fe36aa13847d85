"""Starting and stopping: what runs is finished, what has not begun goes back, nothing leaks."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from queuecraft import ConfigError, ConnectionLost, Message, QueueCraft, Worker
from queuecraft.drivers.base import Delivery, Queue, Subscription
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.drivers.local.subscription import MemorySubscription
from queuecraft.facts import Shutdown, WorkerStarted, WorkerStopped
from queuecraft.testing import Ledger
from tests.runtime.consuming import Gate, at_rest, both, lines, number, state, tidy
from tests.runtime.support import eventually, ids, quiet, running

# -- stopping ----------------------------------------------------------------------------------


def assert_stopped(worker: Worker) -> None:
    assert worker.state == "stopped"


@both
async def test_a_stop_waits_for_what_runs_and_gives_back_what_has_not_begun(inline: bool) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2, prefetch=10).on(number, gate.handle)
        await worker.start()
        for n in range(6):
            await stage.qc.publish(number, n, message_id=f"m-{n}")
        await gate.entered(2)
        stopping = asyncio.create_task(worker.stop())
        await quiet()
        assert worker.state == "stopping"
        assert await ids(stage.driver, "numbers") == ["m-2", "m-3", "m-4", "m-5"]
        gate.open()
        await stopping
        assert_stopped(worker)
        assert sorted(gate.passed) == [0, 1]
        info = await state(stage.driver, "numbers")
        assert (info.in_flight, info.ready, info.consumers) == (0, 4, 0)


@pytest.mark.parametrize("how", ["at once", "out of time"])
@both
async def test_a_handler_cancelled_by_a_stop_gives_its_message_back_uncounted(
    how: str, inline: bool
) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, gate.handle)
        await worker.start()
        await stage.qc.publish(number, 1)
        await gate.entered(1)
        await (worker.stop(drain=False) if how == "at once" else worker.stop(timeout=0.01))
        assert gate.inside == []
        assert worker.counters.failed == 0
        other = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(other):
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers")
    assert [(each.attempt, each.redeliveries) for each in seen.calls] == [(1, 0)]


@both
async def test_without_requeue_in_flight_a_message_comes_back_as_a_redelivery(
    inline: bool,
) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, gate.handle)
        await worker.start()
        await stage.qc.publish(number, 1)
        await gate.entered(1)
        await worker.stop(drain=False, requeue_in_flight=False)
        other = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(other):
            await seen.wait_for(numbers=1)
            await at_rest(stage.driver, "numbers")
    assert [(each.attempt, each.redeliveries) for each in seen.calls] == [(1, 1)]


@both
async def test_a_handler_that_finishes_in_spite_of_its_cancellation_is_acked(inline: bool) -> None:
    finished: list[int] = []
    inside = asyncio.Event()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def finishes(n: int) -> None:
            inside.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                finished.append(n)

        await worker.start()
        await stage.qc.publish(number, 1)
        await inside.wait()
        await worker.stop(drain=False)
        assert finished == [1]
        await at_rest(stage.driver, "numbers")


@both
async def test_a_handler_that_ignores_a_stop_is_left_behind_and_its_message_given_back(
    inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    leave = asyncio.Event()
    inside = asyncio.Event()
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def deaf(n: int) -> None:
            inside.set()
            while not leave.is_set():
                try:
                    await leave.wait()
                except asyncio.CancelledError:
                    pass

        await worker.start()
        await stage.qc.publish(number, 1)
        await inside.wait()
        await worker.stop(drain=False)
        assert "stopped before a handler had returned" in lines(caplog)
        other = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(other):
            await seen.wait_for(numbers=1)
            leave.set()
            await at_rest(stage.driver, "numbers")
        await quiet()


@both
async def test_a_second_stop_may_cut_the_first_one_short(inline: bool) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, gate.handle)
        await worker.start()
        await stage.qc.publish(number, 1)
        await gate.entered(1)
        first = asyncio.create_task(worker.stop())
        await quiet()
        second = asyncio.create_task(worker.stop())
        await quiet()
        assert not first.done()
        await worker.stop(drain=False)
        await asyncio.gather(first, second)
        assert (await state(stage.driver, "numbers")).ready == 1


@both
async def test_a_stop_that_is_cancelled_goes_on_all_the_same(inline: bool) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, gate.handle)
        await worker.start()
        await stage.qc.publish(number, 1)
        await gate.entered(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(worker.stop(), 0.01)
        assert worker.state == "stopping"
        gate.open()
        await worker.stop()
        assert_stopped(worker)
        await at_rest(stage.driver, "numbers")
        assert (await state(stage.driver, "numbers")).consumers == 0


@both
async def test_a_handler_may_stop_its_own_worker(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", prefetch=10)

        @worker.on(number)
        async def last(n: int, message: Message) -> None:
            seen.record("numbers", message)
            if n == 2:
                await worker.stop()

        await worker.start()
        await stage.qc.publish_many(number, range(5))
        await eventually(lambda: worker.state == "stopped")
        info = await state(stage.driver, "numbers")
        assert (info.ready, info.in_flight) == (2, 0)
    assert seen.payloads() == [0, 1, 2]


@both
async def test_handlers_may_publish_and_settle_while_the_worker_stops(inline: bool) -> None:
    leave, inside = asyncio.Event(), asyncio.Event()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def handle(message: Message[int]) -> None:
            inside.set()
            await leave.wait()
            await stage.qc.publish(number, 7, message_id="child")
            await message.ack()

        await worker.start()
        await stage.qc.publish(number, 1)
        await inside.wait()
        stopping = asyncio.create_task(worker.stop())
        await quiet()
        leave.set()
        await stopping
        assert await ids(stage.driver, "numbers") == ["child"]


@both
async def test_a_failure_while_stopping_is_retried_later(inline: bool) -> None:
    leave, inside = asyncio.Event(), asyncio.Event()
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.record("numbers", message, failed=message.attempt == 1)
            if message.attempt == 1:
                inside.set()
                await leave.wait()
                raise ValueError("in the last moment")

        await worker.start()
        await stage.qc.publish(number, 1)
        await inside.wait()
        stopping = asyncio.create_task(worker.stop())
        await quiet()
        leave.set()
        await stopping
        assert (await state(stage.driver, "numbers")).delayed == 1
        async with running(worker):
            await stage.clock.advance(1)
            await seen.wait_for(numbers=2)
            await at_rest(stage.driver, "numbers")
    assert seen.attempts() == [1, 2]


class SilentSubscription(MemorySubscription):
    """A consumer whose broker has stopped answering."""

    async def ack(self, deliveries: Any) -> Any:
        await asyncio.Event().wait()

    async def release(self, deliveries: Any) -> None:
        await asyncio.Event().wait()


class SilentDriver(MemoryDriver):
    async def subscribe(self, queue: Queue, *, prefetch: int) -> Subscription:
        subscription = SilentSubscription(
            self, self._inbox(queue.name, "subscribe"), prefetch, self._clock
        )
        self._subscriptions[subscription] = None
        return subscription


async def test_a_broker_that_does_not_answer_holds_a_stop_up_no_longer_than_allowed() -> None:
    gate = Gate()
    gate.open()
    qc = QueueCraft(drivers=[SilentDriver()])
    worker = qc.worker("numbers", concurrency=2, prefetch=9).on(number, gate.handle)
    async with qc:
        await worker.start()
        await qc.publish_many(number, range(9))
        await eventually(lambda: gate.passed)
        async with asyncio.timeout(10):
            await worker.stop(timeout=0.05)
    await quiet()
    assert asyncio.all_tasks() == {asyncio.current_task()}


# -- starting ----------------------------------------------------------------------------------


@both
async def test_a_stopped_worker_starts_again(inline: bool) -> None:
    seen = Ledger()
    told: list[str] = []
    async with tidy(inline=inline) as stage:
        stage.qc.observe(WorkerStarted, lambda fact: told.append("started"))
        stage.qc.observe(WorkerStopped, lambda fact: told.append("stopped"))
        worker = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        for n in range(3):
            await worker.start()
            await stage.qc.publish(number, n)
            await seen.wait_for(numbers=n + 1)
            await worker.stop()
        await at_rest(stage.driver, "numbers")
    assert seen.payloads() == [0, 1, 2]
    assert told == ["started", "stopped"] * 3


@both
async def test_starting_twice_at_once_starts_one_consumer(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, Gate().handle)
        await asyncio.gather(worker.start(), worker.start(), worker.start())
        await worker.start()
        await eventually(lambda: stage.driver.calls["receive"])
        await quiet()
        assert (await state(stage.driver, "numbers")).consumers == 1
        await worker.stop()
        assert (await state(stage.driver, "numbers")).consumers == 0


@both
async def test_a_stop_during_a_start_wins(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, Gate().handle)
        stage.driver.refuse(opens=3)
        await stage.driver.drop()
        with pytest.raises(ConnectionLost):
            await stage.driver.peek("numbers", 1)
        starting = asyncio.create_task(worker.start())
        await quiet()
        await worker.stop()
        await stage.clock.advance(60)
        await asyncio.wait([starting])
        await quiet()
        assert worker.state != "running"
        assert (await state(stage.driver, "numbers")).consumers == 0


async def test_a_worker_without_handlers_does_not_start() -> None:
    async with tidy() as stage:
        with pytest.raises(ConfigError, match="no handlers"):
            await stage.qc.worker("numbers").start()


async def test_a_running_worker_refuses_changes() -> None:
    async with tidy() as stage:
        worker = stage.qc.worker("numbers").on(number, Gate().handle)
        async with running(worker):
            with pytest.raises(ConfigError, match="running"):
                worker.prefetch(10)
        worker.prefetch(10)


@both
async def test_many_starts_and_stops_leave_nothing_behind(inline: bool) -> None:
    seen = Ledger()
    remains: list[weakref.ref[Any]] = []
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=4, prefetch=8, ack_timeout=60)
        worker.on(number, seen.failing("numbers"))
        for n in range(50):
            await worker.start()
            assert worker._shift is not None
            remains.append(weakref.ref(worker._shift.consumer))
            await stage.qc.publish_many(number, range(5))
            if n % 3:
                await asyncio.sleep(0)
            await worker.stop(drain=n % 2 == 0)
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}
        gc.collect()
        assert [each for each in remains if each() is not None] == []
        assert (await state(stage.driver, "numbers")).in_flight == 0


# -- running -----------------------------------------------------------------------------------


@both
async def test_running_lasts_until_the_worker_is_stopped(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, seen.recording("numbers"))
        run = asyncio.create_task(worker.run())
        await eventually(lambda: worker.state == "running")
        await stage.qc.publish(number, 1)
        await seen.wait_for(numbers=1)
        assert not run.done()
        await worker.stop()
        await run
        assert worker.state == "stopped"


async def test_a_signal_stops_all_workers_of_one_queuecraft() -> None:
    gates = [Gate(), Gate()]
    async with tidy() as stage:
        for n, gate in enumerate(gates):
            stage.qc.worker(f"numbers-{n}").on(number, gate.handle)
        run = asyncio.create_task(stage.qc.run())
        await eventually(lambda: all(each.state == "running" for each in stage.qc.workers))
        await stage.qc.publish(number, 1)
        for gate in gates:
            await gate.entered(1)
        os.kill(os.getpid(), signal.SIGTERM)
        await eventually(lambda: all(each.state == "stopping" for each in stage.qc.workers))
        assert not run.done()
        for gate in gates:
            gate.open()
        await run
    assert [gate.passed for gate in gates] == [[1], [1]]


async def test_a_second_signal_does_not_wait_for_handlers() -> None:
    gate = Gate()
    async with tidy() as stage:
        worker = stage.qc.worker("numbers").on(number, gate.handle)
        run = asyncio.create_task(worker.run())
        await eventually(lambda: worker.state == "running")
        await stage.qc.publish(number, 1)
        await gate.entered(1)
        os.kill(os.getpid(), signal.SIGINT)
        await eventually(lambda: worker.state == "stopping")
        os.kill(os.getpid(), signal.SIGTERM)
        await run
        assert (await state(stage.driver, "numbers")).ready == 1


@both
async def test_a_signal_ends_a_worker_that_waits_for_its_first_connection(inline: bool) -> None:
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, Gate().handle)
        stage.driver.refuse(opens=1000)
        await stage.driver.drop()
        with pytest.raises(ConnectionLost):
            await stage.driver.peek("numbers", 1)
        stage.qc._engine.connection.lost(stage.driver, ConnectionLost("gone"))
        run = asyncio.create_task(worker.run())
        await quiet()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(run, 5)
        assert worker.state != "running"


async def test_what_handled_signals_before_does_so_again_after_a_run() -> None:
    mine: list[str] = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, mine.append, "through the loop")
    before = signal.signal(signal.SIGINT, lambda *_: mine.append("plain"))
    try:
        async with tidy() as stage:
            worker = stage.qc.worker("numbers").on(number, Gate().handle)
            run = asyncio.create_task(worker.run())
            await eventually(lambda: worker.state == "running")
            await worker.stop()
            await run
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        await eventually(lambda: len(mine) == 2)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGINT, before)
    assert sorted(mine) == ["plain", "through the loop"]


async def test_a_worker_runs_in_a_thread_that_may_not_touch_signals() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = Ledger()

    async def main() -> None:
        async with QueueCraft() as qc:
            worker = qc.worker("numbers").on(number, seen.recording("numbers"))
            run = asyncio.create_task(worker.run())
            await eventually(lambda: worker.state == "running")
            await qc.publish(number, 1)
            await seen.wait_for(numbers=1)
            await worker.stop()
            await run

    await asyncio.to_thread(asyncio.run, main())
    assert signal.getsignal(signal.SIGTERM) is before


# -- a process of its own ----------------------------------------------------------------------

PROGRAM = """
import asyncio, logging, sys, time, {loop}
from queuecraft import Event, QueueCraft
from queuecraft.facts import Shutdown, WorkerStopped

number = Event("number", int)
qc = QueueCraft()
worker = qc.worker("numbers")
class Heard(logging.Handler):
    def emit(self, record):
        if "finishing what runs" in record.getMessage():
            print("asked", flush=True)

logging.getLogger("queuecraft").setLevel(logging.INFO)
logging.getLogger("queuecraft").addHandler(Heard())
qc.observe(WorkerStopped, lambda fact: print("stopped", flush=True))
qc.observe(Shutdown, lambda fact: print("shut down", flush=True))

{handler}

async def main():
    async with qc:
        await qc.publish(number, 1)
        await worker.run()
    print("ready", (await waiting()), flush=True)

async def waiting():
    driver = qc._engine.connection._drivers[0]
    await driver.open()
    (info,) = await driver.inspect(["numbers"])
    return info.ready

{loop}.run(main())
"""

OBEDIENT = """
@worker.on(number)
async def handle(n: int) -> None:
    print("inside", flush=True)
    try:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        print("handled", flush=True)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise
"""

ENDLESS = """
@worker.on(number)
async def handle(n: int) -> None:
    print("inside", flush=True)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise
"""

IN_THREAD = """
@worker.on(number)
def handle(n: int) -> None:
    print("inside", flush=True)
    time.sleep(1000)
"""


class Program:
    """A worker in a process of its own."""

    def __init__(self, handler: str, loop: str = "asyncio") -> None:
        pytest.importorskip(loop)
        code = PROGRAM.replace("{handler}", handler).replace("{loop}", loop)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def expect(self, line: str) -> None:
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        if said != f"{line}\n":
            self.process.kill()
            raise AssertionError(f"{said!r} instead of {line!r}; {self.process.communicate()[1]}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self) -> tuple[list[str], str, int]:
        out, err = self.process.communicate(timeout=30)
        return out.splitlines(), err, self.process.returncode


loops = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


@loops
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_one_signal_lets_a_process_finish_what_it_handles(
    number: signal.Signals, loop: str
) -> None:
    with Program(OBEDIENT, loop) as program:
        program.expect("inside")
        program.signal(number)
        program.expect("asked")
        assert program.process.stdin is not None
        program.process.stdin.write("go on\n")
        program.process.stdin.flush()
        out, err, code = program.ends()
    assert out == ["handled", "stopped", "shut down", "ready 0"]
    assert (err, code) == ("", 0)


@loops
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_two_signals_end_a_process_whose_handler_never_returns(
    number: signal.Signals, loop: str
) -> None:
    with Program(ENDLESS, loop) as program:
        program.expect("inside")
        program.signal(number)
        program.expect("asked")
        with pytest.raises(subprocess.TimeoutExpired):
            program.process.wait(0.2)
        program.signal(number)
        out, err, code = program.ends()
    assert out == ["cancelled", "stopped", "shut down", "ready 1"]
    assert (err, code) == ("", 0)


def test_two_signals_end_a_process_whose_thread_never_returns() -> None:
    with Program(IN_THREAD) as program:
        program.expect("inside")
        program.signal(signal.SIGTERM)
        program.expect("asked")
        with pytest.raises(subprocess.TimeoutExpired):
            program.process.wait(0.2)
        program.signal(signal.SIGTERM)
        out, err, code = program.ends()
    assert out == ["stopped", "shut down", "ready 1"]
    assert (err, code) == ("", 0)


# -- the whole facade --------------------------------------------------------------------------


@both
async def test_a_shutdown_drains_workers_and_tells_it_last(inline: bool) -> None:
    gate = Gate()
    told: list[str] = []
    async with tidy(inline=inline) as stage:
        stage.qc.observe(WorkerStopped, lambda fact: told.append("stopped"))
        stage.qc.observe(Shutdown, lambda fact: told.append("shutdown"))
        worker = stage.qc.worker("numbers").on(number, gate.handle)
        await worker.start()
        await stage.qc.publish(number, 1)
        await gate.entered(1)
        shutting = asyncio.create_task(stage.qc.shutdown())
        await quiet()
        assert not shutting.done()
        gate.open()
        await shutting
    assert gate.passed == [1]
    assert told == ["stopped", "shutdown"]


async def test_messages_of_a_worker_left_running_go_back_when_the_program_ends() -> None:
    gate = Gate()
    driver = MemoryDriver()
    qc = QueueCraft(drivers=[driver])
    worker: Worker = qc.worker("numbers").on(number, gate.handle)
    async with qc:
        await worker.start()
        await qc.publish(number, 1)
        await gate.entered(1)
        await qc.shutdown(timeout=0.01)
    await driver.open()
    held: list[Delivery] = list(await driver.peek("numbers", 10))
    assert len(held) == 1
    await driver.close()
