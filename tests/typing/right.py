"""Right use: neither mypy nor basedpyright, both strict, finds anything to complain about."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict, assert_type

import attrs
import msgspec
import pydantic

from queuecraft import (
    BatchFailed,
    DeadLetter,
    Depends,
    Event,
    Exchange,
    Filter,
    Message,
    NoDeadLetter,
    NoRetry,
    Policy,
    Queue,
    QueueCraft,
    QueueError,
    Redrive,
    Retry,
    Worker,
    channel,
    consume,
    queue_module,
    use_queue,
)
from queuecraft.facts import MessageFailed
from queuecraft.outbox import Outbox
from queuecraft.runtime.handler import Handle
from queuecraft.sync import QueueCraft as SyncQueueCraft


@dataclass
class Order:
    id: str
    total: float = 9.5


class SpecialOrder(Order):
    """Fits wherever an order does."""


class Parcel(msgspec.Struct):
    id: str


class Address(TypedDict):
    street: str


@attrs.define
class Customer:
    id: str


class Invoice(pydantic.BaseModel):
    id: str


order_placed = Event("order.placed", Order, key=lambda order: order.id)
order_paid = Event("order.paid", Order)
parcel_sent = Event("parcel.sent", Parcel)
moved = Event("customer.moved", Address)
joined = Event("customer.joined", Customer)
invoiced = Event("invoiced", Invoice)
number = Event("number", int)
ratio = Event("ratio", float)
numbers = Event("numbers", list[int])
totals = Event("totals", dict[str, float])
pairs = Event("pairs", tuple[int, str])
raw = Event("raw", bytes)
anything: Event[Any] = Event("anything")
plain = Event("plain", dict[str, Any])

invoices = Queue("invoices", Invoice)
orders = Queue("orders", Order)
addresses = Queue("addresses", Address)
notes: Queue[Any] = Queue("notes")

assert_type(order_placed, Event[Order])
assert_type(moved, Event[Address])
assert_type(numbers, Event[list[int]])
assert_type(totals, Event[dict[str, float]])
assert_type(invoices, Queue[Invoice])


async def publishing(qc: QueueCraft) -> None:
    assert_type(await qc.publish(order_placed, Order("o-1")), str)
    await qc.publish(order_placed, SpecialOrder("o-1"))
    await qc.publish(parcel_sent, Parcel("p-1"))
    await qc.publish(moved, {"street": "Elm"})
    await qc.publish(moved, Address(street="Elm"))
    await qc.publish(joined, Customer("c-1"))
    await qc.publish(invoiced, Invoice(id="i-1"))
    await qc.publish(number, 5)
    await qc.publish(number, True)
    await qc.publish(ratio, 5)
    await qc.publish(numbers, [1, 2])
    await qc.publish(totals, {"a": 1.5})
    await qc.publish(pairs, (1, "a"))
    await qc.publish(raw, b"\xff")
    await qc.publish(anything, object())
    await qc.publish(plain, {"a": 1})
    await qc.publish("order.placed", {"id": "o-1"})
    await qc.publish(
        order_placed,
        Order("o-1"),
        headers={"tenant": "acme", "n": 1, "raw": b"", "none": None},
        message_id="m-1",
        correlation_id="c-1",
        timestamp=datetime.now(UTC),
        key="k",
        priority=3,
        ttl=60,
        delay=0.5,
        persistent=False,
        retry=Retry(max_retries=1),
        dead_letter=NoDeadLetter(),
        exchange=Exchange("shop"),
        unroutable="drop",
    )
    await qc.publish(order_placed, Order("o-1"), deliver_at=datetime.now(UTC), retry=NoRetry())


async def publishing_many(qc: QueueCraft) -> None:
    assert_type(await qc.publish_many(order_placed, [Order("o-1")]), list[str])
    assert_type(
        await qc.publish_many(order_placed, [Order("o-1")], return_exceptions=True),
        list[str | QueueError],
    )
    await qc.publish_many(number, range(10))
    await qc.publish_many(number, (each for each in (1, 2)))
    await qc.publish_many(order_placed, [SpecialOrder("o-1")])
    await qc.publish_many(moved, [{"street": "Elm"}])
    await qc.publish_many("number", [1, "two", None], atomic=True, delay=5)


async def sending(qc: QueueCraft) -> None:
    await qc.send(addresses, {"street": "Elm"})
    assert_type(await qc.send(invoices, Invoice(id="i-1")), str)
    await qc.send(orders, SpecialOrder("o-1"), key="k")
    await qc.send(notes, object())
    await qc.send("invoices", {"id": "i-1"})


async def requesting(qc: QueueCraft) -> None:
    assert_type(await qc.request(order_placed, Order("o-1"), Invoice), Invoice)
    assert_type(
        await qc.request(order_placed, SpecialOrder("o-1"), list[int], timeout=1), list[int]
    )
    assert_type(await qc.request(moved, {"street": "Elm"}, Address), Address)
    assert_type(await qc.request(orders, Order("o-1"), float, key="k"), float)
    assert_type(await qc.request("order.placed", {"id": "o-1"}, Parcel), Parcel)
    reply: str = await qc.request(order_placed, Order("o-1"), headers={"tenant": "acme"})
    assert_type(reply, str)
    plain_reply: int = await qc.request("number", 5)
    assert_type(plain_reply, int)


def decorating(worker: Worker) -> None:
    @worker.on(order_placed)
    async def payload(order: Order) -> None: ...

    @worker.on(order_placed)
    async def payload_and_message(order: Order, message: Message[Order]) -> None: ...

    @worker.on(order_placed)
    async def any_message(order: Order, message: Message) -> None: ...

    @worker.on(order_placed)
    async def message_alone(message: Message[Order]) -> None:
        assert_type(message.payload, Order)
        await message.ack()
        await message.nack(requeue=False, reason="odd")
        await message.retry(delay=5)
        await message.requeue()
        await message.dead_letter("odd")
        message.extend(5)

    @worker.on(order_placed)
    async def message_first(message: Message[Order], order: Order) -> None: ...

    @worker.on(order_placed)
    async def with_default(order: Order, message: Message, tries: int = 3) -> None: ...

    @worker.on(order_placed)
    async def wider(order: object) -> int:
        return 1

    @worker.on(order_placed)
    def in_a_thread(order: Order, message: Message[Order]) -> None: ...

    @worker.on(moved)
    async def typed_dict(address: Address) -> str:
        return address["street"]

    @worker.on(parcel_sent)
    async def struct(parcel: Parcel) -> None: ...

    @worker.on(joined)
    async def attrs_class(customer: Customer) -> None: ...

    @worker.on(invoiced)
    async def model(invoice: Invoice) -> None: ...

    @worker.on(numbers)
    async def generic(numbers: list[int]) -> None: ...

    @worker.on(invoices)
    async def of_a_queue(invoice: Invoice) -> None: ...

    @worker.on("order.*")
    async def of_a_pattern(order: dict[str, Any], message: Message) -> None: ...

    @worker.on("order.#")
    async def of_any_message(message: Message) -> None: ...

    @worker.on(anything)
    async def of_anything(value: int, message: Message[int]) -> None: ...

    @worker.on(order_placed, match={"x-match": "any", "format": "pdf"})
    async def of_headers(order: Order) -> None: ...


async def session() -> AsyncIterator[Order]:
    yield Order("o-1")


def depending(qc: QueueCraft, worker: Worker) -> None:
    @worker.on(order_placed)
    async def charge(order: Order, session: Annotated[Order, Depends(session)]) -> None: ...

    @worker.on(order_placed, batch_size=5)
    def book(
        orders: list[Order],
        messages: list[Message[Order]],
        *,
        session: Annotated[Order, Depends(session, scope="worker", inline=True)],
    ) -> None: ...

    class Channel:
        @consume(order_placed)
        async def note(self, order: Order, it: Annotated[Order, Depends(session)]) -> None: ...

    worker.on(order_placed, charge)
    with qc.override(session, lambda: Order("fake")):
        container: dict[str, object] = {}
        assert_type(use_queue(container, queue_module("local://", concurrency=3)), QueueCraft)
        print(Channel)


def batching(worker: Worker) -> None:
    @worker.on(order_placed, batch_size=100)
    async def payloads(orders: list[Order]) -> None: ...

    @worker.on(order_placed, batch_size=100, batch_wait=0.5)
    def in_a_thread(orders: list[Order], messages: list[Message[Order]]) -> None:
        raise BatchFailed({0: ValueError(), 1: KeyError()})

    @worker.on(order_placed, batch_size=100)
    async def read_only(orders: Sequence[Order]) -> None: ...

    @worker.on(order_placed, batch_size=100)
    async def messages_alone(messages: list[Message[Order]]) -> None:
        places: dict[int, Exception] = {0: ValueError()}
        named: dict[Message[Order], ValueError] = {messages[0]: ValueError()}
        raise BatchFailed(places) from BatchFailed(named)

    @worker.on(order_placed)  # where the worker has a batch size
    async def by_the_worker(orders: list[Order], messages: list[Message[Order]]) -> None: ...

    @worker.on(numbers, batch_size=100)
    async def of_lists(batch: list[list[int]]) -> None: ...

    @worker.on("order.*", batch_size=100)
    async def of_a_pattern(orders: list[dict[str, Any]]) -> None: ...

    worker.on(order_placed, payloads, batch_size=100).on(invoices, print_invoices, batch_size=5)
    worker.batch_size(100).batch_wait(0.5).on(order_placed, messages_alone)

    class Channel:
        @consume(order_placed, batch_size=100)
        async def store(self, orders: list[Order]) -> None: ...

    print(Channel)


async def print_invoices(invoices: list[Invoice], messages: list[Message[Invoice]]) -> None: ...


async def decorated_functions_stay_what_they_are(worker: Worker) -> None:
    @worker.on(order_placed)
    async def charge(order: Order, tries: int = 3) -> str:
        return order.id

    assert_type(await charge(Order("o-1"), tries=5), str)
    assert_type(await charge(Order("o-1")), str)


class Billing:
    async def charge(self, order: Order, message: Message[Order]) -> None: ...
    def book(self, order: Order) -> None: ...
    async def note(self, message: Message[Order]) -> None: ...
    async def __call__(self, order: Order) -> None: ...


async def charge(order: Order) -> None: ...


def book(order: Order, message: Message[Order]) -> None: ...


async def note(message: Message[Order]) -> None: ...


async def print_invoice(invoice: Invoice) -> None: ...


def building(qc: QueueCraft) -> Worker:
    billing = Billing()
    worker = qc.worker(
        "billing",
        concurrency=8,
        prefetch=16,
        ordering="key",
        retry=Retry(max_retries=5),
        dead_letter=DeadLetter(queue=lambda name: f"failed.{name}"),
        ttl=60,
        ack_timeout=30,
        max_redeliveries=5,
        exchange="shop",
        middleware=[timed],
        durable=True,
    )
    worker.on(order_placed, billing.charge).on(order_placed, billing.book)
    worker.on(order_placed, billing.note).on(order_placed, billing)
    worker.on(order_placed, lambda order: charge(order))
    worker.on(order_placed, lambda order, message: book(order, message))
    worker.on(invoices, print_invoice).on("order.*", charge).on("#", note)
    return (
        qc.worker("billing")
        .queue(durable=True, exclusive=False)
        .prefetch(10)
        .retry(Retry(max_retries=5))
        .on(order_placed, charge)
        .on(order_placed, book)
        .on(order_placed, note)
        .build()
    )


def timed(handle: Handle) -> Handle:
    async def timing(message: Message[Any]) -> object:
        return await handle(message)

    return timing


@channel("billing", concurrency=4, retry=NoRetry())
class Channel:
    @consume(order_placed)
    async def payload(self, order: Order) -> str:
        return order.id

    @consume(order_placed)
    async def both(self, order: Order, message: Message[Order]) -> None: ...

    @consume(order_placed)
    async def alone(self, message: Message[Order]) -> None: ...

    @consume(order_paid)
    @consume(order_placed)
    def in_a_thread(self, order: Order) -> None: ...

    @consume(invoices)
    async def of_a_queue(self, invoice: Invoice) -> None: ...

    @consume("order.*")
    async def of_a_pattern(self, order: dict[str, Any], message: Message) -> None: ...

    @consume(moved)
    async def typed_dict(self, address: Address) -> None: ...


async def including(qc: QueueCraft) -> None:
    assert_type(qc.include(Channel()), Worker)
    assert_type(await Channel().payload(Order("o-1")), str)


async def subscribing(qc: QueueCraft) -> None:
    async with qc.subscribe("billing", order_placed, order_paid, ttl=60) as stream:
        async for message in stream:
            assert_type(message, Message[Order])
            assert_type(message.payload, Order)
            await message.ack()
    iterator: AsyncIterator[Message[Address]] = qc.subscribe(
        "moves", moved, retry=Retry(), dead_letter=DeadLetter(), durable=False
    )
    async for each in iterator:
        assert_type(each.payload["street"], str)


async def watching(qc: QueueCraft) -> None:
    def tell(fact: MessageFailed) -> None:
        assert_type(fact.attempt, int)

    stop = qc.observe(MessageFailed, tell)
    stop()
    qc.use(timed)
    qc.configure(default_queue=Policy(ttl=60))
    redriven = await qc.dead_letters.redrive("billing", where=Filter(error="bank"), rate=50)
    assert_type(redriven, Redrive)


def without_await(qc: SyncQueueCraft) -> None:
    assert_type(qc.publish(order_placed, SpecialOrder("o-1"), delay=5), str)
    qc.publish(moved, {"street": "Elm"})
    qc.publish("order.placed", {"id": "o-1"})
    assert_type(qc.publish_many(number, range(10)), list[str])
    assert_type(
        qc.publish_many(number, [1], return_exceptions=True, atomic=True), list[str | QueueError]
    )
    assert_type(qc.send(invoices, Invoice(id="i-1")), str)
    assert_type(qc.request(order_placed, Order("o-1"), Parcel, timeout=2), Parcel)
    assert_type(qc.call(lambda qc: qc.publish(number, 1), timeout=5), str)


async def in_a_transaction(outbox: Outbox, session: Any) -> None:
    assert_type(outbox.publish(session, order_placed, Order("o-1"), key="k"), str)
    outbox.publish(session, moved, {"street": "Elm"})
    outbox.send(session, "invoices", {"id": "i-1"})
    assert_type(await outbox.publish_async(session, number, 5), str)
    assert_type(await outbox.send_async(session, invoices, Invoice(id="i-1")), str)
