"""Queues that are lists, one for each priority, the oldest message at the left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from queuecraft.drivers.base import (
    ConnectionLost,
    Delivery,
    Move,
    Receipt,
    Rejected,
    Subscription,
    stale,
)
from queuecraft.drivers.redis import scripts
from queuecraft.drivers.redis.client import Argument, Script
from queuecraft.drivers.redis.envelope import decode
from queuecraft.drivers.redis.subscription import RedisSubscription
from queuecraft.model.errors import QueueError


class ListSubscription(RedisSubscription):
    """Moves what it takes into a hash under its name, by numbers whose last digit is the
    priority."""

    take_script: ClassVar[Script] = scripts.TAKE
    move_script: ClassVar[Script] = scripts.MOVE
    keeps: ClassVar[str] = "keep"
    _number = 1

    def watched(self) -> list[str]:
        name, base = self.queue.name, self.base
        urgent = [f"{base}queue.{level}:{name}" for level in range(1, 10)]
        return [f"{base}queue:{name}", *urgent]

    def demand(self, limit: int) -> list[Argument]:
        single = "single" if self.queue.single_active else ""
        return [self.queue.name, self.consumer, limit, self._number, single, self.keeps]

    def unpack(self, values: Sequence[Any], levels: bytes) -> list[Delivery]:
        queue, consumer, number = self.queue.name, self.consumer, self._number
        taken: list[Delivery] = []
        for place, value in enumerate(values):
            token = 10 * (number + place) + (levels[place] - 48 if levels else 0)
            message, again = decode(value, f"{consumer}-{token}")
            taken.append(Delivery(message, queue, again, token))
        self._number += len(values)
        return taken

    async def settle(self, deliveries: Sequence[Delivery]) -> int:
        tokens = [each.token for each in deliveries]
        count: int = await self.call("ack", "HDEL", f"{self.base}held:{self.consumer}", *tokens)
        return count

    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        tokens = sorted(each.token for each in deliveries)  # as they came
        await self.eval("release", scripts.RELEASE, [self.queue.name, self.consumer, *tokens])


class ForgetfulSubscription(ListSubscription):
    """At most once: what it takes is gone from the server, and with the process if that dies. It
    is put back only by a process that ends in order."""

    keeps: ClassVar[str] = ""

    def unpack(self, values: Sequence[Any], levels: bytes) -> list[Delivery]:
        taken = super().unpack(values, levels)
        return [
            Delivery(each.sent, each.queue, each.redeliveries, (each.token, value))
            for each, value in zip(taken, values, strict=True)
        ]

    async def settle(self, deliveries: Sequence[Delivery]) -> int:
        return len(deliveries)

    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        arguments: list[Argument] = [self.queue.name]
        for number, value in sorted((each.token for each in deliveries), reverse=True):
            arguments += (number % 10, value)
        await self.eval("release", scripts.PUT_BACK, arguments)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        if ours := await self.withdraw(deliveries):
            await self._put_back(ours)
            self.look_again()

    async def move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        """Send, then forget: there is nothing on the server to be moved."""
        first = list({move.delivery: move for move in reversed(moves)}.values())[::-1]
        ours = [move for move in first if move.delivery in self.held]
        receipts = await Subscription.move(self, ours)
        answers = {m.delivery: each for m, each in zip(ours, receipts, strict=True)}
        return [answers.pop(m.delivery, Rejected(stale(m.delivery, "redis"))) for m in moves]

    async def close(self) -> None:
        try:
            # One that others took for dead does not end in order: the rest is being handled.
            back = self.unseen if self.gone else list(self.held)
            if back and not self.closed and self.client.lost is None:
                self.unseen = []
                # Not after a take under way: who is cancelled there would put back nothing.
                await self._put_back(back)
        finally:
            await super().close()

    async def _put_back(self, ours: Sequence[Delivery]) -> None:
        for delivery in ours:  # first: who is cancelled must not put it back twice
            del self.held[delivery]
        try:
            await self.give_back(ours)
        except ConnectionLost:
            raise  # it may have been put back
        except QueueError:
            self.held.update(dict.fromkeys(ours))  # it was not, and nobody else has it
            raise
