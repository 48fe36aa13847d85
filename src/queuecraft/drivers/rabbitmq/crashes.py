"""How often the first message of an ordered queue has seen its consumer die: a note beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from pamqp import commands

from queuecraft.drivers.base import Outgoing, Receipt
from queuecraft.drivers.rabbitmq.confirms import Parcel
from queuecraft.drivers.rabbitmq.consuming import glance
from queuecraft.drivers.rabbitmq.envelope import FOREIGN, message_of, parcel
from queuecraft.drivers.rabbitmq.methods import QueueDeclare, QueueDelete
from queuecraft.drivers.rabbitmq.topology import throwaway
from queuecraft.drivers.rabbitmq.wire import Wire
from queuecraft.model.naming import MAX_NAME

PREFIX: Final = "qc.first."
_ARGUMENTS: Final[dict[str, Any]] = {
    "x-queue-type": "classic",
    "x-max-length": 1,
    "x-expires": 86_400_000,  # a day: by then whoever keeps dying has been here again
}


class Crashes:
    """A classic queue tells only that a message was delivered before, and where order is kept it
    cannot be sent again with a count: it would be behind all others. A quorum queue counts, but
    also when a consumer ended as it should, and that for all it had. So a queue of its own holds,
    while somebody is at work, the id of the message that was first, and how often it has been."""

    def __init__(
        self,
        wire: Wire,
        send: Callable[[Sequence[Parcel]], Awaitable[Sequence[Receipt]]],
        queue: str,
    ) -> None:
        self._wire = wire
        self._send = send
        self._name = _beside(queue)

    async def begin(self, message: Outgoing, *, redelivered: bool) -> int:
        """A consumer begins with this message. How many others have, and ended without a word: at
        least one, if the last one did; none, if it ended as it should."""
        mark = _mark(message)
        async with throwaway(self._wire) as channel:
            ask = QueueDeclare(queue=self._name, durable=True, arguments=dict(_ARGUMENTS))
            there = await channel.ask(ask, commands.Queue.DeclareOk)
        if not there.message_count:
            return await self._write(mark, 0)
        async with glance(self._wire, self._name, 1) as held:
            notes = [message_of(each) for each in held.arrivals]
            before = sum(noted for note, _, noted in notes if note.id == mark)
            deaths = await self._write(mark, before + 1 if redelivered else 0)
            held.check_open()
            held.ack([each.tag for each in held.arrivals])
        return deaths

    async def end(self) -> None:
        """The consumer ends as it should: nobody has killed it."""
        async with throwaway(self._wire) as channel:
            await channel.ask(QueueDelete(queue=self._name), commands.Queue.DeleteOk)

    async def _write(self, mark: str, deaths: int) -> int:
        note = Outgoing(b"", mark, queue=self._name)
        await self._send([parcel(note, "", self._name, redeliveries=deaths)])
        return deaths


def _beside(queue: str) -> str:
    """
    >>> _beside("billing"), len(_beside(255 * "b"))
    ('qc.first.billing', 41)
    """
    if len(PREFIX) + len(queue.encode()) <= MAX_NAME:
        return PREFIX + queue
    return PREFIX + hashlib.blake2b(queue.encode(), digest_size=16).hexdigest()


def _mark(message: Outgoing) -> str:
    """What it is known by, even if nobody gave it an id."""
    if message.id.startswith(FOREIGN):
        return hashlib.blake2b(message.body, digest_size=16).hexdigest()
    return message.id
