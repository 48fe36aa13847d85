"""What the document of an application tells, and what it does not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import pydantic
import pytest

from queuecraft import ConfigError, Event, Exchange, Message, Queue, QueueCraft
from queuecraft.asyncapi import document
from tests.asyncapi.official import problems


@dataclass
class Item:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: str
    items: list[Item]
    at: datetime | None = None


class Address(pydantic.BaseModel):
    street: str


class Customer(pydantic.BaseModel):
    name: str
    address: Address


placed = Event("order.placed", Order)
moved = Event("customer.moved", Customer)
URLS = (
    "local://",
    "amqp://user:secret@one:5672,two:5673/shop",
    "amqps://user:secret@one/%2f",
    "redis://:secret@cache:6379/2?mode=stream",
    "kafka://user:secret@one:9092,two:9092?prefix=shop.",
)


def shop(url: str = "local://") -> QueueCraft:
    qc = QueueCraft(url)
    billing = qc.worker("billing")

    @billing.on(placed)
    async def charge(order: Order, message: Message[Order]) -> None:
        """Charge the
        customer.

        Once only.
        """

    @billing.on("order.*")
    async def look(order: Any) -> None: ...

    qc.worker("invoices").on(Queue("invoices", int), print)
    qc.worker("audit").on("#", lambda payload: None)
    return qc


@pytest.mark.parametrize("url", URLS)
def test_the_official_parser_finds_nothing_wrong(url: str) -> None:
    events: list[Event[Any]] = [
        placed,
        moved,
        Event("blob", bytes),
        Event("many", list[Customer]),
        Event("anything"),
        Event("elsewhere", int, exchange=Exchange("other", "direct")),
    ]
    made = document(shop(url), events, title="Shop", version="2.1", description="Sells\nthings.")
    assert problems(made) == []
    assert b"secret" not in msgspec.json.encode(made)


def test_an_application_without_anything_is_a_document_too() -> None:
    assert problems(document(QueueCraft())) == []


def test_a_handler_is_an_operation_that_receives() -> None:
    made = document(shop())
    charge = made["operations"]["billing.charge"]
    assert charge["action"] == "receive"
    assert (charge["summary"], charge["description"]) == ("Charge the customer.", "Once only.")
    assert charge["tags"] == [{"name": "billing"}]
    assert charge["channel"] == {"$ref": "#/channels/order.placed"}
    message = made["components"]["messages"]["order.placed"]
    assert message["payload"] == {"$ref": "#/components/schemas/Order"}
    assert set(made["components"]["schemas"]) == {"Order", "Item"}
    assert made["channels"]["order._"]["address"] == "order.*"


def test_an_event_that_is_sent_and_handled_is_one_channel_with_one_message() -> None:
    made = document(shop(), [placed])
    assert made["operations"]["publish.order.placed"]["action"] == "send"
    assert list(made["channels"]["order.placed"]["messages"]) == ["order.placed"]


def test_two_handlers_of_one_event_with_other_types_are_two_messages() -> None:
    qc = QueueCraft()
    worker, other = qc.worker("one"), qc.worker("two")

    @worker.on("n")
    async def whole(n: int) -> None: ...

    @other.on("n")
    async def text(n: str) -> None: ...

    made = document(qc)
    assert list(made["channels"]["n"]["messages"]) == ["n", "n-2"]
    assert problems(made) == []


def test_handlers_of_one_name_are_told_apart() -> None:
    qc = QueueCraft()
    worker = qc.worker("one")
    worker.on("a", lambda payload: None)
    worker.on("b", lambda payload: None)
    made = document(qc)
    assert len(made["operations"]) == 2
    assert problems(made) == []


def test_types_of_one_name_are_refused() -> None:
    @dataclass
    class Item:
        other: str

    with pytest.raises(ConfigError, match="two types of payloads are called 'Item'"):
        document(shop(), [Event("item", Item)])


def test_servers_are_told_without_who_we_are() -> None:
    assert document(QueueCraft(URLS[1]))["servers"] == {
        "broker": {"host": "one:5672", "protocol": "amqp", "pathname": "/shop"},
        "broker-1": {"host": "two:5673", "protocol": "amqp", "pathname": "/shop"},
    }
    assert "servers" not in document(QueueCraft("local://"))
