"""Messages that were due while their queue was missing, brought to it once it is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from pamqp import commands

from queuecraft.clock import Clock
from queuecraft.drivers.base import ACCEPTED, ConnectionLost, Queue, Receipt
from queuecraft.drivers.rabbitmq import delays
from queuecraft.drivers.rabbitmq.confirms import Parcel
from queuecraft.drivers.rabbitmq.consuming import Arrival
from queuecraft.drivers.rabbitmq.envelope import message_of, parcel
from queuecraft.drivers.rabbitmq.holding import Holding, hold
from queuecraft.drivers.rabbitmq.methods import QueueDeclare
from queuecraft.drivers.rabbitmq.refusals import NOT_FOUND, REFUSED
from queuecraft.drivers.rabbitmq.topology import throwaway
from queuecraft.drivers.rabbitmq.wire import Closed, Wire
from queuecraft.failpoints import failpoint

log: Final = logging.getLogger("queuecraft")

LOOKED_AT: Final = 10_000  # messages in one go; behind so many of others' nobody is found
LOOKED_AT_BYTES: Final = 32 << 20  # of their bodies, the same
BATCH: Final = 100  # sent on in one go: so many may be there twice, if this process dies
TURNS: Final = (0.05, 0.1, 0.2, 0.4, 0.8)  # seconds to wait while another looks through them
LATER: Final = 10.0  # seconds to wait for one who takes longer than that
FAREWELL: Final = 1.0  # seconds that closing waits for an errand

_Home: TypeAlias = tuple[str, str]
"""An exchange, if it is not for one queue alone, and a queue."""
_START: Final = len(delays.to_exchange("", ""))
"""How much of a destination says which queue or exchange it is."""


class Latecomers:
    """Who waits in `qc.undelivered.dlq`, and is sent on when his queue is there.

    An errand beside everything else: who declares a queue does not wait for it, however much is
    kept there. One errand looks for all queues that were declared by this connection. May send one
    message twice, and loses none: each is forgotten where it waited after the broker has it where
    it belongs."""

    def __init__(
        self,
        wire: Wire,
        send: Callable[[Sequence[Parcel]], Awaitable[Sequence[Receipt]]],
        clock: Clock,
    ) -> None:
        self._wire = wire
        self._send = send
        self._clock = clock
        self._homes: dict[str, _Home] = {}
        self._asked = False
        self._pausing = False
        self._errand: asyncio.Task[None] | None = None

    def look_for(self, queue: Queue) -> None:
        """Send on what is for this queue, or an exchange that feeds it, soon."""
        self._homes[delays.to_queue(queue.name)] = "", queue.name
        for binding in queue.bindings:
            exchange = binding.exchange.name
            self._homes[delays.to_exchange(exchange, "")] = exchange, queue.name
        self._asked = True
        if self._errand is None or self._errand.done():
            self._errand = asyncio.get_running_loop().create_task(self._run())

    async def finish(self) -> None:
        """Wait for an errand that is at work, but not for long: one who declares a queue and goes
        is to bring home what a moment suffices for."""
        if self._errand is not None and not self._pausing and self._wire.lost is None:
            await asyncio.wait([self._errand], timeout=FAREWELL)

    async def close(self) -> None:
        """Look no further."""
        if self._errand is not None:
            self._errand.cancel()
            await asyncio.wait([self._errand])

    # -- inside --------------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._asked:
            self._asked = False
            try:
                await self._bring()
            except Exception as error:
                if self._wire.lost is not None or type(error) is ConnectionLost:
                    return  # whoever connects again looks again
                log.warning(
                    "what waits in %s was not sent on, and is looked for again with the next queue "
                    "that is declared: %r",
                    delays.UNDELIVERED_QUEUE,
                    error,
                )

    async def _bring(self) -> None:
        refusals = 0
        while await self._count():
            try:
                # One at a time: what another holds for a moment might be ours.
                async with hold(
                    self._wire,
                    delays.UNDELIVERED_QUEUE,
                    most=LOOKED_AT,
                    size=LOOKED_AT_BYTES,
                ) as held:
                    if not await self._send_on(held):
                        return
                    refusals = 0
            except Closed as error:
                if error.code == NOT_FOUND:  # deleted meanwhile
                    return
                if error.code != REFUSED or "exclusive use" not in error.message:
                    raise
                if refusals == len(TURNS):
                    log.warning(
                        "somebody else consumes from %s: what waits there for a queue of ours is "
                        "sent on when that has ended",
                        delays.UNDELIVERED_QUEUE,
                    )
                await self._pause(TURNS[refusals] if refusals < len(TURNS) else LATER)
                refusals += 1

    async def _pause(self, seconds: float) -> None:
        self._pausing = True
        try:
            await self._clock.sleep(seconds)
        finally:
            self._pausing = False

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

    async def _send_on(self, held: Holding) -> bool:
        """Whether all that is held has gone, so that there may be more behind it."""
        arrivals = list(held.arrivals)
        ours = [
            (arrival, destination, home)
            for arrival in arrivals
            if (destination := delays.destination(arrival.routing_key))
            and (home := self._homes.get(destination[:_START])) is not None
        ]
        gone = 0
        for start in range(0, len(ours), BATCH):
            batch = ours[start : start + BATCH]
            receipts = await self._send([_sent_on(*each) for each in batch])
            failpoint("latecomers.after_send")
            taken = [
                arrival.tag
                for (arrival, _, _), receipt in zip(batch, receipts, strict=True)
                if receipt is ACCEPTED
            ]
            held.check_open()
            held.ack(taken)
            gone += len(taken)
        return 0 < gone == len(arrivals)


def _sent_on(arrival: Arrival, destination: str, home: _Home) -> Parcel:
    """What to send for one that waits."""
    exchange, queue = home
    routing_key = destination[_START:] if exchange else queue
    message, _, redeliveries = message_of(arrival, queue)
    return parcel(message, exchange, routing_key, redeliveries=redeliveries)
