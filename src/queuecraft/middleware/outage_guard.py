"""An outage is not to end in the dead-letter queue: past a failure rate, consuming stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from queuecraft.model.errors import ConfigError
from queuecraft.model.message import Message
from queuecraft.model.outcome import Postponed, UnreadablePayload
from queuecraft.model.policy import is_number
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.facts import CircuitChanged, CircuitState, Facts
from queuecraft.runtime.handler import Handle

COUNTED = 1000  # messages of which the rate is taken at most


class OutageGuard:
    """Of the messages of the last `window` seconds, `minimum` at least, more than `failure_rate`
    have failed: then none is handled but one probe every `probe_every` seconds, and the rest wait,
    uncounted. A probe that succeeds ends it; one that fails waits too, as if it had not been tried.

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
        self._probing = False

    @property
    def state(self) -> CircuitState:
        """closed in normal times, open in an outage, half_open while a probe runs."""
        if self._next_probe is None:
            return "closed"
        return "half_open" if self._probing else "open"

    def attach(self, engine: Engine) -> None:
        """Use the clock of a QueueCraft, and tell those who observe it."""
        self._now = engine.clock.monotonic
        self._facts = engine.facts

    def __call__(self, handle: Handle) -> Handle:
        async def guarded(message: Message[Any]) -> object:
            probe = self._next_probe is not None
            if probe:
                self._begin_probe()
            try:
                result = await handle(message)
            except Exception as error:
                if isinstance(error, Postponed | UnreadablePayload):  # no sign of an outage
                    self._give_up(probe)
                    raise
                self._count(error, probe)
                if self._next_probe is not None:
                    raise self._later(error) from error
                raise
            except BaseException:
                self._give_up(probe)
                raise
            self._count(None, probe)
            return result

        return guarded

    def _begin_probe(self) -> None:
        assert self._next_probe is not None
        wait = self._next_probe - self._now()
        if wait > 0 or self._probing:
            raise Postponed(max(wait, self._every / 10), f"{self.name}: nothing is handled now")
        self._probing = True
        self._tell("half_open")

    def _give_up(self, probe: bool) -> None:
        """A probe has shown nothing: the next may try."""
        if probe:
            self._probing = False

    def _later(self, error: Exception) -> Postponed:
        assert self._next_probe is not None
        return Postponed(
            self._next_probe - self._now(), f"{self.name}: {type(error).__name__}: {error}"
        )

    def _count(self, error: Exception | None, probe: bool) -> None:
        now, failed = self._now(), error is not None
        if self._next_probe is not None:
            if not probe:
                return  # it had begun before
            self._probing = False
            if failed:
                self._next_probe = now + self._every
                self._tell("open", error)
            else:
                self._next_probe, self._failed = None, 0
                self._ends.clear()
                self._tell("closed")
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
