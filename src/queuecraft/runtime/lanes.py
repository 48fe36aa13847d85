"""Order by key: messages of one key run one after the other, keys run side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from queuecraft.model.envelope import Delivery


class Lanes:
    """One lane for each key at work: the first of it runs, the rest wait behind.

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
        self._failures: dict[Delivery, int] = {}
        self._all: dict[Delivery, None] = {}  # in the order they came

    def __contains__(self, delivery: Delivery) -> bool:
        return delivery in self._all

    def admit(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Let deliveries in; those that may run now come back."""
        runnable: list[Delivery] = []
        for delivery in deliveries:
            self._all[delivery] = None
            key = delivery.sent.key
            if key is not None and (lane := self._lanes.get(key)) is not None:
                lane.append(delivery)
                continue
            if key is not None:
                self._lanes[key] = deque()
            runnable.append(delivery)
        return runnable

    def leave(self, delivery: Delivery) -> Delivery | None:
        """A delivery is settled; the next of its key may run."""
        self._all.pop(delivery, None)
        self._failures.pop(delivery, None)
        key = delivery.sent.key
        if key is None or (lane := self._lanes.get(key)) is None:
            return None
        if lane:
            return lane.popleft()
        del self._lanes[key]
        return None

    def failed(self, delivery: Delivery) -> None:
        """A delivery failed and waits in its lane for another try."""
        self._failures[delivery] = self._failures.get(delivery, 0) + 1

    def failures(self, delivery: Delivery) -> int:
        """Failures since it was received, on top of those its header records."""
        return self._failures.get(delivery, 0)

    def clear(self, running: Iterable[Delivery]) -> list[Delivery]:
        """Forget all that is not running, and say what it was, in the order it came."""
        keep = set(running)
        rest = [delivery for delivery in self._all if delivery not in keep]
        for delivery in rest:
            del self._all[delivery]
            self._failures.pop(delivery, None)
        self._lanes = {each.sent.key: deque() for each in keep if each.sent.key is not None}
        return rest
