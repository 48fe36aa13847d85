"""Handling: a fixed set of runners, each taking the next message when it is free."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from time import perf_counter
from typing import Any

from queuecraft.clock import Clock, Timer
from queuecraft.drivers.base import ConnectionLost, Delivery, Queue
from queuecraft.model.errors import QueueError
from queuecraft.model.outcome import Acked, Failure, Outcome, Retried, after_error
from queuecraft.model.policy import Policy
from queuecraft.runtime.admission import Admission
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.counters import Counters
from queuecraft.runtime.deadlines import Deadlines
from queuecraft.runtime.facts import (
    Facts,
    MessageFailed,
    MessageRetried,
    MessagesSucceeded,
    WorkerPaused,
    WorkerResumed,
)
from queuecraft.runtime.handler import Call
from queuecraft.runtime.intake import Intake
from queuecraft.runtime.options import policy_for
from queuecraft.runtime.orphans import Orphans
from queuecraft.runtime.router import Router
from queuecraft.runtime.settle import Settler, failures
from queuecraft.runtime.slot import Slot

SLICE = 0.002  # seconds of handling without giving up the loop
LINGER = 0.005  # seconds an ack may wait for company while handlers run


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
        threaded: frozenset[Call] = frozenset(),
    ) -> None:
        self.name = name
        self.queue = queue
        self.policy = policy
        self.slots = [Slot() for _ in range(concurrency)]
        self.orphans = Orphans()
        self.deadlines = Deadlines(self, clock)
        self.intake = Intake(
            queue, connection, counters, facts, clock, self, prefetch=prefetch, ordered=ordered
        )
        self._admission = Admission(self, router, clock)
        self._known = router.known
        self._inline = connection.traits.inline
        self._counters = counters
        self._facts = facts
        self._clock = clock
        self._threaded = threaded
        self._flush_at = max(1, prefetch // 2)
        self._forced = asyncio.Event()
        self._wary = False  # after a lost connection every delivery is looked at closely
        self._linger: Timer | None = None
        self._errands: set[asyncio.Task[None]] = set()
        self._retries: set[Timer] = set()

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Set the runners to work."""
        loop = asyncio.get_running_loop()
        for number, slot in enumerate(self.slots, 1):
            slot.task = loop.create_task(self._run(slot), name=f"{self.name}-{number}")

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
        """Take no more; what runs goes on, what has not begun goes back to the queue."""
        if self.paused is None:
            self.intake.pause(reason)
            _ = self.errand(self.give_back())
            self._facts.emit(WorkerPaused(worker=self.name, queue=self.queue.name, reason=reason))

    def resume(self) -> None:
        """Take messages again."""
        if self.paused is not None:
            self.intake.resume()
            self._facts.emit(WorkerResumed(worker=self.name, queue=self.queue.name))

    def force(self) -> None:
        """Cut a stop short: wait for handlers no longer."""
        self._forced.set()

    async def stop(self, *, drain: bool, requeue: bool, timeout: float) -> None:
        """Stop receiving, give back what has not begun, wait for the rest, and let go."""
        self.intake.close()
        await self.give_back()
        tasks = {slot.task for slot in self.slots if slot.task is not None}
        if drain and tasks:
            done = asyncio.ensure_future(asyncio.wait(tasks))
            forced = asyncio.ensure_future(self._forced.wait())
            await asyncio.wait((done, forced), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            done.cancel()
            forced.cancel()
            tasks = {task for task in tasks if not task.done()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        unfinished = [slot for slot in self.slots if slot.delivery is not None and not slot.lapsed]
        if unfinished:
            self._facts.log.warning(
                "%s stopped with %d handlers still at work", self.name, len(unfinished)
            )
        settler = self.intake.settler
        if settler is not None and requeue:
            # A thread cannot be stopped: its message stays ours until the connection closes.
            await settler.release(
                [
                    slot.delivery
                    for slot in unfinished
                    if slot.delivery is not None
                    and slot.call not in self._threaded
                    and not slot.by_hand
                ]
            )
        if self._errands:
            await asyncio.wait(set(self._errands))
        for timer in (self._linger, *self._retries):
            if timer is not None:
                timer.cancel()
        self.deadlines.close()
        if settler is not None and settler is self.intake.settler:
            await settler.flush()
            await settler.close()

    # -- the runner ----------------------------------------------------------------------------

    async def _run(self, slot: Slot) -> None:
        intake = self.intake
        buffer = intake.buffer
        parked = intake.parked
        known = self._known
        look_closely = self.policy.ttl is not None or self.policy.ack_timeout is not None
        ordered = intake.lanes is not None
        started = perf_counter()
        turn = started + SLICE
        while True:
            if not buffer or started > turn:
                settler = intake.settler
                if settler is not None and settler.waiting and not buffer:
                    await self._flush(settler)
                if started > turn:
                    await asyncio.sleep(0)
                    turn = perf_counter() + SLICE
                if not buffer:
                    if intake.closing:
                        return
                    if not await intake.fetch(slot):
                        await intake.park()
                started = perf_counter()
                continue
            delivery = buffer.popleft()
            if parked and buffer and not intake.waking:
                intake.wake()
            settler = intake.settler
            if settler is None:
                continue  # the connection broke: the broker delivers it again
            slot.settler = settler
            slot.delivery = delivery
            call = known.get(delivery.sent.routing_key)
            if (
                call is None
                or delivery.redeliveries
                or look_closely
                or delivery.sent.expires_at is not None
                or self._wary
            ):
                call = await self._admission.examine(slot, delivery, settler)
                if call is None:
                    slot.delivery = None
                    continue
            slot.call = call
            try:
                await call(delivery)
            except BaseException as error:
                ended = perf_counter()
                if not self._after_error(slot, delivery, settler, error, ended - started):
                    raise
            else:
                ended = perf_counter()
                if slot.by_hand or slot.lapsed or settler.void:
                    self._after_odd_success(slot, delivery, settler)
                else:
                    settler.acks.append(delivery)
                    settler.durations.append(ended - started)
                    if ordered:
                        self.intake.leave(delivery)
            started = ended
            slot.delivery = None
            if len(settler.acks) >= self._flush_at:
                await self._flush(settler)
            elif self._linger is None:
                self._linger = self._clock.call_later(LINGER, self._on_linger)

    def _after_odd_success(self, slot: Slot, delivery: Delivery, settler: Settler) -> None:
        """A handler returned, but its message was settled before, or its connection is gone."""
        if settler.void and not slot.by_hand and not slot.lapsed:
            self.orphans.finished(delivery.sent.id)
            self._counters.succeeded += 1
        elif slot.lapsed:
            self._facts.log.warning(
                "handler of %s in %s returned after its ack timeout; its message is retried",
                delivery.sent.id,
                self.queue.name,
            )
        self._finish(slot, delivery)

    def _after_error(
        self, slot: Slot, delivery: Delivery, settler: Settler, error: BaseException, took: float
    ) -> bool:
        """A handler raised. False when it is the runner itself that is being cancelled."""
        task = slot.task if isinstance(error, asyncio.CancelledError) else None
        if task is not None and slot.lapsed:
            task.uncancel()
        elif task is not None and task.cancelling():
            return False
        elif settler.void:
            self.orphans.finished(delivery.sent.id, success=False)
        elif slot.by_hand or slot.lapsed:
            self._facts.log.error(
                "handler of %s in %s failed after its message was settled",
                delivery.sent.id,
                self.queue.name,
                exc_info=error,
            )
        else:
            attempt = self.attempt(delivery)
            outcome = after_error(self.policy_of(delivery), attempt, error, random.random())
            slot.waits = self.fail(delivery, settler, outcome, attempt, took)
        self._finish(slot, delivery)
        return True

    def _finish(self, slot: Slot, delivery: Delivery) -> None:
        """The run is over; the next of its key may go, unless it waits for another try itself."""
        if not slot.waits:
            self.intake.leave(delivery)
        slot.forget()

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
        self._counters.succeeded += 1
        if self._facts.wants(MessagesSucceeded):
            self._facts.emit(
                MessagesSucceeded(worker=self.name, deliveries=[delivery], durations=[])
            )
        if settler.void:
            self.orphans.finished(delivery.sent.id)
        else:
            settler.settle(delivery, Acked(), 1)

    def fail(
        self,
        delivery: Delivery,
        settler: Settler,
        outcome: Outcome,
        attempt: int,
        took: float | None = None,
    ) -> bool:
        """Count a failure and settle it; True when the message waits on in its own lane."""
        self._counters.failed += 1
        reason: str = getattr(outcome, "reason", "")
        failure: Failure | None = getattr(outcome, "failure", None)
        if self._facts.wants(MessageFailed):
            self._facts.emit(
                MessageFailed(
                    worker=self.name,
                    delivery=delivery,
                    attempt=attempt,
                    reason=reason,
                    failure=failure,
                    duration=took,
                )
            )
        if self.intake.lanes is not None and isinstance(outcome, Retried):
            self._retry_in_lane(delivery, settler, outcome, attempt)
            return True
        settler.settle(delivery, outcome, attempt)
        return False

    def timed_out(
        self, delivery: Delivery, settler: Settler, outcome: Outcome, attempt: int
    ) -> bool:
        """An ack timeout ended a delivery, whatever its handler still does."""
        self._counters.ack_timeouts += 1
        waits = self.fail(delivery, settler, outcome, attempt)
        _ = self.errand(self.flush_now(settler))
        return waits

    def _retry_in_lane(
        self, delivery: Delivery, settler: Settler, outcome: Retried, attempt: int
    ) -> None:
        intake, lanes = self.intake, self.intake.lanes
        assert lanes is not None
        if intake.closing:  # its turn comes again where the queue is consumed next
            _ = self.errand(settler.release([delivery]))
            lanes.leave(delivery)
            return
        lanes.failed(delivery)
        self._counters.retried += 1
        if self._facts.wants(MessageRetried):
            self._facts.emit(
                MessageRetried(
                    worker=self.name,
                    delivery=delivery,
                    attempt=attempt,
                    reason=outcome.reason,
                    delay=outcome.delay,
                    failure=outcome.failure,
                )
            )

        def again() -> None:
            self._retries.discard(timers.pop())
            if any(slot.delivery is delivery for slot in self.slots):
                wait(LINGER)  # settled early, its handler is still at work
            elif delivery in lanes and intake.settler is settler:
                intake.buffer.append(delivery)
                intake.wake()

        def wait(seconds: float) -> None:
            timers.append(self._clock.call_later(seconds, again))
            self._retries.add(timers[0])

        timers: list[Timer] = []
        wait(outcome.delay)

    async def be_alone(self, slot: Slot, settler: Settler) -> bool:
        """Give back what waits and wait for what runs; False when another runner is first."""
        if not self.intake.claim(slot):
            return False
        await self.give_back()
        await settler.flush()
        while any(other.delivery is not None for other in self.slots if other is not slot):
            await self.intake.quiet()
            await settler.flush()
        return True

    async def give_back(self) -> None:
        """Release everything that no handler has begun on."""
        await self.intake.give_back(
            slot.delivery for slot in self.slots if slot.delivery is not None
        )

    # -- settling ------------------------------------------------------------------------------

    async def _flush(self, settler: Settler) -> None:
        if self._inline:
            await self.flush_now(settler)
        elif not settler.flushing:
            _ = self.errand(self.flush_now(settler))

    async def flush_now(self, settler: Settler) -> None:
        try:
            await settler.flush()
            while settler.waiting and not settler.void:
                await settler.flush()
        except Exception as error:  # a driver that breaks its contract: start afresh with it
            self._facts.log.exception("settling in %s failed", self.queue.name)
            self.session_lost(settler, ConnectionLost(f"settling failed: {error!r}"))
        if self.intake.idle:
            self.intake.wake()

    def _on_linger(self) -> None:
        self._linger = None
        settler = self.intake.settler
        if settler is not None and settler.waiting and not settler.flushing:
            _ = self.errand(self.flush_now(settler))

    def errand(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Work done beside the runners; `stop` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
        return task

    # -- what settlers say ---------------------------------------------------------------------

    def session_lost(self, settler: Settler, error: QueueError) -> None:
        """The connection broke: what was held is void, and the broker delivers it again."""
        if not settler.void:
            self._wary = True
            self.handled_elsewhere(settler.acks)
            settler.acks.clear()
            settler.durations.clear()
            for slot in self.slots:
                if slot.delivery is not None and slot.settler is settler and not slot.by_hand:
                    self.orphans.started(slot.delivery.sent.id)
            self.intake.end(settler)
            self.intake.lost(error)

    def handled_elsewhere(self, deliveries: Sequence[Delivery]) -> None:
        """Handled here, but the ack came too late: not to be run again here."""
        self._wary = True
        for delivery in deliveries:
            self.orphans.finished(delivery.sent.id)

    def stuck(self, delivery: Delivery, error: QueueError) -> None:
        """A dead letter cannot be written: better to stop than to lose it."""
        self._facts.log.error(
            "message %s of %s cannot be dead-lettered: %s. The queue is paused; mend this, then "
            "resume the worker",
            delivery.sent.id,
            self.queue.name,
            error,
        )
        self.pause(f"a dead letter cannot be written: {error}")
