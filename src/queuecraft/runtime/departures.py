"""What becomes of a message once its run is over: it makes room, waits, or comes again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from queuecraft.drivers.base import Delivery
from queuecraft.model.outcome import Acked
from queuecraft.runtime.settle import End, Settler
from queuecraft.runtime.slot import Slot

if TYPE_CHECKING:
    from queuecraft.runtime.consumer import Consumer


@dataclass(slots=True)
class Turn:
    """What was handled, and has yet to make room for the next of its key."""

    delivery: Delivery
    settler: Settler
    again: float | None  # failed: when to try again, in its own lane
    follows: bool  # another of its key was before it in the same batch
    end: asyncio.Future[End] | None  # it is to be a dead letter


class Departures:
    """Of one consumer. Whoever leaves makes room for the next of its key; what is to be a dead
    letter leaves only once it is one."""

    def __init__(self, consumer: Consumer) -> None:
        self.waiting: dict[Delivery, Turn] = {}
        """What was handled together with what is to be a dead letter, and is none yet."""
        self._consumer = consumer

    def depart(self, handled: Sequence[Slot]) -> None:
        """What was handled together has had its turn, and the next of its keys may go. What is to
        be a dead letter is waited for: should it not become one, it comes again before what is
        behind it."""
        lanes = self._consumer.intake.lanes
        turns: list[Turn] = []
        for each in reversed(handled):  # so that of one key those that come again wait in order
            assert each.delivery is not None
            assert each.settler is not None
            if lanes is None and not each.settler.void:
                continue  # it is in nobody's way
            if lanes is not None and each.again is not None and not each.settler.void:
                lanes.failed(each.delivery, each.again)
            end = each.settler.ending.get(each.delivery)
            turns.append(Turn(each.delivery, each.settler, each.again, each.follows, end))
        ends = [turn.end for turn in turns if turn.end is not None and not turn.end.done()]
        if ends:
            self.waiting.update((turn.delivery, turn) for turn in turns)
            asyncio.gather(*ends).add_done_callback(lambda _: self._leave_later(turns))
        else:
            for turn in turns:
                self._leave(turn)

    def _leave_later(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            self._leave(turn)
            self.waiting.pop(turn.delivery, None)
        self._consumer.intake.nudge()

    def _leave(self, turn: Turn) -> None:
        intake = self._consumer.intake
        delivery, settler, again, follows = turn.delivery, turn.settler, turn.again, turn.follows
        settler.ending.pop(delivery, None)
        end = None if turn.end is None else turn.end.result()
        if settler.void or end == "elsewhere":
            self._comes_again(delivery, follows)
        elif end == "here" or (again is not None and intake.stopped):
            self.hand_back(delivery, settler, follows)
        elif again is not None:
            if follows and intake.lanes is not None:
                intake.lanes.rejoin(delivery)
            else:
                intake.wait(delivery, again)
        elif follows:
            intake.part(delivery)
        else:
            intake.leave(delivery)

    def put_back_batch(self, slot: Slot) -> None:
        """A batch that was not full is not to begin now: the broker keeps it."""
        consumer = self._consumer
        if consumer.intake.lanes is not None:
            _ = consumer.give_back()  # what is behind it must not begin before it is back
        settler, mine = slot.settler, list[Delivery]()
        for each in reversed(slot.all):
            assert each.delivery is not None
            assert each.settler is not None
            if not each.settler.void:  # else others have it by now
                settler = each.settler
                mine.insert(0, each.delivery)
            self._comes_again(each.delivery, each.follows)
        slot.rest = {}
        consumer.intake.returning()
        _ = consumer.send_back(settler, mine)

    async def put_back(self, slot: Slot, delivery: Delivery, settler: Settler) -> None:
        """A delivery cannot have its turn now: the broker keeps it."""
        slot.by_hand = True  # whoever is given it meanwhile need not be told of it again
        consumer = self._consumer
        await asyncio.shield(consumer.errands.start(consumer.release(settler, [delivery])))
        self._comes_again(delivery, follows=False)

    def hand_back(self, delivery: Delivery, settler: Settler, follows: bool = False) -> None:
        """A delivery is to come again, and nothing is to begin now: its turn comes where the queue
        is consumed next, or here after a resume."""
        consumer, intake = self._consumer, self._consumer.intake
        if intake.lanes is not None:
            # A runner that has fallen left its followers where they were.
            _ = consumer.give_back()
        self._comes_again(delivery, follows)
        intake.returning()  # should it be resumed at once, what is behind must not come first
        intake.stir()  # or if it is received just now
        _ = consumer.send_back(settler, [delivery])

    def _comes_again(self, delivery: Delivery, follows: bool) -> None:
        self._consumer.orphans.finished(delivery, success=False)  # its redelivery may wait for this
        intake = self._consumer.intake
        if follows:
            intake.part(delivery, settled=False)
        else:
            intake.leave(delivery, settled=False)

    def run_ended(self, delivery: Delivery, settler: Settler, success: bool) -> None:
        """The run on a lost connection is over, and its message has come again meanwhile."""
        consumer, intake = self._consumer, self._consumer.intake
        if settler.void or not intake.waits_behind(delivery):
            return  # lost or given back itself: the next one will do
        if success and consumer.orphans.adopt(delivery):
            settler.settle(delivery, Acked(), 1)
            intake.leave(delivery)
            _ = consumer.errands.start(consumer.flush_now(settler))
            intake.nudge()
        elif intake.stopped:
            self.hand_back(delivery, settler)
        else:
            intake.put(delivery)
