"""A consumer of a queue, and the deliveries it holds."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from queuecraft.drivers.base import (
    ACCEPTED,
    ConnectionLost,
    Delivery,
    Move,
    Outgoing,
    Queue,
    Receipt,
    Rejected,
    Subscription,
    Unknown,
    stale,
)
from queuecraft.drivers.redis.client import Argument, Client, RedisError, Script
from queuecraft.drivers.redis.envelope import encode
from queuecraft.drivers.redis.refusals import refusal
from queuecraft.drivers.redis.sending import BY_HEADERS, fault_of, receipt
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import AlreadySettled

if TYPE_CHECKING:
    from queuecraft.drivers.redis.driver import RedisDriver

MOST: Final = 500  # messages taken by one script
POLL: Final = 0.2  # seconds between looks where the server does not tell of changes
STALE: Final = ord("s")


class RedisSubscription(Subscription):
    """What it takes is kept on the server under its name until it is settled, and goes back when
    the lease of its session ends. Settling what is not there any more changes nothing."""

    take_script: ClassVar[Script]
    move_script: ClassVar[Script]

    def __init__(
        self, driver: RedisDriver, client: Client, queue: Queue, consumer: str, prefetch: int
    ) -> None:
        self.queue = queue
        self.consumer = consumer
        self.held: dict[Delivery, None] = {}
        self.driver = driver
        self.client = client
        self.base = driver.base
        self._prefetch = prefetch
        name, base = queue.name, driver.base
        keys = [
            *self.watched(),
            f"{base}delayed:{name}",
            f"{base}soonest",
            f"{base}consumers:{name}",
        ]
        if queue.single_active:
            keys.append(f"{base}active:{name}")
        self._keys = [key.encode() for key in keys]
        self.unseen: list[Delivery] = []  # taken, and not yet given to anybody
        self._taking: asyncio.Future[Any] | None = None
        self._failed: RedisError | None = None
        self._unknown = False  # to the server: the script has to be sent as a whole
        self._due_in: float | None = None
        self._armed = False
        self._stirred = False
        self.gone = False  # from the server: it has told so
        self.closed = False
        self._waiting: asyncio.Future[None] | None = None

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        clock = self.driver.clock
        deadline = clock.monotonic() + wait
        while True:
            self._check()
            self._stirred = False
            self.gather(limit)
            if not self.unseen and (self._taking is not None or self.room(limit) > 0):
                await self._take(limit)
                self.gather(limit)
            if self.unseen:
                taken = self.unseen[:limit]
                del self.unseen[:limit]
                return taken
            if (left := deadline - clock.monotonic()) <= 0:
                return []
            if self.room(1) > 0 and not self._armed and await self._arm():
                continue  # something has come, or may have
            await self._until_woken(left)

    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        failpoint("ack.before")
        ours, strange = self._ours(deliveries)
        if ours:
            settled = await self.settle(ours)
            for delivery in ours:
                self.held.pop(delivery, None)
            self.look_again()
            if not settled:  # taken over by others, all of it
                strange += ours
        return strange

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        if ours := await self.withdraw(deliveries):
            await self.give_back(ours)
            for delivery in ours:
                self.held.pop(delivery, None)
            self.look_again()

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        return await self.driver.send(messages)

    async def move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        """In one script: the messages are in the one queue or in the other."""
        targets: dict[Delivery, Outgoing] = {}
        for move in moves:
            if move.delivery in self.held:
                targets.setdefault(move.delivery, move.to)
        answers = await self.move_held(targets) if targets else {}
        for delivery, answer in answers.items():
            if answer is ACCEPTED or _is_stale(answer):
                self.held.pop(delivery, None)
        self.look_again()
        failpoint("move.after_ack")
        # The same delivery twice can be moved but once.
        return [answers.pop(m.delivery, Rejected(stale(m.delivery, "redis"))) for m in moves]

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.look_again()
        self.driver.watch.disarm(self._keys, self._changed)
        if self.client.lost is None:
            try:
                await self.release(())
            finally:  # also of one that is cancelled: nobody else would give back what it holds
                await self.driver.leave(self)
        self.held.clear()

    def look_again(self) -> None:
        """Let a `receive` see what has changed."""
        self._stirred = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # -- what depends on how the queue is kept -------------------------------------------------

    async def begin(self) -> None:
        """Get ready to receive."""

    def gather(self, limit: int) -> None:
        """Add what came without being asked for to what is `unseen`."""

    @abstractmethod
    def watched(self) -> list[str]:
        """The keys of which any change may bring a message."""

    @abstractmethod
    def demand(self, limit: int) -> list[Argument]:
        """What the script that takes messages is to know."""

    @abstractmethod
    def unpack(self, values: Sequence[Any], levels: bytes) -> list[Delivery]:
        """The deliveries it has answered with."""

    @abstractmethod
    async def settle(self, deliveries: Sequence[Delivery]) -> int:
        """Forget messages; how many were still ours."""

    @abstractmethod
    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return messages to the head, in order."""

    # -- on the server -------------------------------------------------------------------------

    async def move_held(self, targets: dict[Delivery, Outgoing]) -> dict[Delivery, Receipt]:
        """Move what is held; an answer for each."""
        sending = self.driver.sending
        arguments: list[Argument] = [self.queue.name, self.consumer, self.driver.retain]
        for delivery, to in targets.items():
            arguments += (delivery.token, *sending.way(to), encode(to))
        if self.client.lost is not None:
            raise ConnectionLost(self.client.lost.message, broker="redis", operation="move")
        try:
            answer = await self.eval("move", self.move_script, arguments)
        except ConnectionLost as error:
            if self.client.lost is None:
                raise
            return dict.fromkeys(targets, Unknown(error))
        fault = fault_of(answer)
        receipts: dict[Delivery, Receipt] = {}
        again: dict[Delivery, Outgoing] = {}
        for (delivery, to), letter in zip(targets.items(), answer[0], strict=True):
            if letter == BY_HEADERS:
                sending.wants_headers(to)
                again[delivery] = to
            elif letter == STALE:
                receipts[delivery] = Rejected(stale(delivery, "redis"))
            else:
                receipts[delivery] = receipt(to, letter, fault)
        return receipts | (await self.move_held(again) if again else {})

    async def eval(self, operation: str, script: Script, arguments: Sequence[Argument]) -> Any:
        """The result of a script."""
        failpoint(f"{operation}.before_commit")
        try:
            answer = await self.client.eval(script, [self.base], arguments)
        except RedisError as error:
            raise refusal(error, operation, self.queue.name) from None
        failpoint(f"{operation}.after_commit")
        return answer

    async def call(self, operation: str, *command: Argument) -> Any:
        """The reply to a command."""
        failpoint(f"{operation}.before_commit")
        try:
            answer = await self.client.call(*command)
        except RedisError as error:
            raise refusal(error, operation, self.queue.name) from None
        failpoint(f"{operation}.after_commit")
        return answer

    # -- taking --------------------------------------------------------------------------------

    async def _take(self, limit: int) -> None:
        """Ask for messages, or wait for those that were asked for: who is cancelled meanwhile
        leaves them to the next."""
        if self._taking is None:
            count = min(self.room(limit), MOST)
            script, self._unknown = self._unknown, False
            failpoint("take.before_commit")
            self._taking = self.client.ask(
                *(("EVAL", self.take_script.text) if script else self._known),
                1,
                self.base,
                *self.demand(count),
                now=True,
            )
            self._taking.add_done_callback(self._taken)
        await asyncio.wait([self._taking])
        if self._unknown:
            await self._take(limit)
            return
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise refusal(failed, "receive", self.queue.name)
        self._check()

    @property
    def _known(self) -> tuple[Argument, ...]:
        return ("EVALSHA", self.take_script.digest)

    def _taken(self, taking: asyncio.Future[Any]) -> None:
        self._taking = None
        if taking.cancelled() or taking.exception() is not None:
            return  # the connection is lost, and says so
        reply = taking.result()
        if isinstance(reply, RedisError):
            if reply.code == "NOSCRIPT":
                self._unknown = True
            else:
                self._failed = reply
                self.gone = reply.code == "GONE"
            return
        self._due_in = None if reply[0] < 0 else reply[0] / 1000
        if len(reply) > 2:
            failpoint("take.after_commit")
            taken = self.unpack(reply[2:], reply[1])
            self.unseen += taken
            self.held.update(dict.fromkeys(taken))

    def room(self, limit: int) -> int:
        """How many more may be taken, at most `limit`."""
        return min(limit, self._prefetch - len(self.held))

    async def withdraw(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Those of them that are held, and what nobody was given: a `receive` that was cancelled
        has left it, and the next may be far. Together, so that they can go back in order."""
        if self._taking is not None:
            await asyncio.wait([self._taking])
        unseen, self.unseen = self.unseen, []
        ours, _ = self._ours([*deliveries, *unseen])
        return ours

    # -- waiting -------------------------------------------------------------------------------

    async def _arm(self) -> bool:
        """Be told of changes from now on; whether to look once more before one waits for them."""
        watch = self.driver.watch
        if watch.deaf:
            return False
        self._armed = True  # before it is: a change may be told together with the answer
        try:
            there = await watch.arm(self._keys, self._changed)
        except BaseException:
            self._armed = False
            raise
        # The consumers of the queue are always there, unless it was deleted since it was looked at.
        return there != 1 or not self._armed

    def _changed(self) -> None:
        self._armed = False
        self.driver.watch.disarm(self._keys, self._changed)
        self.look_again()

    async def _until_woken(self, wait: float) -> None:
        if self._stirred:  # since it was looked at last
            return
        if self.room(1) > 0:
            if self._due_in is not None:
                wait = min(wait, self._due_in + 0.001)
            if self.driver.watch.deaf:
                wait = min(wait, POLL)
        future = self._waiting = asyncio.get_running_loop().create_future()
        timer = self.driver.clock.call_later(wait, self.look_again)
        try:
            await future
        finally:
            timer.cancel()
            self._waiting = None

    # -- inside --------------------------------------------------------------------------------

    def _ours(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        ours: list[Delivery] = []
        strange: list[Delivery] = []
        for delivery in dict.fromkeys(deliveries):
            (ours if delivery in self.held else strange).append(delivery)
        return ours, strange

    def _check(self) -> None:
        if self.closed:
            raise ConnectionLost("the subscription is closed", broker="redis")
        lost = self.client.lost or self.driver.lost
        if lost is not None:
            raise ConnectionLost(lost.message, broker="redis", queue=self.queue.name)


def _is_stale(answer: Receipt) -> bool:
    return isinstance(answer, Rejected) and isinstance(answer.error, AlreadySettled)
