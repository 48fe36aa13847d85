"""A connection hears the same however its bytes are cut, and is lost in one piece."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands
from pamqp.heartbeat import Heartbeat

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.rabbitmq import wire as wire_module
from queuecraft.drivers.rabbitmq.channel import Channel
from queuecraft.drivers.rabbitmq.frames import BEAT, START
from queuecraft.drivers.rabbitmq.wire import Closed, Wire
from tests.drivers.rabbitmq.broker import Broker, delivery, said, turn
from tests.drivers.rabbitmq.peer import Part, Peer, enter, playing

R = TypeVar("R")


class Recorder:
    """A channel that notes what it is given."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.lost: list[ConnectionLost] = []
        self.gone = asyncio.Event()

    def on_method(self, payload: bytes) -> None:
        self.heard.append(("method", payload))

    def on_header(self, payload: bytes) -> None:
        self.heard.append(("header", payload))

    def on_body(self, payload: bytes) -> None:
        self.heard.append(("body", payload))

    def on_lost(self, error: ConnectionLost) -> None:
        self.lost.append(error)
        self.gone.set()


def raw(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return START.pack(kind, channel, len(payload)) + payload + end


def heard(*pieces: bytes) -> tuple[list[tuple[str, bytes]], str | None, str | None]:
    """What a channel is given, whether the connection is blocked, and why it is lost, if it is."""

    async def listen() -> tuple[list[tuple[str, bytes]], str | None, str | None]:
        broker = Broker()
        recorder = Recorder()
        broker.wire.join(recorder)
        for piece in pieces:
            broker.wire.data_received(piece)
        lost = broker.wire.lost
        assert len(recorder.lost) == (lost is not None)
        return recorder.heard, broker.wire.blocked, None if lost is None else lost.message

    return asyncio.run(listen())


# -- bytes into frames -----------------------------------------------------------------------------

STREAM = b"".join(
    [
        BEAT,
        said(1, commands.Channel.OpenOk()),
        delivery(1, 1, b"{}", message_id="m-1", headers={"a": 1}),
        said(0, commands.Connection.Blocked("low on memory")),
        delivery(1, 2),
        delivery(9, 1, b"for a channel that is closed by now"),
        BEAT,
        delivery(1, 3, b"x" * 300, b"y" * 300, b""),
        said(1, commands.Basic.Ack(7, True)),
    ]
)
WHOLE = heard(STREAM)


def test_frames_reach_the_channel_they_are_for() -> None:
    frames, blocked, lost = WHOLE
    kinds = [kind for kind, _ in frames]
    assert kinds == [
        *("method", "method", "header", "body", "method", "header"),
        *("method", "header", "body", "body", "body", "method"),
    ]
    assert (blocked, lost) == ("low on memory", None)


def test_one_byte_at_a_time_makes_no_difference() -> None:
    assert heard(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == WHOLE


@settings(max_examples=60)
@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_where_the_bytes_are_cut_makes_no_difference(cuts: set[int]) -> None:
    assert heard(*(STREAM[a:b] for a, b in pairwise([0, *sorted(cuts), len(STREAM)]))) == WHOLE


BROKEN = {
    "too large": (raw(3, 1, bytes(131_073)), "a frame of 131073 bytes"),
    "far too large": (START.pack(1, 1, 2**32 - 1) + b"x", "a frame of 4294967295 bytes"),
    "endless": (raw(1, 1, b"\0\x14\0\x0b", end=b"\xcd"), "a frame without its end"),
    "of no type": (raw(9, 1, b"x"), "a frame of type 9"),
    "of no type, for the connection": (raw(9, 0, b"x"), "a frame of type 9 for the connection"),
    "a body for the connection": (raw(3, 0, b"x"), "a frame of type 3 for the connection"),
    "no method": (raw(1, 0, b"\xff\xff\xff\xff"), "no method that can be read"),
    "empty method": (raw(1, 0, b""), "no method that can be read"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("step", [1, 8, 1000, 10**6])
def test_what_is_no_amqp_ends_the_connection_however_it_is_cut(name: str, step: int) -> None:
    if step == 1 and name == "too large":
        step = 7
    data, complaint = BROKEN[name]
    data = BEAT + data + delivery(1, 1, b"never heard")
    frames, _, lost = heard(*(data[at : at + step] for at in range(0, len(data), step)))
    assert frames == []
    assert lost is not None
    assert lost.startswith("the broker sent what is no AMQP: " + complaint)


@settings(max_examples=200)
@given(st.binary(max_size=100), st.sampled_from([b"", BEAT, STREAM[:50]]))
def test_noise_is_waited_out_or_ends_the_connection_and_nothing_else(
    noise: bytes, before: bytes
) -> None:
    heard(before, noise)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, len(STREAM) - 1), st.integers(1, 255)), max_size=3))
def test_a_stream_with_bits_wrong_never_gets_past_a_channel_as_another_error(
    flips: list[tuple[int, int]],
) -> None:
    data = bytearray(STREAM)
    for at, mask in flips:
        data[at] ^= mask

    async def listen() -> None:
        broker = Broker()
        Channel(broker.wire)
        broker.wire.data_received(bytes(data))

    asyncio.run(listen())


async def test_methods_nobody_asked_for_are_passed_over_on_the_connection() -> None:
    broker = Broker()
    broker.say(0, commands.Connection.OpenOk(), commands.Basic.Ack(1), commands.Channel.OpenOk())
    assert broker.wire.lost is None


async def test_a_broker_that_is_short_of_memory_says_so_and_takes_it_back() -> None:
    broker = Broker()
    broker.say(0, commands.Connection.Blocked("low on memory"))
    assert broker.wire.blocked == "low on memory"
    broker.say(0, commands.Connection.Blocked(""))
    assert broker.wire.blocked == "blocked"
    broker.say(0, commands.Connection.Unblocked())
    assert broker.wire.blocked is None


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["cut", "closed by the broker", "closed by us"])
async def test_what_was_blocked_until_the_end_is_told_to_be_over(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    broker.say(0, commands.Connection.Blocked("low on memory"))
    if end == "cut":
        broker.wire.connection_lost(None)
    elif end == "closed by us":
        await broker.wire.close()
    else:
        broker.say(0, commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0))
    broker.wire.connection_lost(None)
    assert caplog.messages == [
        "rabbitmq takes no messages: low on memory; publishes wait",
        "rabbitmq took no messages until the connection ended; a new one may go on",
    ]


async def test_what_was_unblocked_before_the_end_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    broker.say(0, commands.Connection.Blocked("low on memory"), commands.Connection.Unblocked())
    broker.wire.connection_lost(None)
    assert caplog.messages[1:] == ["rabbitmq takes messages again"]


async def test_a_broker_that_closes_the_connection_is_answered_and_says_why_to_everyone() -> None:
    broker = Broker()
    recorders = [Recorder(), Recorder()]
    for recorder in recorders:
        broker.wire.join(recorder)
    broker.say(0, commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0))
    assert [len(each) for each in map(broker.commands, [commands.Connection.CloseOk])] == [1]
    assert isinstance(broker.wire.lost, Closed)
    assert broker.wire.lost.code == 320
    assert "CONNECTION_FORCED (320)" in str(broker.wire.lost)
    assert [recorder.lost for recorder in recorders] == [[broker.wire.lost]] * 2
    assert broker.aborted


async def test_nothing_is_heard_after_the_connection_was_closed() -> None:
    broker = Broker()
    recorder = Recorder()
    broker.wire.join(recorder)
    end = said(0, commands.Connection.Close(320, "bye", 0, 0))
    broker.wire.data_received(end + delivery(1, 1, b"late") + end)
    broker.wire.data_received(delivery(1, 2, b"later"))
    assert recorder.heard == []
    assert len(recorder.lost) == 1
    assert len(broker.commands(commands.Connection.CloseOk)) == 1


async def test_a_connection_closed_together_with_its_channel_is_simply_lost() -> None:
    broker = Broker()
    channel = Channel(broker.wire)
    broker.wire.data_received(
        said(0, commands.Connection.Close(320, "bye", 0, 0))
        + said(channel.number, commands.Channel.Close(404, "gone", 0, 0))
    )
    assert channel.lost is broker.wire.lost


async def test_who_writes_to_a_lost_connection_is_told_why_it_was_lost() -> None:
    broker = Broker()
    broker.wire.connection_lost(OSError("no route"))
    for _ in range(2):
        with pytest.raises(ConnectionLost, match="the connection broke: no route"):
            broker.wire.write(b"x")
    with pytest.raises(ConnectionLost, match="no route"):
        await broker.wire.ask(None, commands.Connection.Start)
    with pytest.raises(ConnectionLost, match="no route"):
        await broker.wire.drained()
    assert broker.heard == []
    await broker.wire.close()


async def test_the_first_reason_is_the_one_that_stays() -> None:
    broker = Broker()
    broker.say(0, commands.Connection.Close(320, "first", 0, 0))
    broker.wire.connection_lost(OSError("second"))
    broker.wire.abort(ConnectionLost("third"))
    assert "first" in str(broker.wire.lost)


async def test_a_question_to_a_connection_that_breaks_is_answered_by_the_reason() -> None:
    broker = Broker()
    asking = asyncio.create_task(broker.wire.ask(None, commands.Connection.Start))
    await turn()
    broker.wire.connection_lost(None)
    with pytest.raises(ConnectionLost, match="the connection was cut"):
        await asking


async def test_an_answer_to_another_question_is_an_error_that_names_it() -> None:
    broker = Broker()
    asking = asyncio.create_task(broker.wire.ask(None, commands.Connection.Tune))
    await turn()
    broker.say(0, commands.Connection.Secure("who?"))
    with pytest.raises(ConnectionLost, match=r"answered Connection\.Secure"):
        await asking


async def test_goodbye_is_said_once_however_many_say_it() -> None:
    broker = Broker()
    await asyncio.gather(*(broker.wire.close() for _ in range(3)))
    assert len(broker.commands(commands.Connection.Close)) == 1
    await broker.wire.close()


async def test_a_broker_that_does_not_say_goodbye_is_left_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire_module, "GOODBYE", 0)
    broker = Broker()
    broker.silent.add(commands.Connection.Close)
    await broker.wire.close()
    assert broker.aborted


async def test_a_goodbye_that_is_cancelled_still_closes_the_socket() -> None:
    broker = Broker()
    broker.silent.add(commands.Connection.Close)
    closing = asyncio.create_task(broker.wire.close())
    await turn()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert broker.aborted
    await broker.wire.close()


async def test_a_connection_that_never_was_can_be_closed() -> None:
    wire = Wire()
    wire.abort(ConnectionLost("changed my mind"))
    await wire.close()


# -- over a socket ---------------------------------------------------------------------------------


async def nothing(peer: Peer) -> None:
    """Before a word is said."""


async def greeted(peer: Peer) -> None:
    await peer.hear_greeting()


async def half_a_frame(peer: Peer) -> None:
    await peer.hear_greeting()
    peer.send(said(0, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"))[:20])


async def started(peer: Peer) -> None:
    await peer.hear_greeting()
    peer.say(0, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"))


async def introduced(peer: Peer) -> None:
    await started(peer)
    await peer.hear(commands.Connection.StartOk)


async def tuned(peer: Peer) -> None:
    await introduced(peer)
    peer.say(0, commands.Connection.Tune(2047, 131_072, 60))
    await peer.hear(commands.Connection.TuneOk)


async def opened(peer: Peer) -> None:
    await peer.let_in()


async def asked(peer: Peer) -> None:
    await peer.let_in()
    await peer.hear(commands.Channel.Open)


def closed_and_cut(peer: Peer) -> None:
    peer.say(0, commands.Connection.Close(320, "SHUTDOWN", 0, 0))
    peer.cut()


MOMENTS = [nothing, greeted, half_a_frame, started, introduced, tuned, opened, asked]
ENDS: dict[str, Callable[[Peer], object]] = {
    "cut": Peer.cut,
    "reset": Peer.reset,
    "closed": lambda peer: peer.say(0, commands.Connection.Close(320, "SHUTDOWN", 0, 0)),
    "closed and cut": closed_and_cut,
    "noise": lambda peer: peer.send(b"\xff" * 100),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_end_at_any_moment_is_a_lost_connection_and_no_other_error(
    moment: Part, end: str
) -> None:
    async def part(peer: Peer) -> None:
        await moment(peer)
        ENDS[end](peer)

    async def use(port: int) -> None:
        await Channel(await enter(port)).open()

    async with playing(part) as port:
        with pytest.raises(ConnectionLost) as caught:
            await use(port)
    assert "s3cret" not in str(caught.value)


async def test_a_connection_that_broke_is_closed_without_a_word() -> None:
    async def part(peer: Peer) -> None:
        await peer.let_in()
        peer.reset()

    async with playing(part) as port:
        wire = await enter(port)
        with pytest.raises(ConnectionLost):
            await Channel(wire).open()
        await wire.close()


async def test_a_broker_that_does_not_read_holds_the_writer_back_until_it_does() -> None:
    reading = asyncio.Event()

    async def part(peer: Peer) -> None:
        await peer.let_in()
        await reading.wait()
        await peer.hear_end()

    async with playing(part) as port:
        wire = await enter(port)
        written = 0
        while wire._full is None:
            wire.write(BEAT * 100_000)
            written += 1
            await asyncio.sleep(0)
        waiting = [asyncio.create_task(wire.drained()) for _ in range(2)]
        await turn()
        assert not any(each.done() for each in waiting)
        waiting[0].cancel()
        reading.set()
        await waiting[1]
        assert waiting[0].cancelled()
        wire.abort(ConnectionLost("enough"))
        await wire.close()


async def test_who_is_held_back_hears_that_the_connection_is_lost() -> None:
    broker = Broker()
    broker.wire.pause_writing()
    broker.wire.pause_writing()
    waiting = asyncio.create_task(broker.wire.drained())
    await turn()
    assert not waiting.done()
    broker.wire.connection_lost(None)
    with pytest.raises(ConnectionLost):
        await waiting


async def test_writes_of_one_turn_are_one_write() -> None:
    broker = Broker()
    sizes: list[int] = []
    broker.write = lambda data: sizes.append(len(data))  # type: ignore[method-assign]
    for _ in range(3):
        broker.wire.write(BEAT)
    assert sizes == []
    await turn()
    assert sizes == [3 * len(BEAT)]


# -- heartbeats ------------------------------------------------------------------------------------


class Leap(selectors.DefaultSelector):
    """Waits for nothing: instead, the time of its loop goes on."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nothing will ever happen"
            self.now += timeout
        return found


def in_leaps(
    story: Callable[[asyncio.AbstractEventLoop], Coroutine[Any, Any, R]],
    monkeypatch: pytest.MonkeyPatch,
) -> R:
    """Run it in a loop whose time passes only when nothing happens."""
    selector = Leap()
    loop = asyncio.SelectorEventLoop(selector)
    monkeypatch.setattr(loop, "time", lambda: selector.now)
    monkeypatch.setattr(wire_module, "monotonic", loop.time)
    failures: list[object] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    try:
        result = loop.run_until_complete(story(loop))
    finally:
        loop.close()
    assert failures == []
    return result


def test_an_idle_connection_is_never_silent_for_longer_than_half_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(loop: asyncio.AbstractEventLoop) -> list[float]:
        broker = Broker()
        spoken: list[float] = []
        hear = broker.write

        def write(data: bytes | bytearray | memoryview) -> None:
            spoken.append(loop.time())
            hear(data)

        broker.write = write  # type: ignore[method-assign]
        broker.wire.beat(10)
        for _ in range(60):
            broker.wire.data_received(BEAT)
            if loop.time() < 30:
                broker.wire.write(BEAT)  # busy, and idle from then on
            await asyncio.sleep(1.7)
        assert broker.wire.lost is None
        assert all(isinstance(each, Heartbeat) for _, each in broker.heard)
        broker.wire.abort(ConnectionLost("enough"))
        return spoken

    spoken = in_leaps(story, monkeypatch)
    gaps = [after - before for before, after in pairwise(spoken)]
    assert max(gaps) <= 5.001
    idle = [gap for gap, start in zip(gaps, spoken, strict=False) if start > 40]
    assert min(idle) > 4.9, "and no more often than needed"
    assert spoken[-1] > 95


def test_a_broker_that_falls_silent_is_given_up_after_two_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(loop: asyncio.AbstractEventLoop) -> float:
        broker = Broker()
        recorder = Recorder()
        broker.wire.join(recorder)
        broker.wire.beat(10)
        await asyncio.sleep(12)
        broker.wire.data_received(b"\x08")  # not even a whole frame, and yet alive
        await asyncio.sleep(19)
        assert broker.wire.lost is None
        await recorder.gone.wait()
        assert broker.aborted
        assert recorder.lost == [broker.wire.lost]
        assert "nothing heard from the broker for" in str(broker.wire.lost)
        return loop.time()

    assert 32 < in_leaps(story, monkeypatch) <= 12 + 2 * 10 + 5.5


def test_no_heart_beats_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(loop: asyncio.AbstractEventLoop) -> None:
        broker = Broker()
        broker.wire.beat(10)
        await broker.wire.close()
        before = len(broker.heard)
        await asyncio.sleep(100)
        assert len(broker.heard) == before

    in_leaps(story, monkeypatch)


def test_where_no_heartbeats_are_wanted_silence_is_no_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(loop: asyncio.AbstractEventLoop) -> None:
        broker = Broker()
        broker.wire.beat(0)
        await asyncio.sleep(1000)
        assert broker.wire.lost is None
        assert broker.heard == []

    in_leaps(story, monkeypatch)
