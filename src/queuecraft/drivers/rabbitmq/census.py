"""How many messages and consumers very many queues have, asked all at once.

Asked one by one, a broker spends six times as long on it, most of it on waking up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, TypeAlias

from pamqp import commands

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.rabbitmq.channel import Channel
from queuecraft.drivers.rabbitmq.fields import Malformed
from queuecraft.drivers.rabbitmq.frames import method
from queuecraft.drivers.rabbitmq.methods import QueueDeclare
from queuecraft.drivers.rabbitmq.refusals import LOCKED, NOT_FOUND
from queuecraft.drivers.rabbitmq.wire import Closed, Wire

AT_ONCE: Final = 250  # queues that are asked about before an answer is waited for

Counts: TypeAlias = tuple[int | None, int | None]
"""Messages that are ready, and consumers."""

_TOLD: Final = commands.Queue.DeclareOk.index
_NUMBERS: Final = Struct(">II")


async def census(wire: Wire, names: Iterable[str]) -> dict[str, Counts]:
    """Of each queue that exists; nothing is known of one that is another connection's own."""
    counts: dict[str, Counts] = {}
    left = list(dict.fromkeys(names))
    at, some = 0, AT_ONCE
    while at < len(left):
        channel = Count(wire)
        await channel.open()
        try:
            while at < len(left) and channel.lost is None:
                asked = left[at : at + some]
                told = await channel.count(asked)
                counts |= zip(asked, told, strict=False)
                at += len(told)
                some = min(AT_ONCE, 2 * some)
            if isinstance(channel.lost, Closed):  # at the first that is not there
                if channel.lost.code == LOCKED:
                    counts[left[at]] = None, None
                elif channel.lost.code != NOT_FOUND:
                    raise channel.lost.with_traceback(None)
                at, some = at + 1, 1  # there may be more of them, and what follows is not heard
        finally:
            await channel.close()
    return counts


class Count(Channel):
    """A channel that asks about many queues before it listens."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._told: list[Counts] = []
        self._wanted = 0
        self._all: asyncio.Future[None] | None = None

    async def count(self, names: Sequence[str]) -> Sequence[Counts]:
        """Of each, in this order, up to the first that the broker closes the channel for."""
        self._told, self._wanted = [], len(names)
        self._all = asyncio.get_running_loop().create_future()
        asked = (method(self.number, QueueDeclare(queue=name, passive=True)) for name in names)
        self.wire.write(b"".join(asked))
        await self._all
        if self.lost is not None and not isinstance(self.lost, Closed):
            raise self.lost.with_traceback(None)
        return self._told

    def hear(self, code: int, payload: bytes) -> bool:
        if code != _TOLD or self._all is None:
            return super().hear(code, payload)
        if len(payload) < 5 or len(payload) < 13 + payload[4]:
            raise Malformed("a queue without its numbers")
        self._told.append(_NUMBERS.unpack_from(payload, 5 + payload[4]))
        if len(self._told) == self._wanted:
            self._end_waiting()
        return True

    def on_lost(self, error: ConnectionLost) -> None:
        super().on_lost(error)
        self._end_waiting()

    def _end_waiting(self) -> None:
        if self._all is not None and not self._all.done():
            self._all.set_result(None)
