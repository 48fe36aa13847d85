"""What a consumer has in its hands: handed over and finished in the loop, committed in a thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Condition

import msgspec

from queuecraft.drivers.base import Delivery
from queuecraft.drivers.kafka.place import Place


class Holding:
    """All that the loop and the polling thread both use is guarded by one lock, `changed`, for
    moments only."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.held: set[Delivery] = set()  # that somebody may be working on
        self.coming: set[Delivery] = set()  # the same, once Kafka knows of it
        self.finished: list[dict[Place, list[int]]] = []  # which the thread does not know
        self.acked = 0  # records, from the first on
        self.noted = 0  # so many of them the thread knows of
        self.told = 0  # and so many Kafka knows of, or will never hear of

    def hand_over(self, deliveries: Iterable[Delivery]) -> None:
        """Somebody works on these from now on."""
        self.held.update(deliveries)

    def expect(self, deliveries: Iterable[Delivery]) -> None:
        """Somebody works on these once Kafka knows that they are in hand: see `take_up`. Until then
        it is no use to wait for them."""
        self.coming.update(deliveries)

    def finish(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """They need not come again; the stale ones, which others have by now."""
        finished: dict[Place, list[int]] = {}
        place: Place | None = None
        offsets: list[int] = []
        with self.changed:
            mine, stale = self._let_go(deliveries)
            for delivery in mine:
                token = delivery.token  # some say more than that
                where, offset = token[0], token[1]
                if where is not place:
                    place, offsets = where, finished.setdefault(where, [])
                offsets.append(offset)
            if gone := [place for place in finished if place.gone]:
                stale += [each for each in mine if each.token[0].gone]
                for place in gone:
                    del finished[place]
            if finished:
                self.finished.append(finished)
                self.acked += sum(map(len, finished.values()))
            self.changed.notify_all()
        return stale

    def lay_aside(self, deliveries: Sequence[Delivery]) -> None:
        """Nobody works on these for now: others may get them meanwhile, and need not wait."""
        with self.changed:
            self.held.difference_update(deliveries)
            self.changed.notify_all()

    def take_up(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Somebody works on these now; those that are ours still."""
        with self.changed:
            mine = self.keep_back(deliveries)
            self.held.update(mine)
        return mine

    def keep_back(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Nobody will work on these soon; those that are ours still."""
        with self.changed:
            self.coming.difference_update(deliveries)
            return [each for each in deliveries if not each.token[0].leaving]

    def give_back(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Nobody works on these any more; those that are ours still, to be handed over again."""
        with self.changed:
            mine, _ = self._let_go(deliveries)
            self.changed.notify_all()
            # What is settled with the old one must not settle the new one.
            return [msgspec.structs.replace(each) for each in mine if not each.token[0].leaving]

    def _let_go(self, deliveries: Sequence[Delivery]) -> tuple[Sequence[Delivery], list[Delivery]]:
        """Hold these no more; those that were held, and those that were not."""
        mine = self.held.intersection(deliveries)
        self.held -= mine
        if len(mine) == len(deliveries):
            return deliveries, []
        each_once = dict.fromkeys(deliveries)
        return [each for each in each_once if each in mine], [
            each for each in each_once if each not in mine
        ]

    def handed(self, places: Iterable[Place]) -> bool:
        """Whether somebody may be working on a record of these."""
        return not {delivery.token[0] for delivery in self.held}.isdisjoint(places)

    def hands(self) -> dict[Place, set[int]]:
        """What somebody may be working on or will be soon, by where it is."""
        hands: dict[Place, set[int]] = {}
        for place, offset in (delivery.token for delivery in (*self.held, *self.coming)):
            hands.setdefault(place, set()).add(offset)
        return hands

    def leaving(self) -> list[Delivery]:
        """What somebody may be working on and others are about to get."""
        with self.changed:
            return [each for each in self.held if each.token[0].leaving]

    def left(self) -> list[Delivery]:
        """What somebody may be working on and others have by now: it is not held any more."""
        with self.changed:
            gone = [each for each in self.held if each.token[0].gone]
            self.held.difference_update(gone)
        return gone

    def note(self) -> list[dict[Place, list[int]]]:
        """What was finished since the last time; in the polling thread."""
        with self.changed:
            finished, self.finished = self.finished, []
            self.noted = self.acked
        return finished
