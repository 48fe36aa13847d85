"""Every delivery arrives whole, and no ack ever covers what was not acked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.rabbitmq.consuming import Consuming
from queuecraft.drivers.rabbitmq.wire import Closed
from tests.drivers.rabbitmq.broker import Broker, delivery, message, said, turn


@pytest.fixture
async def broker() -> Broker:
    return Broker()


@pytest.fixture
async def channel(broker: Broker) -> Consuming:
    return await consuming(broker)


async def consuming(broker: Broker) -> Consuming:
    channel = Consuming(broker.wire)
    await channel.consume("billing", prefetch=10)
    return channel


def deliver(broker: Broker, channel: Consuming, *tags: int) -> None:
    for tag in tags:
        broker.wire.data_received(delivery(channel.number, tag, b"{}"))


async def settled(broker: Broker) -> list[tuple[int, bool] | int]:
    """Acks with whether they are for all before, and what was given back."""
    await turn()
    found: list[tuple[int, bool] | int] = []
    for _, each in broker.heard:
        if isinstance(each, commands.Basic.Ack):
            found.append((each.delivery_tag or 0, each.multiple))
        elif isinstance(each, commands.Basic.Nack):
            assert (each.multiple, each.requeue) == (False, True)
            found.append(each.delivery_tag or 0)
    return found


# -- deliveries ------------------------------------------------------------------------------------


async def test_a_consumer_says_how_much_it_can_hold(broker: Broker) -> None:
    await Consuming(broker.wire).consume("a", prefetch=7, exclusive=True, tag="me")
    await Consuming(broker.wire).consume("b", prefetch=10**6)
    assert [each.prefetch_count for _, each in broker.commands(commands.Basic.Qos)] == [7, 65_535]
    (_, first), (_, second) = broker.commands(commands.Basic.Consume)
    assert (first.queue, first.exclusive, first.consumer_tag, first.no_ack) == (
        *("a", True, "me"),
        False,
    )
    assert (second.queue, second.exclusive) == ("b", False)


@pytest.mark.parametrize(
    "pieces", [(), (b"",), (b"{}",), (b"a", b"b"), (b"", b"a", b"", b"b"), (b"x" * 9000,) * 3]
)
async def test_a_body_is_whole_in_however_many_frames_it_comes(
    broker: Broker, channel: Consuming, pieces: tuple[bytes, ...]
) -> None:
    if pieces == (b"",):
        pieces = ()  # a frame too many: see below
    for tag in (1, 2):
        broker.wire.data_received(delivery(channel.number, tag, *pieces, message_id=f"m-{tag}"))
    assert [(each.tag, each.body) for each in channel.arrivals] == [
        (1, b"".join(pieces)),
        (2, b"".join(pieces)),
    ]
    assert [each.properties.message_id for each in channel.arrivals] == ["m-1", "m-2"]


async def test_a_delivery_says_how_it_came(broker: Broker, channel: Consuming) -> None:
    broker.wire.data_received(delivery(channel.number, 1, b"{}", redelivered=True))
    other = commands.Basic.Deliver("tag", 2**63 - 1, False, "", "ünï")
    broker.wire.data_received(message(channel.number, other))
    first, second = channel.arrivals
    assert (first.redelivered, first.exchange, first.routing_key) == (
        *(True, "events"),
        "order.placed",
    )
    assert (second.redelivered, second.exchange, second.routing_key) == (False, "", "ünï")
    assert (first.tag, second.tag) == (1, 2**63 - 1)


async def test_more_ways_than_are_remembered_are_told_right(
    broker: Broker, channel: Consuming
) -> None:
    keys = [f"key-{at}" for at in range(2500)]
    for tag, key in enumerate(keys, start=1):
        deliver = commands.Basic.Deliver("tag", tag, False, "events", key)
        broker.wire.data_received(message(channel.number, deliver))
    assert [each.routing_key for each in channel.arrivals] == keys


METHOD = commands.Basic.Deliver("tag", 1, False, "e", "k")
HEADER = ContentHeader(0, 2, commands.Basic.Properties())
EMPTY = ContentHeader(0, 0, commands.Basic.Properties())
BODY, HALF, NOTHING = ContentBody(b"{}"), ContentBody(b"{"), ContentBody(b"")


@pytest.mark.parametrize(
    "frames",
    [
        [HEADER],
        [EMPTY],
        [BODY],
        [NOTHING],
        [METHOD, METHOD],
        [METHOD, BODY],
        [METHOD, NOTHING],
        [METHOD, HEADER, HEADER],
        [METHOD, HEADER, METHOD],
        [METHOD, HEADER, ContentBody(b"{}}")],
        [METHOD, HEADER, HALF, HEADER],
        [METHOD, HEADER, HALF, METHOD],
        [METHOD, HEADER, HALF, ContentBody(b"}}")],
        [METHOD, HEADER, BODY, BODY],
        [METHOD, HEADER, BODY, HEADER],
        [METHOD, EMPTY, NOTHING],
        [METHOD, EMPTY, BODY],
    ],
)
async def test_frames_in_no_order_end_the_connection_before_a_message_is_taken_for_another(
    broker: Broker, channel: Consuming, frames: list[Any]
) -> None:
    broker.wire.data_received(delivery(channel.number, 9, b"before"))
    for each in frames:
        broker.wire.data_received(frame.marshal(each, channel.number))
    assert "what is no AMQP" in str(broker.wire.lost)
    assert channel.lost is broker.wire.lost
    assert not channel.arrivals


async def test_a_delivery_that_is_cut_off_anywhere_ends_the_connection() -> None:
    payload = frame.marshal(METHOD, 1)[7:-1]
    for end in range(4, len(payload)):
        broker = Broker()
        channel = await consuming(broker)
        start = b"\x01\0\x01" + end.to_bytes(4, "big")
        broker.wire.data_received(start + payload[:end] + b"\xce")
        assert channel.lost is not None, end


# -- waiting ---------------------------------------------------------------------------------------


async def test_who_waits_is_woken_by_the_first_arrival(broker: Broker, channel: Consuming) -> None:
    waiting = [asyncio.create_task(channel.arrived()) for _ in range(2)]
    await turn()
    waiting[0].cancel()
    third = asyncio.create_task(channel.arrived())
    await turn()
    assert not waiting[1].done()
    deliver(broker, channel, 1)
    await waiting[1]
    await third
    await channel.arrived()


async def test_who_waits_for_more_is_not_content_with_what_is_there(
    broker: Broker, channel: Consuming
) -> None:
    deliver(broker, channel, 1)
    waiting = asyncio.create_task(channel.arrived_more())
    await turn()
    assert not waiting.done()
    deliver(broker, channel, 2)
    await waiting
    again = asyncio.create_task(channel.arrived_more())
    await turn()
    assert not again.done()
    deliver(broker, channel, 3)
    await again


async def test_a_broker_that_ends_the_consumer_lets_what_has_come_be_handled_first(
    broker: Broker, channel: Consuming
) -> None:
    deliver(broker, channel, 1)
    waiting = asyncio.create_task(channel.arrived_more())
    await turn()
    broker.say(channel.number, commands.Basic.Cancel("tag", True))
    await waiting
    await channel.arrived_more()
    channel.check()
    deliver(broker, channel, 2)  # was on its way
    assert [each.tag for each in channel.arrivals] == [1, 2]
    channel.arrivals.clear()
    with pytest.raises(ConnectionLost, match="its queue is gone, or it took too long"):
        channel.check()
    channel.check_open()
    channel.ack([1, 2])
    assert await settled(broker) == [(2, True)]


async def test_a_lost_channel_holds_nothing_and_settles_nothing(
    broker: Broker, channel: Consuming
) -> None:
    deliver(broker, channel, 1, 2)
    waiting = asyncio.create_task(channel.arrived_more())
    await turn()
    broker.say(channel.number, commands.Channel.Close(406, "TIMEOUT", 0, 0))
    await waiting
    await channel.arrived()
    assert not channel.arrivals
    for check in (channel.check, channel.check_open):
        with pytest.raises(Closed, match="TIMEOUT"):
            check()
    successor = await consuming(broker)
    assert successor.number == channel.number
    channel.ack([1, 2])
    channel.give_back([1, 2])
    assert await settled(broker) == [], "they would be for the deliveries of another"


async def test_a_closed_channel_hears_no_deliveries_and_settles_nothing(
    broker: Broker, channel: Consuming
) -> None:
    deliver(broker, channel, 1)
    broker.silent.add(commands.Channel.Close)
    closing = asyncio.create_task(channel.close())
    await turn()
    deliver(broker, channel, 2)
    channel.ack([1, 2])
    broker.say(channel.number, commands.Channel.CloseOk())
    await closing
    assert not channel.arrivals
    assert await settled(broker) == []


async def test_a_consumer_that_is_refused_says_why(broker: Broker) -> None:
    broker.silent.add(commands.Basic.Consume)
    channel = Consuming(broker.wire)
    starting = asyncio.create_task(channel.consume("nowhere", prefetch=1))
    await turn()
    broker.say(channel.number, commands.Channel.Close(404, "NOT_FOUND", 0, 0))
    with pytest.raises(Closed, match="NOT_FOUND"):
        await starting


async def test_a_consumer_given_up_while_it_starts_receives_nothing_behind_our_back(
    broker: Broker,
) -> None:
    broker.silent.add(commands.Basic.Consume)
    channel = Consuming(broker.wire)
    starting = asyncio.create_task(channel.consume("billing", prefetch=1))
    await turn()
    starting.cancel()
    await turn()
    assert [number for number, _ in broker.commands(commands.Channel.Close)] == [channel.number]
    broker.wire.data_received(
        said(channel.number, commands.Basic.ConsumeOk("tag")) + delivery(channel.number, 1, b"{}")
    )
    assert not channel.arrivals


# -- stopping and resuming -------------------------------------------------------------------------


async def consumers(broker: Broker) -> list[tuple[str, str | None]]:
    """What was begun and ended, by their tags."""
    await turn()
    return [
        (each.name, each.consumer_tag)
        for _, each in broker.heard
        if isinstance(each, commands.Basic.Consume | commands.Basic.Cancel)
    ]


@pytest.fixture
async def stopped(broker: Broker) -> Consuming:
    """A channel whose consumer was `me`."""
    broker.silent.add(commands.Basic.Consume)
    channel = Consuming(broker.wire)
    starting = asyncio.create_task(channel.consume("billing", prefetch=5, tag="me"))
    while not broker.commands(commands.Basic.Consume):
        await turn()
    broker.say(channel.number, commands.Basic.ConsumeOk("me"))
    await starting
    await channel.stop()
    assert await consumers(broker) == [("Basic.Consume", "me"), ("Basic.Cancel", "me")]
    broker.heard.clear()
    return channel


async def test_one_that_is_stopped_while_it_resumes_leaves_no_consumer_behind(
    broker: Broker, stopped: Consuming
) -> None:
    resuming = asyncio.create_task(stopped.resume())
    await turn()
    stopping = asyncio.create_task(stopped.stop())
    await turn()
    broker.say(stopped.number, commands.Basic.ConsumeOk("me-1"))
    await resuming
    await stopping
    assert await consumers(broker) == [("Basic.Consume", "me-1"), ("Basic.Cancel", "me-1")]
    assert stopped.stopped


async def test_one_that_is_resumed_while_it_stops_is_begun_again_as_another(
    broker: Broker, stopped: Consuming
) -> None:
    broker.silent.add(commands.Basic.Cancel)
    turns = [stopped.resume(), stopped.stop(), stopped.resume(), stopped.resume()]
    tasks = [asyncio.create_task(each) for each in turns]
    for answer in (
        commands.Basic.ConsumeOk("me-1"),
        commands.Basic.CancelOk("me-1"),
        commands.Basic.ConsumeOk("me-2"),
    ):
        await turn()
        broker.say(stopped.number, answer)
    await asyncio.gather(*tasks)
    assert await consumers(broker) == [
        ("Basic.Consume", "me-1"),
        ("Basic.Cancel", "me-1"),
        ("Basic.Consume", "me-2"),
    ]
    assert not stopped.stopped


async def test_a_stop_given_up_before_its_turn_has_stopped_nothing(
    broker: Broker, stopped: Consuming
) -> None:
    resuming = asyncio.create_task(stopped.resume())
    await turn()
    stopping = asyncio.create_task(stopped.stop())
    await turn()
    stopping.cancel()
    await turn()
    broker.say(stopped.number, commands.Basic.ConsumeOk("me-1"))
    await resuming
    assert not stopped.stopped
    assert stopped.lost is None


# -- settling --------------------------------------------------------------------------------------


async def test_acks_are_one_where_nothing_before_them_is_open(
    broker: Broker, channel: Consuming
) -> None:
    deliver(broker, channel, 1, 2, 3, 4, 5)
    channel.ack([2, 3, 1])
    assert await settled(broker) == [(3, True)]


async def test_acks_are_single_behind_one_that_is_still_open(
    broker: Broker, channel: Consuming
) -> None:
    deliver(broker, channel, 1, 2, 3, 4, 5, 6)
    channel.ack([5, 1, 6, 2])
    assert await settled(broker) == [(2, True), (5, False), (6, False)]
    channel.ack([3])
    channel.ack([4])
    assert (await settled(broker))[3:] == [(3, True), (4, True)]


async def test_what_was_not_even_given_to_anyone_is_open_too(
    broker: Broker, channel: Consuming
) -> None:
    deliver(broker, channel, 1, 2)
    broker.wire.data_received(delivery(channel.number, 3, b"x" * 10)[:-5])  # half of it
    channel.arrivals.popleft()
    channel.ack([2])
    assert await settled(broker) == [(2, False)]


async def test_what_is_given_back_goes_back_in_order_and_alone(
    broker: Broker, channel: Consuming
) -> None:
    deliver(broker, channel, 1, 2, 3, 4)
    channel.give_back([3, 1])
    channel.ack([2, 4])
    assert await settled(broker) == [1, 3, (4, True)]


async def test_nothing_is_settled_twice_because_that_would_cost_the_channel(
    broker: Broker, channel: Consuming
) -> None:
    deliver(broker, channel, 1, 2, 3)
    channel.ack([1, 1])
    channel.give_back([2, 2, 1])
    channel.ack([2, 1])
    channel.ack([0, 17])
    channel.ack([])
    channel.give_back([])
    assert await settled(broker) == [(1, True), 2]


class Machine(RuleBasedStateMachine):
    """The channel against a broker that knows what it has delivered and forgets what is acked."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.broker, self.channel = self.runner.run(self._opened())
        self.next = 1
        self.open: list[int] = []  # at the broker
        self.acked: set[int] = set()
        self.returned: set[int] = set()
        self.meant: dict[str, set[int]] = {"ack": set(), "give_back": set()}

    async def _opened(self) -> tuple[Broker, Consuming]:
        broker = Broker()
        return broker, await consuming(broker)

    def teardown(self) -> None:
        self.runner.run(self.broker.wire.close())
        self.runner.close()

    @rule(count=st.integers(1, 6))
    def deliver(self, count: int) -> None:
        tags = range(self.next, self.next + count)
        deliver(self.broker, self.channel, *tags)
        self.open += tags
        self.next += count

    @rule(data=st.data(), how=st.sampled_from(["ack", "give_back"]))
    def settle(self, data: Any, how: str) -> None:
        everything = st.integers(1, self.next + 1)  # even what is settled or was never delivered
        some = st.lists(st.sampled_from(self.open) if self.open else everything, unique=True)
        tags = data.draw(some | st.lists(everything, max_size=4))
        fresh = {tag for tag in tags if tag in self.open}
        getattr(self.channel, how)(tags)
        self.meant[how] |= fresh
        self.runner.run(turn())
        self._hear()

    def _hear(self) -> None:
        for _, each in self.broker.heard:
            if isinstance(each, commands.Basic.Ack | commands.Basic.Nack):
                tag = each.delivery_tag
                assert tag in self.open, f"{tag} is not open: RabbitMQ would close the channel"
                gone = [one for one in self.open if one == tag or (each.multiple and one <= tag)]
                self.open = [one for one in self.open if one not in gone]
                ack = isinstance(each, commands.Basic.Ack)
                (self.acked if ack else self.returned).update(gone)
        self.broker.heard.clear()

    @invariant()
    def the_broker_has_forgotten_what_was_acked_and_nothing_else(self) -> None:
        assert self.acked == self.meant["ack"]
        assert self.returned == self.meant["give_back"]


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestMachine = Machine.TestCase
