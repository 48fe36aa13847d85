"""Order by key: messages of one key run one after the other, keys run side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from queuecraft.model.envelope import Delivery

REMEMBERED = 10_000  # messages whose failures are known; those that never came back are forgotten


class Lanes:
    """One lane for each key at work: the first of it runs, the rest wait behind.

    Failures are kept by the id of the message, because what waits here for another try is given
    back when the worker pauses or loses its connection, and comes again as another delivery.

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
            self._failures.pop(delivery.sent.id, None)
        key = delivery.sent.key
        if key is None:
            return None
        if lane := self._lanes[key]:
            return lane.popleft()
        del self._lanes[key]
        return None

    def failed(self, delivery: Delivery, again: float) -> None:
        """A delivery failed and waits in its lane until a moment of the monotonic clock."""
        id = delivery.sent.id
        self._failures[id] = (self.failures(delivery) + 1, again)
        if len(self._failures) > REMEMBERED:
            del self._failures[next(iter(self._failures))]

    def failures(self, delivery: Delivery) -> int:
        """Failures since it was received, on top of those its header records."""
        return self._failures.get(delivery.sent.id, (0, 0.0))[0]

    def due(self, delivery: Delivery) -> float:
        """From when on it may be tried again."""
        return self._failures.get(delivery.sent.id, (0, 0.0))[1]

    def clear(self, running: Iterable[Delivery]) -> list[Delivery]:
        """Forget all that is not running, and say what it was, in the order it came."""
        keep = {delivery for delivery in running if delivery in self._all}
        rest = [delivery for delivery in self._all if delivery not in keep]
        for delivery in rest:
            del self._all[delivery]
        self._lanes = {each.sent.key: deque() for each in keep if each.sent.key is not None}
        return rest
