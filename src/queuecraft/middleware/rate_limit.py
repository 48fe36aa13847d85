"""So many messages in a second, and no more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Literal

from queuecraft.model.errors import ConfigError
from queuecraft.model.message import Message
from queuecraft.model.outcome import WAITS_HERE, Postponed, held_back
from queuecraft.model.policy import is_number, is_whole
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.handler import Handle

REMEMBERED = 10_000  # buckets and promises; beyond, those that are over are forgotten
OVERDUE = 60.0  # seconds after which nobody comes for a promise any more


class RateLimit:
    """A token bucket: `max_per_second` on average, up to `burst` at once. `per` is what has a
    bucket of its own: `"all"` messages together, each `"queue"`, each `"key"`, or whatever a
    function of the message says.

    A message whose turn has not come waits without a runner. It keeps its place: when it comes
    again it goes through. The worker holds as many as it may, and leaves the rest in the queue;
    only what a key, or a function, keeps waiting for long waits at the broker, as the others have
    turns of their own. The limit is that of one process.

    >>> from queuecraft import QueueCraft
    >>> QueueCraft().use(RateLimit(50, burst=10, per="key"))
    """

    def __init__(
        self,
        max_per_second: float,
        *,
        burst: int = 1,
        per: Literal["all", "queue", "key"] | Callable[[Message[Any]], str] = "all",
    ) -> None:
        if not is_number(max_per_second) or not 0 < max_per_second < float("inf"):
            raise ConfigError(f"RateLimit({max_per_second!r}): expected messages a second above 0")
        if not is_whole(burst) or burst < 1:
            raise ConfigError(f"RateLimit(burst={burst!r}): expected a whole number from 1 on")
        if not callable(per) and per not in _NAMES:
            raise ConfigError(f"RateLimit(per={per!r}): expected all, queue, key or a function")
        self._interval = 1 / max_per_second
        self._ahead = (burst - 1) * self._interval
        self._name = per if callable(per) else _NAMES[per]
        self._apart = self._name not in (_NAMES["all"], _NAMES["queue"])  # many in one queue
        self._now: Callable[[], float] = monotonic
        self._buckets: dict[str, Bucket] = {}
        # When a message that waits has its turn; an event has one id in all its queues.
        self._promised: dict[tuple[str, str], float] = {}
        self._many_buckets = self._many_promises = REMEMBERED

    def attach(self, engine: Engine) -> None:
        """Use the clock of a QueueCraft."""
        if engine.clock.monotonic is not self._now:  # what was at another time says nothing here
            self._buckets.clear()
            self._promised.clear()
        self._now = engine.clock.monotonic

    def __call__(self, handle: Handle) -> Handle:
        def limited(message: Message[Any]) -> Awaitable[object]:
            wait = self.wait(message)
            if wait > 0:
                raise (Postponed if self._apart else held_back)(wait, "rate limit")
            return handle(message)

        if self._name is not _NAMES["all"]:
            return limited
        now, interval, ahead, promised = self._now, self._interval, self._ahead, self._promised
        bucket = self._buckets.setdefault("", Bucket(now() - ahead))  # for all handlers together

        def limited_together(message: Message[Any]) -> Awaitable[object]:
            at = now()
            if promised or bucket.next > at:
                return limited(message)
            if bucket.next < at - ahead:  # it is full
                bucket.next = at - ahead
            bucket.next += interval
            return handle(message)

        return limited_together

    def wait(self, message: Message[Any]) -> float:
        """Seconds until the message has its turn, which is kept for it from now on; 0: it is now,
        and taken. One that would hold up others for long is only told when to ask again."""
        now, place = self._now(), (message.queue, message.id)
        if self._promised and (due := self._promised.get(place)) is not None:
            if due > now + 1e-6:  # woken early by a clock that rounds
                return due - now
            del self._promised[place]
            return 0.0
        name, full = self._name(message), now - self._ahead
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= self._many_buckets:
                self._buckets = {at: each for at, each in self._buckets.items() if each.next > full}
                self._many_buckets = max(REMEMBERED, 2 * len(self._buckets))
            bucket = self._buckets[name] = Bucket(full)
        due = max(bucket.next, full)
        if self._apart and due > now + WAITS_HERE:
            # It is not held here, so nothing may be kept for it. It comes back at the rate that
            # others go, and not together with all that wait.
            due = max(due, bucket.later)
            bucket.later = due + self._interval
            return due - now
        bucket.next = due + self._interval
        if due <= now:
            return 0.0
        self._promised[place] = due
        if len(self._promised) > self._many_promises:
            for each in [each for each, at in self._promised.items() if at < now - OVERDUE]:
                del self._promised[each]
            self._many_promises = max(REMEMBERED, 2 * len(self._promised))
        return due - now


class Bucket:
    """When its next token is made, and when the next may ask for one that waits elsewhere."""

    __slots__ = ("later", "next")

    def __init__(self, made: float) -> None:
        self.next = self.later = made


_NAMES: dict[str, Callable[[Message[Any]], str]] = {
    "all": lambda message: "",
    "queue": lambda message: message.queue,
    "key": lambda message: message.key or "",
}
