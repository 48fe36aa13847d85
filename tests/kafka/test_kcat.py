"""A client that is not ours produces and consumes alongside, headers included."""

from __future__ import annotations

import asyncio

from queuecraft import Message, QueueCraft
from queuecraft.testing import Ledger
from tests.brokers.kcat import Kcat
from tests.kafka.place import Order, order_placed, running, topic


async def handled(url: str, kcat: Kcat, *headers: str) -> Message[Order]:
    """What a handler gets of a record that kcat produces."""
    seen = Ledger()
    arrived: list[Message[Order]] = []
    qc = QueueCraft(url)
    billing = qc.worker("billing")

    @billing.on(order_placed)
    async def charge(order: Order, message: Message[Order]) -> None:
        arrived.append(message)
        seen.record("billing", message)

    async with qc, running(billing):
        produce = ["-P", "-t", topic(url, "order.placed"), "-k", "ada"]
        produce += [word for each in headers for word in ("-H", each)]
        await asyncio.to_thread(kcat, url, *produce, text='{"id": "o-1"}\n')
        await seen.wait_for(timeout=20, billing=1)
    (message,) = arrived
    assert (message.payload.id, message.key, message.routing_key) == ("o-1", "ada", "order.placed")
    return message


async def test_what_kcat_produces_is_handled_with_key_and_headers(url: str, kcat: Kcat) -> None:
    message = await handled(url, kcat, "trace=t-1", "empty=")
    assert dict(message.headers) == {"trace": "t-1", "empty": ""}
    assert message.id.startswith(topic(url, "order.placed"))
    assert message.timestamp is not None


async def test_a_record_with_a_header_whose_name_is_no_text_is_handled_without_its_headers(
    url: str, kcat: Kcat
) -> None:
    odd = "odd\udcff=1"  # as a byte that is no UTF-8 is given to a program
    message = await handled(url, kcat, "trace=t-1", odd)
    assert dict(message.headers) == {}


async def test_what_we_publish_kcat_consumes_with_key_and_headers(url: str, kcat: Kcat) -> None:
    async with QueueCraft(url) as qc:
        await qc.admin.declare("billing", "order.placed")
        id = await qc.publish(order_placed, Order("o-1"), key="ada", headers={"n": 1, "who": "bö"})
    consume = ("-C", "-t", topic(url, "order.placed"), "-o", "beginning", "-e")
    text = await asyncio.to_thread(kcat, url, *consume, "-f", "%k|%s|%h\n")
    key, body, headers = text.strip().split("|")
    assert (key, body) == ("ada", '{"id":"o-1","total":9.5}')
    told = dict(each.split("=", 1) for each in headers.split(","))
    assert (told["x-id"], told["x-event"]) == (id, "order.placed")
    assert (told["n"], told["who"], told["content-type"]) == ("1", "bö", "application/json")
