"""What is wrapped around handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from queuecraft import ConfigError, Message, NoRetry, QueueCraft, QueueError
from queuecraft.runtime.handler import Handle, Middleware
from queuecraft.testing import Ledger
from tests.runtime.support import Order, Stage, contents, order_paid, order_placed, running, staged


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


def noting(name: str, notes: list[str]) -> Middleware:
    def middleware(handle: Handle) -> Handle:
        async def wrapped(message: Message[Any]) -> object:
            notes.append(f"{name} before")
            result = await handle(message)
            notes.append(f"{name} after")
            return result

        return wrapped

    return middleware


async def published(stage: Stage) -> None:
    await stage.qc.publish(order_placed, Order("o-1"))
    await stage.clock.settle()


# -- order -----------------------------------------------------------------------------------


async def test_the_first_is_the_outermost_and_the_facade_comes_before_the_worker() -> None:
    notes: list[str] = []
    async with staged(middleware=[noting("facade", notes)]) as stage:
        stage.qc.use(noting("used", notes))
        worker = stage.qc.worker("a", middleware=[noting("one", notes), noting("two", notes)])

        @worker.on(order_placed)
        async def charge(order: Order) -> None:
            notes.append("handler")

        async with running(worker):
            await published(stage)
    names = ["facade", "used", "one", "two"]
    before = [f"{name} before" for name in names]
    after = [f"{name} after" for name in reversed(names)]
    assert notes == [*before, "handler", *after]


async def test_a_worker_has_its_own_and_not_its_neighbours(stage: Stage) -> None:
    notes: list[str] = []
    seen = Ledger()
    one = stage.qc.worker("one", middleware=[noting("one", notes)])
    two = stage.qc.worker("two")
    for worker in (one, two):
        worker.on(order_placed, seen.recording(worker.queue_name))
    async with running(one, two):
        await published(stage)
    assert notes == ["one before", "one after"]
    assert len(seen.calls) == 2


async def test_every_handler_of_a_worker_is_wrapped(stage: Stage) -> None:
    notes: list[str] = []
    seen = Ledger()
    worker = stage.qc.worker("a", middleware=[noting("m", notes)])
    worker.on(order_placed, seen.recording("placed")).on(order_paid, seen.recording("paid"))
    async with running(worker):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.qc.publish(order_paid, Order("o-1"))
        await stage.clock.settle()
    assert notes == ["m before", "m after"] * 2


async def test_what_is_used_later_wraps_workers_started_later(stage: Stage) -> None:
    notes: list[str] = []
    worker = stage.qc.worker("a").on(order_placed, Ledger().recording("a"))
    async with running(worker):
        stage.qc.use(noting("late", notes))
        await published(stage)
    assert notes == []
    async with running(worker):
        await published(stage)
    assert notes == ["late before", "late after"]


async def test_a_handler_is_wrapped_once_when_its_worker_starts(stage: Stage) -> None:
    made: list[int] = []

    def counting(handle: Handle) -> Handle:
        made.append(1)
        return handle

    worker = stage.qc.worker("a", middleware=[counting]).on(order_placed, Ledger().recording("a"))
    async with running(worker):
        for _ in range(3):
            await published(stage)
    assert len(made) == 1


# -- what it sees ----------------------------------------------------------------------------


async def test_it_sees_the_message_with_its_payload(stage: Stage) -> None:
    saw: list[object] = []

    def looking(handle: Handle) -> Handle:
        async def wrapped(message: Message[Any]) -> object:
            saw.append((message.payload, message.attempt, message.headers["tenant"]))
            return await handle(message)

        return wrapped

    seen = Ledger()
    worker = stage.qc.worker("a", middleware=[looking]).on(order_placed, seen.recording("a"))
    async with running(worker):
        await stage.qc.publish(order_placed, Order("o-1"), headers={"tenant": "acme"})
        await stage.clock.settle()
    assert saw == [(Order("o-1"), 1, "acme")]
    assert seen.payloads() == [Order("o-1")]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_it_sees_what_the_handler_returns(stage: Stage, in_thread: bool) -> None:
    results: asyncio.Queue[object] = asyncio.Queue()

    def looking(handle: Handle) -> Handle:
        async def wrapped(message: Message[Any]) -> object:
            result = await handle(message)
            results.put_nowait(result)
            return result

        return wrapped

    async def charge(order: Order) -> str:
        return f"charged {order.id}"

    def charge_slowly(order: Order) -> str:
        return f"charged {order.id}"

    worker = stage.qc.worker("a", middleware=[looking])
    worker.on(order_placed, charge_slowly if in_thread else charge)
    async with running(worker):
        await published(stage)
        async with asyncio.timeout(5):
            assert await results.get() == "charged o-1"


async def test_it_sees_the_error_and_may_replace_it(stage: Stage) -> None:
    def translating(handle: Handle) -> Handle:
        async def wrapped(message: Message[Any]) -> object:
            try:
                return await handle(message)
            except KeyError as error:
                raise LookupError("translated") from error

        return wrapped

    worker = stage.qc.worker("a", middleware=[translating], retry=NoRetry())
    worker.on(order_placed, Ledger().failing("a", times=None, error=KeyError("k")))
    async with running(worker):
        await published(stage)
        (letter,) = await contents(stage.driver, "a.dlq")
    assert letter.headers["x-error"] == "translated"


async def test_it_may_forgive_an_error(stage: Stage) -> None:
    def forgiving(handle: Handle) -> Handle:
        async def wrapped(message: Message[Any]) -> object:
            try:
                return await handle(message)
            except RuntimeError:
                return None

        return wrapped

    worker = stage.qc.worker("a", middleware=[forgiving])
    worker.on(order_placed, Ledger().failing("a", times=None))
    async with running(worker):
        await published(stage)
        assert stage.qc.get_metrics().messages_succeeded == 1


async def test_it_sees_poison_as_an_error_and_poison_stays_poison(stage: Stage) -> None:
    errors: list[str] = []

    def watching(handle: Handle) -> Handle:
        async def wrapped(message: Message[Any]) -> object:
            try:
                return await handle(message)
            except QueueError as error:
                errors.append(type(error).__name__)
                raise

        return wrapped

    worker = stage.qc.worker("a", middleware=[watching]).on(order_placed, Ledger().recording("a"))
    async with running(worker):
        await stage.qc.publish("order.placed", "no order")
        await stage.clock.settle()
        (letter,) = await contents(stage.driver, "a.dlq")
    assert errors == ["UnreadablePayload"]
    assert letter.headers["x-reason"] == "invalid-payload"


# -- what it does ----------------------------------------------------------------------------


async def test_it_may_answer_without_the_handler(stage: Stage) -> None:
    seen = Ledger()

    def stopping(handle: Handle) -> Handle:
        async def wrapped(message: Message[Any]) -> object:
            return "enough"

        return wrapped

    worker = stage.qc.worker("a", middleware=[stopping]).on(order_placed, seen.recording("a"))
    async with running(worker):
        await published(stage)
        (info,) = await stage.driver.inspect(["a"])
    assert seen.calls == []
    assert (info.ready, info.in_flight) == (0, 0)


async def test_raising_fails_the_message_before_the_handler(stage: Stage) -> None:
    seen = Ledger()

    def refusing(handle: Handle) -> Handle:
        async def wrapped(message: Message[Any]) -> object:
            raise PermissionError("not today")

        return wrapped

    worker = stage.qc.worker("a", middleware=[refusing], retry=NoRetry())
    worker.on(order_placed, seen.recording("a"))
    async with running(worker):
        await published(stage)
        (letter,) = await contents(stage.driver, "a.dlq")
    assert seen.calls == []
    assert letter.headers["x-error-type"] == "PermissionError"


async def test_raising_after_the_handler_fails_the_message_too(stage: Stage) -> None:
    seen = Ledger()

    def late(handle: Handle) -> Handle:
        async def wrapped(message: Message[Any]) -> object:
            await handle(message)
            raise OSError("the disk is full")

        return wrapped

    worker = stage.qc.worker("a", middleware=[late], retry=NoRetry())
    worker.on(order_placed, seen.recording("a"))
    async with running(worker):
        await published(stage)
        assert len(await contents(stage.driver, "a.dlq")) == 1
    assert seen.attempts() == [1]


async def test_it_may_settle_by_hand(stage: Stage) -> None:
    seen = Ledger()

    def sorting(handle: Handle) -> Handle:
        async def wrapped(message: Message[Any]) -> object:
            await message.dead_letter("sorted out")
            return None

        return wrapped

    worker = stage.qc.worker("a", middleware=[sorting]).on(order_placed, seen.recording("a"))
    async with running(worker):
        await published(stage)
        (letter,) = await contents(stage.driver, "a.dlq")
    assert letter.headers["x-reason"] == "sorted out"
    assert seen.calls == []


async def test_calling_the_handler_twice_runs_it_twice_and_acks_once(stage: Stage) -> None:
    seen = Ledger()

    def twice(handle: Handle) -> Handle:
        async def wrapped(message: Message[Any]) -> object:
            await handle(message)
            return await handle(message)

        return wrapped

    worker = stage.qc.worker("a", middleware=[twice]).on(order_placed, seen.recording("a"))
    async with running(worker):
        await published(stage)
        assert stage.qc.get_metrics().messages_succeeded == 1
    assert len(seen.calls) == 2


async def test_a_plain_function_that_passes_the_awaitable_on_will_do(stage: Stage) -> None:
    seen = Ledger()

    def plain(handle: Handle) -> Handle:
        def wrapped(message: Message[Any]) -> Awaitable[object]:
            return handle(message)

        return wrapped

    worker = stage.qc.worker("a", middleware=[plain]).on(order_placed, seen.recording("a"))
    async with running(worker):
        await published(stage)
    assert len(seen.calls) == 1


async def test_an_object_may_be_middleware(stage: Stage) -> None:
    class Counted:
        def __init__(self) -> None:
            self.count = 0

        def __call__(self, handle: Handle) -> Handle:
            async def wrapped(message: Message[Any]) -> object:
                self.count += 1
                return await handle(message)

            return wrapped

    counted = Counted()
    worker = stage.qc.worker("a", middleware=[counted]).on(order_placed, Ledger().recording("a"))
    async with running(worker):
        await published(stage)
    assert counted.count == 1


# -- mistakes --------------------------------------------------------------------------------


async def is_async(handle: Handle) -> Handle:
    return handle


def gives_nothing(handle: Handle) -> None: ...


@pytest.mark.parametrize(
    ("middleware", "says"),
    [(gives_nothing, "returned None"), (is_async, "is async")],
)
async def test_middleware_that_gives_no_function_is_refused_at_the_start(
    stage: Stage, middleware: Any, says: str
) -> None:
    worker = stage.qc.worker("a", middleware=[middleware]).on(order_placed, Ledger().recording("a"))
    with pytest.raises(ConfigError, match=says):
        await worker.start()
    assert worker.state == "new"


@pytest.mark.parametrize("middleware", [None, 5, "log"])
def test_middleware_that_is_no_function_is_refused(middleware: Any) -> None:
    for make in (
        lambda: QueueCraft(middleware=[middleware]),
        lambda: QueueCraft().use(middleware),
        lambda: QueueCraft().worker("a", middleware=[middleware]),
    ):
        with pytest.raises(ConfigError, match="is not a function"):
            make()


async def test_middleware_that_fails_while_wrapping_starts_nothing(stage: Stage) -> None:
    def broken(handle: Handle) -> Handle:
        raise LookupError("no such thing")

    worker = stage.qc.worker("a", middleware=[broken]).on(order_placed, Ledger().recording("a"))
    with pytest.raises(LookupError):
        await worker.start()
    assert worker.state == "new"


async def test_middleware_that_forgets_to_await_fails_the_message(stage: Stage) -> None:
    def forgetful(handle: Handle) -> Callable[[Message[Any]], None]:
        def wrapped(message: Message[Any]) -> None:
            return None

        return wrapped

    wrong: Any = forgetful
    worker = stage.qc.worker("a", middleware=[wrong], retry=NoRetry())
    worker.on(order_placed, Ledger().recording("a"))
    async with running(worker):
        await published(stage)
        (letter,) = await contents(stage.driver, "a.dlq")
    assert "await" in str(letter.headers["x-error"])
