"""What became of each message that was published, whatever order the broker says it in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pamqp import commands, frame
from pamqp.header import ContentHeader

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.rabbitmq.confirms import (
    OPEN,
    REFUSED,
    RETURNED,
    TAKEN,
    Flight,
    Parcel,
    Publishing,
)
from queuecraft.drivers.rabbitmq.frames import Properties, pack
from queuecraft.testing import FakeClock
from tests.drivers.rabbitmq.broker import Broker, message, turn


def parcel(
    message_id: str | None = None, key: str = "k", exchange: str = "e", body: bytes = b"{}"
) -> Parcel:
    return exchange, key, message_id, pack(Properties(message_id=message_id)), body


def returned(
    channel: Publishing,
    message_id: str | None,
    *pieces: bytes,
    key: str = "k",
    exchange: str = "e",
) -> bytes:
    back = commands.Basic.Return(312, "NO_ROUTE", exchange, key)
    return message(channel.number, back, pieces, message_id=message_id)


@pytest.fixture
async def broker() -> Broker:
    return Broker()


@pytest.fixture
async def channel(broker: Broker) -> Publishing:
    return await broker.open(Publishing)


async def sending(channel: Publishing, *parcels: Parcel) -> asyncio.Task[Flight]:
    task = asyncio.create_task(channel.publish(parcels))
    await turn()
    return task


async def states(task: asyncio.Task[Flight]) -> list[int]:
    return list((await task).states)


# -- acks and nacks --------------------------------------------------------------------------------


async def test_a_flight_is_over_when_the_last_of_it_is_answered_for(
    broker: Broker, channel: Publishing
) -> None:
    task = await sending(channel, parcel("a"), parcel("b"), parcel("c"))
    for tag in (3, 1):
        broker.say(channel.number, commands.Basic.Ack(tag))
        await turn()
        assert not task.done()
    broker.say(channel.number, commands.Basic.Nack(2))
    assert await states(task) == [TAKEN, REFUSED, TAKEN]


async def test_one_ack_may_be_for_many_and_for_several_flights(
    broker: Broker, channel: Publishing
) -> None:
    tasks = [await sending(channel, parcel(), parcel()) for _ in range(3)]
    broker.say(channel.number, commands.Basic.Nack(2))
    broker.say(channel.number, commands.Basic.Ack(5, True))
    assert await states(tasks[0]) == [TAKEN, REFUSED]
    assert await states(tasks[1]) == [TAKEN, TAKEN]
    assert not tasks[2].done()
    broker.say(channel.number, commands.Basic.Nack(6, True))
    assert await states(tasks[2]) == [TAKEN, REFUSED]


async def test_what_was_said_first_is_what_counts(broker: Broker, channel: Publishing) -> None:
    task = await sending(channel, parcel(), parcel())
    broker.say(channel.number, commands.Basic.Ack(1), commands.Basic.Ack(1))
    broker.say(channel.number, commands.Basic.Nack(1), commands.Basic.Nack(2))
    broker.say(channel.number, commands.Basic.Ack(2, True))
    assert await states(task) == [TAKEN, REFUSED]


@pytest.mark.parametrize("tag", [0, 3, 99, 2**63 - 1])
async def test_an_ack_for_what_was_never_sent_changes_nothing(
    broker: Broker, channel: Publishing, tag: int
) -> None:
    task = await sending(channel, parcel(), parcel())
    broker.say(channel.number, commands.Basic.Ack(tag))
    await turn()
    assert not task.done()
    broker.say(channel.number, commands.Basic.Nack(2, True))
    assert await states(task) == [REFUSED, REFUSED]
    task = await sending(channel, parcel())
    broker.say(channel.number, commands.Basic.Ack(3))
    assert await states(task) == [TAKEN]


async def test_a_flight_that_is_done_before_an_older_one_does_not_wait_for_it(
    broker: Broker, channel: Publishing
) -> None:
    first, second = await sending(channel, parcel()), await sending(channel, parcel())
    broker.say(channel.number, commands.Basic.Ack(2))
    assert await states(second) == [TAKEN]
    assert not first.done()
    broker.say(channel.number, commands.Basic.Ack(1))
    assert await states(first) == [TAKEN]


async def test_nothing_is_published_at_once(broker: Broker, channel: Publishing) -> None:
    before = len(broker.heard)
    assert (await channel.publish([])).states == b""
    assert len(broker.heard) == before
    task = await sending(channel, parcel())
    broker.say(channel.number, commands.Basic.Ack(1))
    assert await states(task) == [TAKEN]


async def test_a_publish_that_is_cancelled_keeps_its_place_in_the_count(
    broker: Broker, channel: Publishing
) -> None:
    given_up = await sending(channel, parcel(), parcel())
    task = await sending(channel, parcel(), parcel())
    given_up.cancel()
    await turn()
    broker.say(channel.number, commands.Basic.Ack(1), commands.Basic.Ack(2))
    assert not task.done()
    broker.say(channel.number, commands.Basic.Ack(3), commands.Basic.Nack(4))
    assert await states(task) == [TAKEN, REFUSED]
    assert given_up.cancelled()


async def test_a_publish_cancelled_while_it_is_held_back_was_never_sent(
    broker: Broker, channel: Publishing
) -> None:
    broker.wire.pause_writing()
    given_up = await sending(channel, parcel("a"))
    task = await sending(channel, parcel("b"))
    given_up.cancel()
    await turn()
    broker.wire.resume_writing()
    await turn()
    assert [each.properties.message_id for each in headers(broker)] == ["b"]
    broker.say(channel.number, commands.Basic.Ack(1))
    assert await states(task) == [TAKEN]


def headers(broker: Broker) -> list[ContentHeader]:
    return [each for _, each in broker.heard if isinstance(each, ContentHeader)]


async def test_messages_that_are_held_back_are_sent_in_the_order_they_came(
    broker: Broker, channel: Publishing
) -> None:
    broker.wire.pause_writing()
    tasks = [await sending(channel, parcel(each)) for each in "abcde"]
    broker.wire.resume_writing()
    await turn()
    assert [each.properties.message_id for each in headers(broker)] == list("abcde")
    broker.say(channel.number, commands.Basic.Ack(5, True))
    await asyncio.gather(*tasks)


# -- returns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [(), (b"{}",), (b"x" * 100, b"y" * 100, b"z"), (b"", b"x")])
async def test_what_could_not_be_routed_comes_back_before_its_ack(
    broker: Broker, channel: Publishing, pieces: tuple[bytes, ...]
) -> None:
    task = await sending(channel, parcel("a"), parcel("b"), parcel("c"))
    broker.wire.data_received(returned(channel, "b", *pieces))
    await turn()
    assert not task.done()
    broker.say(channel.number, commands.Basic.Ack(3, True))
    assert await states(task) == [TAKEN, RETURNED, TAKEN]


async def test_returns_follow_each_other_and_acks_come_between(
    broker: Broker, channel: Publishing
) -> None:
    task = await sending(channel, *(parcel(each) for each in "abcd"))
    broker.wire.data_received(returned(channel, "a", b"x" * 10, b"y" * 10))
    broker.wire.data_received(returned(channel, "c"))
    broker.say(channel.number, commands.Basic.Ack(1))
    broker.wire.data_received(returned(channel, "d", b"x"))
    broker.say(channel.number, commands.Basic.Ack(4, True))
    assert await states(task) == [RETURNED, TAKEN, RETURNED, RETURNED]


async def test_the_retries_of_two_queues_have_one_id_and_only_the_missing_queue_returns_its_own(
    broker: Broker, channel: Publishing
) -> None:
    """Taken for the other one's, the message of the missing queue would be acked, and lost."""
    first = await sending(channel, parcel("m-1", key="billing", exchange=""))
    second = await sending(channel, parcel("m-1", key="audit", exchange=""))
    broker.wire.data_received(returned(channel, "m-1", key="audit", exchange=""))
    broker.say(channel.number, commands.Basic.Ack(2, True))
    assert await states(first) == [TAKEN]
    assert await states(second) == [RETURNED]


async def test_the_same_key_on_another_exchange_is_another_message(
    broker: Broker, channel: Publishing
) -> None:
    task = await sending(channel, parcel("m", exchange="one"), parcel("m", exchange="two"))
    broker.wire.data_received(returned(channel, "m", exchange="two"))
    broker.say(channel.number, commands.Basic.Ack(2, True))
    assert await states(task) == [TAKEN, RETURNED]


async def test_of_two_that_are_the_same_the_first_comes_back_first(
    broker: Broker, channel: Publishing
) -> None:
    task = await sending(channel, parcel("m"), parcel("m"), parcel("m"))
    broker.wire.data_received(returned(channel, "m"))
    broker.say(channel.number, commands.Basic.Ack(1))
    broker.wire.data_received(returned(channel, "m"))
    broker.say(channel.number, commands.Basic.Ack(3, True))
    assert await states(task) == [RETURNED, RETURNED, TAKEN]


class Watched(list[Parcel]):
    """Parcels that count how often one of them is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Parcel]:
        for each in super().__iter__():
            self.looks += 1
            yield each

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("confirmed", ["at once", "in the end"])
@pytest.mark.parametrize("routed", [0, 1, 4])
async def test_however_many_come_back_each_parcel_is_looked_at_a_few_times(
    broker: Broker, channel: Publishing, routed: int, confirmed: str
) -> None:
    parcels = Watched(parcel(str(at)) for at in range(300))
    back = [at for at in range(len(parcels)) if at % 5 >= routed]
    task = asyncio.create_task(channel.publish(parcels))
    await turn()
    for at in back:
        broker.wire.data_received(returned(channel, str(at)))
        if confirmed == "at once":
            broker.say(channel.number, commands.Basic.Ack(at + 1))
    broker.say(channel.number, commands.Basic.Ack(len(parcels), True))
    found = await states(task)
    assert [at for at, state in enumerate(found) if state == RETURNED] == back
    assert found.count(TAKEN) == len(parcels) - len(back)
    assert parcels.looks <= 3 * len(parcels)


async def test_a_message_without_an_id_is_known_by_its_way(
    broker: Broker, channel: Publishing
) -> None:
    task = await sending(channel, parcel("a"), parcel(None), parcel(None, key="other"))
    broker.wire.data_received(returned(channel, None, key="other"))
    broker.say(channel.number, commands.Basic.Ack(3, True))
    assert await states(task) == [TAKEN, TAKEN, RETURNED]


async def test_a_return_of_what_was_never_sent_changes_nothing(
    broker: Broker, channel: Publishing
) -> None:
    task = await sending(channel, parcel("a"))
    broker.wire.data_received(returned(channel, "b"))
    broker.say(channel.number, commands.Basic.Ack(1))
    assert await states(task) == [TAKEN]


async def test_a_header_without_a_return_changes_nothing(
    broker: Broker, channel: Publishing
) -> None:
    task = await sending(channel, parcel("m"), parcel("m"))
    back = returned(channel, "m", b"{}")
    header = frame.marshal(ContentHeader(0, 0, commands.Basic.Properties(message_id="m")), 1)
    broker.wire.data_received(header + back + header)
    broker.say(channel.number, commands.Basic.Ack(2, True))
    assert await states(task) == [RETURNED, TAKEN]


async def test_a_return_that_cannot_be_read_ends_the_connection(
    broker: Broker, channel: Publishing
) -> None:
    task = await sending(channel, parcel("a"))
    broker.wire.data_received(b"\x01\0\x01\0\0\0\x07\0\x3c\0\x32\x01\x38\x05\xce")
    assert "what is no AMQP" in str(broker.wire.lost)
    assert await states(task) == [OPEN]


# -- what cannot be sent ---------------------------------------------------------------------------


async def test_one_that_cannot_travel_does_not_keep_the_others_back(
    broker: Broker, channel: Publishing
) -> None:
    headers_of_too_many_bytes = pack(Properties(headers={"a": "x" * 131_072}))
    large = "e", "k", "l", headers_of_too_many_bytes, b"{}"
    task = await sending(
        channel, parcel(key="k" * 256), parcel("a"), large, parcel("b", key="k" * 256), parcel("c")
    )
    assert [each.properties.message_id for each in headers(broker)] == ["a", "c"]
    broker.say(channel.number, commands.Basic.Ack(2, True))
    flight = await task
    assert list(flight.states) == [REFUSED, TAKEN, REFUSED, REFUSED, TAKEN]
    assert sorted(flight.unfit) == [0, 2, 3]
    assert "131,064" in str(flight.unfit[2])
    following = await sending(channel, parcel("d"))
    broker.say(channel.number, commands.Basic.Ack(3))
    assert await states(following) == [TAKEN]


async def test_a_batch_of_which_nothing_can_travel_is_refused_at_once(channel: Publishing) -> None:
    flight = await channel.publish([parcel(key="k" * 256)])
    assert list(flight.states) == [REFUSED]
    assert list(flight.unfit) == [0]


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 300_000])
async def test_a_body_arrives_whole_in_frames_of_the_agreed_size(
    broker: Broker, channel: Publishing, size: int
) -> None:
    task = await sending(channel, parcel("a", body=b"x" * size))
    publish, header, *bodies = [each for _, each in broker.heard[-2 - -(-size // 131_064) :]]
    assert isinstance(publish, commands.Basic.Publish)
    assert isinstance(header, ContentHeader)
    assert header.body_size == size
    assert sum(len(getattr(each, "value", b"")) for each in bodies) == size
    broker.say(channel.number, commands.Basic.Ack(1))
    await task


async def test_many_ways_are_forgotten_and_found_again(broker: Broker, channel: Publishing) -> None:
    keys = [f"key-{at}" for at in range(3000)]
    task = await sending(channel, *(parcel("a", key=key) for key in keys + keys[:5]))
    heard = [each.routing_key for _, each in broker.commands(commands.Basic.Publish)]
    assert heard == keys + keys[:5]
    broker.say(channel.number, commands.Basic.Ack(3005, True))
    await task


# -- the end ---------------------------------------------------------------------------------------


async def test_what_is_open_when_the_channel_is_lost_stays_open_and_says_why(
    broker: Broker, channel: Publishing
) -> None:
    first = await sending(channel, *(parcel(each) for each in "abcd"))
    second = await sending(channel, parcel("e"))
    broker.say(channel.number, commands.Basic.Ack(1), commands.Basic.Nack(3))
    broker.wire.data_received(returned(channel, "d"))
    broker.say(channel.number, commands.Channel.Close(406, "PRECONDITION_FAILED", 0, 0))
    assert await states(first) == [TAKEN, OPEN, REFUSED, RETURNED]
    assert await states(second) == [OPEN]
    assert first.result().error is second.result().error is channel.lost is not None
    with pytest.raises(ConnectionLost, match="PRECONDITION_FAILED"):
        await channel.publish([parcel()])


async def test_a_publish_held_back_when_the_connection_is_lost_was_not_attempted(
    broker: Broker, channel: Publishing
) -> None:
    broker.wire.pause_writing()
    task = await sending(channel, parcel())
    broker.wire.connection_lost(None)
    with pytest.raises(ConnectionLost, match="cut"):
        await task


async def test_a_flight_that_was_settled_before_the_end_has_no_error(
    broker: Broker, channel: Publishing
) -> None:
    task = await sending(channel, parcel())
    broker.say(channel.number, commands.Basic.Ack(1))
    broker.wire.connection_lost(None)
    assert (await task).error is None
    assert await states(task) == [TAKEN]


# -- a broker that never confirms ------------------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def watched(broker: Broker, clock: FakeClock) -> Publishing:
    return await broker.open(lambda wire: Publishing(wire, patience=30, clock=clock))


async def test_a_broker_that_never_confirms_is_given_up_and_all_who_wait_are_told(
    broker: Broker, watched: Publishing, clock: FakeClock
) -> None:
    first = await sending(watched, parcel("a", exchange="qc.delay.00"), parcel("b"))
    second = await sending(watched, parcel("c"))
    broker.say(watched.number, commands.Basic.Ack(2))
    await clock.advance(30)
    assert broker.wire.lost is None
    await clock.advance(6)
    assert await states(first) == [OPEN, TAKEN]
    assert await states(second) == [OPEN]
    assert first.result().error is broker.wire.lost is not None
    told = "not confirmed a message to exchange 'qc.delay.00' within 30 s"
    assert told in str(broker.wire.lost)
    assert clock.pending == ()


async def test_a_message_to_a_queue_that_never_confirms_names_the_queue(
    broker: Broker, watched: Publishing, clock: FakeClock
) -> None:
    task = await sending(watched, parcel("a", exchange="", key="billing"))
    broker.wire.data_received(returned(watched, "a", exchange="", key="billing"))
    await clock.advance(36)
    assert await states(task) == [RETURNED]
    assert "a message to queue 'billing'" in str(broker.wire.lost)


async def test_confirms_of_newer_messages_do_not_save_a_connection_that_owes_one(
    broker: Broker, watched: Publishing, clock: FakeClock
) -> None:
    owed = await sending(watched, parcel("a"))
    for tag in range(2, 15):
        newer = await sending(watched, parcel("b"))
        broker.say(watched.number, commands.Basic.Ack(tag))
        await clock.advance(3)
        if broker.wire.lost is not None:
            break
        assert await states(newer) == [TAKEN]
    assert await states(owed) == [OPEN]


async def test_a_slow_broker_is_waited_for_as_long_as_it_confirms_anything(
    broker: Broker, watched: Publishing, clock: FakeClock
) -> None:
    tasks = [await sending(watched, *(parcel() for _ in range(4))) for _ in range(3)]
    for tag in range(1, 13):
        await clock.advance(29)
        broker.say(watched.number, commands.Basic.Ack(tag))
    assert [await states(task) for task in tasks] == [[TAKEN] * 4] * 3
    await clock.advance(1000)
    assert broker.wire.lost is None
    assert clock.pending == ()


async def test_a_blocked_broker_is_waited_for_and_has_its_time_afterwards(
    broker: Broker, watched: Publishing, clock: FakeClock
) -> None:
    late = await sending(watched, parcel())
    await clock.advance(20)
    broker.say(0, commands.Connection.Blocked("low on memory"))
    await clock.advance(1_000)
    broker.say(0, commands.Connection.Unblocked())
    await clock.advance(29)
    broker.say(watched.number, commands.Basic.Ack(1))
    assert await states(late) == [TAKEN]

    never = await sending(watched, parcel())
    broker.say(0, commands.Connection.Blocked("low on memory"), commands.Connection.Unblocked())
    await clock.advance(36)
    assert await states(never) == [OPEN]


async def test_after_a_pause_the_next_message_has_all_its_time(
    broker: Broker, watched: Publishing, clock: FakeClock
) -> None:
    for tag in range(1, 20):
        task = await sending(watched, parcel())
        await clock.advance(29)
        broker.say(watched.number, commands.Basic.Ack(tag))
        assert await states(task) == [TAKEN]
        await clock.advance(29 if tag % 2 else 2)


async def test_a_lost_channel_looks_at_its_flights_no_more(
    broker: Broker, watched: Publishing, clock: FakeClock
) -> None:
    task = await sending(watched, parcel())
    await clock.advance(10)
    broker.say(watched.number, commands.Channel.Close(406, "PRECONDITION_FAILED", 0, 0))
    assert clock.pending == ()
    assert await states(task) == [OPEN]
    assert broker.wire.lost is None


# -- whatever Hypothesis thinks of -----------------------------------------------------------------

IDS = st.sampled_from([None, "a", "b"])
WAYS = st.sampled_from(["k", "other"])


class Machine(RuleBasedStateMachine):
    """The channel against a broker that keeps a plain list of what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.broker, self.channel = self.runner.run(self._opened())
        self.sent: list[tuple[str | None, str]] = []
        self.expected: list[int] = []
        self.back: set[int] = set()  # returned, and not yet confirmed
        self.flights: list[tuple[asyncio.Task[Flight], int, int]] = []
        self.lost = False

    async def _opened(self) -> tuple[Broker, Publishing]:
        broker = Broker()
        return broker, await broker.open(Publishing)

    def teardown(self) -> None:
        if not self.lost:
            self.cut()
            self.flights_are_what_the_broker_said()
        self.runner.close()

    @precondition(lambda self: not self.lost)
    @rule(parcels=st.lists(st.tuples(IDS, WAYS), max_size=5))
    def publish(self, parcels: list[tuple[str | None, str]]) -> None:
        task = self.runner.run(sending(self.channel, *(parcel(*each) for each in parcels)))
        self.flights.append((task, len(self.sent), len(parcels)))
        self.sent += parcels
        self.expected += [OPEN] * len(parcels)

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        task, _, _ = data.draw(st.sampled_from(self.flights))
        task.cancel()
        self.runner.run(turn())

    @precondition(lambda self: not self.lost)
    @rule(data=st.data(), multiple=st.booleans(), taken=st.booleans())
    def confirm(self, data: Any, multiple: bool, taken: bool) -> None:
        tag = data.draw(st.integers(1, len(self.sent) + 2))
        kind = commands.Basic.Ack if taken else commands.Basic.Nack
        self._hear(lambda: self.broker.say(self.channel.number, kind(tag, multiple)))
        for at in range(0 if multiple else tag - 1, min(tag, len(self.sent))):
            if self.expected[at] == OPEN:
                self.expected[at] = RETURNED if at in self.back else TAKEN if taken else REFUSED
                self.back.discard(at)

    @precondition(lambda self: not self.lost)
    @rule(message_id=IDS, key=WAYS, pieces=st.lists(st.binary(max_size=5), max_size=3))
    def give_back(self, message_id: str | None, key: str, pieces: list[bytes]) -> None:
        data = returned(self.channel, message_id, *pieces, key=key)
        self._hear(lambda: self.broker.wire.data_received(data))
        for at, each in enumerate(self.sent):
            if each == (message_id, key) and self.expected[at] == OPEN and at not in self.back:
                self.back.add(at)
                return

    @precondition(lambda self: self.sent and not self.lost)
    @rule()
    def cut(self) -> None:
        self.lost = True
        self._hear(lambda: self.broker.wire.connection_lost(None))
        for at in self.back:
            self.expected[at] = RETURNED

    @invariant()
    def flights_are_what_the_broker_said(self) -> None:
        for task, start, size in self.flights:
            expected = self.expected[start : start + size]
            if task.cancelled():
                continue
            over = self.lost or OPEN not in expected
            assert task.done() == over
            if over:
                assert list(task.result().states) == expected
                assert (task.result().error is not None) == (OPEN in expected) or self.lost

    def _hear(self, what: Any) -> None:
        async def hear() -> None:
            what()
            await turn()

        self.runner.run(hear())


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestMachine = Machine.TestCase
