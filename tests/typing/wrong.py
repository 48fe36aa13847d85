"""Wrong use: mypy and basedpyright complain about each line marked E, and about no other.

Nothing here is ever called.
"""

from __future__ import annotations

from typing import Any

from queuecraft import (
    BatchFailed,
    Event,
    Message,
    NoRetry,
    Queue,
    QueueCraft,
    Retry,
    Worker,
    channel,
    consume,
)
from queuecraft.facts import MessageFailed, MessageRetried
from queuecraft.outbox import Outbox
from queuecraft.sync import QueueCraft as SyncQueueCraft
from tests.typing.right import (
    Address,
    Customer,
    Invoice,
    Order,
    Parcel,
    invoiced,
    invoices,
    joined,
    moved,
    number,
    numbers,
    order_placed,
    orders,
    parcel_sent,
    totals,
)


async def publishing(qc: QueueCraft) -> None:
    await qc.publish(order_placed, {"id": "o-1"})  # E: a dict is no dataclass
    await qc.publish(order_placed, "o-1")  # E: text is no order
    await qc.publish(order_placed, Parcel("p-1"))  # E: another type
    await qc.publish(order_placed, None)  # E: nothing
    await qc.publish(order_placed, Order)  # E: the class itself
    await qc.publish(order_placed, [Order("o-1")])  # E: many at once
    await qc.publish(order_placed)  # E: no payload
    await qc.publish(order_placed, lambda: Order("o-1"))  # E: a function that makes one
    await qc.publish(order_placed, lambda one, other: Order("o-1"))  # E: and another
    await qc.publish(parcel_sent, Order("o-1"))  # E: not this Struct
    await qc.publish(moved, {"street": 5})  # E: a value of the wrong type
    await qc.publish(moved, {})  # E: a key is missing
    await qc.publish(moved, {"street": "Elm", "no": 5})  # E: a key too many
    await qc.publish(joined, Invoice(id="i-1"))  # E: not this attrs class
    await qc.publish(invoiced, Customer("c-1"))  # E: not this model
    await qc.publish(number, "5")  # E: text is no number
    await qc.publish(number, 5.5)  # E: not whole
    await qc.publish(numbers, ["a"])  # E: the wrong elements
    await qc.publish(numbers, (1, 2))  # E: the wrong collection
    await qc.publish(totals, {"a": "b"})  # E: the wrong values
    await qc.publish(5, 5)  # E: no event
    await qc.publish(Order, Order("o-1"))  # E: a type is no event
    await qc.publish(invoices, Invoice(id="i-1"))  # E: a queue is no event
    await qc.publish(order_placed, Order("o-1"), delay="30")  # E: seconds are a number
    await qc.publish(order_placed, Order("o-1"), dealy=30)  # E: no such option
    await qc.publish(order_placed, Order("o-1"), retry=3)  # E: a policy, not a number
    await qc.publish(order_placed, Order("o-1"), unroutable="ignore")  # E: error or drop
    await qc.publish(order_placed, Order("o-1"), headers={"a": [1]})  # E: headers are flat


async def publishing_many(qc: QueueCraft) -> None:
    await qc.publish_many(order_placed, [{"id": "o-1"}])  # E: dicts
    await qc.publish_many(order_placed, Order("o-1"))  # E: one is not many
    await qc.publish_many(order_placed, [Order("o-1"), "o-2"])  # E: one of them is wrong
    await qc.publish_many(number, ["1", "2"])  # E: text
    await qc.publish_many(moved, [{"street": 5}])  # E: a value of the wrong type
    await qc.publish_many(order_placed, [Order("o-1")], return_exceptions=5)  # E: yes or no


async def sending(qc: QueueCraft) -> None:
    await qc.send(invoices, {"id": "i-1"})  # E: a dict is no model
    await qc.send(invoices, Order("o-1"))  # E: another type
    await qc.send(orders, Invoice(id="i-1"))  # E: another type
    await qc.send(invoices)  # E: no payload
    await qc.send(order_placed, Order("o-1"))  # E: an event is no queue
    await qc.send(invoices, Invoice(id="i-1"), dealy=5)  # E: no such option


async def requesting(qc: QueueCraft) -> None:
    await qc.request(order_placed, {"id": "o-1"}, Invoice)  # E: a dict is no dataclass
    await qc.request(orders, Parcel("p-1"))  # E: another type
    await qc.request(order_placed, Order("o-1"), Invoice, 5.0)  # E: a timeout is named
    await qc.request(order_placed, Order("o-1"), timeout="5")  # E: text is no time
    await qc.request(order_placed, Order("o-1"), ttl=5)  # E: it has its timeout
    text: str = await qc.request(order_placed, Order("o-1"), int)  # E: an int is asked for
    print(text)


async def takes_order(order: Order) -> None: ...
async def takes_both(order: Order, message: Message[Order]) -> None: ...
async def takes_parcel(parcel: Parcel) -> None: ...
async def takes_text(text: str) -> None: ...
async def takes_message_of_parcel(message: Message[Parcel]) -> None: ...
async def takes_nothing() -> None: ...
async def takes_keyword(*, order: Order) -> None: ...
def books_parcel(parcel: Parcel, message: Message[Parcel]) -> None: ...


class Depot:
    async def store(self, parcel: Parcel) -> None: ...
    async def note(self, message: Message[Parcel]) -> None: ...
    async def __call__(self, parcel: Parcel) -> None: ...


def registering(worker: Worker) -> None:
    worker.on(order_placed, takes_parcel)  # E: handles something else
    worker.on(order_placed, takes_text)  # E: handles something else
    worker.on(order_placed, takes_message_of_parcel)  # E: a message of something else
    worker.on(order_placed, takes_nothing)  # E: takes nothing
    worker.on(order_placed, takes_keyword)  # E: by keyword only
    worker.on(order_placed, books_parcel)  # E: handles something else, in a thread
    worker.on(order_placed, Depot().store)  # E: a method for something else
    worker.on(order_placed, Depot().note)  # E: a method for other messages
    worker.on(order_placed, Depot())  # E: an object for something else
    worker.on(order_placed, 5)  # E: no function
    worker.on(order_placed, "takes_order")  # E: the name of one
    worker.on(invoices, takes_order)  # E: a queue of something else
    worker.on(moved, takes_order)  # E: a TypedDict is no order
    worker.on(numbers, takes_text)  # E: a list is no text
    worker.on(5, takes_order)  # E: no event
    worker.on(Order, takes_order)  # E: a type is no event
    worker.on(order_placed)(takes_parcel)  # E: handles something else
    worker.on(order_placed)(takes_message_of_parcel)  # E: a message of something else
    worker.on(order_placed)(takes_nothing)  # E: takes nothing
    worker.on(invoices)(takes_order)  # E: a queue of something else


def decorating(worker: Worker) -> None:
    @worker.on(order_placed)  # E: handles something else
    async def parcel(parcel: Parcel) -> None: ...

    @worker.on(order_placed)  # E: a message of something else
    async def message(message: Message[Parcel]) -> None: ...

    @worker.on(order_placed)  # E: takes nothing
    async def nothing() -> None: ...

    @worker.on(order_placed)  # E: a dict is no order
    def mapping(order: dict[str, Any]) -> None: ...

    @worker.on(moved)  # E: another TypedDict would do, a number does not
    async def street(address: int) -> None: ...

    @worker.on(invoices)  # E: a queue of something else
    async def order(order: Order) -> None: ...


def batching(worker: Worker) -> None:
    @worker.on(order_placed, batch_size=100)  # E: takes no list
    async def one(order: Order) -> None: ...

    @worker.on(order_placed, batch_size=100)  # E: a list of something else
    async def parcels(parcels: list[Parcel]) -> None: ...

    @worker.on(order_placed, batch_size=100)  # E: messages of something else
    async def messages(messages: list[Message[Parcel]]) -> None: ...

    @worker.on(order_placed)  # E: a list of something else
    async def by_the_worker(parcels: list[Parcel]) -> None: ...

    worker.on(order_placed, takes_order, batch_size=100)  # E: takes no list
    worker.on(order_placed, takes_parcels, batch_size=100)  # E: a list of something else
    worker.on(order_placed, batch_size="100")  # E: a number
    worker.on(order_placed, batch_wait=5)  # E: of how many
    raise BatchFailed({0: "no money"})  # E: an error, not text


async def takes_parcels(parcels: list[Parcel]) -> None: ...


def consuming() -> None:
    class Channel:
        @consume(order_placed)  # E: handles something else
        async def parcel(self, parcel: Parcel) -> None: ...

        @consume(order_placed)  # E: a message of something else
        async def message(self, message: Message[Parcel]) -> None: ...

        @consume(order_placed)  # E: takes nothing
        async def nothing(self) -> None: ...

        @consume(invoices)  # E: a queue of something else
        def order(self, order: Order) -> None: ...

        @consume(5)  # E: no event
        async def number(self, order: Order) -> None: ...

    @channel("billing", concurency=4)  # E: no such option
    class Misspelt: ...

    print(Channel, Misspelt)


async def subscribing(qc: QueueCraft) -> None:
    async for message in qc.subscribe("billing", order_placed):
        parcel: Parcel = message.payload  # E: it is an order
        message.payload.street  # E: an order has no street
        await message.retry(delay="5")  # E: seconds are a number
        message.id = "m-2"  # E: nothing of a message can be changed
        print(parcel)
    qc.subscribe(order_placed)  # E: the queue is mandatory
    qc.subscribe("billing")  # E: the event is mandatory
    qc.subscribe("billing", "order.placed")  # E: plain text has no type
    qc.subscribe("billing", order_placed, parcel_sent)  # E: all of one type
    async for address in qc.subscribe("moves", moved):
        address.payload["city"]  # E: there is no such key


def naming() -> None:
    Event(5, Order)  # E: a name is text
    Event("order.placed", Order("o-1"))  # E: a type, not a value
    Event("order.placed", "Order")  # E: a type, not its name
    Event("order.placed", Order, key=lambda order: order.number)  # E: an order has no number
    Event("order.placed", Order, key=lambda order: order.total)  # E: a key is text
    Event()  # E: an event has a name
    Queue("invoices", 5)  # E: a type, not a value
    wrong: Event[Parcel] = order_placed  # E: events of orders are not events of parcels
    print(wrong)
    order_placed.name.missing  # E: a name is text


def configuring(qc: QueueCraft) -> None:
    qc.worker("billing", concurency=8)  # E: no such option
    qc.worker("billing", concurrency="8")  # E: a number
    qc.worker("billing", retry=5)  # E: a policy, not a number
    qc.worker("billing", ordering="fifo")  # E: key or none
    qc.worker(5)  # E: a name is text
    qc.worker("billing").retry(NoRetry).build()  # E: an instance, not the class
    Retry(3)  # E: by keyword
    Retry(max_retries="3")  # E: a number
    QueueCraft("local://", concurency=8)  # E: no such setting
    qc.observe(MessageFailed, retried)  # E: told of something else


def retried(fact: MessageRetried) -> None:
    print(fact.delay, Address)


async def without_await(qc: SyncQueueCraft, outbox: Outbox) -> None:
    qc.publish(order_placed, {"id": "o-1"})  # E: the wrong payload
    qc.publish(order_placed, Order("o-1"), delya=5)  # E: no such option
    await qc.publish(order_placed, Order("o-1"))  # E: there is nothing to wait for
    SyncQueueCraft("local://", concurency=8)  # E: no such setting
    outbox.publish(qc, order_placed, {"id": "o-1"})  # E: the wrong payload
