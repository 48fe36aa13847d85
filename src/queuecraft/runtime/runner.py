"""Handling: one delivery after the other, through its handler to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING

from queuecraft.clock import Clock, Timer
from queuecraft.drivers.base import Delivery
from queuecraft.model.outcome import Postponed, after_error
from queuecraft.model.printable import printable
from queuecraft.runtime.admission import Admission
from queuecraft.runtime.handler import Call
from queuecraft.runtime.settle import Settler
from queuecraft.runtime.slot import Slot, at_work

if TYPE_CHECKING:
    from queuecraft.runtime.consumer import Consumer

SLICE = 0.002  # seconds of handling without giving up the loop
LINGER = 0.005  # seconds an ack may wait for company while handlers run


class Runner:
    """What each runner of a consumer does, with a slot of its own, until it is told to end."""

    def __init__(
        self,
        consumer: Consumer,
        known: Mapping[str, Call],
        admission: Admission,
        clock: Clock,
        *,
        inline: bool,
        flush_at: int,
    ) -> None:
        self._consumer = consumer
        self._known = known
        self._admission = admission
        self._clock = clock
        self._inline = inline  # settling does not give up the loop
        self._flush_at = max(1, flush_at)
        self._linger: Timer | None = None

    async def run(self, slot: Slot) -> None:
        """Take, handle, settle; the others fetch or wait meanwhile."""
        at_work.set(asyncio.current_task())
        consumer = self._consumer
        intake = consumer.intake
        buffer = intake.buffer
        parked = intake.parked
        known = self._known
        policy = consumer.policy
        look_closely = policy.ttl is not None or policy.ack_timeout is not None
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
            if parked and not intake.waking and (buffer or intake.fetcher is None):
                intake.wake()  # to handle the next, or to fetch it
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
                or consumer.wary
            ):
                slot.call = None
                call = await self._admission.examine(slot, delivery, settler)
                if call is None:
                    slot.forget()
                    if settler.waiting:  # the next handler may take long
                        self._flush_soon()
                    continue
                started = perf_counter()  # it may have waited to be alone
            slot.call = call
            try:
                await call(delivery)
            except BaseException as error:
                ended = perf_counter()
                if not self._after_error(slot, delivery, error, ended - started):
                    raise
            else:
                ended = perf_counter()
                if slot.by_hand or slot.lapsed or slot.settler is not settler or settler.void:
                    if not self._after_odd_success(slot, delivery, ended - started):
                        return
                else:
                    settler.acks.append(delivery)
                    settler.durations.append(ended - started)
                    if ordered:
                        intake.leave(delivery)
            started = ended
            slot.delivery = None
            if len(settler.acks) >= self._flush_at:
                await self._flush(settler)
            elif self._linger is None:
                self._flush_soon()

    def close(self) -> None:
        """Nothing more is to be flushed later."""
        if self._linger is not None:
            self._linger.cancel()

    # -- after a run ---------------------------------------------------------------------------

    def _after_odd_success(self, slot: Slot, delivery: Delivery, took: float) -> bool:
        """A handler returned, but its message was settled before, or is not ours any more. False
        when this is the end of the runner."""
        consumer = self._consumer
        if slot.lapsed:
            consumer.log.warning(
                "handler of %s in %s returned after its ack timeout; its message is retried",
                printable(delivery.sent.id),
                delivery.queue,
            )
        elif not slot.by_hand:
            consumer.tally.succeeded(delivery, [took])
            consumer.orphans.finished(delivery)
        return self._finish(slot)

    def _after_error(
        self, slot: Slot, delivery: Delivery, error: BaseException, took: float
    ) -> bool:
        """A handler raised. False when this is the end of the runner."""
        consumer, settler = self._consumer, slot.settler
        assert settler is not None
        if ends_runner(slot, error):
            return False
        if isinstance(error, Postponed) and slot.open and not settler.void:
            consumer.postpone(delivery, settler, error)
            slot.forget()
            return True
        if slot.by_hand or slot.lapsed:
            if not (isinstance(error, asyncio.CancelledError) and slot.lapsed):
                consumer.log.error(
                    "handler of %s in %s failed after its message was settled",
                    printable(delivery.sent.id),
                    delivery.queue,
                    exc_info=error,
                )
        elif not settler.void:
            attempt = consumer.attempt(delivery)
            outcome = after_error(
                consumer.policy_of(delivery), attempt, error, self._clock.chance()
            )
            slot.again = consumer.fail(delivery, settler, outcome, attempt, took)
        return self._finish(slot)

    def _finish(self, slot: Slot) -> bool:
        """A run is over, and was not a plain success; False when its runner is, too."""
        for each in slot.all if slot.lapsed else ():
            assert each.delivery is not None
            self._consumer.deadlines.ended(each.delivery)
        if slot.abandoned:
            return False
        self._consumer.departures.depart(slot.all)
        # The cancellation of a late handler is over with it; another one may be meant for us.
        goes_on = not slot.lapsed or slot.task is None or slot.task.uncancel() == 0
        slot.forget()
        return goes_on

    # -- settling ------------------------------------------------------------------------------

    async def _flush(self, settler: Settler) -> None:
        if self._inline:
            await self._consumer.flush_now(settler)
        elif not settler.flushing:
            settler.flushing = True  # before another runner asks for the same
            _ = self._consumer.errands.start(self._consumer.flush_now(settler))

    def _flush_soon(self) -> None:
        if self._linger is None and not self._consumer.intake.closing:
            self._linger = self._clock.call_later(LINGER, self._on_linger)

    def _on_linger(self) -> None:
        self._linger = None
        settler = self._consumer.intake.settler
        if settler is not None and settler.waiting and not settler.flushing:
            _ = self._consumer.errands.start(self._consumer.flush_now(settler))


def ends_runner(slot: Slot, error: BaseException) -> bool:
    """Whether an exception is meant for the runner itself, and was not raised by its handler."""
    task = slot.task
    assert task is not None
    if isinstance(error, asyncio.CancelledError):
        return task.cancelling() > 0 and not slot.lapsed
    # Nobody raised this one if the loop is closed: we are being thrown away.
    return isinstance(error, GeneratorExit) and not _at_work(task)


def _at_work(task: asyncio.Task[None]) -> bool:
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # there is no loop any more
        return False
