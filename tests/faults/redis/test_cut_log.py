"""A Redis whose log was cut short, as `kill -9` does once in a while, passes no message over.

What a script does is one block of the log, from MULTI to EXEC. A server that finds a block torn
within a command does not carry it out, but leaves what is whole of it in the log, open; and after
its next crash that does come true, before all it has done meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from queuecraft.drivers.base import Delivery, Move, Queue, Subscription
from queuecraft.drivers.redis import scripts
from queuecraft.drivers.redis.driver import RedisDriver
from tests.brokers.redis import RedisServer
from tests.redis.place import Place, emptied, ids, received, sent, to

QUEUE: Final = Queue("billing")
MANY_SENT: Final = "many are sent"
DUE_TAKEN: Final = "what is due is taken"
TAKEN_AGAIN: Final = "what was given back is taken"


@dataclass(frozen=True)
class Cut:
    """How much of a log is left, and the command that comes next, or of which but half is left."""

    length: int
    command: str
    torn: bool


@dataclass
class History:
    """A log, and how long it was when a message was stored, when its end was asked for, and
    around some deeds."""

    log: bytes = b""
    stored: dict[str, int] = field(default_factory=dict)
    forgotten: dict[str, int] = field(default_factory=dict)
    deeds: dict[str, tuple[int, int]] = field(default_factory=dict)

    def kept(self, length: int) -> set[str]:
        """The messages that so much of the log must have."""
        return {
            id
            for id, at in self.stored.items()
            if at <= length <= self.forgotten.get(id, len(self.log))
        }

    def cuts(self) -> Iterator[Cut]:
        """Before each command from the first message on, and within each of a block."""
        within = False
        for name, begin, end in self._commands():
            if begin >= min(self.stored.values()):
                yield Cut(begin, name, torn=False)
                if within:
                    yield Cut((begin + end) // 2, name, torn=True)
            within = name == "MULTI" or (within and name != "EXEC")

    def torn(self, deed: str) -> list[Cut]:
        """Torn within what was done there."""
        begin, end = self.deeds[deed]
        return [each for each in self.cuts() if each.torn and begin < each.length < end]

    def _commands(self) -> Iterator[tuple[str, int, int]]:
        at = 0
        while at < len(self.log):
            begin = at
            words, at = self._number(at)
            name = ""
            for _ in range(words):
                size, at = self._number(at)
                name = name or self.log[at : at + size].decode().upper()
                at += size + 2
            yield name, begin, at

    def _number(self, at: int) -> tuple[int, int]:
        """The number of a line, and where the next begins."""
        end = self.log.index(b"\r\n", at)
        return int(self.log[at + 1 : end]), end + 2


class Broker:
    """A server of our own, which crashes and is started with as much of its log as we like."""

    def __init__(self, server: RedisServer, mode: str) -> None:
        self._server = server
        self._mode = mode
        self._place = Place(f"{server.url}?prefix=cut")

    @property
    def _file(self) -> Path:
        return self._server.folder / "appendonlydir" / "appendonly.aof.1.incr.aof"

    @property
    def length(self) -> int:
        """How long the log is; all that was answered for is in it."""
        return self._file.stat().st_size

    def crash(self) -> bytes:
        """The log that is left."""
        self._server.kill()
        return self._file.read_bytes()

    async def restart(self, log: bytes | None = None) -> None:
        """Crash, and begin again, with another log if one is given."""
        await asyncio.to_thread(self.crash)
        if log is not None:
            self._file.write_bytes(log)
        await asyncio.to_thread(self._server.start)

    async def bury(self) -> None:
        """All who were there are found to be gone."""
        place = self._place
        names = await place.call("ZRANGE", place.key("sessions"), 0, -1)
        await place.call("EVAL", scripts.BURY.text, 1, place.base, *names)

    @asynccontextmanager
    async def driver(self) -> AsyncGenerator[RedisDriver]:
        """A process of ours; it outlives the server."""
        place = Place(self._place.url)
        try:
            yield await place.driver(self._mode)
        finally:
            await place.close()


@pytest.fixture
def cut_broker(mode: str) -> Iterator[Broker]:
    with RedisServer() as server:
        yield Broker(server, mode)


async def lived(broker: Broker) -> History:
    """All that happens to messages: sent, delayed, acked, retried, released, left by the dead."""
    history = History()

    async def send(driver: RedisDriver, *names: str, due_in: float | None = None) -> None:
        due = None if due_in is None else time.time() + due_in
        await sent(driver, *(to("billing", each, due_at=due) for each in names))
        history.stored |= dict.fromkeys(names, broker.length)

    @asynccontextmanager
    async def deed(name: str) -> AsyncGenerator[None]:
        begin = broker.length
        yield
        history.deeds[name] = (begin, broker.length)

    async def ack(consumer: Subscription, delivery: Delivery) -> None:
        history.forgotten[delivery.sent.id] = broker.length
        assert await consumer.ack([delivery]) == []

    async with broker.driver() as one, broker.driver() as other:
        await one.declare(QUEUE)
        await send(one, "alone")
        async with deed(MANY_SENT):
            await send(one, "first", "second", "third", "fourth")
        await send(one, "late", "later", "latest", due_in=0.05)
        consumer = await one.subscribe(QUEUE, prefetch=20)
        alone, first, second = await received(consumer, 3)
        await ack(consumer, alone)
        await consumer.move([Move(first, to("billing", "first", due_at=time.time() + 0.05))])
        await consumer.release([second])
        held = await received(consumer, 3)
        async with deed(DUE_TAKEN):
            held += await received(consumer, 4)  # the retry, and what is late
        await ack(consumer, held[0])
        await consumer.close()

        await send(one, "fifth", "sixth", "seventh")
        consumer = await other.subscribe(QUEUE, prefetch=20)
        async with deed(TAKEN_AGAIN):
            held = await received(consumer, 3)
        await ack(consumer, held[1])
        await received(consumer, 2)
        await broker.bury()

        consumer = await one.subscribe(QUEUE, prefetch=3)
        held = await received(consumer, 3)
        await ack(consumer, held[2])
        await send(one, "eighth", "ninth", due_in=0.001)
    history.log = broker.crash()
    return history


async def nobody(broker: Broker, kept: set[str]) -> set[str]:
    """Nothing happens to these messages, and there is no second crash."""
    return kept


async def a_publisher(broker: Broker, kept: set[str]) -> set[str]:
    """One more message is stored between two crashes."""
    async with broker.driver() as driver:
        await driver.declare(QUEUE)
        await sent(driver, to("billing", "one more"))
        await broker.restart()
    return kept | {"one more"}


async def a_worker(broker: Broker, kept: set[str]) -> set[str]:
    """Between two crashes some are taken, and one of them is acked."""
    await broker.bury()
    async with broker.driver() as driver:
        await driver.declare(QUEUE)
        await sent(driver, to("billing", "one more"))
        consumer = await driver.subscribe(QUEUE, prefetch=4)
        held = await consumer.receive(3, 0)
        await consumer.ack(held[1:2])
        await broker.restart()
    return (kept | {"one more"}) - {*ids(held[1:2])}


Meanwhile = Callable[[Broker, set[str]], Awaitable[set[str]]]


async def trouble(broker: Broker, history: History, cut: Cut, meanwhile: Meanwhile) -> str:
    """What is wrong when the log is cut there, and somebody comes when all others are gone."""
    await broker.restart(history.log[: cut.length])
    kept = await meanwhile(broker, history.kept(cut.length))
    await broker.bury()
    async with broker.driver() as driver:
        await driver.declare(QUEUE)
        consumer = await driver.subscribe(QUEUE, prefetch=1000)
        held = await emptied(consumer)
        await consumer.ack(held)
        (info,) = await driver.inspect([QUEUE.name])
    lost = sorted(kept - {*ids(held)})
    if lost or info.ready or info.in_flight or info.delayed:
        return f"{cut}, {meanwhile.__name__}: lost {lost}, {info}"
    return ""


async def troubles(broker: Broker, history: History, cuts: Iterable[Cut], *deeds: Meanwhile) -> str:
    """The same for all of these cuts."""
    found = [await trouble(broker, history, cut, each) for cut in cuts for each in deeds]
    assert found
    return "\n".join(filter(None, found))


def survivable(mode: str, cuts: Iterable[Cut]) -> list[Cut]:
    """Those that are torn and must not cost a message, whatever is done before a second crash.

    A list cannot be saved from a script that comes true as a whole, since only its end was torn:
    it takes messages out twice.
    """
    return [each for each in cuts if each.torn and (mode == "stream" or each.command != "EXEC")]


@pytest.mark.faults
@pytest.mark.timeout(1200)
async def test_a_log_cut_between_any_two_commands_has_all_that_was_stored(
    cut_broker: Broker,
) -> None:
    history = await lived(cut_broker)
    whole = [each for each in history.cuts() if not each.torn]
    assert not await troubles(cut_broker, history, whole, nobody)


@pytest.mark.faults
@pytest.mark.timeout(1200)
async def test_a_log_torn_within_any_command_and_a_second_crash_cost_no_message(
    cut_broker: Broker, mode: str
) -> None:
    history = await lived(cut_broker)
    torn = survivable(mode, history.cuts())
    assert not await troubles(cut_broker, history, torn, a_publisher, a_worker)


@pytest.mark.parametrize(
    ("mode", "deed"),
    [
        pytest.param("list", DUE_TAKEN, marks=pytest.mark.faults),
        ("list", TAKEN_AGAIN),
        pytest.param("stream", MANY_SENT, marks=pytest.mark.faults),
        ("stream", DUE_TAKEN),
        pytest.param("stream", TAKEN_AGAIN, marks=pytest.mark.faults),
    ],
)
async def test_half_a_script_that_comes_true_after_the_next_crash_costs_no_message(
    cut_broker: Broker, mode: str, deed: str
) -> None:
    history = await lived(cut_broker)
    torn = survivable(mode, history.torn(deed))
    assert not await troubles(cut_broker, history, torn[-2:], a_worker)


async def test_what_was_stored_after_a_log_was_torn_outlives_the_next_crash(
    cut_broker: Broker,
) -> None:
    history = await lived(cut_broker)
    torn = next(each for each in history.cuts() if each.torn)
    assert not await trouble(cut_broker, history, torn, a_publisher)
