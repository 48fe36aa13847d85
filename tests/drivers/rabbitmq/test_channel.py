"""A channel asks one thing at a time, and what it hears is the answer to that."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from pamqp import commands
from pamqp.base import Frame

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.rabbitmq.channel import Channel
from queuecraft.drivers.rabbitmq.methods import QueueDeclare
from queuecraft.drivers.rabbitmq.wire import Closed
from tests.drivers.rabbitmq.broker import Broker, delivery, said, turn


def asking(channel: Channel, queue: str) -> Coroutine[Any, Any, commands.Queue.DeclareOk]:
    return channel.ask(QueueDeclare(queue=queue, passive=True), commands.Queue.DeclareOk)


def declared(queue: str) -> Frame:
    return commands.Queue.DeclareOk(queue, 1, 2)


@pytest.fixture
async def broker() -> Broker:
    return Broker()


@pytest.fixture
async def channel(broker: Broker) -> Channel:
    return await broker.open(Channel)


async def started(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.create_task(work)
    await turn()
    return task


# -- questions and answers -------------------------------------------------------------------------


async def test_a_second_question_waits_for_the_answer_to_the_first(
    broker: Broker, channel: Channel
) -> None:
    broker.silent.add(commands.Queue.Declare)
    tasks = [await started(asking(channel, name)) for name in "abc"]
    for count, task in enumerate(tasks, start=1):
        heard = [each.queue for _, each in broker.commands(commands.Queue.Declare)]
        assert heard == list("abc"[:count])
        broker.say(channel.number, declared(heard[-1]))
        assert (await task).queue == heard[-1]
        await turn()


async def test_channels_do_not_wait_for_each_other(broker: Broker, channel: Channel) -> None:
    other = await broker.open(Channel)
    broker.silent.add(commands.Queue.Declare)
    first, second = await started(asking(channel, "a")), await started(asking(other, "b"))
    broker.say(other.number, declared("b"))
    assert (await second).queue == "b"
    assert not first.done()
    broker.say(channel.number, declared("a"))
    assert (await first).queue == "a"


async def test_a_question_that_is_given_up_takes_its_late_answer_with_it(
    broker: Broker, channel: Channel
) -> None:
    broker.silent.add(commands.Queue.Declare)
    given_up = await started(asking(channel, "a"))
    waiting = await started(asking(channel, "b"))
    given_up.cancel()
    await turn()
    broker.say(channel.number, declared("a"))  # no answer to b
    with pytest.raises(ConnectionLost, match="given up while asking"):
        await waiting
    with pytest.raises(ConnectionLost, match="given up while asking"):
        await asking(channel, "c")
    assert [each.queue for _, each in broker.commands(commands.Queue.Declare)] == ["a"]
    assert given_up.cancelled()


async def test_a_channel_given_up_is_closed_and_its_number_used_again_only_after_that(
    broker: Broker, channel: Channel
) -> None:
    broker.silent |= {commands.Queue.Declare, commands.Channel.Close}
    task = await started(asking(channel, "a"))
    task.cancel()
    await turn()
    assert [number for number, _ in broker.commands(commands.Channel.Close)] == [channel.number]
    second = await broker.open(Channel)
    assert second.number != channel.number
    broker.say(channel.number, declared("a"), commands.Channel.CloseOk())
    broker.silent.clear()
    third = await broker.open(Channel)
    assert third.number == channel.number
    assert (await asking(third, "c")).message_count == 1


async def test_an_opening_that_is_given_up_leaves_no_channel_behind(broker: Broker) -> None:
    broker.silent.add(commands.Channel.Open)
    channel = Channel(broker.wire)
    task = await started(channel.open())
    task.cancel()
    await turn()
    assert len(broker.commands(commands.Channel.Close)) == 1
    await channel.close()
    assert Channel(broker.wire).number == channel.number


async def test_a_question_cancelled_with_its_answer_at_hand_does_no_harm_to_the_next_channel(
    broker: Broker, channel: Channel
) -> None:
    broker.silent.add(commands.Queue.Declare)
    task = await started(asking(channel, "a"))
    broker.say(channel.number, declared("a"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await channel.close()
    broker.silent.clear()
    assert (await asking(await broker.open(Channel), "b")).message_count == 1


async def test_an_answer_to_something_else_ends_the_channel_and_not_the_connection(
    broker: Broker, channel: Channel
) -> None:
    broker.silent.add(commands.Queue.Declare)
    task = await started(asking(channel, "a"))
    broker.say(channel.number, commands.Queue.PurgeOk(3))
    with pytest.raises(ConnectionLost, match=r"answered Queue\.PurgeOk"):
        await task
    with pytest.raises(ConnectionLost, match=r"answered Queue\.PurgeOk"):
        await asking(channel, "b")
    assert broker.wire.lost is None


async def test_a_question_that_cannot_be_put_into_words_leaves_the_channel_as_it_was(
    broker: Broker, channel: Channel
) -> None:
    with pytest.raises((TypeError, ValueError)):
        await asking(channel, "x" * 256)
    assert (await asking(channel, "b")).message_count == 1


async def test_what_nobody_asked_for_is_passed_over(broker: Broker, channel: Channel) -> None:
    broker.say(channel.number, declared("a"), commands.Basic.Cancel("tag"))
    broker.wire.data_received(delivery(channel.number, 1, b"{}"))
    assert (await asking(channel, "b")).message_count == 1


async def test_a_broker_that_wants_a_pause_is_answered(broker: Broker, channel: Channel) -> None:
    broker.say(channel.number, commands.Channel.Flow(False))
    await turn()
    ((number, answer),) = broker.commands(commands.Channel.FlowOk)
    assert (number, answer.active) == (channel.number, False)


# -- the end ---------------------------------------------------------------------------------------


async def test_a_broker_that_refuses_closes_the_channel_and_the_asker_learns_why(
    broker: Broker, channel: Channel
) -> None:
    broker.silent.add(commands.Queue.Declare)
    tasks = [await started(asking(channel, name)) for name in "ab"]
    broker.say(channel.number, commands.Channel.Close(404, "NOT_FOUND - no queue 'a'", 50, 10))
    for task in tasks:
        with pytest.raises(Closed, match=r"NOT_FOUND - no queue 'a' \(404\)") as caught:
            await task
        assert caught.value.code == 404
    await turn()
    assert [number for number, _ in broker.commands(commands.Channel.CloseOk)] == [channel.number]
    assert len(broker.commands(commands.Queue.Declare)) == 1
    assert broker.wire.lost is None


async def test_a_channel_closed_by_the_broker_is_not_closed_again(
    broker: Broker, channel: Channel
) -> None:
    broker.say(channel.number, commands.Channel.Close(404, "NOT_FOUND", 0, 0))
    successor = await broker.open(Channel)
    assert successor.number == channel.number
    await channel.close()
    assert broker.commands(commands.Channel.Close) == []
    assert (await asking(successor, "a")).message_count == 1


@pytest.mark.parametrize("answered", [True, False])
async def test_a_channel_that_is_refused_while_it_closes_takes_none_of_its_successors_answers(
    broker: Broker, channel: Channel, answered: bool
) -> None:
    """Both say close at the same time; RabbitMQ answers ours as well, or has not heard it any
    more, because the process that would have is gone."""
    broker.silent.add(commands.Channel.Close)
    closing = await started(channel.close())
    broker.say(channel.number, commands.Channel.Close(406, "PRECONDITION_FAILED", 0, 0))
    await closing
    assert [number for number, _ in broker.commands(commands.Channel.CloseOk)] == [channel.number]
    successor = await broker.open(Channel)
    assert successor.number == channel.number
    broker.silent.add(commands.Queue.Declare)
    asked = await started(asking(successor, "a"))
    if answered:
        broker.say(channel.number, commands.Channel.CloseOk())
    await turn()
    assert not asked.done()
    broker.say(channel.number, declared("a"))
    await asked


async def test_closing_fails_whoever_still_waits_and_is_waited_for_by_all_who_close(
    broker: Broker, channel: Channel
) -> None:
    broker.silent |= {commands.Queue.Declare, commands.Channel.Close}
    waiting = await started(asking(channel, "a"))
    closing = [await started(channel.close()) for _ in range(2)]
    with pytest.raises(ConnectionLost, match="the channel is closed"):
        await waiting
    assert not any(task.done() for task in closing)
    closing[0].cancel()
    broker.say(channel.number, declared("a"), commands.Channel.CloseOk())
    await closing[1]
    assert len(broker.commands(commands.Channel.Close)) == 1
    assert Channel(broker.wire).number == channel.number


async def test_what_comes_for_a_channel_while_it_closes_is_heard_by_nobody(
    broker: Broker, channel: Channel
) -> None:
    broker.silent.add(commands.Channel.Close)
    closing = await started(channel.close())
    broker.wire.data_received(
        delivery(channel.number, 1, b"{}") + said(channel.number, commands.Basic.Ack(1))
    )
    broker.say(channel.number, commands.Channel.CloseOk())
    await closing
    broker.wire.data_received(delivery(channel.number, 2, b"{}"))
    assert broker.wire.lost is None


async def test_a_connection_lost_while_a_channel_closes_is_an_end_too(
    broker: Broker, channel: Channel
) -> None:
    broker.silent.add(commands.Channel.Close)
    closing = await started(channel.close())
    broker.wire.connection_lost(None)
    await closing


async def test_a_lost_connection_fails_every_question_on_every_channel(
    broker: Broker, channel: Channel
) -> None:
    broker.silent.add(commands.Queue.Declare)
    other = await broker.open(Channel)
    tasks = [await started(asking(each, "a")) for each in (channel, other, other)]
    broker.wire.connection_lost(OSError("broken"))
    for task in tasks:
        with pytest.raises(ConnectionLost, match="broken"):
            await task
    await channel.close()


async def test_a_channel_of_a_lost_connection_is_lost_from_the_start(broker: Broker) -> None:
    broker.wire.connection_lost(None)
    channel = Channel(broker.wire)
    with pytest.raises(ConnectionLost, match="the connection was cut"):
        await channel.open()
    await channel.close()


async def test_a_question_cancelled_when_the_connection_is_lost_is_only_cancelled(
    broker: Broker, channel: Channel
) -> None:
    broker.silent.add(commands.Queue.Declare)
    task = await started(asking(channel, "a"))
    broker.wire.connection_lost(None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- numbers ---------------------------------------------------------------------------------------


async def test_the_lowest_free_number_is_taken(broker: Broker) -> None:
    channels = [await broker.open(Channel) for _ in range(4)]
    assert [channel.number for channel in channels] == [1, 2, 3, 4]
    await channels[1].close()
    assert (await broker.open(Channel)).number == 2
    assert (await broker.open(Channel)).number == 5


async def test_more_channels_than_were_agreed_on_are_refused(broker: Broker) -> None:
    broker.wire.channel_max = 2
    await broker.open(Channel)
    await broker.open(Channel)
    with pytest.raises(ConnectionLost, match="all 2 channels are in use"):
        Channel(broker.wire)


@pytest.mark.parametrize("payload", [b"", b"\0", b"\0\x14\0", b"\xff\xff\xff\xff"])
async def test_a_method_without_a_name_ends_the_connection(
    broker: Broker, channel: Channel, payload: bytes
) -> None:
    start = b"\x01\0\x01" + len(payload).to_bytes(4, "big")
    broker.wire.data_received(start + payload + b"\xce")
    assert channel.lost is broker.wire.lost is not None


@pytest.mark.parametrize("name", ["with space", "ünïcode", "a/b:c#*", "x" * 255])
async def test_any_name_that_rabbitmq_takes_can_be_asked_for(
    broker: Broker, channel: Channel, name: str
) -> None:
    await asking(channel, name)
    ((_, heard),) = broker.commands(commands.Queue.Declare)
    assert heard.queue == name
