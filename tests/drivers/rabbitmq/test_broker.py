"""What only a real RabbitMQ can tell: that it does what our tests say it does."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from pamqp import commands, frame

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.rabbitmq.address import addresses
from queuecraft.drivers.rabbitmq.channel import Channel
from queuecraft.drivers.rabbitmq.confirms import REFUSED, RETURNED, TAKEN, Parcel, Publishing
from queuecraft.drivers.rabbitmq.consuming import Consuming
from queuecraft.drivers.rabbitmq.envelope import message_of, parcel
from queuecraft.drivers.rabbitmq.frames import Properties, pack, publish
from queuecraft.drivers.rabbitmq.methods import QueueDeclare
from queuecraft.drivers.rabbitmq.wire import Wire
from queuecraft.model.address import userinfo
from queuecraft.model.credentials import Credentials
from tests.drivers.rabbitmq.peer import enter
from tests.drivers.rabbitmq.test_envelope import POISON, sized
from tests.drivers.rabbitmq.test_fields import nested


async def connected(url: str, password: str | None = None) -> Wire:
    (address,) = addresses(url)
    user, known = userinfo(url)
    return await enter(
        address.port,
        host=address.host,
        virtual_host=address.virtual_host,
        credentials=Credentials(user, password or known or ""),
    )


@pytest.fixture
async def wire(rabbitmq_url: str) -> AsyncIterator[Wire]:
    wire = await connected(rabbitmq_url)
    yield wire
    await wire.close()


async def opened(wire: Wire) -> Channel:
    channel = Channel(wire)
    await channel.open()
    return channel


async def declared(wire: Wire, *queues: str) -> None:
    channel = await opened(wire)
    for queue in queues:
        await channel.ask(QueueDeclare(queue=queue), commands.Queue.DeclareOk)
    await channel.close()


async def publishing(wire: Wire) -> Publishing:
    channel = Publishing(wire)
    await channel.open()
    return channel


def to(queue: str, message_id: str = "m", body: bytes = b"{}") -> Parcel:
    return "", queue, message_id, pack(Properties(message_id=message_id)), body


async def received(wire: Wire, queue: str, count: int) -> Consuming:
    channel = Consuming(wire)
    await channel.consume(queue, prefetch=1000)
    while len(channel.arrivals) < count:
        await channel.arrived_more()
        channel.check()
    return channel


# -- getting in ------------------------------------------------------------------------------------


async def test_a_wrong_password_is_called_wrong(rabbitmq_url: str) -> None:
    with pytest.raises(ConnectionLost, match="or the password is wrong") as caught:
        await connected(rabbitmq_url, password="s3cret")
    assert "s3cret" not in str(caught.value)


async def test_a_virtual_host_that_is_not_there_is_named(rabbitmq_url: str) -> None:
    elsewhere = urlsplit(rabbitmq_url)._replace(path="/nowhere").geturl()
    with pytest.raises(ConnectionLost, match=r"there is no virtual host 'nowhere'.* not found"):
        await connected(elsewhere)


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 131_063, 131_064, 131_065, 500_000])
async def test_bodies_of_any_size_come_through(wire: Wire, size: int) -> None:
    await declared(wire, "billing")
    body = bytes(range(256)) * (size // 256 + 1)
    flight = await (await publishing(wire)).publish([to("billing", body=body[:size])])
    assert list(flight.states) == [TAKEN]
    channel = await received(wire, "billing", 1)
    assert channel.arrivals[0].body == body[:size]


def strange(channel: int, queue: str, table: bytes) -> bytes:
    payload = struct.pack(">HHQH", 60, 0, 0, 1 << 13) + sized(table)
    return (
        publish(channel, "", queue)
        + struct.pack(">BHI", 2, channel, len(payload))
        + payload
        + b"\xce"
    )


async def test_what_strangers_send_can_be_received_sent_on_and_received_again(wire: Wire) -> None:
    await declared(wire, "billing", "billing.dlq")
    stranger = await opened(wire)
    abyss = [nested(kind, 1000)[4:] for kind in (b"F", b"A")]
    tables = [*POISON.values(), *abyss]
    for table in tables:
        wire.write(strange(stranger.number, "billing", table))
    channel = await received(wire, "billing", len(tables))
    messages = [message_of(arrival)[0] for arrival in channel.arrivals]
    sent_on = [parcel(each, "", "billing.dlq", redeliveries=1) for each in messages]
    flight = await (await publishing(wire)).publish(sent_on)
    assert list(flight.states) == [TAKEN] * len(tables)
    again = await received(wire, "billing.dlq", len(tables))
    assert [message_of(each)[0].headers for each in again.arrivals] == [
        each.headers for each in messages
    ]


async def test_headers_too_large_for_a_frame_cost_one_message_and_not_the_connection(
    wire: Wire,
) -> None:
    await declared(wire, "billing")
    large = "", "billing", "l", pack(Properties(headers={"a": "x" * 140_000})), b"{}"
    full = "", "billing", "f", pack(Properties(headers={"a": "x" * 131_000})), b"{}"
    flight = await (await publishing(wire)).publish([to("billing"), large, full])
    assert list(flight.states) == [TAKEN, REFUSED, TAKEN]
    assert wire.lost is None


async def test_only_the_message_of_the_missing_queue_comes_back(wire: Wire) -> None:
    await declared(wire, "billing", "audit")
    channel = await publishing(wire)
    ways = ["billing", "missing", "audit", "missing", "billing"] * 50
    flight = await channel.publish([to(way, body=b"x" * 2000) for way in ways])
    assert list(flight.states) == [RETURNED if way == "missing" else TAKEN for way in ways]


async def test_what_was_not_acked_and_only_that_is_delivered_again(wire: Wire) -> None:
    await declared(wire, "billing")
    names = [str(number) for number in range(40)]
    await (await publishing(wire)).publish([to("billing", name) for name in names])
    channel = await received(wire, "billing", 40)
    tags = {each.properties.message_id: each.tag for each in channel.arrivals}
    acked = [*range(10), *range(12, 30, 3), 39]
    channel.ack([tags[str(number)] for number in reversed(acked)])
    channel.ack([tags["10"]])
    channel.ack([tags["10"]])
    channel.give_back([tags["20"], tags["11"]])
    await channel.close()
    left = [name for name in names if int(name) not in (*acked, 10)]
    again = await received(wire, "billing", len(left))
    assert [each.properties.message_id for each in again.arrivals] == left
    assert all(each.redelivered for each in again.arrivals)


# -- channels --------------------------------------------------------------------------------------


async def test_questions_given_up_at_every_moment_leave_the_connection_as_it_was(
    wire: Wire,
) -> None:
    await declared(wire, "billing")
    for turns in range(12):
        channel = await opened(wire)
        asking = asyncio.create_task(
            channel.ask(QueueDeclare(queue="billing", passive=True), commands.Queue.DeclareOk)
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        other = await opened(wire)
        answer = await other.ask(QueueDeclare(queue="billing"), commands.Queue.DeclareOk)
        assert answer.queue == "billing"
        await other.close()
        await channel.close()
    assert (await opened(wire)).number == 1
    assert wire.lost is None


async def test_a_channel_that_both_sides_close_at_once_does_no_harm_to_the_next(
    wire: Wire,
) -> None:
    for _ in range(20):
        channel = await opened(wire)
        refused = QueueDeclare(queue="missing", passive=True)
        wire.write(frame.marshal(refused, channel.number))
        closing = asyncio.create_task(channel.close())
        others = [await opened(wire) for _ in range(3)]
        await closing
        for other in others:
            await other.close()
    assert wire.lost is None


async def test_a_consumer_hears_that_its_queue_is_gone(wire: Wire) -> None:
    await declared(wire, "billing")
    channel = await received(wire, "billing", 0)
    other = await opened(wire)
    await other.ask(commands.Queue.Delete(queue="billing"), commands.Queue.DeleteOk)
    await channel.arrived()
    with pytest.raises(ConnectionLost, match="its queue is gone"):
        channel.check()
