"""An outage is not to end in the dead-letter queue: past a failure rate, consuming stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from queuecraft.middleware.verdict import Verdict, verdict_on
from queuecraft.model.errors import ConfigError
from queuecraft.model.message import Message
from queuecraft.model.outcome import Postponed, held_back
from queuecraft.model.policy import is_number
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.facts import CircuitChanged, CircuitState, Facts
from queuecraft.runtime.handler import Handle

COUNTED = 1000  # messages of which the rate is taken at most


class OutageGuard:
    """Of the messages of the last `window` seconds, `minimum` at least, more than `failure_rate`
    have failed: then none is handled but one probe every `probe_every` seconds, and the rest wait,
    uncounted. A probe that succeeds ends it; one that fails waits too, as if it had not been tried,
    unless its ack timeout or its handler itself, by `nack`, `retry` or `requeue`, has decided on
    it; after one that has not ended within `window` seconds another is tried.

    Give each worker a guard of its own.

    >>> from queuecraft import QueueCraft
    >>> billing = QueueCraft().worker("billing", middleware=[OutageGuard(failure_rate=0.5)])
    """

    def __init__(
        self,
        name: str = "outage guard",
        *,
        failure_rate: float = 0.5,
        minimum: int = 20,
        window: float = 30.0,
        probe_every: float = 5.0,
    ) -> None:
        if not is_number(failure_rate) or not 0 < failure_rate <= 1:
            raise ConfigError(f"failure_rate={failure_rate!r}: expected a share above 0, up to 1")
        if not is_number(minimum) or not 1 <= minimum <= COUNTED:
            raise ConfigError(f"minimum={minimum!r}: expected a whole number from 1 to {COUNTED}")
        for option, value in (("window", window), ("probe_every", probe_every)):
            if not is_number(value) or not 0 < value < float("inf"):
                raise ConfigError(f"{option}={value!r}: expected seconds above 0")
        self.name = name
        self._rate = failure_rate
        self._minimum = minimum
        self._window = window
        self._every = probe_every
        self._now: Callable[[], float] = monotonic
        self._facts: Facts | None = None
        self._ends: deque[tuple[float, bool]] = deque()  # when, and whether it had failed
        self._failed = 0
        self._next_probe: float | None = None  # during an outage
        self._probe: object | None = None  # the one that runs
        self._probe_until = 0.0  # then it is taken for lost

    @property
    def state(self) -> CircuitState:
        """closed in normal times, open in an outage, half_open while a probe runs."""
        if self._next_probe is None:
            return "closed"
        return "open" if self._probe is None else "half_open"

    def attach(self, engine: Engine) -> None:
        """Use the clock of a QueueCraft, and tell those who observe it."""
        if engine.clock.monotonic is not self._now:  # what was at another time says nothing here
            self._ends.clear()
            self._failed, self._next_probe, self._probe = 0, None, None
        self._now = engine.clock.monotonic
        self._facts = engine.facts

    def __call__(self, handle: Handle) -> Handle:
        async def guarded(message: Message[Any]) -> object:
            probe = None if self._next_probe is None else self._begin_probe(self._next_probe)
            try:
                result = await handle(message)
            except BaseException as error:
                verdict = verdict_on(message, error)
                self._conclude(verdict, probe)
                if isinstance(error, Exception) and verdict is error and self._outage:
                    raise self._later(error) from error
                raise
            self._conclude(verdict_on(message, None), probe)
            return result

        return guarded

    @property
    def _outage(self) -> bool:
        return self._next_probe is not None

    def _begin_probe(self, due: float) -> object:
        now = self._now()
        # A handler may never end. That is not to be the end of all others.
        if due > now or (self._probe is not None and self._probe_until > now):
            raise held_back(
                max(due - now, self._every / 10), f"{self.name}: nothing is handled now"
            )
        self._probe, self._probe_until = object(), now + self._window
        self._tell("half_open")
        return self._probe

    def _conclude(self, verdict: Verdict, probe: object | None) -> None:
        if verdict != "unknown":
            self._count(verdict if isinstance(verdict, Exception) else None, probe)
        elif probe is self._probe:
            self._probe = None  # it has shown nothing: the next may try

    def _later(self, error: Exception) -> Postponed:
        assert self._next_probe is not None
        return held_back(
            self._next_probe - self._now(), f"{self.name}: {type(error).__name__}: {error}"
        )

    def _count(self, error: Exception | None, probe: object | None) -> None:
        now, failed = self._now(), error is not None
        if self._next_probe is not None:
            if probe is None:
                return  # it had begun before
            if not failed:
                self._next_probe, self._failed, self._probe = None, 0, None
                self._ends.clear()
                self._tell("closed")
            elif probe is self._probe:  # else it was taken for lost
                self._probe = None
                self._next_probe = now + self._every
                self._tell("open", error)
            return
        ends = self._ends
        ends.append((now, failed))
        self._failed += failed
        while len(ends) > COUNTED or ends[0][0] < now - self._window:
            self._failed -= ends.popleft()[1]
        if failed and len(ends) >= self._minimum and self._failed > self._rate * len(ends):
            self._next_probe = now + self._every
            self._tell("open", error)

    def _tell(self, state: CircuitState, error: Exception | None = None) -> None:
        facts = self._facts
        if facts is not None and facts.wants(CircuitChanged):
            text = None if error is None else f"{type(error).__name__}: {error}"
            facts.emit(CircuitChanged(name=self.name, state=state, error=text))
