"""A circuit breaker: when something keeps failing, it is left alone for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

from queuecraft.middleware.verdict import Verdict, verdict_on
from queuecraft.model.errors import (
    CircuitOpen,
    ConfigError,
    ConnectionLost,
    PublishError,
    QueueFull,
)
from queuecraft.model.message import Message
from queuecraft.model.outcome import Postponed, held_back
from queuecraft.model.policy import is_number, is_whole
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.facts import CircuitChanged, CircuitState, Facts
from queuecraft.runtime.handler import Handle
from queuecraft.runtime.publication import Publication, Publish

P = ParamSpec("P")
R = TypeVar("R")

Counts: TypeAlias = Callable[[BaseException], bool]


class Breaker:
    """Closed, it lets every call through. After `failure_threshold` failures in a row it is open,
    and refuses all with `CircuitOpen`; after `reset_timeout` seconds it is half open, and lets one
    call try: if that succeeds it is closed again. If it has not ended after as many seconds, the
    next may try.

    `counts` says which errors are failures of what is called; all but cancellations by default.

    >>> bank = Breaker("bank", failure_threshold=3, reset_timeout=10)
    >>> async def charge(order):
    ...     async with bank:
    ...         ...
    >>> bank.state
    'closed'
    """

    def __init__(
        self,
        name: str = "breaker",
        *,
        failure_threshold: int = 5,
        reset_timeout: float = 30.0,
        counts: Counts | None = None,
    ) -> None:
        if not is_whole(failure_threshold) or failure_threshold < 1:
            raise ConfigError(
                f"failure_threshold={failure_threshold!r}: expected a whole number from 1 on"
            )
        if not is_number(reset_timeout) or not 0 < reset_timeout < float("inf"):
            raise ConfigError(f"reset_timeout={reset_timeout!r}: expected seconds above 0")
        self.name = name
        self._threshold = failure_threshold
        self._reset = reset_timeout
        self._counts = counts or _is_failure
        self._now: Callable[[], float] = monotonic
        self._facts: Facts | None = None
        self._connection: Connection | None = None
        self._failures = 0
        self._opened: float | None = None
        self._probing = False
        self._prober: asyncio.Task[Any] | None = None  # whose call it is that tries
        self._probe_until = 0.0  # then it is taken for lost
        self._lost: set[asyncio.Task[Any] | None] = set()  # whose calls were; they may yet succeed

    @property
    def state(self) -> CircuitState:
        """closed, open or half_open."""
        if self._opened is None:
            return "closed"
        return "open" if self._refuses else "half_open"

    @property
    def wait(self) -> float:
        """Seconds until a call may be tried; 0 unless it is open."""
        if self._opened is None:
            return 0.0
        return max(0.0, self._opened + self._reset - self._now())

    def attach(self, engine: Engine) -> None:
        """Use the clock of a QueueCraft, and tell those who observe it."""
        if engine.clock.monotonic is not self._now:  # what was at another time says nothing here
            self._forget()
        self._now = engine.clock.monotonic
        self._facts = engine.facts
        self._connection = engine.connection

    # -- around a call -------------------------------------------------------------------------

    def enter(self) -> None:
        """A call is about to be made. Raises `CircuitOpen` if it is not to be."""
        if self._opened is None:
            return
        if self._refuses:
            raise CircuitOpen(
                f"{self.name} has failed {self._failures} times in a row and is left alone for "
                f"another {self.wait or self._reset:.1f} s"
            )
        if self._probing:
            self._lost.add(self._prober)
        self._probing, self._prober = True, _caller()
        self._probe_until = self._now() + self._reset
        self._tell("half_open")

    def succeeded(self) -> None:
        """A call has succeeded."""
        if self._opened is None:
            self._failures = 0
        elif self._is_probe or (self._lost and _caller() in self._lost):
            self.close()

    def failed(self, error: BaseException) -> None:
        """A call has raised."""
        if not self._counts(error):
            self._give_up()
            return
        self._lost.discard(_caller())
        self._failures += 1
        if self._opened is None and self._failures < self._threshold:
            return
        if self._opened is None or self._is_probe:
            self._opened = self._now()
            self._probing = False
            self._tell("open", error)

    def close(self) -> None:
        """Let every call through again."""
        was = self._opened
        self._forget()
        if was is not None:
            self._tell("closed")

    async def call(
        self, function: Callable[P, Awaitable[R]], *arguments: P.args, **options: P.kwargs
    ) -> R:
        """Await the function, if it may be called now.

        >>> import asyncio
        >>> async def pay(amount):
        ...     return f"paid {amount}"
        >>> asyncio.run(Breaker("bank").call(pay, 5))
        'paid 5'
        """
        async with self:
            return await function(*arguments, **options)

    async def __aenter__(self) -> Breaker:
        self.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        if error is None:
            self.succeeded()
        else:
            self.failed(error)
        return False

    # -- as middleware -------------------------------------------------------------------------

    def handling(self, handle: Handle) -> Handle:
        """Middleware around handlers: while it is open, messages wait, and no failure is counted.
        The worker holds as many as it may, and leaves the rest in the queue. A failure is what a
        handler raises, what it settles by `nack`, `retry` or `requeue`, and what takes longer than
        the ack timeout; a payload that cannot be read is none.

        >>> from queuecraft import QueueCraft
        >>> QueueCraft().use(Breaker("bank").handling)
        """

        async def broken(message: Message[Any]) -> object:
            try:
                self.enter()
            except CircuitOpen as error:
                raise held_back(self.wait or 1.0, str(error)) from None
            try:
                result = await handle(message)
            except BaseException as error:
                self._conclude(verdict_on(message, error))
                raise
            self._conclude(verdict_on(message, None))
            return result

        return broken

    def publishing(self, publish: Publish) -> Publish:
        """Middleware around publishing: while it is open, `publish` raises `CircuitOpen` at once.
        A payload that does not fit, or an event nobody listens to, is no failure of the broker.

        >>> from queuecraft import QueueCraft
        >>> QueueCraft().use_publishing(Breaker("broker").publishing)
        """

        async def broken(publication: Publication) -> str:
            self.enter()
            try:
                id = await publish(publication)
            except BaseException as error:
                if self._is_the_brokers(error):
                    self.failed(error)
                else:
                    self._give_up()
                raise
            self.succeeded()
            return id

        return broken

    def _forget(self) -> None:
        self._opened, self._probing, self._failures = None, False, 0
        self._lost.clear()

    @property
    def _refuses(self) -> bool:
        """Whether a call is not to be made now, once it is open. The one that tries may never end,
        which is not to be the end of all others."""
        return self.wait > 0 or (self._probing and self._probe_until > self._now())

    @property
    def _is_probe(self) -> bool:
        """Whether the call that ends is the one that tries. Others may have begun before it."""
        return self._probing and self._prober is _caller()

    def _conclude(self, verdict: Verdict) -> None:
        if verdict == "works":
            self.succeeded()
        elif isinstance(verdict, Exception):
            self.failed(verdict)
        else:
            self._give_up()

    def _give_up(self) -> None:
        """A call says nothing of what was called; if it was to try, the next may."""
        self._lost.discard(_caller())
        if self._is_probe:
            self._probing = False

    def _is_the_brokers(self, error: BaseException) -> bool:
        """Whether publishing failed because of the broker, as against what was published."""
        if isinstance(error, PublishError):
            lost = self._connection is not None and self._connection.current is None
            return lost or error.outcome == "unknown"
        return isinstance(error, ConnectionLost | QueueFull)

    def _tell(self, state: CircuitState, error: BaseException | None = None) -> None:
        facts = self._facts
        if facts is not None and facts.wants(CircuitChanged):
            text = None if error is None else str(error) or repr(error)
            facts.emit(CircuitChanged(name=self.name, state=state, error=text))


def _caller() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # called without a loop
        return None


def _is_failure(error: BaseException) -> bool:
    # A cancellation, or a message put off, says nothing of what was called.
    return isinstance(error, Exception) and not isinstance(error, Postponed)
