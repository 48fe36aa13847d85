"""Messages that were due while their queue was missing, brought to it once it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from pamqp import commands

from queuecraft.drivers.base import ACCEPTED, Queue, Receipt
from queuecraft.drivers.rabbitmq import delays
from queuecraft.drivers.rabbitmq.confirms import Parcel
from queuecraft.drivers.rabbitmq.consuming import Arrival, Consuming, glance
from queuecraft.drivers.rabbitmq.envelope import message_of, parcel
from queuecraft.drivers.rabbitmq.methods import QueueDeclare
from queuecraft.drivers.rabbitmq.refusals import NOT_FOUND, REFUSED
from queuecraft.drivers.rabbitmq.topology import throwaway
from queuecraft.drivers.rabbitmq.wire import Closed, Wire
from queuecraft.failpoints import failpoint

LOOKED_AT: Final = 10_000  # messages in one go; behind so many of others' nobody is found
BATCH: Final = 100  # sent on in one go: so many may be there twice, if this process dies
TURNS: Final = (0.05, 0.1, 0.2, 0.4, 0.8)  # seconds to wait while another looks through them


class Latecomers:
    """Who waits in `qc.undelivered.dlq`, and is sent on when his queue is declared."""

    def __init__(
        self, wire: Wire, send: Callable[[Sequence[Parcel]], Awaitable[Sequence[Receipt]]]
    ) -> None:
        self._wire = wire
        self._send = send

    async def bring(self, queue: Queue) -> None:
        """Send on what is for this queue. May send one twice, and loses none: each is forgotten
        where it waited after the broker has it where it belongs."""
        while waiting := await self._count():
            if not await self._look_through(queue, min(waiting, LOOKED_AT)):
                return

    async def _count(self) -> int:
        ask = QueueDeclare(queue=delays.UNDELIVERED_QUEUE, passive=True)
        async with throwaway(self._wire) as channel:
            try:
                answer = await channel.ask(ask, commands.Queue.DeclareOk)
            except Closed as error:
                if error.code in (NOT_FOUND, REFUSED):  # nothing was ever delayed, or not for us
                    return 0
                raise
        return answer.message_count or 0

    async def _look_through(self, queue: Queue, count: int) -> bool:
        """Whether all that was looked at has gone, so that there may be more behind it."""
        for pause in (*TURNS, None):
            try:
                # One at a time: what another holds for a moment might be ours.
                async with glance(
                    self._wire, delays.UNDELIVERED_QUEUE, count, exclusive=True
                ) as held:
                    return await self._send_on(held, queue)
            except Closed as error:
                if error.code != REFUSED or pause is None:
                    if error.code in (NOT_FOUND, REFUSED):
                        return False
                    raise
                await asyncio.sleep(pause)
        return False

    async def _send_on(self, held: Consuming, queue: Queue) -> bool:
        """Whether all that is held has gone."""
        ours = [
            (arrival.tag, sent)
            for arrival in held.arrivals
            if (sent := _sent_on(arrival, queue)) is not None
        ]
        gone = 0
        for start in range(0, len(ours), BATCH):
            batch = ours[start : start + BATCH]
            receipts = await self._send([sent for _, sent in batch])
            failpoint("latecomers.after_send")
            taken = [
                tag
                for (tag, _), receipt in zip(batch, receipts, strict=True)
                if receipt is ACCEPTED
            ]
            held.check_open()
            held.ack(taken)
            gone += len(taken)
        return gone == len(held.arrivals)


def _sent_on(arrival: Arrival, queue: Queue) -> Parcel | None:
    """What to send for one that waits, if it is for this queue or an exchange that feeds it."""
    destination = delays.destination(arrival.routing_key)
    if destination == delays.to_queue(queue.name):
        exchange, routing_key = "", queue.name
    else:
        for binding in queue.bindings:
            start = delays.to_exchange(binding.exchange.name, "")
            if destination.startswith(start):
                exchange, routing_key = binding.exchange.name, destination.removeprefix(start)
                break
        else:
            return None
    message, _, redeliveries = message_of(arrival, queue.name)
    return parcel(message, exchange, routing_key, redeliveries=redeliveries)
