"""A consumer of a RabbitMQ queue, and the deliveries it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from queuecraft.clock import Clock
from queuecraft.codec.headers import strip_broker_owned
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
from queuecraft.drivers.rabbitmq.consuming import Arrival, Consuming
from queuecraft.drivers.rabbitmq.envelope import message_of, parcel
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import QueueError

if TYPE_CHECKING:
    from queuecraft.drivers.rabbitmq.driver import RabbitDriver

SENT_AGAIN_WITHIN: Final = 5.0  # seconds the broker has for it; it may be short of memory

_Sent: TypeAlias = tuple[int, Outgoing, int]
"""The tag of a delivery, its message, and how often that was delivered before."""


class RabbitSubscription(Subscription):
    """One consumer on a channel of its own. An ack is not answered by the broker: what matters is
    that none is ever sent on a channel that is not the one the message came by."""

    def __init__(
        self,
        driver: RabbitDriver,
        queue: Queue,
        channel: Consuming,
        clock: Clock,
        *,
        counting: bool,
        keeping: bool,
    ) -> None:
        self.queue = queue
        self._driver = driver
        self._channel = channel
        self._clock = clock
        self._counting = counting  # deliveries, because the broker does not
        self._keeping = keeping  # what is given back, because the consumer must not end
        self._ordered = queue.single_active and not queue.name.endswith(".dlq")
        self._begun = False
        self._deaths: int | None = None  # of consumers before this one; None: not known
        self._held: dict[Delivery, None] = {}
        self._ready: list[Delivery] = []
        self._errands: set[asyncio.Task[None]] = set()
        self._failed: BaseException | None = None
        self._closed = False

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        channel = self._channel
        deadline = self._clock.monotonic() + wait
        while True:
            while self._errands:  # which go on if this is cancelled
                await asyncio.wait(self._errands)
            self._check_errands()
            self._check()
            if channel.stopped:
                self._start(channel.resume())
                continue
            self._unpack(limit)
            if self._errands:
                continue
            if self._ready or wait <= 0:
                taken = self._ready[:limit]
                del self._ready[:limit]
                return taken
            try:
                async with asyncio.timeout(wait):
                    await channel.arrived()
            except TimeoutError:
                return []
            wait = deadline - self._clock.monotonic()

    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        failpoint("ack.before")
        ours, stale = self._ours(deliveries)
        if ours and self._is_ended():
            return deliveries
        if ours:
            self._channel.check_open()
            self._channel.ack([each.token for each in ours])
            for delivery in ours:
                del self._held[delivery]
        return stale

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        while self._errands:  # what they cannot send again is handed over, and goes back as well
            await asyncio.wait(self._errands)
        ours, _ = self._ours(deliveries)
        if (ours or not deliveries) and not self._is_ended():
            self._channel.check_open()
            for delivery in ours:
                del self._held[delivery]
            if self._keeping:
                self._keep(ours)
            else:
                await self._run(self._give_up(ours))
                if not self._is_ended():
                    self._check_errands()

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        return await self._driver.send(messages)

    async def move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        """Send, then ack, what is held: the rest is in its queue again, or was moved before."""
        ours: dict[Delivery, Move] = {}
        if not self._is_ended():
            for move in moves:
                if move.delivery in self._held:
                    ours.setdefault(move.delivery, move)
        sent = await super().move(tuple(ours.values())) if ours else ()
        answers = dict(zip(ours, sent, strict=True))
        return [answers.pop(m.delivery, Rejected(stale(m.delivery, "rabbitmq"))) for m in moves]

    async def close(self) -> None:
        self._driver.forget(self)
        self._closed = True
        try:
            while self._errands:  # what they have sent again is still to be acked
                await asyncio.wait(self._errands)
            with suppress(QueueError):  # the broker puts all of it back by itself
                if not self.queue.single_active:  # else the next would begin before this has ended
                    await self._return_unseen()
                elif self._deaths is not None and self._is_unburdened():
                    await self._driver.crashes(self.queue.name).end()
        finally:  # also of one that is cancelled: the broker would go on delivering to nobody
            self._held.clear()
            await self._channel.close()

    # -- inside --------------------------------------------------------------------------------

    def _is_ended(self) -> bool:
        """Whether this channel alone is closed: all it held is in the queue again."""
        return self._channel.lost is not None and self._channel.wire.lost is None

    def _is_unburdened(self) -> bool:
        """Whether all that was received was settled or given back."""
        return self._channel.lost is None and len(self._held) == len(self._ready)

    def _check_errands(self) -> None:
        """Raise if what was done here has failed: nobody knows who has the messages it was for."""
        if self._failed is not None:
            if self._is_ended():  # that is why
                self._check()
            raise self._failed.with_traceback(None)

    def _check(self) -> None:
        """Raise if nothing more can come. A queue that was deleted, or a handler that took too
        long, is no reason to break the connection that all others use."""
        try:
            self._channel.check()
        except ConnectionLost as error:
            if self._closed or self._channel.wire.lost is not None:
                raise
            raise QueueError(
                error.message, broker="rabbitmq", operation="receive", queue=self.queue.name
            ) from error

    async def _return_unseen(self) -> None:
        """What nobody was given is not held against it: closing the channel would mark it."""
        if self._channel.lost is None:
            await self._channel.stop()
            await self._return(self._unseen())

    def _unpack(self, limit: int) -> None:
        arrivals = self._channel.arrivals
        if arrivals and self._ordered and not self._begun:
            self._begun = True
            self._start(self._begin(arrivals[0]))
            return
        again: list[_Sent] = []
        while arrivals and len(self._ready) < limit:
            sent, uncounted = self._look_at(arrivals.popleft())
            if uncounted:
                again.append(sent)
            else:
                self._hand_over(sent)
        if again:
            self._start(self._count(again))

    def _look_at(self, arrival: Arrival) -> tuple[_Sent, bool]:
        """An arrival, how often it was delivered before, and whether its headers do not know."""
        message, counted, noted = message_of(arrival, self.queue.name)
        if self._ordered:
            deaths = self._seen(arrival.tag, counted) if arrival.redelivered else 0
            return (arrival.tag, message, noted + deaths), False
        if counted is not None:
            return (arrival.tag, message, noted + counted), False
        uncounted = (
            arrival.redelivered and self._counting and not self._driver.was_released(message.id)
        )
        return (arrival.tag, message, noted + uncounted), uncounted

    def _seen(self, tag: int, counted: int | None) -> int:
        """How many deaths of consumers are held against a message that came before. All that one
        held have seen it die, whichever of them has killed it. Suspects are handled one by one, so
        it was the first; the others may only have waited, and are to be tried, not condemned."""
        deaths = self._deaths
        if deaths is None:
            deaths = 1 if counted is None else counted
        limit = self.queue.policy.max_redeliveries
        return deaths if tag == 1 or limit is None else min(deaths, limit)

    def _hand_over(self, sent: _Sent) -> None:
        tag, message, redeliveries = sent
        delivery = Delivery(message, self.queue.name, redeliveries, tag)
        self._held[delivery] = None
        self._ready.append(delivery)

    async def _count(self, again: Sequence[_Sent]) -> None:
        """A classic queue tells only that a message was delivered before, not how often: it is
        sent to its own queue once more with the count in a header, and that one is handled. Where
        the broker does not take it, it is handled as it is: a broker that is short of memory needs
        its queues emptied, and a queue that is full as well."""
        for sent in await self._send_again(again):
            self._hand_over(sent)

    async def _begin(self, first: Arrival) -> None:
        """Where order is kept nothing can be sent again, so deaths are counted beside the queue. If
        the broker does not let us, what it tells itself has to do."""
        if self._driver.blocked:
            return
        message, _, _ = message_of(first, self.queue.name)
        with suppress(QueueError, TimeoutError):
            async with asyncio.timeout(SENT_AGAIN_WITHIN):
                crashes = self._driver.crashes(self.queue.name)
                self._deaths = await crashes.begin(message, redelivered=first.redelivered)

    def _keep(self, released: Sequence[Delivery]) -> None:
        """Give back to ourselves. Where one consumer has all, the broker would give it to nobody
        else; a quorum queue without a delivery limit would put it at its end, and count it as
        delivered once more. An auto-delete queue would go with all that is in it when its last
        consumer is ended. So it stays with us, in its place, until it is received again, or until
        the channel is closed: that puts everything back at once, in order."""
        again = [
            Delivery(each.sent, each.queue, each.redeliveries, each.token) for each in released
        ]
        self._held.update(dict.fromkeys(again))
        self._ready = sorted([*self._ready, *again], key=_tag)
        self._channel.wake()

    async def _give_up(self, released: Sequence[Delivery]) -> None:
        """Give back. The broker would give it to us again at once: so this ends the consumer until
        the next `receive`."""
        rest = [_sent(each) for each in released]
        await self._channel.stop()
        # What has come since is behind it in the queue, and nobody may ask for it for long.
        rest += self._unseen()
        # What is still held may kill us, as it may have killed others: nothing is to die with it.
        dangerous = any(each.redeliveries for each in self._held)
        await (self._return_anew(rest) if dangerous else self._return(rest))

    def _unseen(self) -> list[_Sent]:
        """Take what has come and nobody was given."""
        unseen = [_sent(each) for each in self._ready]
        for delivery in self._ready:
            del self._held[delivery]
        self._ready.clear()
        arrivals = self._channel.arrivals
        unseen += [self._look_at(arrivals.popleft())[0] for _ in range(len(arrivals))]
        return unseen

    async def _return(self, sent: Sequence[_Sent]) -> None:
        """Put back, and what has been redelivered before anew: the broker, or whoever gets it next,
        would take a plain return for one more crash, and condemn in the end what was never run."""
        self._put_back([each for each in sent if not each[2]])
        await self._return_anew([each for each in sent if each[2]])

    async def _return_anew(self, sent: Sequence[_Sent]) -> None:
        """Send to the queue once more, with the count it had."""
        if sent:
            self._put_back(await self._send_again(sent))

    def _put_back(self, sent: Sequence[_Sent]) -> None:
        """Give back, each to its place."""
        self._driver.released(message.id for _, message, _ in sent)
        self._channel.give_back([tag for tag, _, _ in sent])

    async def _send_again(self, sent: Sequence[_Sent]) -> Sequence[_Sent]:
        """Send to the same queue with the count in a header, and ack; those it was in vain for."""
        if self._driver.blocked:
            return sent
        parcels = [
            parcel(_unmarked(message), "", self.queue.name, redeliveries=count)
            for _, message, count in sent
        ]
        try:
            async with asyncio.timeout(SENT_AGAIN_WITHIN):
                receipts = await self._driver.send_parcels(parcels)
        except TimeoutError:
            return sent
        failpoint("again.after_send")
        taken: list[int] = []
        refused: list[_Sent] = []
        lost: QueueError | None = None
        for each, receipt in zip(sent, receipts, strict=True):
            if receipt is ACCEPTED:
                taken.append(each[0])
            elif isinstance(receipt, Unknown):
                lost = receipt.error
            else:
                refused.append(each)
        self._channel.check_open()
        self._channel.ack(taken)
        await asyncio.sleep(0)  # written, before the other is handled: it may kill this process
        if lost is not None:
            raise lost
        return refused

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something to its end, even if nobody waits for it any more. Nothing is handed over
        before: what is sent again must not be handled while the message it stands for is there."""
        errand = asyncio.get_running_loop().create_task(work)
        self._errands.add(errand)
        errand.add_done_callback(self._ended)

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._start(work)
        await asyncio.wait(self._errands)

    def _ended(self, errand: asyncio.Task[None]) -> None:
        self._errands.discard(errand)
        if not errand.cancelled() and (error := errand.exception()) is not None:
            self._failed = error
        self._channel.wake()  # a release can come while somebody waits for an arrival

    def _ours(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        ours: list[Delivery] = []
        stale: list[Delivery] = []
        for delivery in dict.fromkeys(deliveries):
            (ours if delivery in self._held else stale).append(delivery)
        return ours, stale


def _tag(delivery: Delivery) -> int:
    tag: int = delivery.token
    return tag


def _sent(delivery: Delivery) -> _Sent:
    return delivery.token, delivery.sent, delivery.redeliveries


def _unmarked(message: Outgoing) -> Outgoing:
    """Without the broker's notes: sent back to it, they may make it drop the message as one that
    goes round in circles."""
    headers = strip_broker_owned(message.headers)
    return msgspec.structs.replace(message, headers=headers)
