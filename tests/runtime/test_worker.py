"""Workers: what they are called, how they are built, and that they start and stop once."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import warnings
from collections.abc import AsyncIterator, Callable
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    ConnectionLost,
    DeadLetter,
    Event,
    Exchange,
    Message,
    NoDeadLetter,
    NoRetry,
    Policy,
    Queue,
    QueueCraft,
    Retry,
    Worker,
)
from queuecraft.testing import FaultyDriver, Ledger
from tests.runtime.support import (
    Order,
    Stage,
    eventually,
    ids,
    order_paid,
    order_placed,
    quiet,
    running,
    staged,
)


@dataclass
class Invoice:
    id: str


invoices: Queue[Invoice] = Queue("invoices", Invoice)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


@pytest.fixture
def qc() -> QueueCraft:
    return QueueCraft()


async def handle(order: Order) -> None: ...


# -- what its queue is called ----------------------------------------------------------------


def test_a_name_that_is_given_is_taken(qc: QueueCraft) -> None:
    worker = qc.worker("billing", service="shop").on(order_placed, handle)
    assert worker.queue_name == "billing"


def test_a_service_is_followed_by_a_hash_of_its_sorted_events(qc: QueueCraft) -> None:
    worker = qc.worker(service="shop").on(order_placed, handle).on(order_paid, handle)
    expected = hashlib.sha256(b"order.paid:order.placed").hexdigest()[:8]
    assert worker.queue_name == f"shop-{expected}"


def test_the_hash_does_not_depend_on_the_order_of_the_handlers(qc: QueueCraft) -> None:
    one = qc.worker(service="shop").on(order_placed, handle).on(order_paid, handle)
    other = qc.worker(service="shop").on(order_paid, handle).on(order_placed, handle)
    assert one.queue_name == other.queue_name


def test_without_a_name_a_queue_is_named_after_its_events(qc: QueueCraft) -> None:
    worker = qc.worker().on(order_placed, handle).on(order_paid, handle)
    assert worker.queue_name == "queue.order.placed.order.paid"


def test_properties_of_the_queue_do_not_settle_its_name_too_early(qc: QueueCraft) -> None:
    worker = qc.worker().queue(max_priority=5).on(order_placed, handle)
    worker.queue(exclusive=True).on(order_paid, handle)
    assert worker.queue_name == "queue.order.placed.order.paid"
    assert (worker.definition.max_priority, worker.definition.exclusive) == (5, True)


def test_a_name_made_of_more_than_five_events_warns_once(qc: QueueCraft) -> None:
    worker = qc.worker()
    for number in range(6):
        worker.on(f"e{number}", handle)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        worker.build()
        assert worker.metadata.queue == worker.queue_name
    (warning,) = caught
    assert "made of 6 event names" in str(warning.message)


def test_a_name_of_more_than_a_hundred_characters_warns(qc: QueueCraft) -> None:
    worker = qc.worker().on("e" * 100, handle)
    with pytest.warns(UserWarning, match="name the queue"):
        worker.build()


def test_a_given_name_never_warns(qc: QueueCraft) -> None:
    worker = qc.worker("billing")
    for number in range(20):
        worker.on(f"e{number}", handle)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        worker.build()


def test_a_name_past_what_the_broker_allows_is_refused(qc: QueueCraft) -> None:
    with pytest.raises(ConfigError, match="300 bytes, the broker allows 255"):
        qc.worker("x" * 300)


def test_a_name_is_measured_in_bytes(qc: QueueCraft) -> None:
    with pytest.raises(ConfigError, match="256 bytes"):
        qc.worker("é" * 128)
    assert qc.worker("é" * 127).named == "é" * 127


def test_a_broker_may_allow_less() -> None:
    driver = FaultyDriver()
    vars(driver)["traits"] = replace(driver.traits, max_name=249)
    qc = QueueCraft(drivers=[driver])
    with pytest.raises(ConfigError, match="250 bytes, the broker allows 249"):
        qc.worker("x" * 250)


def test_order_by_key_is_refused_where_the_broker_keeps_none() -> None:
    driver = FaultyDriver()
    vars(driver)["traits"] = replace(driver.traits, key_order="none")
    with pytest.raises(ConfigError, match="keeps no order by key"):
        QueueCraft(drivers=[driver]).worker("billing", ordering="key")


@pytest.mark.filterwarnings("ignore:queue name")
def test_a_name_made_of_events_that_is_too_long_is_refused_when_built(qc: QueueCraft) -> None:
    worker = qc.worker().on("a" * 200, handle).on("b" * 100, handle)
    with pytest.raises(ConfigError, match="the broker allows 255"):
        worker.build()


def test_room_for_the_dead_letter_queue_is_part_of_the_name(qc: QueueCraft) -> None:
    worker = qc.worker("x" * 255).on(order_placed, handle)
    with pytest.raises(ConfigError, match="dead-letter queue name"):
        _ = worker.definition


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[31m"])
def test_a_name_that_cannot_be_printed_is_refused(qc: QueueCraft, name: str) -> None:
    with pytest.raises(ConfigError):
        qc.worker(name)


@pytest.mark.parametrize("name", [5, b"billing", ["billing"], object()])
def test_a_queue_that_is_neither_name_nor_queue_is_refused(qc: QueueCraft, name: Any) -> None:
    with pytest.raises(ConfigError, match="expected the name of a queue"):
        qc.worker(name)


def test_a_worker_without_name_and_handlers_says_what_it_lacks(qc: QueueCraft) -> None:
    with pytest.raises(ConfigError, match="needs handlers to be named after"):
        _ = qc.worker().queue_name


async def test_an_unfinished_worker_is_in_nobodys_way() -> None:
    qc = QueueCraft()
    qc.worker()
    async with qc:
        assert qc.health_check().ok
        assert qc.get_metrics().messages_received == 0
        assert qc.registry == ()


# -- the fluent way --------------------------------------------------------------------------


def test_the_fluent_way_says_the_same_as_the_options(qc: QueueCraft) -> None:
    options = qc.worker(
        "a",
        concurrency=4,
        prefetch=10,
        ordering="key",
        retry=Retry(max_retries=5),
        dead_letter=NoDeadLetter(),
        ttl=60,
        ack_timeout=30,
        durable=False,
    ).on(order_placed, handle)
    fluent = (
        qc.worker("b")
        .queue(durable=False)
        .concurrency(4)
        .prefetch(10)
        .ordering("key")
        .retry(Retry(max_retries=5))
        .dead_letter(NoDeadLetter())
        .ttl(60)
        .ack_timeout(30)
        .on(order_placed, handle)
        .build()
    )
    assert fluent.policy == options.policy
    assert replace(fluent.definition, name="a") == options.definition
    assert (fluent.ordered, options.ordered) == (True, True)


def test_a_worker_without_handlers_cannot_be_built(qc: QueueCraft) -> None:
    with pytest.raises(ConfigError, match="'billing' has no handlers"):
        qc.worker("billing").build()


async def test_a_worker_without_handlers_cannot_be_started(stage: Stage) -> None:
    with pytest.raises(ConfigError, match="no handlers"):
        await stage.qc.worker("billing").start()


def test_what_queue_does_not_mention_stays_as_it_was(qc: QueueCraft) -> None:
    worker = qc.worker(Queue("a", exclusive=True, arguments={"x-a": 1})).queue(max_priority=5)
    worker.on(order_placed, handle)
    definition = worker.definition
    assert (definition.exclusive, definition.max_priority) == (True, 5)
    assert definition.arguments == {"x-a": 1}


async def test_the_properties_of_the_queue_reach_the_broker(stage: Stage) -> None:
    worker = stage.qc.worker("once").queue(auto_delete=True).on(order_placed, handle)
    async with running(worker):
        await stage.clock.settle()
        assert "once" in (await stage.driver.topology()).queues
    assert "once" not in (await stage.driver.topology()).queues


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"concurrency": 0}, "concurrency=0"),
    ({"concurrency": -1}, "concurrency=-1"),
    ({"concurrency": 1.5}, "concurrency=1.5"),
    ({"concurrency": True}, "concurrency=True"),
    ({"concurrency": "8"}, "concurrency='8'"),
    ({"concurrency": None}, "concurrency=None"),
    ({"prefetch": 0}, "prefetch=0"),
    ({"concurrency": 8, "prefetch": 4}, "prefetch=4 is less than concurrency=8"),
    ({"ordering": "fifo"}, "ordering='fifo'"),
    ({"retry": 3}, "retry=3"),
    ({"dead_letter": False}, "dead_letter=False"),
    ({"ttl": 0}, "ttl=0"),
    ({"ack_timeout": -1}, "ack_timeout=-1"),
    ({"max_redeliveries": -1}, "max_redeliveries=-1"),
    ({"exchange": ""}, "exchange needs a name"),
    ({"exchange": 5}, "exchange must be a str"),
    ({"middleware": [None]}, "middleware"),
    ({"concurency": 8}, "unknown option 'concurency'"),
]


@pytest.mark.parametrize(("options", "named"), WRONG_OPTIONS)
def test_an_option_that_cannot_work_is_named(
    qc: QueueCraft, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named.replace("(", r"\(")):
        qc.worker("billing", **options)
    assert qc.workers == ()


def test_a_wrong_step_of_the_builder_changes_nothing(qc: QueueCraft) -> None:
    worker = qc.worker("billing", concurrency=4).on(order_placed, handle)
    with pytest.raises(ConfigError):
        worker.prefetch(2)
    worker.build()


@pytest.mark.parametrize("event", ["", "a\x00b", "x" * 300])
def test_an_event_name_that_cannot_work_is_refused(qc: QueueCraft, event: str) -> None:
    with pytest.raises(ConfigError):
        qc.worker("billing").on(event, handle)


@pytest.mark.parametrize("event", [None, 5, Order])
def test_something_that_is_no_event_is_refused(qc: QueueCraft, event: Any) -> None:
    with pytest.raises(TypeError, match="Event"):
        qc.worker("billing").on(event, handle)


def test_two_handlers_for_one_event_are_refused(qc: QueueCraft) -> None:
    worker = qc.worker("billing").on(order_placed, handle)
    with pytest.raises(ConfigError, match=r"two handlers for 'order\.placed'"):
        worker.on("order.placed", handle)
    assert len(worker.metadata.handlers) == 1


def test_handlers_that_would_compete_are_refused(qc: QueueCraft) -> None:
    worker = qc.worker("billing").on("order.*", handle)
    with pytest.raises(ConfigError, match="equally specific"):
        worker.on("*.placed", handle)


def test_the_decorator_gives_the_function_back(qc: QueueCraft) -> None:
    worker = qc.worker("billing")
    assert worker.on(order_placed)(handle) is handle
    assert worker.metadata.handlers[0].handler is handle


def test_a_worker_says_what_it_is(qc: QueueCraft) -> None:
    assert repr(qc.worker("billing").on(order_placed, handle)) == (
        "<Worker 'billing' on order.placed, new>"
    )
    assert repr(qc.worker()) == "<Worker 'unnamed' on nothing, new>"
    assert repr(qc.worker(service="shop")) == "<Worker 'shop' on nothing, new>"


# -- changing one that runs ------------------------------------------------------------------

CHANGES: list[Callable[[Worker], object]] = [
    lambda worker: worker.on(order_paid, handle),
    lambda worker: worker.queue(exclusive=True),
    lambda worker: worker.concurrency(2),
    lambda worker: worker.prefetch(2),
    lambda worker: worker.ordering("key"),
    lambda worker: worker.retry(NoRetry()),
    lambda worker: worker.dead_letter(NoDeadLetter()),
    lambda worker: worker.ttl(5),
    lambda worker: worker.ack_timeout(5),
]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_running_worker_cannot_be_changed(
    stage: Stage, change: Callable[[Worker], object]
) -> None:
    worker = stage.qc.worker("billing").on(order_placed, handle)
    async with running(worker):
        before = worker.definition
        with pytest.raises(ConfigError, match="'billing' is running"):
            change(worker)
        assert worker.definition == before


async def test_a_paused_worker_cannot_be_changed_either(stage: Stage) -> None:
    worker = stage.qc.worker("billing").on(order_placed, handle)
    async with running(worker):
        worker.pause()
        with pytest.raises(ConfigError, match="is running"):
            worker.concurrency(2)


async def test_a_worker_that_waits_for_its_connection_cannot_be_changed() -> None:
    async with staged() as stage:
        worker = stage.qc.worker("billing").on(order_placed, handle)
        stage.driver.fail("declare")
        stage.driver.refuse(1)
        starting = asyncio.ensure_future(worker.start())
        await stage.clock.settle()
        with pytest.raises(ConfigError, match="is running"):
            worker.on(order_paid, handle)
        await stage.clock.advance(5)
        await starting


async def test_a_stopped_worker_can_be_changed_and_started_again(stage: Stage) -> None:
    seen = Ledger()
    worker = stage.qc.worker("billing").on(order_placed, seen.recording("placed"))
    async with running(worker):
        await stage.clock.settle()
    worker.on(order_paid, seen.recording("paid"))
    async with running(worker):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.qc.publish(order_paid, Order("o-1"))
        await seen.wait_for(placed=1, paid=1)


# -- starting and stopping -------------------------------------------------------------------


async def consumers(stage: Stage, queue: str) -> int | None:
    (info,) = await stage.driver.inspect([queue])
    return info.consumers


@pytest.mark.parametrize("inline", [True, False])
async def test_starting_twice_at_once_starts_once(inline: bool) -> None:
    async with staged(inline=inline) as stage:
        worker = stage.qc.worker("billing").on(order_placed, handle)
        await asyncio.gather(*(worker.start() for _ in range(5)))
        await stage.clock.settle()
        assert await consumers(stage, "billing") == 1
        await worker.stop()
        assert await consumers(stage, "billing") == 0


async def test_stopping_twice_is_stopping_once(stage: Stage) -> None:
    worker = stage.qc.worker("billing").on(order_placed, handle)
    await worker.start()
    await asyncio.gather(worker.stop(), worker.stop())
    await worker.stop()
    assert worker.state == "stopped"


async def test_stopping_what_never_started_is_nothing(stage: Stage) -> None:
    worker = stage.qc.worker("billing").on(order_placed, handle)
    await worker.stop()
    assert worker.state == "new"


async def test_a_start_during_a_stop_starts_again_afterwards(stage: Stage) -> None:
    leave = asyncio.Event()
    worker = stage.qc.worker("billing")

    @worker.on(order_placed)
    async def wait(order: Order) -> None:
        await leave.wait()

    await worker.start()
    await stage.qc.publish(order_placed, Order("o-1"))
    await eventually(lambda: worker.in_flight)
    stopping = asyncio.ensure_future(worker.stop())
    await quiet()
    starting = asyncio.ensure_future(worker.start())
    await quiet()
    assert not starting.done()
    leave.set()
    await stopping
    await starting
    assert worker.state == "running"
    await worker.stop()


async def test_a_stop_during_a_start_wins(stage: Stage) -> None:
    worker = stage.qc.worker("billing").on(order_placed, handle)
    stage.driver.fail("declare")
    stage.driver.refuse(1)
    starting = asyncio.ensure_future(worker.start())
    await stage.clock.settle()
    await worker.stop()
    await stage.clock.advance(5)
    await starting
    assert worker.state != "running"
    assert await consumers(stage, "billing") == 0


async def test_a_start_that_fails_can_be_tried_again(stage: Stage) -> None:
    worker = stage.qc.worker("billing").on(order_placed, handle)
    stage.driver.fail("declare", ConfigError("not like this"))
    with pytest.raises(ConfigError, match="not like this"):
        await worker.start()
    async with running(worker):
        assert worker.state == "running"


async def test_run_ends_when_the_worker_is_stopped(stage: Stage) -> None:
    worker = stage.qc.worker("billing").on(order_placed, handle)
    task = asyncio.ensure_future(worker.run())
    await eventually(lambda: worker.state == "running")
    await worker.stop()
    await asyncio.wait_for(task, 5)


async def test_a_run_that_is_cancelled_stops_its_worker(stage: Stage) -> None:
    done = asyncio.Event()
    worker = stage.qc.worker("billing")

    @worker.on(order_placed)
    async def wait(order: Order) -> None:
        await quiet()
        done.set()

    task = asyncio.ensure_future(worker.run())
    await eventually(lambda: worker.state == "running")
    await stage.qc.publish(order_placed, Order("o-1"))
    await eventually(lambda: worker.in_flight)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert worker.state == "stopped"
    assert done.is_set()  # what ran was finished


async def test_a_signal_ends_a_run_that_never_got_a_connection() -> None:
    driver = FaultyDriver()
    driver.refuse(opens=1_000_000)
    qc = QueueCraft(drivers=[driver], reconnect_delay=0.001)
    worker = qc.worker("billing").on(order_placed, handle)
    task = asyncio.ensure_future(worker.run())
    await eventually(lambda: driver.calls["open"] > 2)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(task, 5)
    await qc.shutdown()


async def test_a_second_signal_cuts_the_wait_for_handlers_short(stage: Stage) -> None:
    begun = asyncio.Event()
    worker = stage.qc.worker("billing")

    @worker.on(order_placed)
    async def hang(order: Order) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(worker.run())
    await eventually(lambda: worker.state == "running")
    id = await stage.qc.publish(order_placed, Order("o-1"))
    await begun.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await eventually(lambda: worker.state == "stopping")
    assert not task.done()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(task, 10)
    assert await ids(stage.driver, "billing") == [id]


async def test_a_run_that_cannot_start_says_why(stage: Stage) -> None:
    with pytest.raises(ConfigError, match="no handlers"):
        await stage.qc.worker("billing").run()


async def test_running_all_refuses_before_any_has_started(stage: Stage) -> None:
    good = stage.qc.worker("billing").on(order_placed, handle)
    stage.qc.worker("empty")
    with pytest.raises(ConfigError, match="'empty' has no handlers"):
        await stage.qc.run()
    assert good.state == "new"


async def test_running_all_ends_when_each_is_stopped(stage: Stage) -> None:
    workers = [stage.qc.worker(name).on(order_placed, handle) for name in ("a", "b")]
    task = asyncio.ensure_future(stage.qc.run())
    await eventually(lambda: all(worker.state == "running" for worker in workers))
    for worker in workers:
        await worker.stop()
    await asyncio.wait_for(task, 5)


async def test_after_shutdown_a_worker_cannot_be_started() -> None:
    async with staged() as stage:
        worker = stage.qc.worker("billing").on(order_placed, handle)
    with pytest.raises(ConnectionLost, match="shut down"):
        await worker.start()


# -- what tools read -------------------------------------------------------------------------


def test_the_registry_lists_channels_handlers_and_parameters(qc: QueueCraft) -> None:
    async def charge(order: Order, message: Message, tries: int = 3) -> None: ...

    qc.worker("billing", exchange="shop").on(order_placed, charge)
    qc.worker("audit").on("order.*", handle)
    billing, audit = qc.registry
    assert (billing.queue, billing.exchange, audit.queue) == ("billing", "shop", "audit")
    (consume,) = billing.handlers
    assert (consume.pattern, consume.payload_type, consume.handler) == (
        "order.placed",
        Order,
        charge,
    )
    assert [(param.name, param.source) for param in consume.params] == [
        ("order", "payload"),
        ("message", "message"),
        ("tries", "default"),
    ]
    assert audit.handlers[0].payload_type is Order  # from the annotation


def test_the_registry_cannot_be_changed(qc: QueueCraft) -> None:
    qc.worker("billing").on(order_placed, handle)
    (billing,) = qc.registry
    for value, name in (
        (billing, "queue"),
        (billing.handlers[0], "pattern"),
        (billing.handlers[0].params[0], "source"),
    ):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, "other")
    assert isinstance(billing.handlers, tuple)


# -- policy ----------------------------------------------------------------------------------


def test_the_consumer_wins_over_the_queue_and_the_queue_over_the_facade() -> None:
    qc = QueueCraft(ttl=1, ack_timeout=1, max_redeliveries=1)
    queue: Queue[Any] = Queue("a", policy=Policy(ttl=2, ack_timeout=2))
    policy = qc.worker(queue, ttl=3).policy
    assert (policy.ttl, policy.ack_timeout, policy.max_redeliveries) == (3, 2, 1)


def test_defaults_set_later_reach_workers_made_before(qc: QueueCraft) -> None:
    worker = qc.worker("billing")
    qc.configure(default_queue=Policy(ttl=7))
    assert worker.policy.ttl == 7
    assert worker.policy.retry == Retry()


def test_a_handler_of_a_queue_brings_the_policy_of_that_queue(qc: QueueCraft) -> None:
    queue: Queue[Invoice] = Queue("invoices", Invoice, policy=Policy(ttl=60))

    async def send(invoice: Invoice) -> None: ...

    assert qc.worker("invoices").on(queue, send).policy.ttl == 60


def test_a_queue_cannot_be_its_own_dead_letter_queue(qc: QueueCraft) -> None:
    worker = qc.worker("billing", dead_letter=DeadLetter(queue=lambda name: name))
    with pytest.raises(ConfigError, match="its own dead-letter queue"):
        worker.on(order_placed, handle).build()


@pytest.mark.parametrize(
    "dead_letter",
    [
        DeadLetter(queue=""),
        DeadLetter(exchange=""),
        DeadLetter(routing_key=""),
        DeadLetter(queue=lambda name: name * 200),
        DeadLetter(routing_key=lambda name: None),  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
    ],
)
def test_dead_letter_names_that_cannot_work_are_refused(
    qc: QueueCraft, dead_letter: DeadLetter
) -> None:
    worker = qc.worker("billing", dead_letter=dead_letter).on(order_placed, handle)
    with pytest.raises(ConfigError, match="dead-letter"):
        worker.build()


# -- queues with a type ----------------------------------------------------------------------


async def test_what_is_sent_to_a_queue_reaches_its_handler_alone(stage: Stage) -> None:
    got: list[object] = []
    worker = stage.qc.worker(invoices)
    other = stage.qc.worker("other").on("#", Ledger().recording("other"))

    @worker.on(invoices)
    async def note(invoice: Invoice) -> None:
        got.append(invoice)

    @worker.on(order_placed)
    async def never(order: Order) -> None:
        got.append(order)

    async with running(worker, other):
        await stage.qc.send(invoices, Invoice("i-1"))
        await stage.clock.settle()
        assert other.counters.received == 0
    assert got == [Invoice("i-1")]


async def test_a_failed_message_of_a_queue_is_retried_by_the_same_handler(stage: Stage) -> None:
    seen = Ledger()
    worker = stage.qc.worker(invoices).on(invoices, seen.failing("invoices", times=1))
    worker.on(order_placed, seen.recording("orders"))
    async with running(worker):
        await stage.qc.send(invoices, Invoice("i-1"))
        await stage.clock.advance(5)
    assert seen.attempts("invoices") == [1, 2]
    assert seen.calls[0].payload == Invoice("i-1")


async def test_a_worker_with_one_handler_takes_what_is_sent_by_name(stage: Stage) -> None:
    seen = Ledger()
    worker = stage.qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with running(worker):
        await stage.qc.send("billing", {"id": "o-1"})
        await seen.wait_for(billing=1)
    assert seen.payloads() == [Order("o-1")]


def test_a_worker_made_for_a_queue_needs_no_other_name(qc: QueueCraft) -> None:
    async def note(invoice: Invoice) -> None: ...

    worker = qc.worker(service="shop").on(invoices, note).on(order_placed, handle)
    assert worker.queue_name == "invoices"


def test_a_handler_of_another_queue_would_never_be_called_and_is_refused(qc: QueueCraft) -> None:
    async def note(invoice: Invoice) -> None: ...

    with pytest.raises(ConfigError, match="'billing' does not consume queue 'invoices'"):
        qc.worker("billing").on(invoices, note)


async def test_a_handler_of_a_queue_binds_it_to_nothing(stage: Stage) -> None:
    async def note(invoice: Invoice) -> None: ...

    async with running(stage.qc.worker(invoices).on(invoices, note)):
        topology = await stage.driver.topology()
    assert [queue for _, queue in topology.bindings] == ["invoices.dlq"]


# -- headers exchanges -----------------------------------------------------------------------

reports = Exchange("reports", "headers")
report: Event[dict[str, Any]] = Event("report", exchange=reports)


@pytest.mark.parametrize(
    ("match", "taken"),
    [
        ({"format": "pdf", "type": "sales"}, ["both"]),
        ({"x-match": "all", "format": "pdf", "type": "sales"}, ["both"]),
        ({"x-match": "any", "format": "pdf", "type": "sales"}, ["both", "pdf", "sales"]),
        ({}, ["both", "pdf", "sales", "neither"]),
    ],
)
async def test_a_headers_exchange_is_matched_by_header_values(
    stage: Stage, match: dict[str, Any], taken: list[str]
) -> None:
    seen = Ledger()
    worker = stage.qc.worker("printer").on(report, seen.recording("printer"), match=match)
    async with running(worker):
        for name, headers in (
            ("both", {"format": "pdf", "type": "sales"}),
            ("pdf", {"format": "pdf", "type": "stock"}),
            ("sales", {"format": "csv", "type": "sales"}),
            ("neither", {"format": "csv"}),
        ):
            await stage.qc.publish(report, {"name": name}, headers=headers, unroutable="drop")
        await stage.clock.settle()
    assert [payload["name"] for payload in seen.payloads()] == taken


async def test_the_decorator_takes_header_values_too(stage: Stage) -> None:
    worker = stage.qc.worker("printer")

    @worker.on(report, match={"format": "pdf"})
    async def print_it(name: dict[str, Any]) -> None: ...

    (binding,) = worker.definition.bindings
    assert (binding.exchange, binding.headers) == (reports, {"format": "pdf"})


def test_header_values_are_refused_where_no_exchange_looks_at_them(qc: QueueCraft) -> None:
    async def note(invoice: Invoice) -> None: ...

    with pytest.raises(ConfigError, match="headers exchange"):
        qc.worker("billing").on(order_placed, handle, match={"format": "pdf"})
    with pytest.raises(ConfigError, match="sent to by name"):
        qc.worker("invoices").on(invoices, note, match={"format": "pdf"})


def test_an_unknown_way_to_match_is_refused(qc: QueueCraft) -> None:
    with pytest.raises(ConfigError, match="x-match='some'"):
        qc.worker("printer").on(report, handle, match={"x-match": "some"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


# -- company ---------------------------------------------------------------------------------


async def test_two_workers_of_one_queue_share_its_messages(stage: Stage) -> None:
    seen = Ledger()
    one = stage.qc.worker("billing").on(order_placed, seen.recording("one"))
    two = stage.qc.worker("billing").on(order_placed, seen.recording("two"))
    async with running(one, two):
        for number in range(20):
            seen.published(await stage.qc.publish(order_placed, Order(f"o-{number}")))
            await stage.clock.settle()
    seen.check()


async def test_the_counts_of_workers_that_share_a_queue_are_added(stage: Stage) -> None:
    seen = Ledger()
    workers = [
        stage.qc.worker("billing").on(order_placed, seen.recording(name)) for name in ("a", "b")
    ]
    for worker in workers:
        async with running(worker):
            await stage.qc.publish(order_placed, Order("o-1"))
            await stage.clock.settle()
    metrics = stage.qc.get_metrics()
    assert metrics.messages_succeeded == 2
    assert metrics.queues["billing"].messages_succeeded == 2


def test_order_by_key_needs_the_queue_for_itself(qc: QueueCraft) -> None:
    qc.worker("billing")
    with pytest.raises(ConfigError, match="needs to be the only one"):
        qc.worker("billing", ordering="key")


async def test_two_instances_share_nothing() -> None:
    seen = Ledger()
    one, two = QueueCraft(), QueueCraft()
    one.worker("billing").on(order_placed, seen.recording("one"))
    two.worker("billing").on(order_placed, seen.recording("two"))
    async with one, two, running(*one.workers, *two.workers):
        await one.publish(order_placed, Order("o-1"))
        await seen.wait_for(one=1)
        await quiet()
    assert seen.ids("two") == []


async def test_what_waits_in_a_queue_is_there_when_its_worker_comes_back(stage: Stage) -> None:
    worker = stage.qc.worker("billing").on(order_placed, handle)
    async with running(worker):
        pass
    id = await stage.qc.publish(order_placed, Order("o-1"))
    assert await ids(stage.driver, "billing") == [id]
