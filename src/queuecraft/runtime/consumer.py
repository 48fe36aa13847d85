"""Consuming a queue: receiving, handling, settling, and what goes wrong with each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from queuecraft.clock import Clock
from queuecraft.drivers.base import ConnectionLost, Delivery, Queue
from queuecraft.model.errors import QueueError
from queuecraft.model.outcome import (
    POSTPONED,
    WAITS_HERE,
    Acked,
    Outcome,
    Postponed,
    PutOff,
    Retried,
)
from queuecraft.model.policy import Policy
from queuecraft.model.printable import printable
from queuecraft.runtime.admission import Admission
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.counters import Counters
from queuecraft.runtime.crew import LAST_WORDS, Crew
from queuecraft.runtime.deadlines import Deadlines
from queuecraft.runtime.departures import Departures
from queuecraft.runtime.errands import Errands
from queuecraft.runtime.facts import Facts
from queuecraft.runtime.handler import Call
from queuecraft.runtime.intake import Intake
from queuecraft.runtime.options import policy_for
from queuecraft.runtime.orphans import Orphans
from queuecraft.runtime.router import Router
from queuecraft.runtime.runner import Runner
from queuecraft.runtime.settle import Settler, failures
from queuecraft.runtime.slot import Slot
from queuecraft.runtime.tally import Tally

HELD = 1200.0  # seconds it may wait here again and again: RabbitMQ takes back after 1800
ALONE_WITHIN = 30.0  # seconds a message waits for its neighbours to end; one may never do so


class Consumer:
    """Consumes one queue until stopped, through lost connections and failing handlers.

    There is no task per message. The runner that finds nothing to do fetches for all; the others
    wait, and are woken one by one while there is more to take than runners at work.
    """

    def __init__(
        self,
        name: str,
        queue: Queue,
        policy: Policy,
        router: Router[Call],
        connection: Connection,
        counters: Counters,
        facts: Facts,
        clock: Clock,
        *,
        concurrency: int,
        prefetch: int,
        ordered: bool,
        threaded: frozenset[Call],
        flush_publishes: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self.name = name
        self.queue = queue
        self.policy = policy
        self.log: logging.Logger = facts.log
        self.orphans = Orphans(clock)
        self.deadlines = Deadlines(self, clock)
        self.errands = Errands()
        self.intake = Intake(
            queue, connection, counters, facts, clock, self, prefetch=prefetch, ordered=ordered
        )
        self.departures = Departures(self)
        self.wary = False  # after a lost connection every delivery is looked at closely
        self.tally = Tally(name, queue.name, counters, facts, clock)
        traits = connection.traits
        self.admission = Admission(self, router, clock, counted=traits.counts_redeliveries)
        self._runner = Runner(
            self, router.known, self.admission, clock, inline=traits.inline, flush_at=prefetch // 2
        )
        self.crew = Crew(name, concurrency, self._runner.run, self._on_fall)
        self.clock = clock
        self._threaded = threaded
        self._flush_publishes = flush_publishes

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Set the runners to work."""
        for slot in self.crew.slots:
            self.crew.begin(slot)

    @property
    def slots(self) -> Sequence[Slot]:
        """What each runner is doing."""
        return self.crew.slots

    def slot_of(self, delivery: Delivery) -> Slot | None:
        """Where a delivery is being handled, alone or in a batch."""
        for slot in self.slots:
            if slot.delivery is delivery:
                return slot
            if slot.rest and (other := slot.rest.get(delivery)) is not None:
                return other
        return None

    @property
    def _at_work(self) -> list[tuple[Slot, Delivery]]:
        """What is being handled, each delivery of a batch for itself."""
        return [
            (each, each.delivery)
            for slot in self.slots
            for each in slot.all
            if each.delivery is not None
        ]

    @property
    def _begun(self) -> list[Delivery]:
        """What is being handled, or leaves only once it is a dead letter."""
        return [*(delivery for _, delivery in self._at_work), *self.departures.waiting]

    @property
    def paused(self) -> str | None:
        """Why nothing is received, if so."""
        return self.intake.paused

    @property
    def held(self) -> int:
        """Deliveries received and not yet settled."""
        settler = self.intake.settler
        return 0 if settler is None else settler.held

    def pause(self, reason: str) -> None:
        """Take no more; what runs goes on, what has not begun goes back to the queue. Paused
        already, it stands still for this reason from now on."""
        if self.paused is None or self.intake.stranded:
            self.intake.pause(reason)
            _ = self.give_back()
            self.tally.paused(reason)
        elif self.paused != reason:
            self.intake.paused = reason
            self.tally.paused(reason)

    def resume(self) -> None:
        """Take messages again."""
        if self.paused is not None and not self.intake.closing:
            self.intake.resume()
            for slot in self.crew.fallen:
                self._begin_again(slot)
            self.tally.resumed()

    def close(self) -> None:
        """Stop receiving, and give back what has not begun."""
        self.intake.close()
        _ = self.give_back()

    async def stop(self, *, drain: bool, requeue: bool, timeout: float) -> None:
        """Once closed: wait for what runs, tell the broker, and let go."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        await self.crew.dismiss(wait=timeout if drain else 0)
        left = 0.0 if self.crew.hurried else deadline - loop.time()
        settling = asyncio.ensure_future(self._settle_all(requeue=requeue))
        await asyncio.wait([settling], timeout=max(LAST_WORDS, left))
        if not settling.done():
            self.log.warning("%s: the broker does not answer; what is held comes back", self.name)
            settling.cancel()
            self.errands.cancel()
        self.deadlines.close()
        self._runner.close()
        if (settler := self.intake.settler) is not None:
            # What handlers published first, so that nothing comes again before it has gone out.
            for work, wait in ((self._flush_publishes, left), (settler.close, 0.0)):
                task = self.errands.start(work())
                await asyncio.wait([task], timeout=max(LAST_WORDS, wait))
                task.cancel()

    async def _settle_all(self, *, requeue: bool) -> None:
        """Tell the broker, in the end, what became of everything."""
        count = sum(any(each.open for each in slot.all) for slot in self.slots)
        if count:
            what = "a handler" if count == 1 else f"{count} handlers"
            self.log.warning(
                "%s stopped before %s had returned; what they were at comes again", self.name, what
            )
        settler = self.intake.settler
        if settler is None:
            return
        await self.errands.done()  # what has not begun goes back before what has
        if requeue:
            # A thread cannot be stopped: its message stays ours until the connection closes.
            mine = [
                delivery
                for slot, delivery in self._at_work
                if slot.open and slot.settler is settler and slot.call not in self._threaded
            ]
            await self.release(settler, mine)
        await self.give_back()
        await self.errands.done()
        await self.flush_now(settler)
        # All of that has its end by now, which is told in the next turns of the loop.
        while self.departures.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await self.errands.done()

    # -- runners that fall ---------------------------------------------------------------------

    def _on_fall(self, error: BaseException | None) -> None:
        """A runner has ended though nobody has asked for it: a person has to know."""
        what = "was cancelled" if error is None else f"failed: {error!r}"
        reason = f"a runner {what}; resume the worker to go on"
        self.log.error("%s: %s", self.name, reason, exc_info=error)
        if self.paused is None:
            self.intake.pause(reason)
            _ = self.give_back()
            self.tally.paused(reason)

    def _begin_again(self, slot: Slot) -> None:
        """In place of a fallen runner; what it held, and had not settled, is handled once more."""
        for each in reversed(slot.all):
            if each.delivery is None or each.settler is None:
                continue
            if not each.open or each.settler is not self.intake.settler:
                self.departures.depart([each])
            elif each.follows and self.intake.lanes is not None:
                self.intake.lanes.rejoin(each.delivery)
            else:
                self.intake.buffer.appendleft(each.delivery)
        slot.forget()
        self.intake.unclaim(slot)
        self.crew.begin(slot)

    def abandon(self, slot: Slot) -> None:
        """A handler goes on in spite of its cancellation: let it, and put another in its place."""
        assert slot.delivery is not None
        assert slot.settler is not None
        self.log.error(
            "handler of %s in %s ignores its cancellation; it is left alone, and another runner "
            "takes its place",
            printable(slot.delivery.sent.id),
            self.queue.name,
        )
        for each in slot.rest:
            self.deadlines.ended(each)
        self.departures.depart(slot.all)
        slot.rest = {}
        self.crew.replace(slot)
        self.intake.unclaim(slot)

    # -- deciding ------------------------------------------------------------------------------

    def attempt(self, delivery: Delivery) -> int:
        """The number of this delivery, counting failures only."""
        lanes = self.intake.lanes
        here = 0 if lanes is None else lanes.failures(delivery)
        return failures(delivery) + here + 1

    def policy_of(self, delivery: Delivery) -> Policy:
        """The policy for one message, with what its publisher asked for."""
        headers = delivery.sent.headers
        return policy_for(headers, self.policy) if headers else self.policy

    def succeed(self, delivery: Delivery, settler: Settler) -> None:
        """A handler has acknowledged its message by hand."""
        self.tally.succeeded(delivery)
        if settler.void:
            self.orphans.finished(delivery)
        else:
            settler.settle(delivery, Acked(), 1)

    def fail(
        self,
        delivery: Delivery,
        settler: Settler,
        outcome: Outcome,
        attempt: int,
        took: float | None = None,
    ) -> float | None:
        """Count a failure and settle it. A message that stays in its own lane is not settled:
        the answer is when it is to be tried again."""
        self.tally.failed(delivery, outcome, attempt, took)
        if self.intake.lanes is None or not isinstance(outcome, Retried):
            settler.settle(delivery, outcome, attempt)
            return None
        self.tally.retried(delivery, outcome, attempt)
        return self.clock.monotonic() + outcome.delay

    def postpone(self, delivery: Delivery, settler: Settler, asked: Postponed) -> None:
        """A message is to come again later. For a while it waits here, for longer in its queue,
        unless others have to wait behind it."""
        self.tally.postponed(delivery, asked)
        intake = self.intake
        again = self.clock.monotonic() + asked.seconds
        if intake.lanes is not None:
            intake.lanes.postponed(delivery, again)
        if intake.stopped:
            self.departures.hand_back(delivery, settler)
        elif intake.lanes is None and (
            asked.seconds > WAITS_HERE or intake.waited(delivery) > HELD
        ):
            failed = self.attempt(delivery) - 1
            settler.settle(delivery, PutOff(asked.seconds, POSTPONED), failed)
        else:
            intake.wait(delivery, again)

    def time_out(
        self, delivery: Delivery, settler: Settler, outcome: Outcome, attempt: int
    ) -> float | None:
        """An ack timeout ends a delivery, whatever its handler still does."""
        self.tally.timed_out()
        again = self.fail(delivery, settler, outcome, attempt)
        _ = self.errands.start(self.flush_now(settler))
        return again

    def time_out_lost(self, delivery: Delivery) -> None:
        """The same on a lost connection: the broker has it again, and delivers it again."""
        self.tally.timed_out()
        self.log.warning(
            "handler of %s in %s has not returned in time, and its connection is lost",
            printable(delivery.sent.id),
            self.queue.name,
        )

    async def be_alone(self, slot: Slot, settler: Settler) -> bool:
        """Give back what waits, and wait for what runs and for what has to be told to the broker,
        within bounds; False when it is not to begin now."""
        intake = self.intake
        if not intake.claim(slot):
            return False
        until = self.clock.monotonic() + ALONE_WITHIN
        _ = self.give_back()
        settled: asyncio.Future[None] | None = None
        try:
            while True:
                if settler.waiting:
                    _ = self.errands.start(self.flush_now(settler))
                if intake.stopped or settler.void or slot.settler is not settler:
                    return False
                left = until - self.clock.monotonic()
                others = [other for other in self.slots if other is not slot]
                at_rest = all(other.delivery is None for other in others)
                if left <= 0 or (at_rest and not self.errands.busy):
                    return True
                # Not to be waited for without end: a broker that is full takes no moves before its
                # queues are emptied, and here is nobody else who would do that.
                if self.errands.busy and (settled is None or settled.done()):
                    settled = asyncio.ensure_future(self.errands.done())
                    settled.add_done_callback(intake.hush)
                await intake.quiet(left)
        finally:
            if settled is not None:
                settled.cancel()

    # -- settling ------------------------------------------------------------------------------

    def give_back(self) -> asyncio.Task[None]:
        """Release everything that no handler has begun on."""
        rest = self.intake.take_back(self._begun)
        return self.send_back(self.intake.settler, rest)

    def send_back(
        self, settler: Settler | None, deliveries: Sequence[Delivery]
    ) -> asyncio.Task[None]:
        """Release some, and let those go on who wait for that."""
        return self.errands.start(self._return(settler, deliveries))

    async def _return(self, settler: Settler | None, rest: Sequence[Delivery]) -> None:
        try:
            await self.release(settler, rest)
        finally:
            self.intake.returned()

    async def release(self, settler: Settler | None, deliveries: Sequence[Delivery]) -> None:
        """Give deliveries back untouched. Also none: the driver may hold what nobody has received,
        and nobody is going to for a while. At the end its `close` sees to that."""
        if settler is not None and (deliveries or not self.intake.closing):
            try:
                await settler.release(deliveries)
            except Exception as error:
                self._start_afresh(settler, error)

    async def flush_acks(self, settler: Settler) -> None:
        """Tell the broker what is acknowledged: there is room for more then, whatever moves are
        waited for."""
        try:
            await settler.flush_acks()
        except Exception as error:
            self._start_afresh(settler, error)
        if self.intake.idle:
            self.intake.wake()

    async def flush_now(self, settler: Settler) -> None:
        """Tell the broker everything that was decided so far."""
        settler.flushing = True
        try:
            if settler.acks:
                await self.flush_acks(settler)
            await settler.flush()
            while settler.waiting and not settler.void:
                await settler.flush()
        except Exception as error:
            self._start_afresh(settler, error)
        finally:
            settler.flushing = False
        if self.intake.idle:
            self.intake.wake()

    def _start_afresh(self, settler: Settler, error: Exception) -> None:
        """A driver breaks its contract: what it has done of our bidding is anybody's guess."""
        self.log.error("settling in %s failed", self.queue.name, exc_info=error)
        self.session_lost(settler, ConnectionLost(f"settling failed: {error!r}"))

    # -- what others are given -----------------------------------------------------------------

    def leaving(self, settler: Settler, deliveries: Sequence[Delivery]) -> None:
        """Others want these: they may have at once what no handler has begun on, and a batch with
        some of them does not wait for more."""
        if settler.void:
            return
        gone = set(deliveries)
        if rest := self.intake.drop(gone.difference(self._begun)):
            self.intake.returning()  # and once it is back, whoever had no room for more is woken
            _ = self.send_back(settler, rest)
        for slot in self.slots:
            if slot.filling and any(each.delivery in gone for each in slot.all):
                slot.filling = False
                self.intake.stir()

    def left(self, settler: Settler, deliveries: Sequence[Delivery]) -> None:
        """Others have these by now. What runs goes on, and counts if it comes again here."""
        if settler.void:
            return
        self.leaving(settler, deliveries)
        gone, parted = set(deliveries), settler.parted()
        for slot, delivery in self._at_work:
            # What has its end already finds out when the broker is told.
            if delivery in gone and (slot.open or slot.again is not None):
                slot.settler = parted
                settler.held -= 1
                self.wary = True
                self.orphans.started(delivery)
        for turn in self.departures.waiting.values():
            if turn.delivery in gone and turn.again is not None:
                turn.settler = parted
                settler.held -= 1
                self.wary = True
                self.orphans.started(turn.delivery)
        if self.intake.idle:
            self.intake.wake()

    # -- what settlers say ---------------------------------------------------------------------

    def session_lost(self, settler: Settler, error: QueueError) -> None:
        """The connection broke: what was held is void, and the broker delivers it again."""
        if not settler.void:
            self.wary = True
            for slot, delivery in self._at_work:
                if slot.settler is settler:
                    self.orphans.started(delivery)
            # What was handled and not yet acked is counted, and remembered as handled.
            _ = self.errands.start(self.flush_now(settler))
            self.intake.end(settler, [delivery for _, delivery in self._at_work])
            self.intake.lost(error)

    def handled_elsewhere(self, deliveries: Sequence[Delivery]) -> None:
        """Handled here, but the ack came too late: not to be run again here."""
        self.wary = True
        for delivery in deliveries:
            self.orphans.finished(delivery)

    def stuck(self, delivery: Delivery, error: QueueError) -> None:
        """A dead letter cannot be written: better to stop than to lose it."""
        self.log.error(
            "message %s of %s cannot be dead-lettered: %s. The queue is paused; mend this, then "
            "resume the worker",
            printable(delivery.sent.id),
            self.queue.name,
            printable(str(error)),
        )
        self.pause(f"a dead letter cannot be written: {error}")
