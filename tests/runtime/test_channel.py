"""Handlers as methods of a class."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    Event,
    Exchange,
    Message,
    NoRetry,
    Queue,
    QueueCraft,
    Retry,
    channel,
    consume,
)
from tests.runtime.support import Order, Stage, order_paid, order_placed, running, staged

invoices: Queue[dict[str, Any]] = Queue("invoices", dict)
untyped: Any = consume  # for what type checkers would not let pass


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


@pytest.fixture
def qc() -> QueueCraft:
    return QueueCraft()


@channel("billing", concurrency=4, retry=Retry(max_retries=5))
class Billing:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    @consume(order_placed)
    async def charge(self, order: Order, message: Message[Order]) -> None:
        self.seen.append((order, message.routing_key))

    @consume(order_paid)
    def book(self, order: Order) -> None:
        self.seen.append(order)

    async def unrelated(self, order: Order) -> None:
        raise AssertionError("nobody asked for this")


async def test_the_methods_of_a_class_handle_its_events(stage: Stage) -> None:
    billing = Billing()
    worker = stage.qc.include(billing)
    async with running(worker):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
    assert billing.seen == [(Order("o-1"), "order.placed")]


async def test_sync_methods_run_in_threads(stage: Stage) -> None:
    billing = Billing()
    async with running(stage.qc.include(billing)):
        await stage.qc.publish(order_paid, Order("o-1"))
    assert billing.seen == [Order("o-1")]


def test_a_channel_says_what_a_worker_would(qc: QueueCraft) -> None:
    worker = qc.include(Billing())
    assert worker.queue_name == "billing"
    assert worker.policy.retry == Retry(max_retries=5)
    assert qc.workers == (worker,)


def test_a_channel_fills_the_same_registry(qc: QueueCraft) -> None:
    billing = Billing()
    qc.include(billing)
    (metadata,) = qc.registry
    assert [(each.pattern, each.payload_type) for each in metadata.handlers] == [
        ("order.placed", Order),
        ("order.paid", Order),
    ]
    assert metadata.handlers[0].handler == billing.charge
    assert [param.source for param in metadata.handlers[0].params] == ["payload", "message"]


def test_the_class_stays_a_plain_class() -> None:
    assert isinstance(Billing(), Billing)
    assert Billing.charge.__name__ == "charge"


def test_handlers_come_in_the_order_they_are_written(qc: QueueCraft) -> None:
    @channel()
    class Audit:
        @consume("z")
        async def z(self, value: int) -> None: ...
        @consume("a")
        async def a(self, value: int) -> None: ...

    assert qc.include(Audit()).queue_name == "queue.z.a"


def test_a_channel_may_be_named_after_its_service(qc: QueueCraft) -> None:
    @channel(service="shop")
    class Audit:
        @consume("a")
        async def a(self, value: int) -> None: ...

    assert qc.include(Audit()).queue_name.startswith("shop-")


def test_a_channel_may_be_a_queue_with_a_type(qc: QueueCraft) -> None:
    @channel(invoices)
    class Invoices:
        @consume(invoices)
        async def note(self, invoice: dict[str, Any]) -> None: ...

    (metadata,) = (qc.include(Invoices()).metadata,)
    assert (metadata.queue, metadata.handlers[0].payload_type) == ("invoices", dict)


def test_one_method_may_take_several_events(qc: QueueCraft) -> None:
    @channel("audit")
    class Audit:
        @consume(order_paid)
        @consume(order_placed)
        async def note(self, order: Order) -> None: ...

    patterns = [each.pattern for each in qc.include(Audit()).metadata.handlers]
    assert sorted(patterns) == ["order.paid", "order.placed"]


def test_a_pattern_may_be_consumed(qc: QueueCraft) -> None:
    @channel("audit")
    class Audit:
        @consume("order.#")
        async def note(self, message: Message) -> None: ...

    assert qc.include(Audit()).metadata.handlers[0].pattern == "order.#"


def test_header_values_may_be_asked_for(qc: QueueCraft) -> None:
    report: Event[dict[str, Any]] = Event("report", exchange=Exchange("reports", "headers"))

    @channel("printer")
    class Printer:
        @consume(report, match={"format": "pdf"})
        async def print_it(self, report: dict[str, Any]) -> None: ...

    (binding,) = qc.include(Printer()).definition.bindings
    assert binding.headers == {"format": "pdf"}


def test_static_and_class_methods_are_handlers_too(qc: QueueCraft) -> None:
    @channel("audit")
    class Audit:
        @staticmethod
        @untyped("static")
        async def static(value: int) -> None: ...

        @classmethod
        @consume("of.class")
        async def of_class(cls, value: int) -> None: ...

    patterns = [each.pattern for each in qc.include(Audit()).metadata.handlers]
    assert patterns == ["static", "of.class"]


def test_a_mark_outside_of_a_static_or_class_method_counts_as_well(qc: QueueCraft) -> None:
    @channel("audit")
    class Audit:
        @untyped("static")
        @staticmethod
        async def static(value: int) -> None: ...

        @untyped("of.class")
        @classmethod
        async def of_class(cls, value: int) -> None: ...

    patterns = [each.pattern for each in qc.include(Audit()).metadata.handlers]
    assert patterns == ["static", "of.class"]


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


def test_a_decorator_above_the_mark_keeps_it(qc: QueueCraft) -> None:
    @channel("audit")
    class Audit:
        @traced
        @consume(order_placed)
        async def note(self, order: Order) -> None: ...

    assert len(qc.include(Audit()).metadata.handlers) == 1


def test_a_subclass_inherits_channel_and_handlers(qc: QueueCraft) -> None:
    class Special(Billing):
        @consume("order.returned")
        async def give_back(self, order: Order) -> None: ...

    worker = qc.include(Special())
    assert worker.queue_name == "billing"
    assert [each.pattern for each in worker.metadata.handlers] == [
        "order.placed",
        "order.paid",
        "order.returned",
    ]


async def test_a_subclass_may_replace_a_handler(stage: Stage) -> None:
    class Special(Billing):
        @consume(order_placed)
        async def charge(self, order: Order, message: Message[Order]) -> None:
            self.seen.append("special")

    special = Special()
    async with running(stage.qc.include(special)):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
    assert special.seen == ["special"]


def test_including_looks_at_no_property(qc: QueueCraft) -> None:
    class Lazy(Billing):
        @property
        def connection(self) -> object:
            raise RuntimeError("opened for no reason")

    qc.include(Lazy())


def test_two_objects_of_one_class_share_the_queue(qc: QueueCraft) -> None:
    qc.include(Billing())
    qc.include(Billing())
    assert [worker.queue_name for worker in qc.workers] == ["billing", "billing"]


# -- mistakes --------------------------------------------------------------------------------


def test_a_class_instead_of_an_object_is_refused(qc: QueueCraft) -> None:
    with pytest.raises(ConfigError, match=r"qc\.include\(Billing\(\)\)"):
        qc.include(Billing)


def test_a_class_without_a_channel_is_refused(qc: QueueCraft) -> None:
    class Plain:
        @consume(order_placed)
        async def note(self, order: Order) -> None: ...

    with pytest.raises(ConfigError, match="Plain has no @channel"):
        qc.include(Plain())


def test_a_channel_without_handlers_is_refused(qc: QueueCraft) -> None:
    @channel("empty")
    class Empty: ...

    with pytest.raises(ConfigError, match="Empty has no method with @consume"):
        qc.include(Empty())
    assert qc.workers == ()


def test_a_channel_without_parentheses_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigError, match="@channel\\('audit'\\)"):

        @channel  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        class Audit: ...


def test_a_consume_without_an_event_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="Event"):

        @untyped
        async def note(self: object, order: Order) -> None: ...


def test_an_unknown_option_is_named(qc: QueueCraft) -> None:
    class Audit:
        @consume(order_placed)
        async def note(self, order: Order) -> None: ...

    options: dict[str, Any] = {"concurency": 4}
    channel("audit", **options)(Audit)
    with pytest.raises(ConfigError, match="unknown option 'concurency'"):
        qc.include(Audit())


def test_a_class_that_cannot_be_included_leaves_nothing_behind(qc: QueueCraft) -> None:
    @channel("audit", retry=NoRetry())
    class Audit:
        @consume("order.*")
        async def one(self, order: Order) -> None: ...
        @consume("*.placed")
        async def other(self, order: Order) -> None: ...

    with pytest.raises(ConfigError, match="equally specific"):
        qc.include(Audit())
    assert qc.workers == ()
