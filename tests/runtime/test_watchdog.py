"""A handler that blocks the loop is named, line and all."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from queuecraft.facts import LoopBlocked
from queuecraft.runtime.facts import Facts
from queuecraft.runtime.watchdog import Watchdog
from queuecraft.testing import Ledger
from tests.runtime.consuming import at_rest, number, tidy
from tests.runtime.support import running


class Reported(logging.Handler):
    """Sets an event when the watchdog barks."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.barked = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "event loop has been blocked" in record.getMessage():
            self.lines.append(record.getMessage())
            self.barked.set()


def watchdogs() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "queuecraft-watchdog"]


async def test_a_handler_that_blocks_the_loop_is_logged_with_its_stack_and_handled_well() -> None:
    reported = Reported()
    logger = logging.getLogger("tests.watchdog")
    logger.addHandler(reported)
    told: list[LoopBlocked] = []
    seen = Ledger()
    async with tidy(logger=logger) as stage:
        stage.qc.observe(LoopBlocked, told.append)
        worker = stage.qc.worker("numbers")

        @worker.on(number)
        async def blocks_the_loop(n: int) -> None:
            assert reported.barked.wait(10)  # a sync wait: nothing else runs meanwhile

        async with running(worker):
            await stage.qc.publish(number, 1)
            await at_rest(stage.driver, "numbers")
            await asyncio.sleep(0)
    logger.removeHandler(reported)
    assert len(reported.lines) == 1
    assert "blocks_the_loop" in reported.lines[0]
    assert "reported.barked.wait(10)" in reported.lines[0]
    (fact,) = told
    assert fact.seconds >= 1
    assert "blocks_the_loop" in fact.stack
    seen.check()


async def test_each_time_the_loop_is_blocked_is_reported_once() -> None:
    reported = Reported()
    logger = logging.getLogger("tests.quick")
    logger.addHandler(reported)
    watchdog = Watchdog(Facts(logger), limit=0.02)
    watchdog.start()
    try:
        for times in (1, 2):
            while len(reported.lines) < times:
                assert reported.barked.wait(10)
            reported.barked.clear()
            assert len(reported.lines) == times
            await asyncio.sleep(0.05)
    finally:
        watchdog.stop()


async def test_a_loop_that_turns_is_left_in_peace(caplog: pytest.LogCaptureFixture) -> None:
    facts = Facts()
    watchdog = Watchdog(facts, limit=5.0)
    watchdog.start()
    for _ in range(20):
        await asyncio.sleep(0.001)
    watchdog.stop()
    assert caplog.records == []


async def test_one_watchdog_guards_all_workers_and_goes_with_them() -> None:
    before = watchdogs()
    async with tidy() as stage:
        workers = [stage.qc.worker(name) for name in ("one", "two", "three")]
        for worker in workers:
            worker.on(number, Ledger().recording("numbers"))
        async with running(*workers):
            assert len(set(watchdogs()) - set(before)) == 1
    for thread in set(watchdogs()) - set(before):
        thread.join(5)
        assert not thread.is_alive()


async def test_a_watchdog_called_back_at_once_does_not_become_two() -> None:
    before = set(watchdogs())
    watchdog = Watchdog(Facts(), limit=1.0)
    for _ in range(5):
        watchdog.start()
        await asyncio.sleep(0)
        watchdog.stop()
    watchdog.start()
    ended = [each for each in watchdogs() if each not in before]
    watchdog.stop()
    for thread in ended:
        thread.join(5)
        assert not thread.is_alive()


def test_a_watchdog_follows_its_workers_to_another_loop() -> None:
    watchdog = Watchdog(Facts(), limit=0.01)
    before = set(watchdogs())

    async def watched() -> int:
        watchdog.start()
        return len(set(watchdogs()) - before)

    assert asyncio.run(watched()) == 1
    for thread in set(watchdogs()) - before:
        thread.join(5)  # it finds its loop closed
        assert not thread.is_alive()
    assert asyncio.run(watched()) == 1
    watchdog.stop()
