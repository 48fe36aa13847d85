"""A driver that fails on command, to prove what stands on top of drivers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, TypeAlias

from queuecraft.drivers.base import (
    Binding,
    ConnectionLost,
    Delivery,
    Driver,
    Exchange,
    Move,
    Outgoing,
    Queue,
    QueueInfo,
    Receipt,
    Rejected,
    Subscription,
    Topology,
    Traits,
    Unknown,
)
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.model.errors import PublishError, QueueError
from queuecraft.testing.faults import Fate, Hang, LostAnswers, Rejection

Operation: TypeAlias = Literal[
    "open",
    "prepare",
    "declare",
    "bind",
    "unbind",
    "send",
    "subscribe",
    "topology",
    "inspect",
    "peek",
    "purge",
    "delete",
    "announce",
    "announced",
    "receive",
    "ack",
    "release",
    "move",
]


class FaultyDriver(Driver):
    """Wraps a driver, by default a queue in memory, and breaks when a test says so.

    With `inline=False` every call gives up the event loop, as one to a server would.

    >>> async def main():
    ...     driver = FaultyDriver()
    ...     await driver.open()
    ...     await driver.drop()
    ...     driver.refuse(opens=1)
    ...     for _ in range(2):
    ...         try:
    ...             await driver.open()
    ...             print("connected")
    ...         except ConnectionLost as error:
    ...             print(error)
    ...     return driver.calls["open"]
    >>> asyncio.run(main())
    the test refuses the connection [broker=local]
    connected
    3
    """

    traits: ClassVar[Traits] = MemoryDriver.traits

    def __init__(self, inner: Driver | None = None, *, inline: bool | None = None) -> None:
        self.inner: Driver = MemoryDriver() if inner is None else inner
        self.inline = self.inner.traits.inline if inline is None else inline
        # Of this instance: what the wrapped driver can do, which is not known to the class.
        vars(self)["traits"] = replace(self.inner.traits, inline=self.inline)
        self.connected = False
        self.calls: Counter[str] = Counter()
        """How often each method was called, by name, those of subscriptions included."""
        self.batches: list[int] = []
        """How many messages each `send` was given."""
        self._errors: dict[str, list[QueueError]] = {}
        self._rejections: list[Rejection] = []
        self._lost_answers: dict[str, list[LostAnswers]] = {"send": [], "move": []}
        self._hangs: list[Hang] = []
        self._hanging: set[Hang] = set()

    # -- what a test commands ------------------------------------------------------------------

    def refuse(self, opens: int = 1, error: QueueError | None = None) -> None:
        """Fail the next `opens` calls of `open`."""
        self.fail("open", error or self.lost("the test refuses the connection"), times=opens)

    def fail(
        self, operation: Operation, error: QueueError | None = None, *, times: int = 1
    ) -> None:
        """Raise from the next calls of a method, before anything is attempted.

        >>> driver = FaultyDriver()
        >>> driver.fail("declare", ConnectionLost("gone"), times=2)
        """
        error = error or self.lost(f"the test fails {operation}")
        self._errors.setdefault(operation, []).extend([error] * times)

    async def drop(self) -> None:
        """Lose the connection now. Calls under way end with `ConnectionLost`, what was held goes
        back as redeliveries, and every call fails until `open` is called again."""
        self.connected = False
        for hang in self._hanging:
            hang.lose()
        await self.inner.close()

    def lose_answers(
        self,
        positions: Iterable[int] | None = None,
        *,
        stored: bool,
        times: int = 1,
        of: Literal["send", "move"] = "send",
    ) -> None:
        """Answer the next batches with `Unknown` at the given positions, or at all of them;
        `stored` says whether the broker has those messages nevertheless.

        >>> async def main():
        ...     driver = FaultyDriver()
        ...     await driver.open()
        ...     await driver.declare(Queue("billing"))
        ...     driver.lose_answers([1], stored=False)
        ...     receipts = await driver.send(
        ...         [Outgoing(b"", id, queue="billing") for id in ("m-1", "m-2")]
        ...     )
        ...     print([type(each).__name__ for each in receipts])
        ...     print([each.sent.id for each in await driver.peek("billing", 10)])
        >>> asyncio.run(main())
        ['Accepted', 'Unknown']
        ['m-1']
        """
        chosen = None if positions is None else frozenset(positions)
        self._lost_answers[of].append(LostAnswers(chosen, stored, times))

    def reject(
        self,
        error: QueueError | None = None,
        *,
        to: str | None = None,
        times: int | None = 1,
        of: Literal["send", "move"] | None = None,
    ) -> None:
        """Reject the next messages sent or moved to a queue or routing key, or anywhere; with
        `times=None` until `heal` is called.

        >>> async def main():
        ...     driver = FaultyDriver()
        ...     await driver.open()
        ...     await driver.declare(Queue("billing"))
        ...     driver.reject(to="billing")
        ...     for id in ("m-1", "m-2"):
        ...         (receipt,) = await driver.send([Outgoing(b"", id, queue="billing")])
        ...         print(type(receipt).__name__)
        >>> asyncio.run(main())
        Rejected
        Accepted
        """
        left = float("inf") if times is None else times
        self._rejections.append(Rejection(error, to, of, left))

    def hang(self, *, stored: bool = False) -> Hang:
        """Let the next send hang until released; `stored`: after the broker has taken it.

        If the connection drops meanwhile, it ends with `ConnectionLost` when nothing was stored,
        and with `Unknown` for each message otherwise.
        """
        hang = Hang(stored=stored)
        self._hangs.append(hang)
        return hang

    def heal(self) -> None:
        """Forget every command that has not been carried out yet."""
        self._errors.clear()
        self._rejections.clear()
        self._hangs.clear()
        for commands in self._lost_answers.values():
            commands.clear()

    # -- the driver ----------------------------------------------------------------------------

    async def open(self) -> None:
        await self.begin("open")
        await self.inner.open()
        self.connected = True

    async def close(self) -> None:
        self.calls["close"] += 1
        await self._give_way()
        await self.drop()

    async def prepare(self, exchanges: Sequence[Exchange]) -> None:
        await self.begin("prepare")
        await self.inner.prepare(exchanges)

    async def declare(self, queue: Queue) -> None:
        await self.begin("declare")
        await self.inner.declare(queue)

    async def bind(self, queue: str, bindings: Sequence[Binding]) -> None:
        await self.begin("bind")
        await self.inner.bind(queue, bindings)

    async def unbind(self, queue: str, bindings: Sequence[Binding]) -> None:
        await self.begin("unbind")
        await self.inner.unbind(queue, bindings)

    async def send(
        self, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        self.batches.append(len(messages))
        await self.begin("send")
        hang = self._hangs.pop(0) if self._hangs else None
        if hang is not None and not hang.stored and not await self._hold(hang):
            raise self.lost("the connection was dropped before anything was sent")
        fates = self.fates("send", messages)
        if atomic and any(fates):
            fates = [next(filter(None, fates))] * len(messages)
        reaching = [
            message
            for message, fate in zip(messages, fates, strict=True)
            if fate is None or fate.stored
        ]
        answers = iter(await self.store(reaching, atomic=atomic))
        arrived = await self._hold(hang) if hang is not None and hang.stored else True
        arrived = await self.arrives() and arrived
        if not arrived:
            return [self.unknown() for _ in messages]
        receipts: list[Receipt] = []
        for fate in fates:
            if fate is None:
                receipts.append(next(answers))
                continue
            if fate.stored:
                next(answers)  # nobody gets to know it
            receipts.append(fate.receipt)
        return receipts

    async def subscribe(self, queue: Queue, *, prefetch: int) -> Subscription:
        await self.begin("subscribe")
        return FaultySubscription(self, await self.inner.subscribe(queue, prefetch=prefetch))

    async def topology(self) -> Topology:
        await self.begin("topology")
        return await self.inner.topology()

    async def inspect(self, queues: Sequence[str] | None = None) -> Sequence[QueueInfo]:
        await self.begin("inspect")
        return await self.inner.inspect(queues)

    async def peek(self, queue: str, limit: int) -> Sequence[Delivery]:
        await self.begin("peek")
        return await self.inner.peek(queue, limit)

    async def purge(self, queue: str) -> int:
        await self.begin("purge")
        return await self.inner.purge(queue)

    async def delete(self, queue: str) -> None:
        await self.begin("delete")
        await self.inner.delete(queue)

    async def announce(self, name: str, note: bytes, *, ttl: float) -> None:
        await self.begin("announce")
        await self.inner.announce(name, note, ttl=ttl)

    async def announced(self) -> Mapping[str, bytes] | None:
        await self.begin("announced")
        return await self.inner.announced()

    # -- what subscriptions call too -----------------------------------------------------------

    async def begin(self, operation: Operation) -> None:
        """Count a call, and fail it if that was commanded or there is no connection."""
        self.calls[operation] += 1
        await self._give_way()
        if operation != "open" and not self.connected:
            raise self.lost("the connection is lost; open it again")
        if errors := self._errors.get(operation):
            raise errors.pop(0)

    async def store(self, messages: Sequence[Outgoing], *, atomic: bool) -> Sequence[Receipt]:
        """Hand over what no command holds back."""
        return await self.inner.send(messages, atomic=atomic)

    async def arrives(self) -> bool:
        """Let an answer travel back; False if the connection was lost on its way."""
        await self._give_way()
        return self.connected

    def fates(self, of: Literal["send", "move"], messages: Sequence[Outgoing]) -> list[Fate | None]:
        """What was commanded for each message of a batch; None: let it pass."""
        fates: list[Fate | None] = [self._rejection(of, message) for message in messages]
        if lost := self._lost_answers[of]:
            command = lost[0]
            command.left -= 1
            if command.left <= 0:
                lost.pop(0)
            for position in range(len(messages)):
                if command.positions is None or position in command.positions:
                    fates[position] = Fate(self.unknown(), stored=command.stored)
        return fates

    def lost(self, message: str) -> ConnectionLost:
        """The error of a lost connection."""
        return ConnectionLost(message, broker=self.traits.name)

    def unknown(self) -> Unknown:
        """The answer that never came."""
        return Unknown(self.lost("the answer never came"))

    # -- inside --------------------------------------------------------------------------------

    def _rejection(self, of: Literal["send", "move"], message: Outgoing) -> Fate | None:
        for command in self._rejections:
            if command.to not in (None, message.queue, message.routing_key):
                continue
            if command.of not in (None, of):
                continue
            command.left -= 1
            if command.left <= 0:
                self._rejections.remove(command)
            error = command.error or PublishError(
                "the test rejects it",
                broker=self.traits.name,
                queue=message.queue,
                message_id=message.id,
            )
            return Fate(Rejected(error), stored=False)
        return None

    async def _hold(self, hang: Hang) -> bool:
        self._hanging.add(hang)
        try:
            return await hang.hold()
        finally:
            self._hanging.discard(hang)

    async def _give_way(self) -> None:
        if not self.inline:
            await asyncio.sleep(0)


class FaultySubscription(Subscription):
    """A subscription of a `FaultyDriver`; it breaks with its driver.

    >>> issubclass(FaultySubscription, Subscription)
    True
    """

    def __init__(self, driver: FaultyDriver, inner: Subscription) -> None:
        self.inner = inner
        self._driver = driver

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        # It gives way before it takes, never after: what was taken cannot be lost to a cancel.
        await self._driver.begin("receive")
        return await self.inner.receive(limit, wait)

    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        await self._driver.begin("ack")
        return await self.inner.ack(deliveries)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        await self._driver.begin("release")
        await self.inner.release(deliveries)

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        return await self._driver.send(messages)

    async def move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        await self._driver.begin("move")
        fates = self._driver.fates("move", [move.to for move in moves])
        passing = [move for move, fate in zip(moves, fates, strict=True) if fate is None]
        answers = iter(await self.inner.move(passing))
        # Stored without an answer: it arrived, and the delivery stays held as well.
        twice = [m.to for m, fate in zip(moves, fates, strict=True) if fate and fate.stored]
        await self.inner.send(twice)
        receipts = [next(answers) if fate is None else fate.receipt for fate in fates]
        if not await self._driver.arrives():
            return [self._driver.unknown() for _ in moves]
        return receipts

    async def close(self) -> None:
        self._driver.calls["unsubscribe"] += 1
        await self.inner.close()
