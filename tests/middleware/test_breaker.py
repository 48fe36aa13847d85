"""A circuit breaker, around any call, around handlers and around publishing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest

from queuecraft import (
    CircuitOpen,
    ConfigError,
    Message,
    PayloadError,
    PublishError,
    QueueCraft,
    Retry,
)
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.facts import CircuitChanged
from queuecraft.middleware import Breaker, OutageGuard
from queuecraft.testing import FakeClock, FaultyDriver
from tests.middleware.stage import number, stage
from tests.runtime.support import running


def state_of(breaker: Breaker | OutageGuard) -> str:
    """It changes between two looks, which a type checker would not believe."""
    return breaker.state


class Bank:
    """Answers, or does not."""

    def __init__(self) -> None:
        self.up = False
        self.asked = 0

    async def charge(self) -> str:
        self.asked += 1
        if not self.up:
            raise OSError("the bank is closed")
        return "paid"


async def test_it_opens_tries_once_and_closes() -> None:
    bank, told = Bank(), list[tuple[str, str]]()
    async with stage() as (qc, clock):
        breaker = Breaker("bank", failure_threshold=3, reset_timeout=10)
        qc.use(breaker.handling)  # so that it is told the time, and tells
        qc.observe(CircuitChanged, lambda fact: told.append((fact.name, fact.state)))
        for _ in range(3):
            with pytest.raises(OSError, match="closed"):
                await breaker.call(bank.charge)
        assert state_of(breaker) == "open"
        with pytest.raises(CircuitOpen, match="bank has failed 3 times"):
            await breaker.call(bank.charge)
        assert bank.asked == 3
        await clock.advance(10)
        assert state_of(breaker) == "half_open"
        with pytest.raises(OSError, match="closed"):
            await breaker.call(bank.charge)
        with pytest.raises(CircuitOpen):
            await breaker.call(bank.charge)
        bank.up = True
        await clock.advance(10)
        assert await breaker.call(bank.charge) == "paid"
        assert state_of(breaker) == "closed"
        assert await breaker.call(bank.charge) == "paid"
    states = ["open", "half_open", "open", "half_open", "closed"]
    assert told == [("bank", state) for state in states]


async def test_a_success_in_between_starts_the_count_anew() -> None:
    bank, breaker = Bank(), Breaker(failure_threshold=2)
    for up in (False, True, False, True):
        bank.up = up
        try:
            await breaker.call(bank.charge)
        except OSError:
            assert not up
    assert state_of(breaker) == "closed"


async def test_half_open_it_lets_only_one_try() -> None:
    async with stage() as (qc, clock):
        breaker = Breaker(failure_threshold=1, reset_timeout=1)
        qc.use(breaker.handling)
        with pytest.raises(OSError, match="closed"):
            await breaker.call(Bank().charge)
        await clock.advance(1)
        async with breaker:
            with pytest.raises(CircuitOpen):
                breaker.enter()
        assert state_of(breaker) == "closed"


async def test_a_call_from_before_does_not_end_the_one_that_tries() -> None:
    async with stage() as (qc, clock):
        breaker = Breaker(failure_threshold=1, reset_timeout=1)
        qc.use(breaker.handling)
        answered = asyncio.Event()

        async def ask(error: type[Exception] | None = None) -> None:
            async with breaker:
                await answered.wait()
                if error is not None:
                    raise error

        given_up = asyncio.create_task(ask())
        await clock.settle()
        with pytest.raises(OSError, match="closed"):
            await breaker.call(Bank().charge)
        await clock.advance(1)
        trying = asyncio.create_task(ask())
        await clock.settle()
        given_up.cancel()
        await clock.settle()
        with pytest.raises(CircuitOpen):
            breaker.enter()
        answered.set()
        await trying
        assert state_of(breaker) == "closed"


async def test_one_that_tries_and_never_ends_does_not_refuse_all_others_for_ever() -> None:
    bank = Bank()
    async with stage() as (qc, clock):
        breaker = Breaker(failure_threshold=1, reset_timeout=10)
        qc.use(breaker.handling)
        with pytest.raises(OSError, match="closed"):
            await breaker.call(bank.charge)
        await clock.advance(10)
        hanging = asyncio.create_task(breaker.call(asyncio.Event().wait))
        await clock.settle()
        await clock.advance(9)
        with pytest.raises(CircuitOpen):
            await breaker.call(bank.charge)
        await clock.advance(1)
        assert state_of(breaker) == "half_open"
        with pytest.raises(OSError, match="closed"):
            await breaker.call(bank.charge)
        assert state_of(breaker) == "open"
        hanging.cancel()
        await clock.advance(10)
        bank.up = True
        assert await breaker.call(bank.charge) == "paid"
        assert state_of(breaker) == "closed"


async def test_calls_that_take_longer_than_the_pause_close_it_all_the_same() -> None:
    async with stage() as (qc, clock):
        breaker = Breaker(failure_threshold=1, reset_timeout=1)
        qc.use(breaker.handling)
        with pytest.raises(OSError, match="closed"):
            await breaker.call(Bank().charge)
        calls: list[asyncio.Task[None]] = []
        for _ in range(3):
            await clock.advance(1)
            calls.append(asyncio.create_task(breaker.call(clock.sleep, 2.5)))
            await clock.settle()
        assert state_of(breaker) == "open"
        await clock.advance(0.5)
        assert calls[0].done()
        assert state_of(breaker) == "closed"
        await clock.advance(5)
        await asyncio.gather(*calls)
        assert state_of(breaker) == "closed"


@pytest.mark.parametrize(
    "middleware", [Breaker(failure_threshold=1).handling, OutageGuard(minimum=1)]
)
async def test_with_another_clock_it_is_closed(middleware: Any) -> None:
    bank = Bank()
    for _ in range(2):
        async with stage(middleware=[middleware]) as (qc, clock):
            await clock.advance(1000 if not bank.up else 0)
            worker = qc.worker("numbers")

            @worker.on(number)
            async def handle(n: int) -> None:
                await bank.charge()

            await worker.start()
            await qc.publish(number, 1)
            await clock.settle()
        bank.up = True
    assert bank.asked == 2


async def test_what_is_no_failure_of_the_other_side_does_not_count() -> None:
    breaker = Breaker(failure_threshold=1, counts=lambda error: isinstance(error, OSError))
    with pytest.raises(ValueError, match="ours"):
        async with breaker:
            raise ValueError("ours")
    assert state_of(breaker) == "closed"


async def test_around_handlers_messages_wait_and_no_failure_is_counted() -> None:
    bank = Bank()
    async with stage() as (qc, clock):
        breaker = Breaker("bank", failure_threshold=1, reset_timeout=2)
        worker = qc.worker("numbers", concurrency=1, prefetch=20, middleware=[breaker.handling])
        paid: list[int] = []

        @worker.on(number)
        async def handle(n: int) -> None:
            await bank.charge()
            paid.append(n)

        await worker.start()
        await qc.publish_many(number, range(5))
        await clock.settle()
        assert bank.asked == 1
        assert qc.get_metrics().messages_failed == 1  # the one that opened it
        bank.up = True
        await clock.advance(60)
        assert sorted(paid) == [0, 1, 2, 3, 4]
        assert qc.get_metrics().messages_failed == 1


@pytest.mark.parametrize(
    "middleware",
    [
        Breaker(failure_threshold=1, reset_timeout=30).handling,
        OutageGuard(minimum=1, probe_every=30),
    ],
    ids=["breaker", "guard"],
)
async def test_what_cannot_be_handled_stays_in_the_queue(middleware: Any) -> None:
    bank = Bank()
    async with stage(retry=Retry(initial_delay=1)) as (qc, clock):
        worker = qc.worker("numbers", concurrency=2, prefetch=10, middleware=[middleware])
        paid: list[int] = []

        @worker.on(number)
        async def handle(n: int) -> None:
            await bank.charge()
            paid.append(n)

        await worker.declare()
        await qc.publish_many(number, range(100))
        await worker.start()
        for _ in range(5):
            await clock.advance(5)
            info = await qc.admin.inspect("numbers")
            assert info.in_flight == 10
            assert info.delayed in (0, 1)  # the retry of the one that opened it
            assert info.ready == 90 - info.delayed
        bank.up = True
        await clock.advance(600)
        assert sorted(paid) == list(range(100))


async def test_an_open_breaker_refuses_publishes_until_the_broker_is_back() -> None:
    clock = FakeClock()
    driver = FaultyDriver(MemoryDriver(clock))
    breaker = Breaker("broker", failure_threshold=2, reset_timeout=1000)
    async with QueueCraft(
        drivers=[driver], clock=clock, breaker=breaker, on_outage="fail", unroutable="drop"
    ) as qc:
        await qc.publish(number, 1)
        driver.refuse(1000)
        await driver.drop()
        for _ in range(2):
            with pytest.raises(PublishError, match="not connected"):
                await qc.publish(number, 2)
        assert qc.connection_state == "circuit_open"
        assert qc.health_check().status == "unhealthy"
        with pytest.raises(CircuitOpen):
            await qc.publish(number, 3)
        driver.heal()
        await clock.advance(120)
        assert qc.health_check().connection_state == "connected"
        await qc.publish(number, 4)


async def test_a_payload_that_does_not_fit_does_not_open_it() -> None:
    async with stage(breaker=Breaker(failure_threshold=1), unroutable="drop") as (qc, _):
        wrong: Any = "three"
        with pytest.raises(PayloadError):
            await qc.publish(number, wrong)
        await qc.publish(number, 3)
        assert qc.connection_state == "connected"


async def test_in_an_outage_messages_wait_and_a_probe_tells_when_it_is_over() -> None:
    bank, told = Bank(), list[str]()
    async with stage() as (qc, clock):
        guard = OutageGuard("billing", failure_rate=0.5, minimum=10, probe_every=4)
        qc.observe(CircuitChanged, lambda fact: told.append(fact.state))
        worker = qc.worker("numbers", concurrency=4, prefetch=20, middleware=[guard])
        paid: list[int] = []

        @worker.on(number)
        async def handle(n: int) -> None:
            await bank.charge()
            paid.append(n)

        await worker.start()
        await qc.publish_many(number, range(100))
        await clock.settle()
        assert state_of(guard) == "open"
        assert bank.asked == 10
        await clock.advance(41)
        assert 15 <= bank.asked <= 25  # a probe every four seconds, and no retries beside them
        assert qc.get_metrics().messages_dead_lettered == 0
        assert told[0] == "open"
        bank.up = True
        await clock.advance(600)
        assert sorted(paid) == list(range(100))
        assert state_of(guard) == "closed"
        assert told[-2:] == ["half_open", "closed"]
        assert await qc.dead_letters.count("numbers") == 0


async def test_a_probe_that_never_ends_does_not_keep_all_others_waiting() -> None:
    bank, guard = Bank(), OutageGuard(minimum=1, probe_every=1, window=30)
    async with stage(retry=Retry(initial_delay=1)) as (qc, clock):
        hangs = False
        paid: list[int] = []
        worker = qc.worker("numbers", concurrency=2, prefetch=10, middleware=[guard])

        @worker.on(number)
        async def handle(n: int) -> None:
            if hangs:
                await asyncio.Event().wait()
            await bank.charge()
            paid.append(n)

        await worker.start()
        await qc.publish_many(number, range(5))
        await clock.settle()
        hangs = True
        await clock.advance(1)
        assert state_of(guard) == "half_open"
        hangs, bank.up = False, True
        await clock.advance(29)
        assert paid == []
        await clock.advance(10)
        assert len(paid) == 4  # all but the probe
        assert state_of(guard) == "closed"
        await worker.stop(timeout=0)


def around(middleware: OutageGuard | Breaker) -> Any:
    """What a worker is given of it."""
    return middleware if isinstance(middleware, OutageGuard) else middleware.handling


BOTH = pytest.mark.parametrize(
    "middleware",
    [
        OutageGuard(minimum=5, probe_every=10),
        Breaker(failure_threshold=5, reset_timeout=10),
    ],
    ids=["outage guard", "breaker"],
)


@BOTH
async def test_what_cannot_be_read_says_nothing_of_what_is_called(
    middleware: OutageGuard | Breaker,
) -> None:
    async with stage(retry=Retry(max_retries=0)) as (qc, clock):
        worker = qc.worker("numbers", middleware=[around(middleware)])
        paid: list[int] = []

        @worker.on(number)
        async def handle(n: int) -> None:
            paid.append(n)

        async with running(worker):
            await qc.publish_many(number.name, ["one"] * 10)
            await qc.publish(number, 11)
            await clock.settle()
            assert paid == [11]
            assert state_of(middleware) == "closed"
            assert worker.counters.dead_lettered == 10


@BOTH
@pytest.mark.parametrize("how", ["nack", "retry", "requeue"])
async def test_a_failure_that_a_handler_settles_by_hand_is_one(
    middleware: OutageGuard | Breaker, how: str
) -> None:
    bank, paid = Bank(), list[int]()
    async with stage(retry=Retry(max_retries=20, initial_delay=1)) as (qc, clock):
        worker = qc.worker("numbers", middleware=[around(middleware)])

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            try:
                await bank.charge()
            except OSError:
                await getattr(message, how)()
            else:
                paid.append(n)

        async with running(worker):
            await qc.publish_many(number, range(20))
            await clock.settle()
            assert state_of(middleware) == "open"
            assert bank.asked == 5
            await clock.advance(25)
            assert 6 <= bank.asked <= 8  # those that tried
            assert state_of(middleware) == "open"
            bank.up = True
            await clock.advance(300)
            assert state_of(middleware) == "closed"
            assert sorted(paid) == list(range(20))


@BOTH
async def test_a_message_that_a_handler_condemns_is_no_failure_of_what_it_calls(
    middleware: OutageGuard | Breaker,
) -> None:
    async with stage() as (qc, clock):
        worker = qc.worker("numbers", middleware=[around(middleware)])

        @worker.on(number)
        async def handle(message: Message) -> None:
            await message.dead_letter("no such account")

        async with running(worker):
            await qc.publish_many(number, range(10))
            await clock.settle()
            assert state_of(middleware) == "closed"
            assert worker.counters.dead_lettered == 10


@BOTH
async def test_a_handler_that_ignores_its_ack_timeout_has_failed_whenever_it_returns(
    middleware: OutageGuard | Breaker,
) -> None:
    back = asyncio.Event()
    async with stage(retry=Retry(max_retries=0)) as (qc, clock):
        worker = qc.worker("numbers", concurrency=5, ack_timeout=1, middleware=[around(middleware)])

        @worker.on(number)
        async def handle(n: int) -> None:
            while not back.is_set():
                with suppress(asyncio.CancelledError):
                    await back.wait()

        async with running(worker):
            await qc.publish_many(number, range(5))
            await clock.advance(12)  # by now they are left alone
            assert worker.counters.ack_timeouts == 5
            assert state_of(middleware) == "closed"
            back.set()
            await clock.settle()
            assert state_of(middleware) == "open"


@BOTH
async def test_a_service_that_hangs_until_the_ack_timeout_has_failed_as_well(
    middleware: OutageGuard | Breaker,
) -> None:
    hangs, paid = True, list[int]()
    async with stage(retry=Retry(max_retries=1)) as (qc, clock):
        worker = qc.worker("numbers", concurrency=5, ack_timeout=1, middleware=[around(middleware)])

        @worker.on(number)
        async def handle(n: int) -> None:
            if hangs:
                await asyncio.Event().wait()
            paid.append(n)

        await worker.start()
        await qc.publish_many(number, range(60))
        await clock.advance(9)
        assert state_of(middleware) == "open"
        late = worker.counters.ack_timeouts
        assert 5 <= late < 10  # some had begun when the fifth failed
        await clock.advance(11)
        assert late < worker.counters.ack_timeouts <= late + 2  # those that tried
        hangs = False
        await clock.advance(60)
        assert state_of(middleware) == "closed"
        assert sorted(paid) == list(range(60))


async def test_a_few_failures_are_no_outage() -> None:
    async with stage() as (qc, clock):
        guard = OutageGuard(failure_rate=0.5, minimum=10)
        worker = qc.worker("numbers", concurrency=1, middleware=[guard])

        @worker.on(number)
        async def handle(n: int) -> None:
            if n % 3 == 0:
                raise OSError("now and then")

        await worker.start()
        await qc.publish_many(number, range(60))
        await clock.settle()
        assert state_of(guard) == "closed"
        assert qc.get_metrics().messages_failed == 20


@pytest.mark.parametrize(
    "make",
    [
        lambda: Breaker(failure_threshold=0),
        lambda: Breaker(failure_threshold=cast(Any, 2.5)),
        lambda: Breaker(reset_timeout=-1),
        lambda: OutageGuard(failure_rate=0),
        lambda: OutageGuard(minimum=0),
        lambda: OutageGuard(window=0),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(ConfigError, match="expected"):
        make()
