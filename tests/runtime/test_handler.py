"""What a handler's parameters ask for, and how every kind of callable is called."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar
from unittest.mock import AsyncMock

import pytest

from queuecraft import ConfigError, Event, Message, QueueCraft
from queuecraft.codec import Codec
from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.model.outcome import UnreadablePayload
from queuecraft.runtime.handler import Handle, Handler, Middleware
from queuecraft.runtime.threads import Threads
from queuecraft.testing import message_of
from tests.runtime.support import Order, order_placed

if TYPE_CHECKING:
    from decimal import Decimal

    from queuecraft import Message as Envelope

T = TypeVar("T")
Msg = Message


def sources(function: Callable[..., Any]) -> dict[str, str]:
    return {param.name: param.source for param in Handler("order.placed", function).metadata.params}


def payload_type(function: Callable[..., Any]) -> Any:
    return Handler("order.placed", function).metadata.payload_type


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads("test")
    yield threads
    threads.close()


class Caller:
    """Calls a function as a worker would, for one message."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self.control = message_of(None)._record

    async def __call__(
        self,
        function: Callable[..., Any],
        body: bytes = b'{"id":"o-1","total":2.5}',
        *,
        type: Any = Order,
        middleware: tuple[Middleware, ...] = (),
    ) -> object:
        handler = Handler("order.placed", function, type)
        call = handler.compile(Codec(), self.control, self.threads, middleware)
        sent = Outgoing(body, "m-1", "events", "order.placed", content_type="application/json")
        return await call(Delivery(sent, "billing"))


@pytest.fixture
def call(threads: Threads) -> Caller:
    return Caller(threads)


ORDER = Order("o-1", 2.5)


# -- what parameters ask for -----------------------------------------------------------------


def test_the_first_parameter_is_the_payload() -> None:
    async def charge(order: Order) -> None: ...

    assert sources(charge) == {"order": "payload"}


def test_without_annotations_the_first_parameter_is_the_payload() -> None:
    assert sources(lambda order: order) == {"order": "payload"}


def test_a_message_is_asked_for_by_annotation() -> None:
    async def charge(order: Order, message: Message) -> None: ...

    assert sources(charge) == {"order": "payload", "message": "message"}


def test_a_message_may_come_first() -> None:
    async def charge(message: Message[Order], order: Order) -> None: ...

    assert sources(charge) == {"message": "message", "order": "payload"}


def test_a_message_may_be_all_there_is() -> None:
    async def charge(anything: Message[Order]) -> None: ...

    assert sources(charge) == {"anything": "message"}


def test_nothing_may_be_asked_for() -> None:
    async def tick() -> None: ...

    assert sources(tick) == {}


def test_further_parameters_need_defaults() -> None:
    async def charge(order: Order, message: Message, tries: int = 3) -> None: ...

    assert sources(charge) == {"order": "payload", "message": "message", "tries": "default"}


def test_a_parameter_nothing_fills_is_named() -> None:
    async def charge(order: Order, customer: str) -> None: ...

    with pytest.raises(ConfigError, match="nothing fills parameter 'customer'"):
        sources(charge)


def test_a_message_cannot_be_asked_for_twice() -> None:
    async def charge(one: Message, other: Message) -> None: ...

    with pytest.raises(ConfigError, match="asks for the message twice"):
        sources(charge)


def test_a_keyword_only_parameter_is_refused() -> None:
    async def charge(order: Order, *, message: Message) -> None: ...

    with pytest.raises(ConfigError, match="'message' is keyword-only"):
        sources(charge)


def test_a_keyword_only_parameter_with_a_default_keeps_it() -> None:
    async def charge(order: Order, *, tries: int = 3) -> None: ...

    assert sources(charge) == {"order": "payload", "tries": "default"}


def test_any_number_of_arguments_takes_the_payload() -> None:
    async def charge(*args: Any, **kwargs: Any) -> None: ...

    assert sources(charge) == {"args": "payload"}


def test_further_arguments_take_nothing_more() -> None:
    async def charge(order: Order, *rest: Any, **options: Any) -> None: ...
    async def note(message: Message, *rest: Any) -> None: ...

    assert sources(charge) == {"order": "payload"}
    assert sources(note) == {"message": "message"}


def test_a_message_that_may_be_missing_is_never_missing() -> None:
    async def charge(order: Order, message: Message | None = None) -> None: ...
    async def pay(order: Order, message: Optional[Message[Order]] = None) -> None: ...  # noqa: UP045

    assert sources(charge) == sources(pay) == {"order": "payload", "message": "message"}


def test_an_annotation_may_carry_notes() -> None:
    async def charge(
        order: Annotated[Order, "of a shop"], message: Annotated[Message, 1]
    ) -> None: ...

    assert sources(charge) == {"order": "payload", "message": "message"}


class Letter(Message[Order]):
    """A message of one's own."""


def test_a_subclass_of_message_is_a_message() -> None:
    async def charge(letter: Letter) -> None: ...

    assert sources(charge) == {"letter": "message"}


def test_a_payload_may_have_a_default() -> None:
    async def charge(order: Order = ORDER) -> None: ...

    assert sources(charge) == {"order": "payload"}


# -- annotations as text ---------------------------------------------------------------------


def test_local_classes_do_not_hide_the_message() -> None:
    class Local: ...

    async def charge(order: Local, message: Message[Local]) -> None: ...
    async def note(message: Message[Local]) -> None: ...

    assert sources(charge) == {"order": "payload", "message": "message"}
    assert sources(note) == {"message": "message"}


def test_a_message_under_another_name_is_known_too() -> None:
    class Local: ...

    async def charge(order: Local, message: Msg[Local]) -> None: ...
    async def pay(order: Local, message: Msg[Local] | None = None) -> None: ...

    assert sources(charge) == sources(pay) == {"order": "payload", "message": "message"}


def test_names_imported_for_type_checkers_only_are_out_of_reach_and_no_harm() -> None:
    async def charge(total: Decimal, message: Message) -> None: ...

    assert sources(charge) == {"total": "payload", "message": "message"}
    assert payload_type(charge) is Any


def test_a_message_imported_for_type_checkers_only_is_known_by_its_name() -> None:
    namespace: dict[str, Any] = {"Order": Order}
    exec(
        "from __future__ import annotations\n"
        "async def charge(order: Order, message: Message[Order]) -> None: ...\n"
        "async def pay(order: Order, message: queuecraft.Message) -> None: ...\n",
        namespace,
    )
    for name in ("charge", "pay"):
        assert sources(namespace[name]) == {"order": "payload", "message": "message"}
        assert payload_type(namespace[name]) is Order


def test_an_alias_out_of_reach_is_refused_with_a_reason() -> None:
    async def charge(order: Order, message: Envelope) -> None: ...

    with pytest.raises(ConfigError, match="nothing fills parameter 'message'"):
        sources(charge)


def test_text_that_is_no_annotation_is_no_harm() -> None:
    async def charge(order, message) -> None: ...

    charge.__annotations__ = {"order": "the order!", "message": Message}
    assert sources(charge) == {"order": "payload", "message": "message"}


# -- the type of the payload -----------------------------------------------------------------


def test_the_event_says_what_the_payload_is() -> None:
    async def charge(order: dict[str, Any]) -> None: ...

    assert Handler("order.placed", charge, Order).metadata.payload_type is Order


def test_for_a_plain_name_the_annotation_says_it() -> None:
    async def charge(order: Order) -> None: ...
    async def note(message: Message[Order]) -> None: ...
    async def both(message: Message[int], order: Order) -> None: ...
    async def none(message: Message) -> None: ...
    async def maybe(order: Order | None) -> None: ...
    async def generic(orders: list[Order]) -> None: ...

    assert payload_type(charge) is Order
    assert payload_type(note) is Order
    assert payload_type(both) is Order
    assert payload_type(none) is Any
    assert payload_type(maybe) == Order | None
    assert payload_type(generic) == list[Order]


def test_a_message_that_may_be_missing_still_says_its_type() -> None:
    async def note(message: Message[Order] | None = None) -> None: ...
    async def annotated(message: Annotated[Message[Order], 1]) -> None: ...

    assert payload_type(note) is Order
    assert payload_type(annotated) is Order


# -- every kind of callable ------------------------------------------------------------------


class Billing:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def charge(self, order: Order, message: Message[Order]) -> str:
        self.seen.append((order, message.id))
        return "charged"

    def charge_slowly(self, order: Order) -> str:
        self.seen.append((order, threading.current_thread()))
        return "charged"

    @classmethod
    async def of_class(cls, message: Message[Order], order: Order) -> str:
        return f"{cls.__name__} {message.id} {order.id}"

    @staticmethod
    async def static(order: Order) -> str:
        return order.id

    async def __call__(self, order: Order, message: Message[Order]) -> str:
        return f"{order.id} {message.id}"


class Till:
    def __call__(self, order: Order) -> str:
        return threading.current_thread().name


async def test_a_function_is_called_with_the_payload(call: Caller) -> None:
    async def charge(order: Order) -> Order:
        return order

    assert await call(charge) == ORDER


async def test_each_arrangement_of_parameters_is_served(call: Caller) -> None:
    async def both(order: Order, message: Message[Order]) -> object:
        return order, message.id

    async def swapped(message: Message[Order], order: Order) -> object:
        return order, message.id

    async def alone(message: Message[Order]) -> object:
        return message.payload, message.id

    async def nothing() -> object:
        return "called"

    async def more(order: Order, tries: int = 3, *, dry: bool = True) -> object:
        return order, tries, dry

    async def between(order: Order, tries: int = 3, message: Message | None = None) -> object:
        return order, tries, message is not None

    for function in (both, swapped, alone):
        assert await call(function) == (ORDER, "m-1")
    assert await call(nothing) == "called"
    assert await call(more) == (ORDER, 3, True)
    assert await call(between) == (ORDER, 3, True)


async def test_bound_methods_are_called_on_their_object(call: Caller) -> None:
    billing = Billing()
    assert await call(billing.charge) == "charged"
    assert await call(Billing.of_class) == "Billing m-1 o-1"
    assert await call(billing.static) == "o-1"
    assert billing.seen == [(ORDER, "m-1")]


async def test_objects_are_called_as_functions(call: Caller) -> None:
    assert await call(Billing()) == "o-1 m-1"


async def test_a_sync_object_runs_in_a_thread(call: Caller) -> None:
    assert await call(Till()) == "queuecraft-test"


async def test_a_sync_function_runs_in_a_thread(call: Caller) -> None:
    def charge(order: Order, message: Message[Order]) -> tuple[Order, str, bool]:
        return order, message.id, threading.current_thread() is threading.main_thread()

    assert await call(charge) == (ORDER, "m-1", False)


async def test_middleware_that_steps_aside_changes_nothing(call: Caller) -> None:
    def aside(handle: Handle) -> Handle:
        return handle

    def counted(handle: Handle) -> Handle:
        async def counting(message: Message[Any]) -> object:
            return 1, await handle(message)

        return counting

    async def charge(order: Order) -> Order:
        return order

    def charge_in_thread(order: Order) -> Order:
        assert threading.current_thread() is not threading.main_thread()
        return order

    for function in (charge, charge_in_thread):
        assert await call(function, middleware=(aside, aside)) == ORDER
        assert await call(function, middleware=(aside, counted, aside)) == (1, ORDER)
    with pytest.raises(UnreadablePayload):
        await call(charge, b"{", middleware=(aside,))


async def test_partials_keep_what_their_function_asks_for(call: Caller) -> None:
    async def charge(client: str, order: Order, message: Message[Order]) -> object:
        return client, order, message.id

    async def pay(order: Order, message: Message[Order], client: str) -> object:
        return client, order, message.id

    assert await call(functools.partial(charge, "c")) == ("c", ORDER, "m-1")
    assert await call(functools.partial(pay, client="c")) == ("c", ORDER, "m-1")


async def test_partials_of_partials_methods_and_objects_work(call: Caller) -> None:
    class Shop:
        async def charge(self, client: str, order: Order, message: Message[Order]) -> object:
            return client, order, message.id

        async def __call__(self, client: str, message: Message[Order]) -> object:
            return client, message.payload, message.id

    async def pay(a: str, b: str, order: Order, message: Message[Order]) -> object:
        return a + b, order, message.id

    for function in (
        functools.partial(Shop().charge, "ab"),
        functools.partial(Shop(), "ab"),
        functools.partial(functools.partial(pay, "a"), "b"),
    ):
        assert await call(function) == ("ab", ORDER, "m-1")


def test_a_partial_says_the_type_of_its_payload() -> None:
    async def charge(client: str, order: Order) -> None: ...

    assert payload_type(functools.partial(charge, "c")) is Order


async def test_a_partial_of_a_sync_function_runs_in_a_thread(call: Caller) -> None:
    def charge(client: str, order: Order) -> tuple[str, bool]:
        return client, threading.current_thread() is threading.main_thread()

    assert await call(functools.partial(charge, "c")) == ("c", False)


def logged(function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> T:
        return await function(*args, **kwargs)

    return wrapper


def passing_on(function: Callable[..., T]) -> Callable[..., T]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> T:
        return function(*args, **kwargs)

    return wrapper


def careless(function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    async def wrapper(*args: Any, **kwargs: Any) -> T:
        return await function(*args, **kwargs)

    return wrapper


async def test_wrapped_functions_keep_what_they_ask_for(call: Caller) -> None:
    async def charge(order: Order, message: Message[Order]) -> object:
        return order, message.id

    assert await call(logged(charge)) == (ORDER, "m-1")
    assert await call(passing_on(charge)) == (ORDER, "m-1")
    assert await call(logged(passing_on(logged(charge)))) == (ORDER, "m-1")


async def test_a_wrapper_that_hides_its_function_gets_the_payload(call: Caller) -> None:
    async def charge(order: Order) -> object:
        return order

    assert await call(careless(charge)) == ORDER


async def test_an_async_wrapper_of_a_sync_function_stays_in_the_loop(call: Caller) -> None:
    def charge(order: Order) -> bool:
        return threading.current_thread() is threading.main_thread()

    @functools.wraps(charge)
    async def wrapper(*args: Any) -> bool:
        return charge(*args)

    assert await call(wrapper) is True


async def test_a_lambda_around_an_async_function_is_awaited(call: Caller) -> None:
    async def charge(client: str, order: Order) -> object:
        await asyncio.sleep(0)
        return client, order

    assert await call(lambda order: charge("c", order)) == ("c", ORDER)


async def test_a_lambda_fails_as_its_coroutine_does(call: Caller) -> None:
    async def charge(order: Order) -> None:
        raise ValueError("no money")

    with pytest.raises(ValueError, match="no money"):
        await call(lambda order: charge(order))


async def test_a_mock_is_given_the_payload(call: Caller) -> None:
    charge = AsyncMock(return_value="charged")
    assert await call(charge) == "charged"
    charge.assert_awaited_once_with(ORDER)


def test_a_builtin_without_a_signature_is_refused() -> None:
    with pytest.raises(ConfigError, match="signature that cannot be read"):
        Handler("order.placed", max)


@pytest.mark.parametrize("function", [None, 5, "charge", Order("o-1")])
def test_what_cannot_be_called_is_refused(function: Any) -> None:
    with pytest.raises(ConfigError, match="must be a function"):
        Handler("order.placed", function)


# -- generators ------------------------------------------------------------------------------


class Yielding:
    async def agen(self, order: Order) -> AsyncIterator[int]:
        yield 1

    def gen(self, order: Order) -> Iterator[int]:
        yield 1


class CallYields:
    async def __call__(self, order: Order) -> AsyncIterator[int]:
        yield 1


@pytest.mark.parametrize(
    "function",
    [
        Yielding().agen,
        Yielding().gen,
        CallYields(),
        functools.partial(Yielding().agen),
        functools.partial(Yielding.gen, Yielding()),
    ],
)
def test_a_function_that_yields_would_never_run_and_is_refused(function: Any) -> None:
    with pytest.raises(ConfigError, match="yields"):
        Handler("order.placed", function)


async def test_a_function_that_gives_a_generator_fails_instead_of_doing_nothing(
    call: Caller,
) -> None:
    for function in (Yielding().agen, Yielding().gen):
        with pytest.raises(TypeError, match="generator"):
            await call(lambda order, function=function: function(order))
        with pytest.raises(TypeError, match="generator"):
            await call(passing_on(function))


async def test_a_wrapper_that_runs_a_generator_to_its_end_is_a_handler(call: Caller) -> None:
    @functools.wraps(Yielding().agen)
    async def to_the_end(order: Order) -> list[int]:
        return [each async for each in Yielding().agen(order)]

    assert await call(to_the_end) == [1]


# -- payloads --------------------------------------------------------------------------------


@pytest.mark.parametrize("with_message", [False, True])
@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("body", [b"", b"{", b'{"id":5}', b"\xff", b"[]"])
async def test_a_payload_that_cannot_be_read_never_reaches_the_function(
    call: Caller, body: bytes, in_thread: bool, with_message: bool
) -> None:
    called: list[object] = []

    async def charge(order: Order) -> None:
        called.append(order)

    async def pay(order: Order, message: Message) -> None:
        called.append(order)

    def charge_slowly(order: Order) -> None:
        called.append(order)

    function: Callable[..., Any] = charge_slowly if in_thread else pay if with_message else charge
    with pytest.raises(UnreadablePayload):
        await call(function, body)
    assert called == []


async def test_a_message_that_is_not_looked_into_is_not_decoded(call: Caller) -> None:
    async def note(message: Message[Order]) -> str:
        return message.id

    assert await call(note, b"not JSON") == "m-1"


async def test_a_handler_of_bytes_gets_the_body_as_it_is(call: Caller) -> None:
    async def keep(body: bytes) -> bytes:
        return body

    assert await call(keep, b"\x00\xff", type=bytes) == b"\x00\xff"


async def test_a_payload_error_of_the_handler_itself_is_no_poison(call: Caller) -> None:
    from queuecraft import PayloadError

    async def charge(order: Order) -> None:
        raise PayloadError("the bank did not like it")

    with pytest.raises(PayloadError) as caught:
        await call(charge)
    assert not isinstance(caught.value, UnreadablePayload)


def test_a_payload_type_that_nothing_can_read_is_refused_with_its_name() -> None:
    qc = QueueCraft()
    worker = qc.worker("billing")

    async def main() -> None:
        async with qc:
            await worker.on(Event("odd", Callable[[], int]), lambda odd: odd).start()  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    with pytest.raises(ConfigError, match="Callable"):
        asyncio.run(main())


def test_the_name_of_a_handler_is_told_in_errors() -> None:
    async def charge(order: Order, who: str) -> None: ...

    with pytest.raises(ConfigError, match=r"charge of 'order\.placed'"):
        Handler("order.placed", charge)
    with pytest.raises(ConfigError, match=r"functools\.partial"):
        Handler("order.placed", functools.partial(charge))


def test_looking_at_a_handler_does_not_call_it() -> None:
    calls: list[object] = []

    def charge(order: Order) -> None:
        calls.append(order)

    handler = Handler("order.placed", charge)
    assert handler.sync
    assert not calls
    assert inspect.isfunction(handler.metadata.handler)
    assert order_placed.type is Order
