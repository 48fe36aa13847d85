"""Batches: many messages given to one handler at once, each with an end of its own."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from queuecraft.drivers.base import ConnectionLost, Delivery
from queuecraft.model.batch import BatchFailed
from queuecraft.model.errors import ConfigError, PayloadError
from queuecraft.model.message import Message
from queuecraft.model.outcome import Failure, UnreadablePayload, after_error
from queuecraft.runtime.handler import Read, RunMany
from queuecraft.runtime.runner import ends_runner
from queuecraft.runtime.settle import Settler
from queuecraft.runtime.slot import Slot
from queuecraft.runtime.threads import NoThread

if TYPE_CHECKING:
    from queuecraft.runtime.consumer import Consumer
    from queuecraft.runtime.intake import Intake

Errors: TypeAlias = dict[Slot, BaseException]
"""Who failed, and why; who is not in it has succeeded."""


class Batch:
    """Called with a delivery, as any handler is, it takes others that wait for the same handler
    along, runs it once, and settles each of them.

    A runner has one delivery at a time, and a batch is no more to it than a delivery that was
    settled while its handler ran. So single messages pay nothing for batches.
    """

    def __init__(self, read: Read, run: RunMany, *, size: int, wait: float) -> None:
        self._read = read
        self._run = run
        self._size = size
        self._wait = wait
        self._consumer: Consumer | None = None

    def serve(self, consumer: Consumer) -> None:
        """Take from what this consumer receives."""
        self._consumer = consumer

    async def __call__(self, delivery: Delivery) -> None:
        """Handle a delivery, and whatever may go with it."""
        consumer = self._consumer
        assert consumer is not None
        slot = consumer.slot_of(delivery)
        assert slot is not None
        settler = slot.settler
        assert settler is not None
        slot.timed = None  # the time that the handler has begins with the handler
        await self._fill(consumer, slot, settler)
        while True:
            if settler.void:
                raise ConnectionLost("the connection broke before the batch was begun")
            if consumer.intake.stopped or any(each.settler is not settler for each in slot.all):
                # As everything that has not begun; and others have some of it by now.
                consumer.departures.put_back_batch(slot)
                slot.by_hand = True
                return
            if (limit := consumer.policy.ack_timeout) is not None:
                consumer.deadlines.start(slot, delivery, limit)
            started = perf_counter()
            errors, raised = await self._handle(slot)
            if not isinstance(raised, NoThread):
                break
            slot.timed = None
            await consumer.clock.sleep(raised.seconds)
        self._settle(consumer, slot, errors, perf_counter() - started)
        if slot.lapsed and raised is not None:
            raise raised  # as after any handler that is late
        slot.by_hand = True

    # -- filling -------------------------------------------------------------------------------

    async def _fill(self, consumer: Consumer, slot: Slot, settler: Settler) -> None:
        """Take what is there; then, if so asked, wait for more."""
        intake = consumer.intake
        if intake.claimed:
            return  # by this message, which is handled alone, or by one that waits for this to end
        self._take(consumer, slot)
        if not self._wait:
            return
        until = consumer.clock.monotonic() + self._wait
        slot.filling = True
        offered: Delivery | None = None
        while self._fills(slot, settler, intake) and (
            (left := until - consumer.clock.monotonic()) > 0
        ):
            head = intake.buffer[0] if intake.buffer else None
            if head is not offered and not intake.waking:
                # What is not for this handler is not to wait for it. Once: where all who are there
                # fill batches, they would wake each other for it without end.
                offered = head
                if head is not None:
                    intake.nudge()
            if not await intake.fetch(slot, left):
                await intake.park_for(left)
            if slot.filling and not settler.void:
                self._take(consumer, slot)
        slot.filling = False
        if intake.parked and not intake.waking and (intake.buffer or intake.fetcher is None):
            intake.wake()  # this one was woken for what it does not do

    def _fills(self, slot: Slot, settler: Settler, intake: Intake) -> bool:
        """Whether more may be waited for."""
        ended = settler.void or intake.held_back or intake.claimed
        return slot.filling and not ended and not self._full(slot)

    def _full(self, slot: Slot) -> bool:
        return len(slot.rest) + 1 >= self._size

    def _take(self, consumer: Consumer, slot: Slot) -> None:
        buffer, joins = consumer.intake.buffer, consumer.admission.joins
        ordered = consumer.intake.lanes is not None
        others: list[Delivery] = []
        assert slot.delivery is not None
        self._take_lane(consumer, slot, slot.delivery)
        while buffer and not self._full(slot):
            delivery = buffer.popleft()
            if joins(delivery, self):
                slot.join(delivery, follows=False)
                if ordered:
                    self._take_lane(consumer, slot, delivery)
            else:
                others.append(delivery)
        buffer.extendleft(reversed(others))

    def _take_lane(self, consumer: Consumer, slot: Slot, first: Delivery) -> None:
        """Where order is kept, what is behind a delivery of the batch can only go with it."""
        lanes = consumer.intake.lanes
        if lanes is None:
            return
        now = consumer.clock.monotonic()
        while (
            not self._full(slot)
            and (behind := lanes.next(first)) is not None
            and lanes.due(behind) <= now
            and consumer.admission.joins(behind, self)
        ):
            lanes.join(behind)
            slot.join(behind, follows=True)

    # -- running -------------------------------------------------------------------------------

    async def _handle(self, slot: Slot) -> tuple[Errors, BaseException | None]:
        """Run the handler on everything that can be read, and say what it raised. Raises only what
        ends the runner."""
        given: list[Slot] = []
        messages: list[Message[Any]] = []
        errors: Errors = {}
        for each in slot.all:
            assert each.delivery is not None
            try:
                messages.append(self._read(each.delivery))
                given.append(each)
            except Exception as error:  # it takes nobody with it
                errors[each] = error
        try:
            if messages:
                await self._run(messages)
        except BaseException as error:
            if ends_runner(slot, error):
                raise
            for each, its in zip(given, _blame(error, messages), strict=True):
                if its is not None:
                    errors[each] = its
            return errors, error
        return errors, None

    # -- settling ------------------------------------------------------------------------------

    def _settle(self, consumer: Consumer, slot: Slot, errors: Errors, took: float) -> None:
        """Give each message its end, unless it has one."""
        failures: dict[int, Failure] = {}  # a traceback is made into text once, not once for each
        too_late: BaseException | None = None
        for each in slot.all:
            delivery, settler, error = each.delivery, each.settler, errors.get(each)
            assert delivery is not None
            assert settler is not None
            if each.by_hand or each.lapsed:
                too_late = too_late or error
            elif error is None and settler.void:
                consumer.tally.succeeded(delivery, [took])
                consumer.orphans.finished(delivery)
            elif error is None:
                settler.acks.append(delivery)
                settler.durations.append(took)
            elif not settler.void:
                attempt = consumer.attempt(delivery)
                failure = None
                if not isinstance(error, UnreadablePayload):
                    failure = failures.get(id(error))
                    if failure is None:
                        failure = failures[id(error)] = Failure.of(error)
                policy, chance = consumer.policy_of(delivery), consumer.clock.chance()
                outcome = after_error(policy, attempt, error, chance, failure=failure)
                each.again = consumer.fail(delivery, settler, outcome, attempt, took)
        if too_late is not None and not slot.lapsed:
            consumer.log.error(
                "handler of a batch in %s failed after some of its messages were settled",
                consumer.queue.name,
                exc_info=too_late,
            )


def _blame(raised: BaseException, messages: Sequence[Message[Any]]) -> list[BaseException | None]:
    """The error of each message, by what their handler has raised."""
    if isinstance(raised, UnreadablePayload):
        # A handler of messages has looked into one too many. The others have not failed for good.
        other = PayloadError("another message of the batch cannot be read")
        other.__cause__ = raised
        return [_unreadable(message) or other for message in messages]
    if not isinstance(raised, BatchFailed):
        return [raised] * len(messages)
    places = {id(message): place for place, message in enumerate(messages)}
    errors: list[BaseException | None] = [None] * len(messages)
    for which, error in raised.errors.items():
        place = which if isinstance(which, int) else places.get(id(which), -1)
        if not 0 <= place < len(messages):
            # Better to handle all of them twice than to lose the one that was meant.
            wrong = ConfigError(
                f"BatchFailed names {which!r}, which is not in this batch of {len(messages)}, so "
                "all of it has failed; name messages, or places from 0 on"
            )
            wrong.__cause__ = raised
            return [wrong] * len(messages)
        errors[place] = error
    return errors


def _unreadable(message: Message[Any]) -> BaseException | None:
    try:
        message.payload  # noqa: B018
    except UnreadablePayload as error:
        return error
    return None
