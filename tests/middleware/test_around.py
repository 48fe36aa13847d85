"""Logging, tracing, validation, timeout, and trouble on purpose."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from typing import Any

import pytest

from queuecraft import ConfigError, Message, NoRetry, PayloadError, QueueCraft, Retry
from queuecraft.middleware import (
    Duplicator,
    InducedFailure,
    Logging,
    Postponed,
    RandomFail,
    RateLimit,
    Timeout,
    Tracing,
    Validation,
)
from tests.features.life import until
from tests.middleware.stage import number, stage


@dataclass
class Order:
    id: str
    total: int


async def test_logging_writes_a_line_for_each_message(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "queuecraft.handling")
    async with stage(middleware=[Logging()]) as (qc, clock):
        worker = qc.worker("numbers", retry=NoRetry())

        @worker.on(number)
        async def handle(n: int) -> None:
            if n == 1:
                raise ValueError("no ones")
            if n == 2:
                raise Postponed(1)

        await worker.start()
        await qc.publish_many(number, range(3))
        await clock.settle()
    lines = [each.getMessage() for each in caplog.records if each.name == "queuecraft.handling"]
    assert len(lines) == 3
    assert "of number handled in" in lines[0]
    assert "of number failed with ValueError in" in lines[1]
    assert "postponed for 1 s" in lines[2]


async def test_what_comes_with_a_message_makes_no_line_of_its_own_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "queuecraft.handling")
    async with stage(middleware=[Logging()]) as (qc, clock):
        worker = qc.worker("numbers")

        @worker.on(number)
        async def handle(n: int) -> None:
            raise Postponed(1, "red: \x1b[31m")

        await worker.start()
        await qc.publish(number, 1, message_id="m-1\nall is well")
        await clock.settle()
    (line,) = [each.getMessage() for each in caplog.records if each.name == "queuecraft.handling"]
    assert line.isprintable()
    assert r"m-1\nall is well" in line


async def test_logging_below_its_level_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "queuecraft.handling")
    async with stage(middleware=[Logging()]) as (qc, clock):
        worker = qc.worker("numbers")
        seen: list[int] = []

        @worker.on(number)
        async def handle(n: int) -> None:
            seen.append(n)

        await worker.start()
        await qc.publish(number, 1)
        await clock.settle()
    assert seen == [1]
    assert not [each for each in caplog.records if each.name == "queuecraft.handling"]


async def test_tracing_puts_a_block_around_each_message() -> None:
    story: list[str] = []

    @contextmanager
    def span(message: Message[Any]) -> Generator[None]:
        story.append(f"begin {message.routing_key}")
        try:
            yield
        except ValueError as error:
            story.append(f"error {error}")
            raise
        finally:
            story.append("end")

    @asynccontextmanager
    async def session(message: Message[Any]) -> AsyncGenerator[None]:
        story.append("open")
        yield
        story.append("close")

    async with stage(middleware=[Tracing(span), Tracing(session)]) as (qc, clock):
        worker = qc.worker("numbers", retry=NoRetry())

        @worker.on(number)
        async def handle(n: int) -> None:
            story.append(f"handle {n}")
            if n:
                raise ValueError("no")

        await worker.start()
        await qc.publish(number, 0)
        await clock.settle()
        assert story == ["begin number", "open", "handle 0", "close", "end"]
        story.clear()
        await qc.publish(number, 1)
        await clock.settle()
        assert story == ["begin number", "open", "handle 1", "error no", "end"]
        assert await qc.dead_letters.count("numbers") == 1


async def test_a_block_that_keeps_errors_to_itself_does_not_run_the_handler_twice() -> None:
    class Span(AbstractContextManager[None], AbstractAsyncContextManager[None]):
        """Both kinds at once, as some tracers have it."""

        def __exit__(self, *raised: object) -> bool:
            return True

        async def __aexit__(self, *raised: object) -> bool:
            return True

    async with stage(middleware=[Tracing(lambda _: Span())]) as (qc, clock):
        seen: list[int] = []
        worker = qc.worker("numbers")

        @worker.on(number)
        async def handle(n: int) -> None:
            seen.append(n)
            raise ValueError("no ones")

        await worker.start()
        await qc.publish(number, 1)
        await clock.settle()
        assert seen == [1]


async def test_an_invalid_payload_is_a_dead_letter_at_once() -> None:
    def even(n: int) -> None:
        if n % 2:
            raise ValueError(f"{n} is odd")

    async with stage(middleware=[Validation(even)]) as (qc, clock):
        seen: list[int] = []
        worker = qc.worker("numbers", retry=Retry(max_retries=5))

        @worker.on(number)
        async def handle(n: int) -> None:
            seen.append(n)

        await worker.start()
        await qc.publish_many(number, range(4))
        await clock.settle()
        assert seen == [0, 2]
        letters = await qc.dead_letters.list("numbers")
        assert {each.reason for each in letters} == {"invalid-payload"}
        assert sorted(each.error or "" for each in letters) == ["1 is odd", "3 is odd"]


async def test_events_by_their_names_alone_are_checked_by_types_given_for_them() -> None:
    checked = Validation({"order.placed": Order, "user.*": str})
    async with stage(middleware=[checked]) as (qc, clock):
        seen: list[object] = []
        worker = qc.worker("audit", retry=Retry(max_retries=5))

        @worker.on("#")
        async def handle(payload: object) -> None:
            seen.append(payload)

        await worker.start()
        await qc.publish("order.placed", {"id": "o-1", "total": 3})
        await qc.publish("order.placed", {"id": "o-2"})
        await qc.publish("user.created", 7)
        await qc.publish("nobody.knows", [1, "two"])
        await clock.settle()
        assert seen == [{"id": "o-1", "total": 3}, [1, "two"]]
        letters = await qc.dead_letters.list("audit")
        assert {each.reason for each in letters} == {"invalid-payload"}
        assert [each.event for each in letters] == ["order.placed", "user.created"]
        assert "missing required field `total`" in (letters[0].error or "")


async def test_what_would_be_refused_is_not_even_published() -> None:
    checked = Validation({"order.placed": Order, "user.*": str})
    async with stage() as (qc, _):
        qc.use_publishing(checked.publishing)
        await qc.worker("audit").on("#", print).declare()
        with pytest.raises(PayloadError, match="total"):
            await qc.publish("order.placed", {"id": "o-2"})
        with pytest.raises(PayloadError, match="str"):
            await qc.publish("user.created", 7)
        await qc.publish("user.created", "Ada")
        await qc.publish("order.placed", Order("o-1", 3))
        await qc.publish("nobody.knows", 7)
        assert (await qc.admin.inspect("audit")).ready == 3


async def test_a_check_of_ones_own_refuses_a_publish() -> None:
    def even(n: int) -> None:
        if n % 2:
            raise ValueError(f"{n} is odd")

    async with stage() as (qc, _):
        qc.use_publishing(Validation(even).publishing)
        await qc.worker("numbers").on(number, print).declare()
        with pytest.raises(PayloadError, match="3 is odd"):
            await qc.publish(number, 3)
        await qc.publish(number, 4)
        assert (await qc.admin.inspect("numbers")).ready == 1


async def test_a_handler_that_takes_too_long_has_failed() -> None:
    async with QueueCraft(middleware=[Timeout(0.05)]) as qc:
        ended: list[str] = []
        worker = qc.worker("numbers", concurrency=2, retry=NoRetry())

        @worker.on(number)
        async def handle(n: int) -> None:
            try:
                await asyncio.sleep(0 if n else 30)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            ended.append("returned")

        await worker.start()
        await qc.publish_many(number, [0, 1])
        await until(lambda: qc.get_metrics().messages_dead_lettered)
        assert sorted(ended) == ["cancelled", "returned"]
        (letter,) = await qc.dead_letters.list("numbers")
        assert letter.error_type == "TimeoutError"
        await qc.publish(number, 1)  # the runner goes on
        await until(lambda: ended.count("returned") == 2)


async def test_a_handler_that_will_not_be_cancelled_may_end_as_it_likes() -> None:
    async with stage(middleware=[Timeout(10)]) as (qc, clock):
        ended: list[int] = []
        worker = qc.worker("numbers", concurrency=1)

        @worker.on(number)
        async def handle(n: int) -> None:
            try:
                await clock.sleep(60)
            except asyncio.CancelledError:
                pass
            ended.append(n)

        await worker.start()
        await qc.publish_many(number, range(3))
        await clock.advance(35)
        assert ended == [0, 1, 2]
        assert worker.paused is None
        assert qc.get_metrics().messages_succeeded == 3


async def test_a_worker_that_is_stopped_is_not_late() -> None:
    async with QueueCraft(middleware=[Timeout(30)]) as qc:
        worker = qc.worker("numbers")
        begun = asyncio.Event()

        @worker.on(number)
        async def handle(n: int) -> None:
            begun.set()
            await asyncio.sleep(30)

        await worker.start()
        await qc.publish(number, 1)
        await begun.wait()
        await worker.stop(timeout=0)
        assert (await qc.admin.inspect("numbers")).ready == 1
        assert qc.get_metrics().messages_failed == 0


async def test_induced_failures_are_retried_like_any_other() -> None:
    chaos = RandomFail(0.5, seed=1)
    async with stage(middleware=[chaos], retry=Retry(max_retries=50)) as (qc, clock):
        seen: list[int] = []
        worker = qc.worker("numbers")

        @worker.on(number)
        async def handle(n: int) -> None:
            seen.append(n)

        await worker.start()
        await qc.publish_many(number, range(50))
        await clock.advance(3600)
        assert sorted(seen) == list(range(50))
        assert qc.get_metrics().messages_failed > 10


async def test_the_duplicator_handles_messages_twice() -> None:
    async with stage(middleware=[Duplicator()]) as (qc, clock):
        seen: list[int] = []
        worker = qc.worker("numbers")

        @worker.on(number)
        async def handle(n: int) -> None:
            seen.append(n)

        await worker.start()
        await qc.publish_many(number, range(3))
        await clock.settle()
        assert sorted(seen) == [0, 0, 1, 1, 2, 2]
        assert qc.get_metrics().messages_succeeded == 3


async def test_what_is_put_off_the_second_time_was_handled_all_the_same() -> None:
    async with stage(middleware=[Duplicator(), RateLimit(1)]) as (qc, clock):
        seen: list[int] = []
        worker = qc.worker("numbers")

        @worker.on(number)
        async def handle(n: int) -> None:
            seen.append(n)

        await worker.start()
        await qc.publish(number, 1)
        await clock.advance(60)
        assert seen == [1]


async def test_with_another_clock_a_timeout_begins_anew() -> None:
    timeout = Timeout(5)
    for n in range(2):
        async with stage(middleware=[timeout]) as (qc, clock):
            worker = qc.worker("numbers", retry=NoRetry())

            @worker.on(number)
            async def handle(n: int) -> None:
                if n:
                    await asyncio.Event().wait()

            await worker.start()
            await qc.publish(number, n)
            await clock.settle()
            await clock.advance(5 * n)  # the first ends with its timer still set
            assert qc.get_metrics().messages_failed == n


@pytest.mark.parametrize(
    "make", [lambda: RandomFail(2), lambda: Duplicator(-1), lambda: Timeout(0)]
)
def test_what_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(ConfigError, match="expected"):
        make()
    assert issubclass(InducedFailure, Exception)
