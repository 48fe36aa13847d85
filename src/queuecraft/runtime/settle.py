"""What becomes of deliveries, carried out: acks and moves, in batches, nothing lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from queuecraft.clock import Clock
from queuecraft.codec.attempts import Attempt
from queuecraft.codec.headers import TRACEBACK
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
)
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import AlreadySettled, QueueError
from queuecraft.model.outcome import (
    EXPIRED,
    Acked,
    DeadLettered,
    Dropped,
    Outcome,
    PutOff,
    Released,
    Retried,
)
from queuecraft.runtime.counters import Counters
from queuecraft.runtime.facts import (
    Facts,
    MessageDeadLettered,
    MessageDropped,
    MessageExpired,
    MessageRetried,
    MessagesAcked,
    MessagesSucceeded,
)
from queuecraft.runtime.successor import dead_letter_of, failures, retry_of, without_traceback

__all__ = ["Owner", "Settler", "failures"]

_Ending: TypeAlias = Retried | PutOff | DeadLettered | Dropped

End: TypeAlias = Literal["dead", "here", "elsewhere"]
"""What became of a message that was to be a dead letter: it is one, it is still held, or the
broker has it and gives it to somebody again."""


class Owner(Protocol):
    """Whom a settler works for."""

    name: str

    def session_lost(self, settler: Settler, error: QueueError) -> None:
        """The connection broke while settling."""

    def handled_elsewhere(self, deliveries: Sequence[Delivery]) -> None:
        """These were handled, but the broker will deliver them again."""

    def stuck(self, delivery: Delivery, error: QueueError) -> None:
        """A dead letter could not be written. The message is back in its queue or, where order is
        kept, goes back when what is behind it has."""


class Settler:
    """Settles what one subscription holds. It is void once the connection is lost.

    `acks` is where runners put what they have handled; everything else comes through `settle`.
    Both wait here for the next `flush`, one call for many messages.
    """

    def __init__(
        self,
        subscription: Subscription,
        queue: Queue,
        owner: Owner,
        counters: Counters,
        facts: Facts,
        clock: Clock,
        *,
        ordered: bool = False,
    ) -> None:
        self.subscription = subscription
        self.acks: list[Delivery] = []
        self.durations: list[float] = []
        self.held = 0
        self.void = False
        self.ending: dict[Delivery, asyncio.Future[End]] = {}
        """Where order is kept, what is to be a dead letter, until it has made room."""
        self.flushing = False  # acks, or about to; moves may take longer
        self._queue = queue
        self._owner = owner
        self._counters = counters
        self._facts = facts
        self._clock = clock
        self._ordered = ordered
        # One by one: if what is behind cannot go back, what is before it must not go back alone.
        self._releasing = asyncio.Lock()
        self._unrun: list[Delivery] = []  # acked without a success of their own
        self._moves: list[tuple[Delivery, _Ending, int]] = []

    @property
    def waiting(self) -> bool:
        """Whether there is anything to flush."""
        return bool(self.acks or self._moves or self._unrun)

    def parted(self) -> Settler:
        """A settler for what others have by now: void, though the session goes on."""
        other = Settler(
            self.subscription, self._queue, self._owner, self._counters, self._facts, self._clock
        )
        other.void = True
        return other

    def settle(self, delivery: Delivery, outcome: Outcome, attempt: int) -> None:
        """Remember what is to become of a delivery."""
        if isinstance(outcome, Acked):
            self._unrun.append(delivery)
        elif not isinstance(outcome, Released):
            self._moves.append((delivery, outcome, attempt))
            if self._ordered and not self.void and isinstance(outcome, DeadLettered):
                self.ending[delivery] = asyncio.get_running_loop().create_future()

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Give deliveries back untouched, and what the driver has taken for nobody yet."""
        async with self._releasing:
            if self.void:
                return
            self.held -= len(deliveries)
            try:
                await self.subscription.release(deliveries)
            except ConnectionLost as error:
                self._owner.session_lost(self, error)

    async def flush(self) -> None:
        """Carry out everything decided so far."""
        await self.flush_acks()
        if self._moves:
            moves, self._moves = self._moves, []
            if not self.void:
                # Acks go on meanwhile: a broker that takes no messages needs its queues emptied.
                self.flushing = False
                await self._flush_moves(moves)

    def end(self) -> None:
        """Nothing can be settled any more: the broker has all that is held."""
        self.void = True
        for delivery in self.ending:
            self._ended(delivery, "elsewhere")

    async def close(self) -> None:
        """Stop receiving; what is still held goes back by itself."""
        if not self.void:
            self.end()
            try:
                await self.subscription.close()
            except ConnectionLost as error:
                self._facts.log.debug("closing the subscription of %s: %s", self._queue.name, error)

    # -- acks ----------------------------------------------------------------------------------

    async def flush_acks(self) -> None:
        """Carry out the acks alone: they do not have to wait for moves."""
        if not (self.acks or self._unrun):
            return
        acks = self.acks.copy()
        durations = self.durations.copy()
        self.acks.clear()  # runners hold on to the lists themselves
        self.durations.clear()
        if acks:
            counters = self._counters
            counters.succeeded += len(acks)
            counters.busy_seconds += sum(durations)
            counters.longest_seconds = max(counters.longest_seconds, *durations)
            counters.last_success = self._clock.now()
            if self._facts.wants(MessagesSucceeded):
                self._facts.emit(
                    MessagesSucceeded(worker=self._owner.name, deliveries=acks, durations=durations)
                )
        acks += self._unrun
        self._unrun.clear()
        if self.void:
            self._owner.handled_elsewhere(acks)
            return
        try:
            stale = await self.subscription.ack(acks)
        except ConnectionLost as error:
            self._owner.handled_elsewhere(acks)
            self._owner.session_lost(self, error)
            return
        except Exception:  # the session ends, and they come again
            self._owner.handled_elsewhere(acks)
            raise
        failpoint("ack.after")
        self.held -= len(acks)
        if stale:
            self._counters.stale += len(stale)
            self._owner.handled_elsewhere(stale)
        if self._facts.wants(MessagesAcked):
            self._facts.emit(MessagesAcked(worker=self._owner.name, deliveries=acks))

    # -- moves ---------------------------------------------------------------------------------

    async def _flush_moves(self, endings: Sequence[tuple[Delivery, _Ending, int]]) -> None:
        moves: list[tuple[Move, tuple[Delivery, _Ending, int]]] = []
        for delivery, outcome, attempt in endings:
            if isinstance(outcome, Dropped):
                self._unrun.append(delivery)
                self._report(delivery, outcome, attempt)
            else:
                to = self._target(delivery, outcome, attempt)
                moves.append((Move(delivery, to), (delivery, outcome, attempt)))
        for (move, (delivery, outcome, attempt)), receipt in zip(
            moves, await self._move([move for move, _ in moves]), strict=True
        ):
            await self._moved(move, delivery, outcome, attempt, receipt)
        await self.flush_acks()

    async def _move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        if not moves:
            return ()
        failpoint("move.before")
        try:
            return await self.subscription.move(moves)
        except ConnectionLost as error:
            return [Unknown(error)] * len(moves)
        except QueueError as error:  # nothing was attempted: one of them is to blame
            if len(moves) == 1:
                return [Rejected(error)]
            return [receipt for each in moves for receipt in await self._move([each])]

    async def _moved(
        self, move: Move, delivery: Delivery, outcome: _Ending, attempt: int, receipt: Receipt
    ) -> None:
        if receipt is ACCEPTED:
            self.held -= 1
            self._report(delivery, outcome, attempt)
            self._ended(delivery, "dead")
        elif isinstance(receipt, Unknown):
            # Not acked, so it is still in the queue: the broker delivers it again. Also where the
            # connection seems to stand: given back on it, the message would come round at once,
            # and its failures would never be counted.
            self._owner.session_lost(self, _as_lost(receipt.error))
        elif isinstance(receipt, Rejected):
            if isinstance(receipt.error, AlreadySettled):
                self.held -= 1
                self._counters.stale += 1
                self._ended(delivery, "elsewhere")
            elif isinstance(outcome, Retried | PutOff):
                # It cannot wait for another try here, so it is kept where a person sees it.
                ending = DeadLettered(outcome.reason, outcome.failure)
                await self._end(delivery, ending, attempt, receipt.error)
            elif TRACEBACK in move.to.headers:
                bare = without_traceback(move.to)
                (again,) = await self._move([Move(delivery, bare)])
                await self._moved(Move(delivery, bare), delivery, outcome, attempt, again)
            else:
                await self._keep(delivery, receipt.error)

    async def _end(
        self, delivery: Delivery, outcome: DeadLettered, attempt: int, error: QueueError
    ) -> None:
        if self._queue.dead_letters is None:
            await self._keep(delivery, error)
            return
        move = Move(delivery, self._target(delivery, outcome, attempt))
        (receipt,) = await self._move([move])
        await self._moved(move, delivery, outcome, attempt, receipt)

    async def _keep(self, delivery: Delivery, error: QueueError) -> None:
        """Nothing can be written: the message stays, and the queue waits for a person."""
        if not self._ordered:
            await self.release([delivery])
        self._owner.stuck(delivery, error)
        self._ended(delivery, "here")

    def _ended(self, delivery: Delivery, end: End) -> None:
        ending = self.ending.get(delivery)
        if ending is not None and not ending.done():
            ending.set_result(end)

    def _target(
        self, delivery: Delivery, outcome: Retried | PutOff | DeadLettered, attempt: int
    ) -> Outgoing:
        now = self._clock.now()
        if isinstance(outcome, Retried):
            failure = outcome.failure
            kind, text = (failure.error_type, failure.error) if failure else ("", outcome.reason)
            failed = Attempt.of(now, attempt, kind, text)
            return retry_of(delivery, attempt, now + outcome.delay, failed)
        if isinstance(outcome, PutOff):
            return retry_of(delivery, attempt, now + outcome.delay)
        target = self._queue.dead_letters
        if target is None:
            raise AssertionError("a dead letter without a place to keep it")
        return dead_letter_of(delivery, target, attempt, outcome.reason, outcome.failure, now)

    # -- telling -------------------------------------------------------------------------------

    def _report(self, delivery: Delivery, outcome: _Ending, attempt: int) -> None:
        if isinstance(outcome, PutOff):
            return  # nothing has happened to it
        counters, facts, worker = self._counters, self._facts, self._owner.name
        if outcome.reason == EXPIRED and not isinstance(outcome, Retried):
            counters.expired += 1
            if facts.wants(MessageExpired):
                facts.emit(MessageExpired(worker=worker, delivery=delivery))
        if isinstance(outcome, Retried):
            counters.retried += 1
            if facts.wants(MessageRetried):
                facts.emit(
                    MessageRetried(
                        worker=worker,
                        delivery=delivery,
                        attempt=attempt,
                        reason=outcome.reason,
                        delay=outcome.delay,
                        failure=outcome.failure,
                    )
                )
            return
        dead = isinstance(outcome, DeadLettered)
        if dead:
            counters.dead_lettered += 1
        else:
            counters.dropped += 1
        kind: Callable[..., MessageDeadLettered | MessageDropped] = (
            MessageDeadLettered if dead else MessageDropped
        )
        facts.emit(
            kind(
                worker=worker,
                delivery=delivery,
                attempt=attempt,
                reason=outcome.reason,
                failure=outcome.failure,
            )
        )


def _as_lost(error: QueueError) -> ConnectionLost:
    if isinstance(error, ConnectionLost):
        return error
    lost = ConnectionLost(f"the broker gave no answer: {error}", operation="move")
    lost.__cause__ = error
    return lost
