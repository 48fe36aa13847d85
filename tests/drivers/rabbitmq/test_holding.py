"""What is fetched from a queue is a delivery like others, and nobody waits at an empty one."""

from __future__ import annotations

import asyncio

import pytest
from pamqp import commands, frame

from queuecraft.drivers.rabbitmq.holding import Holding
from tests.drivers.rabbitmq.broker import Broker, delivery, message, turn


@pytest.fixture
async def broker() -> Broker:
    return Broker()


@pytest.fixture
async def channel(broker: Broker) -> Holding:
    return await broker.open(Holding)


def fetched(channel: Holding, tag: int, *pieces: bytes) -> bytes:
    return message(channel.number, commands.Basic.GetOk(tag, True, "events", "ünï", 7), pieces)


async def test_what_is_fetched_comes_with_what_is_delivered(
    broker: Broker, channel: Holding
) -> None:
    fetching = asyncio.create_task(channel.fetch("billing", 3))
    await turn()
    asked = broker.commands(commands.Basic.Get)
    assert [(each.queue, each.no_ack) for _, each in asked] == [("billing", False)] * 3
    broker.wire.data_received(delivery(channel.number, 1, b"one"))
    broker.wire.data_received(fetched(channel, 2, b"t", b"wo"))
    await turn()
    assert not fetching.done()
    broker.wire.data_received(fetched(channel, 3))
    await fetching
    assert [(each.tag, each.body) for each in channel.arrivals] == [
        (1, b"one"),
        (2, b"two"),
        (3, b""),
    ]
    assert [each.routing_key for each in channel.arrivals] == ["order.placed", "ünï", "ünï"]
    assert [each.redelivered for each in channel.arrivals] == [False, True, True]
    assert not channel.empty


async def test_nobody_waits_for_more_than_a_queue_has(broker: Broker, channel: Holding) -> None:
    fetching = asyncio.create_task(channel.fetch("billing", 3))
    await turn()
    broker.wire.data_received(fetched(channel, 1, b"one"))
    broker.say(channel.number, commands.Basic.GetEmpty(), commands.Basic.GetEmpty())
    await fetching
    assert channel.empty
    assert len(channel.arrivals) == 1


async def test_nobody_waits_at_a_channel_that_is_lost(broker: Broker, channel: Holding) -> None:
    fetching = asyncio.create_task(channel.fetch("billing", 3))
    await turn()
    broker.say(channel.number, commands.Channel.Close(404, "NOT_FOUND", 0, 0))
    await fetching
    assert channel.ended


async def test_one_that_is_cut_off_anywhere_ends_the_connection() -> None:
    payload = frame.marshal(commands.Basic.GetOk(1, False, "e", "k", 7), 1)[7:-1]
    for end in range(4, len(payload)):
        broker = Broker()
        channel = await broker.open(Holding)
        start = b"\x01\0\x01" + end.to_bytes(4, "big")
        broker.wire.data_received(start + payload[:end] + b"\xce")
        assert channel.lost is not None, end
