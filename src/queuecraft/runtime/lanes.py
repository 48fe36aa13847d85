"""Order by key: messages of one key run one after the other, keys run side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Set

from queuecraft.model.envelope import Delivery
from queuecraft.runtime.sameness import name_of

REMEMBERED = 10_000  # messages whose failures are known; those that never came back are forgotten


class Lanes:
    """One lane for each key at work: the first of it runs, the rest wait behind.

    Failures are kept by what a message is known by, because what waits here for another try is
    given back when the worker pauses or loses its connection, and comes again as another delivery.

    >>> from queuecraft.model.envelope import Outgoing
    >>> one, two = (Delivery(Outgoing(b"", id, key="k"), "q") for id in ("m-1", "m-2"))
    >>> lanes = Lanes()
    >>> [each.sent.id for each in lanes.admit([one, two])]
    ['m-1']
    >>> lanes.leave(one).sent.id
    'm-2'
    """

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Delivery]] = {}
        self._failures: dict[str, tuple[int, float]] = {}  # how many, and when to try again
        self._all: dict[Delivery, None] = {}  # in the order they came

    def __contains__(self, delivery: Delivery) -> bool:
        return delivery in self._all

    def admit(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Let deliveries in; those that are first in their lane come back."""
        first: list[Delivery] = []
        for delivery in deliveries:
            self._all[delivery] = None
            key = delivery.sent.key
            if key is not None and (lane := self._lanes.get(key)) is not None:
                lane.append(delivery)
                continue
            if key is not None:
                self._lanes[key] = deque()
            first.append(delivery)
        return first

    def leave(self, delivery: Delivery, *, settled: bool = True) -> Delivery | None:
        """A delivery is done with; the next of its key is first now. One that was given back
        meanwhile has nobody behind it. Not settled, it comes again and its failures still count.
        """
        if delivery not in self._all:
            return None
        del self._all[delivery]
        if settled and self._failures:
            self._failures.pop(name_of(delivery), None)
        key = delivery.sent.key
        if key is None:
            return None
        if lane := self._lanes[key]:
            return lane.popleft()
        del self._lanes[key]
        return None

    def next(self, delivery: Delivery) -> Delivery | None:
        """The one that waits behind a delivery, which is first in its lane."""
        lane = None if delivery.sent.key is None else self._lanes.get(delivery.sent.key)
        return lane[0] if lane else None

    def join(self, delivery: Delivery) -> None:
        """The next of a lane runs together with those before it."""
        assert delivery.sent.key is not None
        self._lanes[delivery.sent.key].popleft()

    def part(self, delivery: Delivery, *, settled: bool) -> None:
        """One that had joined others is done with; its lane still belongs to the first."""
        if delivery in self._all:
            del self._all[delivery]
            if settled and self._failures:
                self._failures.pop(name_of(delivery), None)

    def rejoin(self, delivery: Delivery) -> None:
        """One that had joined others is to run again: first of those that wait."""
        if delivery in self._all and delivery.sent.key is not None:
            self._lanes[delivery.sent.key].appendleft(delivery)

    def failed(self, delivery: Delivery, again: float) -> None:
        """A delivery failed and waits in its lane until a moment of the monotonic clock."""
        self._remember(delivery, self.failures(delivery) + 1, again)

    def postponed(self, delivery: Delivery, again: float) -> None:
        """The same without a failure."""
        self._remember(delivery, self.failures(delivery), again)

    def failures(self, delivery: Delivery) -> int:
        """Failures since it was received, on top of those its header records."""
        return self._known(delivery)[0]

    def due(self, delivery: Delivery) -> float:
        """From when on it may be tried again."""
        return self._known(delivery)[1]

    def _known(self, delivery: Delivery) -> tuple[int, float]:
        if not self._failures:  # as most of the time: names cost
            return 0, 0.0
        return self._failures.get(name_of(delivery), (0, 0.0))

    def _remember(self, delivery: Delivery, failed: int, again: float) -> None:
        self._failures[name_of(delivery)] = (failed, again)
        if len(self._failures) > REMEMBERED:
            del self._failures[next(iter(self._failures))]

    def drop(self, gone: Set[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Forget these, none of which is running: those that were here, in the order they came, and
        those that are first in their lane instead. They may come again, and their failures count.
        """
        rest = [delivery for delivery in self._all if delivery in gone]
        waiting = {each for lane in self._lanes.values() for each in lane if each in gone}
        if waiting:
            for key, lane in self._lanes.items():
                self._lanes[key] = deque(each for each in lane if each not in waiting)
            for delivery in waiting:
                del self._all[delivery]
        following = [self.leave(each, settled=False) for each in rest if each not in waiting]
        return rest, [each for each in following if each is not None]

    def clear(self, running: Iterable[Delivery]) -> list[Delivery]:
        """Forget all that is not running, and say what it was, in the order it came."""
        keep = {delivery for delivery in running if delivery in self._all}
        rest = [delivery for delivery in self._all if delivery not in keep]
        for delivery in rest:
            del self._all[delivery]
        self._lanes = {each.sent.key: deque() for each in keep if each.sent.key is not None}
        return rest
