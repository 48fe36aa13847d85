"""Who gets batches is told by annotations, and what cannot work is refused at registration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from queuecraft import ConfigError, Event, Message, QueueCraft, channel, consume
from queuecraft.runtime.handler import Handler


@dataclass
class Order:
    id: str


order_placed = Event("order.placed", Order)
totals = Event("totals", list[int])
anything: Event[Any] = Event("anything")


async def one(order: Order) -> None: ...
async def one_message(message: Message[Order]) -> None: ...
async def many(orders: list[Order]) -> None: ...
async def many_as_sequence(orders: Sequence[Order]) -> None: ...
async def many_noted(orders: Annotated[list[Order], "all of them"]) -> None: ...
async def many_of_any(orders: list) -> None: ...  # type: ignore[type-arg]
async def many_messages(messages: list[Message[Order]]) -> None: ...
async def both_lists(orders: list[Order], messages: list[Message[Order]]) -> None: ...
async def messages_first(messages: list[Message[Order]], orders: list[Order]) -> None: ...
async def list_and_message(orders: list[Order], message: Message[Order]) -> None: ...
async def too_much(orders: list[Order], messages: list[Message[Order]], more: int) -> None: ...
async def a_total(total: list[int]) -> None: ...
async def many_totals(batch: list[list[int]]) -> None: ...


@pytest.mark.parametrize(
    "function",
    [many, many_as_sequence, many_noted, many_of_any, many_messages, both_lists, messages_first],
)
def test_a_list_as_first_parameter_means_batches(function: Callable[..., Any]) -> None:
    handler = Handler("order.placed", function, Order)
    assert handler.in_batches
    assert handler.metadata.in_batches
    assert handler.metadata.payload_type is Order


@pytest.mark.parametrize("function", [one, one_message])
def test_anything_else_means_one_by_one(function: Callable[..., Any]) -> None:
    assert not Handler("order.placed", function, Order).in_batches


def test_a_type_that_is_out_of_reach_makes_a_list_all_the_same() -> None:
    class Local: ...

    async def store(them: list[Local], messages: list[Message[Local]]) -> None: ...

    handler = Handler("local", store, Local)
    assert handler.in_batches
    assert [each.source for each in handler.metadata.params] == ["payload", "message"]


def test_without_a_type_a_list_is_a_payload_unless_a_batch_size_is_given() -> None:
    assert not Handler("totals", a_total).in_batches
    batches = Handler("totals", a_total, batch_size=5)
    assert batches.in_batches
    assert batches.metadata.payload_type is int


def test_a_payload_that_is_a_list_is_no_batch() -> None:
    assert not Handler("totals", a_total, list[int]).in_batches
    assert Handler("totals", many_totals, list[int]).in_batches


@pytest.mark.parametrize(
    ("event", "function", "options", "said"),
    [
        (order_placed, one, {"batch_size": 5}, r"takes one message at a time.*list\[Order\]"),
        (order_placed, one, {"batch_wait": 5}, "takes one message at a time"),
        (order_placed, one_message, {"batch_size": 5}, "takes one message at a time"),
        (anything, one, {"batch_size": 5}, "takes one message at a time"),
        (totals, a_total, {"batch_size": 5}, r"is a list itself.*list\[list\[int\]\]"),
        (order_placed, many, {}, "nothing says how many: give it, or its worker, a batch_size"),
        (order_placed, list_and_message, {"batch_size": 5}, r"annotate it list\[Message\]"),
        (order_placed, too_much, {"batch_size": 5}, "nothing fills parameter 'more'"),
        (order_placed, many, {"batch_size": 0}, "batch_size=0: expected a whole number from 1 on"),
        (order_placed, many, {"batch_size": True}, "batch_size=True: expected a whole number"),
        (order_placed, many, {"batch_size": 2.5}, "batch_size=2.5: expected a whole number"),
        (order_placed, many, {"batch_size": 5, "batch_wait": -1}, "batch_wait=-1: expected sec"),
        (order_placed, many, {"batch_size": 5, "batch_wait": "1"}, "batch_wait='1': expected sec"),
        (order_placed, many, {"batch_size": 5, "batch_wait": float("inf")}, "batch_wait=inf"),
        (order_placed, many, {"batch_size": 5, "batch_wait": float("nan")}, "batch_wait=nan"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_registered(
    event: Any, function: Callable[..., Any], options: Any, said: str
) -> None:
    worker = QueueCraft().worker("billing")
    with pytest.raises(ConfigError, match=said):
        worker.on(event, function, **options)
    assert worker.handlers == ()


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"batch_size": "5"}, {"batch_wait": -0.1}])
def test_a_worker_checks_its_own_options(options: Any) -> None:
    (name,) = options
    with pytest.raises(ConfigError, match=f"{name}=.*: expected"):
        QueueCraft().worker("billing", **options)


def test_a_batch_size_without_a_handler_of_lists_is_refused_when_the_worker_is_built() -> None:
    worker = QueueCraft().worker("billing", batch_size=5).on(order_placed, one)
    with pytest.raises(ConfigError, match=r"'billing' has batch_size=5, and no handler that takes"):
        worker.build()


def test_a_prefetch_that_would_fill_no_batch_is_refused() -> None:
    worker = QueueCraft(prefetch=4).worker("billing")
    with pytest.raises(ConfigError, match="prefetch=4 is less than batch_size=5"):
        worker.on(order_placed, many, batch_size=5)
    worker.on(order_placed, many, batch_size=4)


def test_the_size_of_the_settings_concerns_nobody_who_takes_no_list() -> None:
    qc = QueueCraft(batch_size=100, prefetch=4)
    qc.worker("billing").on(order_placed, one).build()
    qc.worker("totals").on("totals", a_total).build()


def test_the_chain_of_calls_knows_batches() -> None:
    qc = QueueCraft()
    worker = qc.worker("billing").batch_size(100).batch_wait(0.5).on(order_placed, many).build()
    assert worker.handlers[0].in_batches
    with pytest.raises(ConfigError, match="batch_size=0"):
        worker.batch_size(0)


def test_methods_of_a_class_may_take_batches() -> None:
    @channel("billing")
    class Billing:
        @consume(order_placed, batch_size=5, batch_wait=0.1)
        async def store(self, orders: list[Order]) -> None: ...

    (handler,) = QueueCraft().include(Billing()).handlers
    assert (handler.in_batches, handler.payload_type) == (True, Order)


async def test_middleware_around_a_batch_is_refused() -> None:
    qc = QueueCraft(middleware=[lambda handle: handle])
    worker = qc.worker("billing").on(order_placed, many, batch_size=5)
    async with qc:
        with pytest.raises(ConfigError, match="takes batches, and middleware wraps"):
            await worker.start()
    worker = QueueCraft().worker("billing", middleware=[lambda handle: handle])
    with pytest.raises(ConfigError, match="takes batches, and middleware wraps"):
        worker.on(order_placed, many, batch_size=5)
