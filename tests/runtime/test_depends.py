"""What handlers depend on: who makes it, when, in which thread, and how it is cleaned up."""

import asyncio
import contextvars
import functools
import logging
import sqlite3
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Optional
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest
import typing_extensions

from queuecraft import (
    BatchFailed,
    ConfigError,
    Depends,
    Message,
    NoRetry,
    QueueCraft,
    Worker,
    channel,
    consume,
)
from queuecraft.model.outcome import Acked, DeadLettered, Outcome, Retried
from queuecraft.runtime.handler import Handle, Handler
from queuecraft.testing import MockQueueCraft, testing
from tests.runtime.consuming import AT_ONCE, Gate, at_rest, number, tidy
from tests.runtime.support import Order, order_paid, order_placed, quiet, running

ORDER = Order("o-1", 2.5)


@pytest.fixture
async def mock() -> AsyncIterator[MockQueueCraft]:
    async with MockQueueCraft() as mock:
        yield mock


@pytest.fixture
def notes() -> list[str]:
    """What happened, in order."""
    return []


async def handled(
    mock: MockQueueCraft, handler: Callable[..., Any], payload: object = ORDER, **options: Any
) -> Outcome:
    """What becomes of an order whose handler this is."""
    worker = mock.worker("billing", **options)
    worker.on(order_placed, handler)
    try:
        return await mock.deliver(worker, payload)
    finally:
        await worker.stop()


def refusal(handler: Callable[..., Any], **options: Any) -> str:
    """Why a handler is not taken."""
    with pytest.raises(ConfigError) as told:
        Handler("order.placed", handler, Order, **options)
    return str(told.value)


# -- every kind of function ------------------------------------------------------------------


def plain() -> str:
    return "plain"


Named = typing_extensions.TypeAliasType("Named", Annotated[str, Depends(plain)])


async def coroutine() -> str:
    return "coroutine"


def generator() -> Iterator[str]:
    yield "generator"


async def async_generator() -> AsyncIterator[str]:
    yield "async generator"


@contextmanager
def manager() -> Generator[str]:
    yield "manager"


@asynccontextmanager
async def async_manager() -> AsyncGenerator[str]:
    yield "async manager"


class Instance:
    def __call__(self) -> str:
        return "instance"

    async def method(self) -> str:
        return "method"


def with_prefix(prefix: str, end: str = "ial") -> str:
    return prefix + end


def passed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


KINDS: dict[str, Callable[..., Any]] = {
    "plain": plain,
    "coroutine": coroutine,
    "generator": generator,
    "async generator": async_generator,
    "manager": manager,
    "async manager": async_manager,
    "instance": Instance(),
    "method": Instance().method,
    "partial": functools.partial(with_prefix, "part"),
}
DECORATED: dict[str, Callable[..., Any]] = {
    name: passed_on(KINDS[name]) for name in ("coroutine", "generator", "async generator")
}


@pytest.mark.parametrize("scope", ["message", "worker"])
@pytest.mark.parametrize("inline", [False, True], ids=["thread", "inline"])
@pytest.mark.parametrize("is_sync", [False, True], ids=["async handler", "sync handler"])
@pytest.mark.parametrize("decorated", [False, True], ids=["", "decorated"])
async def test_every_kind_of_function_makes_a_dependency(
    mock: MockQueueCraft, scope: Any, inline: bool, is_sync: bool, decorated: bool
) -> None:
    for name, function in (DECORATED if decorated else KINDS).items():
        seen: list[str] = []
        asked = Depends(function, scope=scope, inline=inline)

        async def charge(order: Order, it: Annotated[str, asked]) -> None:
            seen.append(it)  # noqa: B023

        def charge_sync(order: Order, it: Annotated[str, asked]) -> None:
            seen.append(it)  # noqa: B023

        assert await handled(mock, charge_sync if is_sync else charge) == Acked()
        assert seen == [name]


async def test_a_class_is_made_with_what_its_fields_ask_for(mock: MockQueueCraft) -> None:
    class Plain: ...

    @dataclass
    class Orders:
        session: Annotated[str, Depends(plain)]
        plain: Annotated[Plain, Depends(Plain)]
        limit: int = 3

    seen: list[Orders] = []

    async def charge(order: Order, orders: Annotated[Orders, Depends(Orders)]) -> None:
        seen.append(orders)

    assert await handled(mock, charge) == Acked()
    assert seen[0].session == "plain"
    assert isinstance(seen[0].plain, Plain)


async def test_a_dependency_may_stand_anywhere_among_the_parameters(mock: MockQueueCraft) -> None:
    seen: list[Any] = []

    async def charge(
        first: Annotated[str, Depends(plain)],
        order: Order,
        second: Annotated[str, Depends(coroutine)],
        message: Message[Order],
        tries: int = 3,
        optional: Optional[Annotated[str, Depends(generator)]] = None,  # noqa: UP045
        *,
        named: Annotated[str, Depends(async_generator)],
    ) -> None:
        seen.extend([first, order, second, message.payload, tries, optional, named])

    assert await handled(mock, charge) == Acked()
    assert seen == [
        "plain",
        ORDER,
        "coroutine",
        ORDER,
        3,
        "generator",
        "async generator",
    ]


async def test_a_dependency_may_be_keyword_only_beside_nothing_but_the_payload(
    mock: MockQueueCraft,
) -> None:
    seen: list[str] = []

    async def charge(order: Order, *, it: Annotated[str, Depends(plain)]) -> None:
        seen.append(it)

    assert await handled(mock, charge) == Acked()
    assert seen == ["plain"]


def test_a_dependency_may_have_a_name_as_a_type() -> None:
    async def charge(order: Order, it: Named) -> None: ...

    assert [each.source for each in Handler("order.placed", charge).metadata.params] == [
        "payload",
        "dependency",
    ]


async def test_a_request_is_answered_once_its_session_is_committed(notes: list[str]) -> None:
    session = session_noting(notes, is_sync=True)
    async with QueueCraft("local://") as qc:
        worker = qc.worker("billing")

        @worker.on(order_placed)
        async def charge(order: Order, session: Annotated[str, Depends(session)]) -> str:
            return f"charged {order.id}"

        async with running(worker):
            assert await qc.request(order_placed, ORDER, str) == "charged o-1"
    assert notes == ["commit"]


def test_tools_see_which_parameters_are_dependencies() -> None:
    async def charge(order: Order, session: Annotated[str, Depends(plain)]) -> None: ...

    handler = Handler("order.placed", charge)
    assert [each.source for each in handler.metadata.params] == ["payload", "dependency"]
    assert handler.metadata.payload_type is Order


async def test_a_dependency_may_have_the_message(mock: MockQueueCraft) -> None:
    seen: list[str] = []

    async def tenant(message: Message[Any]) -> str:
        return str(message.headers["tenant"])

    worker = mock.worker("billing")

    @worker.on(order_placed)
    async def charge(order: Order, tenant: Annotated[str, Depends(tenant)]) -> None:
        seen.append(tenant)

    await mock.deliver(worker, ORDER, headers={"tenant": "acme"})
    await mock.deliver(worker, ORDER, headers={"tenant": "other"})
    assert seen == ["acme", "other"]


async def test_a_class_based_consumer_asks_in_the_same_way(mock: MockQueueCraft) -> None:
    seen: list[Any] = []

    @channel("billing")
    class Billing:
        @consume(order_placed)
        async def charge(self, order: Order, session: Annotated[str, Depends(generator)]) -> None:
            seen.append((self, session))

    billing = Billing()
    assert await mock.deliver(mock.include(billing), ORDER) == Acked()
    assert seen == [(billing, "generator")]


# -- scopes ----------------------------------------------------------------------------------


async def test_a_value_is_shared_within_a_message_and_made_anew_for_the_next(
    mock: MockQueueCraft,
) -> None:
    async def session() -> object:
        return object()

    def orders(session: Annotated[object, Depends(session)]) -> object:
        return session

    seen: list[object] = []

    async def charge(
        order: Order,
        session: Annotated[object, Depends(session)],
        orders: Annotated[object, Depends(orders)],
    ) -> None:
        assert session is orders
        seen.append(session)

    worker = mock.worker("billing").on(order_placed, charge)
    assert await mock.deliver(worker, ORDER) == await mock.deliver(worker, ORDER) == Acked()
    assert seen[0] is not seen[1]


async def test_a_worker_makes_its_own_once_shares_it_and_closes_it_when_it_stops(
    mock: MockQueueCraft, notes: list[str]
) -> None:
    async def pool() -> AsyncIterator[object]:
        notes.append("open pool")
        yield object()
        notes.append("close pool")

    def client(pool: Annotated[object, Depends(pool, scope="worker")]) -> Iterator[object]:
        notes.append("open client")
        yield pool
        notes.append("close client")

    seen: set[object] = set()
    worker = mock.worker("billing")

    @worker.on(order_placed)
    async def charge(
        order: Order, client: Annotated[object, Depends(client, scope="worker")]
    ) -> None:
        seen.add(client)

    @worker.on(order_paid)
    def refund(order: Order, pool: Annotated[object, Depends(pool, scope="worker")]) -> None:
        seen.add(pool)

    await worker.start()
    assert notes == ["open pool", "open client"]
    for event in (order_placed, order_paid, order_placed):
        await mock.deliver(worker, ORDER, event=event)
    assert len(seen) == 1
    assert len(notes) == 2
    await worker.stop()
    assert notes == ["open pool", "open client", "close client", "close pool"]
    await mock.deliver(worker, ORDER, event=order_placed)
    await worker.stop()
    assert len(seen) == 2
    assert len(notes) == 8


async def test_two_workers_do_not_share(mock: MockQueueCraft) -> None:
    seen: list[object] = []

    async def charge(
        order: Order, pool: Annotated[object, Depends(object, scope="worker")]
    ) -> None:
        seen.append(pool)

    for name in ("a", "b"):
        await mock.deliver(mock.worker(name).on(order_placed, charge), ORDER)
    assert seen[0] is not seen[1]


async def test_a_worker_that_cannot_make_its_own_does_not_start_and_closes_what_it_has(
    mock: MockQueueCraft, notes: list[str]
) -> None:
    async def pool() -> AsyncIterator[str]:
        try:
            yield "pool"
        finally:
            notes.append("closed")

    async def broken(pool: Annotated[str, Depends(pool, scope="worker")]) -> None:
        raise ConnectionError("no database")

    worker = mock.worker("billing")

    @worker.on(order_placed)
    async def charge(order: Order, it: Annotated[None, Depends(broken, scope="worker")]) -> None:
        raise AssertionError

    with pytest.raises(ConnectionError, match="no database"):
        await worker.start()
    assert worker.state == "new"
    assert notes == ["closed"]


async def test_giving_up_on_a_start_gives_up_what_it_was_making(
    mock: MockQueueCraft, notes: list[str]
) -> None:
    async def pool() -> AsyncIterator[None]:
        try:
            notes.append("opening")
            await asyncio.Event().wait()
            yield
        finally:
            notes.append("given up")

    worker = mock.worker("billing")

    @worker.on(order_placed)
    async def charge(order: Order, it: Annotated[None, Depends(pool, scope="worker")]) -> None: ...

    starting = asyncio.create_task(worker.start())
    await quiet()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert notes == ["opening", "given up"]


async def test_a_worker_stopped_while_it_starts_closes_what_it_has_made(
    mock: MockQueueCraft, notes: list[str]
) -> None:
    go_on = asyncio.Event()

    async def pool() -> AsyncIterator[None]:
        await go_on.wait()
        notes.append("open")
        yield
        notes.append("close")

    worker = mock.worker("billing")

    @worker.on(order_placed)
    async def charge(order: Order, it: Annotated[None, Depends(pool, scope="worker")]) -> None: ...

    starting = asyncio.create_task(worker.start())
    await quiet()
    await worker.stop()
    go_on.set()
    await starting
    assert notes == ["open", "close"]
    assert worker.state == "new"


async def test_what_a_worker_cannot_close_is_told_and_the_rest_is_closed(
    mock: MockQueueCraft, notes: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def pool() -> AsyncIterator[str]:
        yield "pool"
        notes.append("closed")

    def client(pool: Annotated[str, Depends(pool, scope="worker")]) -> Iterator[str]:
        yield pool
        raise OSError("gone already")

    async def charge(order: Order, it: Annotated[str, Depends(client, scope="worker")]) -> None: ...

    assert await handled(mock, charge) == Acked()
    assert notes == ["closed"]
    assert "billing: closing client failed" in caplog.text
    assert "gone already" in caplog.text


@pytest.mark.parametrize("signals", [1, 2])
async def test_what_never_closes_does_not_keep_a_worker_from_stopping_nor_others_from_closing(
    mock: MockQueueCraft, notes: list[str], caplog: pytest.LogCaptureFixture, signals: int
) -> None:
    async def pool() -> AsyncIterator[str]:
        yield "pool"
        notes.append("pool is closed")

    async def client(pool: Annotated[str, Depends(pool, scope="worker")]) -> AsyncIterator[str]:
        yield "client"
        try:
            await asyncio.Event().wait()
        finally:
            notes.append("client is given up")

    worker = mock.worker("billing")

    @worker.on(order_placed)
    async def charge(
        order: Order, client: Annotated[str, Depends(client, scope="worker")]
    ) -> None: ...

    await worker.start()
    if signals == 1:
        await worker.stop(timeout=0)
    else:
        stopping = asyncio.create_task(worker.stop(timeout=3600))
        await quiet()
        await worker.stop(drain=False)
        await stopping
    assert "its dependencies do not close" in caplog.text
    assert notes == ["client is given up", "pool is closed"]


async def test_what_belongs_to_a_task_is_opened_and_closed_by_one(mock: MockQueueCraft) -> None:
    seen: list[str] = []

    async def group() -> AsyncIterator[asyncio.TaskGroup]:
        async with asyncio.TaskGroup() as group, asyncio.timeout(None):
            yield group
        seen.append("left")

    async def charge(
        order: Order,
        ours: Annotated[asyncio.TaskGroup, Depends(group, scope="worker")],
    ) -> None:
        ours.create_task(asyncio.sleep(0)).add_done_callback(lambda _: seen.append("ran"))

    assert await handled(mock, charge) == Acked()
    assert seen == ["ran", "left"]


# -- cleaning up -----------------------------------------------------------------------------


def session_noting(notes: list[str], *, is_sync: bool, name: str = "") -> Callable[..., Any]:
    """A session that commits, or rolls back."""

    async def session() -> AsyncIterator[str]:
        try:
            yield "session"
        except BaseException as error:
            notes.append(f"roll back{name}: {error!r}")
            raise
        notes.append(f"commit{name}")

    def sync_session() -> Iterator[str]:
        try:
            yield "session"
        except BaseException as error:
            notes.append(f"roll back{name}: {error!r}")
            raise
        notes.append(f"commit{name}")

    return sync_session if is_sync else session


ways = pytest.mark.parametrize(
    ("session_is_sync", "handler_is_sync", "inline"),
    [
        (False, False, False),
        (False, True, False),
        (True, False, False),
        (True, False, True),
        (True, True, False),
        (True, True, True),
    ],
    ids=["loop", "thread by loop", "loop by thread", "inline", "one thread", "inline by thread"],
)


@ways
async def test_a_handler_that_fails_is_heard_of_by_what_it_depends_on(
    mock: MockQueueCraft,
    notes: list[str],
    session_is_sync: bool,
    handler_is_sync: bool,
    inline: bool,
) -> None:
    session = session_noting(notes, is_sync=session_is_sync)
    asked = Depends(session, inline=inline)

    def check(order: Order) -> None:
        notes.append(f"handle {order.id}")
        if order.id == "bad":
            raise ValueError("no money")

    async def charge(order: Order, session: Annotated[str, asked]) -> None:
        check(order)

    def charge_sync(order: Order, session: Annotated[str, asked]) -> None:
        check(order)

    handler = charge_sync if handler_is_sync else charge
    worker = mock.worker("billing", retry=NoRetry()).on(order_placed, handler)
    assert await mock.deliver(worker, Order("good")) == Acked()
    assert notes == ["handle good", "commit"]
    notes.clear()
    outcome = await mock.deliver(worker, Order("bad"))
    assert isinstance(outcome, DeadLettered)
    assert outcome.failure is not None
    assert outcome.failure.error == "no money"
    assert notes == ["handle bad", "roll back: ValueError('no money')"]


async def test_clean_ups_run_the_last_first_before_the_message_is_acknowledged() -> None:
    notes: list[str] = []
    async with tidy() as stage:
        worker = stage.qc.worker("billing")

        async def engine() -> AsyncIterator[str]:
            yield "engine"
            for _ in range(10):
                await asyncio.sleep(0)
            notes.append(f"engine, with {worker.in_flight} in flight")

        async def session(engine: Annotated[str, Depends(engine)]) -> AsyncIterator[str]:
            yield "session"
            notes.append("session")

        @worker.on(order_placed)
        async def charge(order: Order, session: Annotated[str, Depends(session)]) -> None:
            notes.append("handler")

        async with running(worker):
            await stage.qc.publish(order_placed, ORDER)
            await at_rest(stage.driver, "billing")
    assert notes == ["handler", "session", "engine, with 1 in flight"]


@ways
async def test_an_error_in_a_clean_up_fails_the_message(
    mock: MockQueueCraft, session_is_sync: bool, handler_is_sync: bool, inline: bool
) -> None:
    async def session() -> AsyncIterator[str]:
        yield "session"
        raise OSError("commit failed")

    def sync_session() -> Iterator[str]:
        yield "session"
        raise OSError("commit failed")

    asked = Depends(sync_session if session_is_sync else session, inline=inline)

    async def charge(order: Order, session: Annotated[str, asked]) -> None: ...
    def charge_sync(order: Order, session: Annotated[str, asked]) -> None: ...

    outcome = await handled(mock, charge_sync if handler_is_sync else charge)
    assert isinstance(outcome, Retried)
    assert outcome.failure is not None
    assert outcome.failure.error == "commit failed"


async def test_an_error_in_a_clean_up_is_heard_of_by_those_further_out(
    mock: MockQueueCraft, notes: list[str]
) -> None:
    engine = session_noting(notes, is_sync=False, name=" engine")

    async def session(engine: Annotated[str, Depends(engine)]) -> AsyncIterator[str]:
        yield "session"
        raise OSError("commit failed")

    async def charge(order: Order, session: Annotated[str, Depends(session)]) -> None: ...

    assert isinstance(await handled(mock, charge), Retried)
    assert notes == ["roll back engine: OSError('commit failed')"]


async def test_a_clean_up_may_say_more_of_an_error(mock: MockQueueCraft) -> None:
    async def session() -> AsyncIterator[str]:
        try:
            yield "session"
        except KeyError as error:
            raise LookupError("no such customer") from error

    async def charge(order: Order, session: Annotated[str, Depends(session)]) -> None:
        raise KeyError(order.id)

    outcome = await handled(mock, charge)
    assert isinstance(outcome, Retried)
    assert outcome.failure is not None
    assert outcome.failure.error == "no such customer"


@ways
async def test_a_clean_up_that_keeps_an_error_to_itself_does_not_undo_it(
    mock: MockQueueCraft, session_is_sync: bool, handler_is_sync: bool, inline: bool
) -> None:
    async def session() -> AsyncIterator[str]:
        try:
            yield "session"
        except ValueError:
            pass

    def sync_session() -> Iterator[str]:
        try:
            yield "session"
        except ValueError:
            pass

    asked = Depends(sync_session if session_is_sync else session, inline=inline)

    async def charge(order: Order, session: Annotated[str, asked]) -> None:
        raise ValueError("no money")

    def charge_sync(order: Order, session: Annotated[str, asked]) -> None:
        raise ValueError("no money")

    assert isinstance(await handled(mock, charge_sync if handler_is_sync else charge), Retried)


async def test_what_was_made_is_cleaned_up_if_the_next_cannot_be(
    mock: MockQueueCraft, notes: list[str]
) -> None:
    session = session_noting(notes, is_sync=False)

    async def customer(session: Annotated[str, Depends(session)]) -> str:
        raise LookupError("no such customer")

    async def charge(order: Order, customer: Annotated[str, Depends(customer)]) -> None:
        notes.append("handler")

    assert isinstance(await handled(mock, charge), Retried)
    assert notes == ["roll back: LookupError('no such customer')"]


async def test_a_generator_that_yields_twice_or_not_at_all_fails_the_message(
    mock: MockQueueCraft,
) -> None:
    async def twice() -> AsyncIterator[int]:
        yield 1
        yield 2

    def never() -> Iterator[int]:
        yield from ()

    for function, what in ((twice, "didn't stop"), (never, "didn't yield")):

        async def charge(order: Order, it: Annotated[int, Depends(function)]) -> None: ...

        outcome = await handled(mock, charge)
        assert isinstance(outcome, Retried)
        assert outcome.failure is not None
        assert what in outcome.failure.error


async def test_nothing_is_made_for_a_payload_that_cannot_be_read(
    mock: MockQueueCraft, notes: list[str]
) -> None:
    session = session_noting(notes, is_sync=False)
    worker = mock.worker("billing")

    @worker.on(order_placed)
    async def charge(order: Order, session: Annotated[str, Depends(session)]) -> None: ...

    outcome = await mock.deliver(worker, body=b"not JSON")
    assert isinstance(outcome, DeadLettered)
    assert outcome.reason == "invalid-payload"
    assert notes == []


async def test_middleware_is_around_the_dependencies(
    mock: MockQueueCraft, notes: list[str]
) -> None:
    session = session_noting(notes, is_sync=False)

    def noting(handle: Handle) -> Handle:
        async def wrapped(message: Message[Any]) -> object:
            notes.append("before")
            result = await handle(message)
            notes.append(f"after {result}")
            return result

        return wrapped

    async def charge(order: Order, session: Annotated[str, Depends(session)]) -> str:
        return "charged"

    assert await handled(mock, charge, middleware=[noting]) == Acked()
    assert notes == ["before", "commit", "after charged"]


async def test_a_handler_that_is_cancelled_has_its_clean_up() -> None:
    notes: list[str] = []
    gate = Gate()
    session = session_noting(notes, is_sync=False)
    async with tidy() as stage:
        worker = stage.qc.worker("billing")

        @worker.on(order_placed)
        async def charge(
            order: Order, message: Message[Order], session: Annotated[str, Depends(session)]
        ) -> None:
            await gate.handle(order, message)

        await worker.start()
        await stage.qc.publish(order_placed, ORDER)
        await gate.entered(1)
        await worker.stop(drain=False)
    assert notes == ["roll back: CancelledError()"]


async def test_a_handler_too_late_has_its_clean_up_and_its_message_comes_again() -> None:
    notes: list[str] = []
    gate = Gate()
    session = session_noting(notes, is_sync=False)
    async with tidy() as stage:
        worker = stage.qc.worker("billing", ack_timeout=5, retry=AT_ONCE)

        @worker.on(order_placed)
        async def charge(
            order: Order, message: Message[Order], session: Annotated[str, Depends(session)]
        ) -> None:
            if message.attempt == 1:
                await gate.handle(order, message)

        async with running(worker):
            await stage.qc.publish(order_placed, ORDER)
            await gate.entered(1)
            await stage.clock.advance(6)
            await at_rest(stage.driver, "billing")
    assert notes == ["roll back: CancelledError()", "commit"]


# -- threads ---------------------------------------------------------------------------------


async def test_a_sync_handler_has_all_it_depends_on_in_its_own_thread(
    mock: MockQueueCraft, notes: list[str]
) -> None:
    def connection() -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(":memory:")  # of no use in any other thread
        connection.execute("create table orders (id text)")
        yield connection
        notes.extend(id for (id,) in connection.execute("select id from orders"))
        connection.close()

    def charge(
        order: Order, connection: Annotated[sqlite3.Connection, Depends(connection)]
    ) -> None:
        connection.execute("insert into orders values (?)", [order.id])

    assert await handled(mock, charge) == Acked()
    assert notes == ["o-1"]


async def test_a_context_variable_set_in_the_thread_of_a_handler_is_its_own(
    mock: MockQueueCraft,
) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
    seen: list[str] = []

    def as_acme() -> Iterator[None]:
        token = tenant.set("acme")
        yield
        tenant.reset(token)

    def charge(order: Order, _: Annotated[None, Depends(as_acme)]) -> None:
        seen.append(tenant.get())

    assert await handled(mock, charge) == Acked()
    assert seen == ["acme"]


async def test_what_is_inline_is_in_the_loop_for_a_sync_handler_too(mock: MockQueueCraft) -> None:
    def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    seen: list[Any] = []

    def charge(order: Order, loop: Annotated[Any, Depends(loop, inline=True)]) -> None:
        seen.append(loop)

    assert await handled(mock, charge) == Acked()
    assert seen == [asyncio.get_running_loop()]


async def test_a_plain_function_runs_in_a_thread_unless_it_is_inline_or_a_class(
    mock: MockQueueCraft,
) -> None:
    def off() -> int:
        return threading.get_ident()

    def here() -> int:
        return threading.get_ident()

    class Made:
        def __init__(self) -> None:
            self.thread = threading.get_ident()

    async def charge(
        order: Order,
        off: Annotated[int, Depends(off)],
        here: Annotated[int, Depends(here, inline=True)],
        made: Annotated[Made, Depends(Made)],
    ) -> None:
        assert off != threading.get_ident()
        assert here == made.thread == threading.get_ident()

    assert await handled(mock, charge) == Acked()


async def test_a_context_variable_that_is_set_in_the_loop_reaches_the_handler(
    mock: MockQueueCraft,
) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

    async def as_acme() -> AsyncIterator[None]:
        token = tenant.set("acme")
        yield
        tenant.reset(token)

    seen: list[str] = []

    async def charge(order: Order, _: Annotated[None, Depends(as_acme)]) -> None:
        seen.append(tenant.get())

    def charge_sync(order: Order, _: Annotated[None, Depends(as_acme)]) -> None:
        seen.append(tenant.get())

    assert await handled(mock, charge) == await handled(mock, charge_sync) == Acked()
    assert seen == ["acme", "acme"]


async def test_what_a_thread_uses_is_not_closed_under_its_hands() -> None:
    notes: list[str] = []
    inside, go_on = threading.Event(), threading.Event()
    session = session_noting(notes, is_sync=False)
    async with tidy() as stage:
        worker = stage.qc.worker("billing", ack_timeout=5, retry=NoRetry())

        @worker.on(order_placed)
        def charge(order: Order, session: Annotated[str, Depends(session)]) -> None:
            inside.set()
            go_on.wait(10)
            notes.append("thread is done")

        async with running(worker):
            await stage.qc.publish(order_placed, ORDER)
            await asyncio.to_thread(inside.wait, 10)
            await stage.clock.advance(6)  # too late: cancelled
            assert notes == []
            go_on.set()
    assert notes == ["thread is done", "roll back: CancelledError()"]


async def test_what_a_thread_still_opens_when_it_is_cancelled_is_closed() -> None:
    notes: list[str] = []
    inside, go_on = threading.Event(), threading.Event()

    def session() -> Iterator[str]:
        inside.set()
        go_on.wait(10)
        notes.append("open")
        try:
            yield "session"
        finally:
            notes.append("close")

    async with tidy() as stage:
        worker = stage.qc.worker("billing", ack_timeout=5, retry=NoRetry())

        @worker.on(order_placed)
        async def charge(order: Order, session: Annotated[str, Depends(session)]) -> None:
            notes.append("handler")

        async with running(worker):
            await stage.qc.publish(order_placed, ORDER)
            await asyncio.to_thread(inside.wait, 10)
            await stage.clock.advance(6)
            go_on.set()
    assert notes == ["open", "close"]


async def test_a_thread_that_never_ends_is_left_alone_in_the_end() -> None:
    inside, go_on = threading.Event(), threading.Event()
    notes: list[str] = []
    session = session_noting(notes, is_sync=False)
    async with tidy() as stage:
        worker = stage.qc.worker("billing", ack_timeout=5, retry=NoRetry())

        @worker.on(order_placed)
        def charge(order: Order, session: Annotated[str, Depends(session)]) -> None:
            inside.set()
            go_on.wait(30)

        await worker.start()
        await stage.qc.publish(order_placed, ORDER)
        await asyncio.to_thread(inside.wait, 10)
        await stage.clock.advance(6)  # cancelled
        await worker.stop(drain=False)  # and once more
    go_on.set()
    assert notes == ["roll back: CancelledError()"]


async def test_a_wrapper_around_a_coroutine_is_awaited_where_there_is_a_loop(
    mock: MockQueueCraft,
) -> None:
    wrapped = lambda: coroutine()  # noqa: E731
    seen: list[str] = []

    async def charge(order: Order, it: Annotated[str, Depends(wrapped)]) -> None:
        seen.append(it)

    def charge_sync(order: Order, it: Annotated[str, Depends(wrapped)]) -> None:
        seen.append(it)

    assert await handled(mock, charge) == Acked()
    assert seen == ["coroutine"]
    outcome = await handled(mock, charge_sync)
    assert isinstance(outcome, Retried)
    assert outcome.failure is not None
    assert "gave a coroutine; make it an async def" in outcome.failure.error


# -- batches ---------------------------------------------------------------------------------


async def test_a_batch_has_one_of_each(mock: MockQueueCraft, notes: list[str]) -> None:
    session = session_noting(notes, is_sync=False)
    worker = mock.worker("numbers")

    @worker.on(number, batch_size=10)
    async def store(
        numbers: list[int],
        session: Annotated[str, Depends(session)],
        messages: list[Message[int]],
    ) -> None:
        notes.append(f"{session} {numbers} {len(messages)}")

    assert await mock.deliver_many(worker, [1, 2, 3]) == [Acked()] * 3
    assert notes == ["session [1, 2, 3] 3", "commit"]


async def test_a_batch_that_fails_is_rolled_back(mock: MockQueueCraft, notes: list[str]) -> None:
    session = session_noting(notes, is_sync=True)
    worker = mock.worker("numbers")

    @worker.on(number, batch_size=10)
    def store(numbers: list[int], session: Annotated[str, Depends(session)]) -> None:
        raise OSError("disk full")

    outcomes = await mock.deliver_many(worker, [1, 2])
    assert [type(each) for each in outcomes] == [Retried, Retried]
    assert notes == ["roll back: OSError('disk full')"]


async def test_a_batch_that_fails_in_part_is_committed_as_the_rest_is_acknowledged(
    mock: MockQueueCraft, notes: list[str]
) -> None:
    session = session_noting(notes, is_sync=False)
    worker = mock.worker("numbers")

    @worker.on(number, batch_size=10)
    async def store(numbers: list[int], session: Annotated[str, Depends(session)]) -> None:
        raise BatchFailed({1: ValueError("two")})

    outcomes = await mock.deliver_many(worker, [1, 2, 3])
    assert [type(each) for each in outcomes] == [Acked, Retried, Acked]
    assert notes == ["commit"]


async def test_a_batch_that_failed_in_part_and_cannot_be_committed_has_failed_as_a_whole(
    mock: MockQueueCraft,
) -> None:
    async def session() -> AsyncIterator[None]:
        yield
        raise OSError("commit failed")

    worker = mock.worker("numbers")

    @worker.on(number, batch_size=10)
    async def store(numbers: list[int], session: Annotated[None, Depends(session)]) -> None:
        raise BatchFailed({1: ValueError("two")})

    outcomes = await mock.deliver_many(worker, [1, 2, 3])
    assert [type(each) for each in outcomes] == [Retried] * 3


# -- what is refused, at once ----------------------------------------------------------------


def test_a_parameter_nothing_fills_is_told_with_the_way_to_it() -> None:
    def engine(url: str) -> None: ...
    def session(engine: Annotated[None, Depends(engine)]) -> None: ...
    async def charge(order: Order, session: Annotated[None, Depends(session)]) -> None: ...

    told = refusal(charge)
    assert "charge of 'order.placed': session → engine: nothing fills parameter 'url'" in told


def test_what_needs_itself_is_told_with_the_way_round() -> None:
    def engine(session: Any) -> None: ...
    def session(engine: Annotated[None, Depends(engine)]) -> None: ...

    engine.__annotations__["session"] = Annotated[None, Depends(session)]

    async def charge(order: Order, session: Annotated[None, Depends(session)]) -> None: ...

    assert "session → engine → session: it goes round in a circle" in refusal(charge)


def test_a_worker_does_not_keep_what_belongs_to_one_message() -> None:
    def session() -> None: ...
    def pool(session: Annotated[None, Depends(session)]) -> None: ...
    def tenant(message: Message[Any]) -> None: ...

    async def one(order: Order, pool: Annotated[None, Depends(pool, scope="worker")]) -> None: ...
    async def two(order: Order, it: Annotated[None, Depends(tenant, scope="worker")]) -> None: ...

    assert "pool is made once for the worker, and cannot have session" in refusal(one)
    assert "tenant is made once for the worker, so there is no Message for" in refusal(two)


def test_a_batch_has_no_one_message() -> None:
    def tenant(message: Message[Any]) -> None: ...
    async def store(orders: list[Order], it: Annotated[None, Depends(tenant)]) -> None: ...

    assert "tenant is made once for a batch" in refusal(store, batch_size=10)


def test_one_function_is_asked_for_in_one_way() -> None:
    async def charge(
        order: Order,
        one: Annotated[str, Depends(plain)],
        two: Annotated[str, Depends(plain, scope="worker")],
    ) -> None: ...

    assert "asks for plain in two ways" in refusal(charge)


def test_depends_as_a_default_is_refused() -> None:
    async def charge(order: Order, session: Any = Depends(plain)) -> None: ...  # noqa: B008
    def inner(session: Any = Depends(plain)) -> None: ...  # noqa: B008
    async def refund(order: Order, it: Annotated[None, Depends(inner)]) -> None: ...

    assert "'session' has Depends as its default; write it as the annotation" in refusal(charge)
    assert "inner: 'session' has Depends as its default" in refusal(refund)


def test_the_depends_of_another_library_is_refused_unless_ours_is_there_too() -> None:
    fastapi = pytest.importorskip("fastapi")

    async def charge(order: Order, session: Annotated[str, fastapi.Depends(plain)]) -> None: ...
    async def refund(order: Order, session: Annotated[str, Depends]) -> None: ...
    async def both(
        order: Order, session: Annotated[str, fastapi.Depends(plain), Depends(plain)]
    ) -> None: ...

    assert "parameter 'session' has the Depends of fastapi" in refusal(charge)
    assert "parameter 'session' has Depends without a function" in refusal(refund)
    Handler("order.placed", both)


def test_other_ways_to_get_it_wrong() -> None:
    def fixed(message: Message[Any], /) -> None: ...

    async def two_of_them(
        order: Order, it: Annotated[str, Depends(plain), Depends(coroutine)]
    ) -> None: ...
    async def positional(order: Order, it: Annotated[None, Depends(fixed)]) -> None: ...
    async def unreadable(order: Order, it: Annotated[Any, Depends(dict)]) -> None: ...

    assert "'it' has 2 Depends" in refusal(two_of_them)
    assert "'message' is positional-only" in refusal(positional)
    assert "a signature that cannot be read" in refusal(unreadable)
    with pytest.raises(ConfigError, match=r"Depends\('session'\): expected a function"):
        Depends("session")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="expected 'message' or 'worker'"):
        Depends(plain, scope="app")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    @dataclass
    class Unhashable:
        def __call__(self) -> None: ...

    with pytest.raises(ConfigError, match="has no hash"):
        Depends(Unhashable())


def test_an_annotation_that_cannot_be_read_is_told_and_not_passed_over() -> None:
    async def charge(order: Order, session: "Annotated[Nowhere, Depends(plain)]") -> None: ...  # type: ignore[name-defined]  # pyright: ignore[reportUndefinedVariable]  # noqa: F821

    assert "'session' asks for a dependency, and its annotation cannot be read" in refusal(charge)
    assert "name 'Nowhere' is not defined" in refusal(charge)


async def test_a_generator_that_was_wrapped_beyond_recognition_fails_the_message(
    mock: MockQueueCraft,
) -> None:
    async def charge(order: Order, it: Annotated[Any, Depends(lambda: generator())]) -> None: ...

    outcome = await handled(mock, charge)
    assert isinstance(outcome, Retried)
    assert outcome.failure is not None
    assert "gave a generator, so nothing of it has run" in outcome.failure.error


# -- overrides -------------------------------------------------------------------------------


def reading(seen: list[Any], function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    async def charge(order: Order, it: Annotated[Any, Depends(function, **options)]) -> None:
        seen.append(it)

    return charge


@pytest.mark.parametrize("scope", ["message", "worker"])
async def test_an_override_holds_for_its_block_also_in_a_worker_that_runs(
    mock: MockQueueCraft, scope: Any
) -> None:
    seen: list[str] = []
    worker = mock.worker("billing").on(order_placed, reading(seen, plain, scope=scope))
    await mock.deliver(worker, ORDER)
    with mock.override(plain, lambda: "fake"):
        await mock.deliver(worker, ORDER)
        with mock.override(plain, coroutine):
            await mock.deliver(worker, ORDER)
        await mock.deliver(worker, ORDER)
    await mock.deliver(worker, ORDER)
    assert seen == ["plain", "fake", "coroutine", "fake", "plain"]


async def test_an_override_reaches_what_depends_on_what_it_replaces(mock: MockQueueCraft) -> None:
    def engine() -> str:
        return "engine"

    def session(engine: Annotated[str, Depends(engine, scope="worker")]) -> str:
        return f"session of {engine}"

    seen: list[str] = []
    worker = mock.worker("billing").on(order_placed, reading(seen, session, scope="worker"))
    await mock.deliver(worker, ORDER)
    with mock.override(engine, lambda: "fake"):
        await mock.deliver(worker, ORDER)
    await mock.deliver(worker, ORDER)
    assert seen == ["session of engine", "session of fake", "session of engine"]


async def test_what_an_override_has_made_for_a_worker_is_closed_with_it(
    mock: MockQueueCraft, notes: list[str]
) -> None:
    async def fake() -> AsyncIterator[str]:
        yield "fake"
        notes.append("close fake")

    seen: list[str] = []
    with mock.override(plain, fake):
        assert await handled(mock, reading(seen, plain, scope="worker")) == Acked()
    assert seen == ["fake"]
    assert notes == ["close fake"]


async def test_a_replacement_may_ask_for_what_it_replaces(mock: MockQueueCraft) -> None:
    def louder(real: Annotated[str, Depends(plain)], message: Message[Any]) -> str:
        return f"{real.upper()} {message.id}"

    seen: list[str] = []
    worker = mock.worker("billing").on(order_placed, reading(seen, plain))
    with mock.override(plain, louder):
        await mock.deliver(worker, ORDER, message_id="m-1")
    assert seen == ["PLAIN m-1"]


async def test_a_replacement_that_cannot_be_made_is_told_at_once(mock: MockQueueCraft) -> None:
    def fake(url: str) -> str:
        return url

    seen: list[str] = []
    worker = mock.worker("billing").on(order_placed, reading(seen, plain))
    with (
        pytest.raises(ConfigError, match="fake: nothing fills parameter 'url'"),
        mock.override(plain, fake),
    ):
        raise AssertionError
    with (
        pytest.raises(ConfigError, match="expected a function"),
        mock.override(plain, "fake"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ):
        raise AssertionError
    await mock.deliver(worker, ORDER)
    assert seen == ["plain"]


@pytest.mark.parametrize("kind", [Mock, MagicMock, AsyncMock])
async def test_a_mock_may_stand_in(mock: MockQueueCraft, kind: type[Mock]) -> None:
    seen: list[Any] = []
    fake = kind(return_value="fake")
    with mock.override(plain, fake):
        assert await handled(mock, reading(seen, plain)) == Acked()
    assert seen == ["fake"]
    fake.assert_called_once_with()


async def test_a_rehearsal_has_dependencies_and_overrides(notes: list[str]) -> None:
    def engine() -> str:
        return "engine"

    def session(engine: Annotated[str, Depends(engine, scope="worker")]) -> Iterator[str]:
        yield f"session of {engine}"
        notes.append("commit")

    qc = QueueCraft("local://")
    worker = qc.worker("billing")

    @worker.on(order_placed)
    async def charge(order: Order, session: Annotated[str, Depends(session)]) -> None:
        notes.append(session)

    with qc.override(engine, lambda: "fake"):
        async with testing(qc) as app:
            await qc.publish(order_placed, ORDER)
            await app.settle()
    assert notes == ["session of fake", "commit"]


async def test_what_a_partial_was_given_is_not_asked_for(mock: MockQueueCraft) -> None:
    def inner(it: Annotated[str, Depends(plain)]) -> str:
        return it

    asked = Depends(functools.partial(inner, it="given"))
    seen: list[str] = []

    async def charge(
        order: Order, one: Annotated[str, asked], two: Annotated[str, Depends(plain)]
    ) -> None:
        seen.extend([one, two])

    assert await handled(mock, functools.partial(charge, two="bound")) == Acked()
    assert seen == ["given", "bound"]


async def test_an_override_ends_with_its_own_queuecraft(mock: MockQueueCraft) -> None:
    seen: list[str] = []
    async with MockQueueCraft() as other:
        with other.override(plain, coroutine):
            await handled(mock, reading(seen, plain))
    assert seen == ["plain"]


async def test_overrides_need_not_end_in_order(mock: MockQueueCraft) -> None:
    seen: list[str] = []
    worker = mock.worker("billing").on(order_placed, reading(seen, plain))
    first, second = (mock.override(plain, each) for each in (lambda: "first", lambda: "second"))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    await mock.deliver(worker, ORDER)
    second.__exit__(None, None, None)
    await mock.deliver(worker, ORDER)
    assert seen == ["second", "plain"]


# -- no cost for others ----------------------------------------------------------------------


async def test_a_worker_without_dependencies_has_no_task_for_them(
    mock: MockQueueCraft, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    worker: Worker = mock.worker("billing", concurrency=1)
    worker.on(order_placed, reading([], plain))
    worker.on(order_paid, reading([], coroutine))
    await worker.start()
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert "billing-1" in names
    assert "billing-dependencies" not in names


async def test_many_messages_at_once_each_have_their_own() -> None:
    open_now: set[int] = set()
    most = 0

    async def session(message: Message[int]) -> AsyncIterator[int]:
        nonlocal most
        open_now.add(message.payload)
        most = max(most, len(open_now))
        await asyncio.sleep(0)
        yield message.payload
        open_now.remove(message.payload)

    seen: list[int] = []
    async with QueueCraft("local://") as qc:
        worker = qc.worker("numbers", concurrency=20)

        @worker.on(number)
        async def handle(it: int, session: Annotated[int, Depends(session)]) -> None:
            await asyncio.sleep(0)
            assert it == session
            seen.append(it)

        async with running(worker):
            await qc.publish_many(number, range(500))
            async with asyncio.timeout(10):
                while len(seen) < 500:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
    assert sorted(seen) == list(range(500))
    assert not open_now
    assert most > 1
