"""Many queues are counted at once, and one that is missing costs only itself."""

from __future__ import annotations

import asyncio

import pytest
from pamqp import commands
from pamqp.base import Frame

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.rabbitmq import census as module
from queuecraft.drivers.rabbitmq.census import census
from queuecraft.drivers.rabbitmq.refusals import LOCKED, NOT_FOUND
from tests.drivers.rabbitmq.broker import Broker, turn


class Register(Broker):
    """A broker that answers for each queue, and closes the channel for one it has not."""

    def __init__(self, refused: dict[str, int] | None = None) -> None:
        super().__init__()
        self.silent.add(commands.Queue.Declare)
        self.asked: list[str] = []
        self._refused = refused or {}
        self._closed: set[int] = set()
        self._seen = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        for channel, command in self.heard[self._seen :]:
            if isinstance(command, commands.Channel.Open):
                self._closed.discard(channel)
            elif isinstance(command, commands.Queue.Declare) and channel not in self._closed:
                self._answer(channel, command.queue)
        self._seen = len(self.heard)

    def _answer(self, channel: int, name: str) -> None:
        self.asked.append(name)
        answer: Frame = commands.Queue.DeclareOk(name, len(name), 2)
        if (code := self._refused.get(name)) is not None:
            self._closed.add(channel)
            answer = commands.Channel.Close(code, "no", 50, 10)
        asyncio.get_running_loop().call_soon(self.say, channel, answer)


async def test_all_are_asked_before_the_first_answer_is_waited_for() -> None:
    broker = Broker()
    broker.silent.add(commands.Queue.Declare)
    task = asyncio.create_task(census(broker.wire, ["a", "b", "a", "c"]))
    await turn()
    ((channel, _), *_) = asked = broker.commands(commands.Queue.Declare)
    assert [(each.queue, each.passive) for _, each in asked] == [(name, True) for name in "abc"]
    for count in range(3):
        broker.say(channel, commands.Queue.DeclareOk("q" * count, count, 10 + count))
    assert await task == {"a": (0, 10), "b": (1, 11), "c": (2, 12)}


async def test_very_many_are_asked_a_few_hundred_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 3)
    names = [f"{'q' * n}" for n in range(1, 9)]
    assert await census(Register().wire, names) == {name: (len(name), 2) for name in names}


@pytest.mark.parametrize("missing", ["a", "dddd", "hhhhhhhh", "abdegh", "abcdefgh"])
async def test_what_is_missing_is_left_out_and_nothing_else_is(missing: str) -> None:
    broker = Register(dict.fromkeys(missing, NOT_FOUND))
    found = await census(broker.wire, "abcdefgh")
    assert found == {name: (1, 2) for name in "abcdefgh" if name not in missing}
    assert sorted(broker.asked) == list("abcdefgh")  # each is counted once


async def test_of_what_is_another_connections_own_nothing_is_known() -> None:
    found = await census(Register({"b": LOCKED}).wire, "abc")
    assert found == {"a": (1, 2), "b": (None, None), "c": (1, 2)}


async def test_any_other_refusal_is_told() -> None:
    with pytest.raises(ConnectionLost, match="no"):
        await census(Register({"b": 403}).wire, "abc")


async def test_a_connection_lost_meanwhile_is_told_and_not_taken_for_an_answer() -> None:
    broker = Broker()
    broker.silent.add(commands.Queue.Declare)
    task = asyncio.create_task(census(broker.wire, "ab"))
    await turn()
    broker.wire.connection_lost(None)
    with pytest.raises(ConnectionLost):
        await task


async def test_a_census_given_up_closes_its_channel_and_late_answers_harm_nobody() -> None:
    broker = Broker()
    broker.silent.add(commands.Queue.Declare)
    task = asyncio.create_task(census(broker.wire, "ab"))
    await turn()
    ((channel, _), *_) = broker.commands(commands.Queue.Declare)
    task.cancel()
    broker.say(channel, commands.Queue.DeclareOk("a", 1, 1))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [number for number, _ in broker.commands(commands.Channel.Close)] == [channel]
    assert broker.wire.lost is None
