"""When to try again, when to stop, and what happens then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

from queuecraft.model.errors import ConfigError

Name: TypeAlias = str | Callable[[str], str] | None
"""A name, or how to make it from the original; None for the usual one."""


def _named(given: Name, original: str, suffix: str) -> str:
    if given is None:
        return original + suffix
    return given if isinstance(given, str) else given(original)


def is_number(value: object) -> bool:
    """Whether it can stand for seconds; True and False are no numbers here.

    >>> is_number(0.5), is_number(True), is_number("1")
    (True, False, False)
    """
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Whether it can stand for a count.

    >>> is_whole(3), is_whole(3.0), is_whole(True)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool)


def _at_least(owner: object, **least: float) -> None:
    for name, minimum in least.items():
        value = getattr(owner, name)
        if not is_number(value) or not value >= minimum:
            kind = type(owner).__name__
            raise ConfigError(f"{kind}({name}={value!r}): expected a number from {minimum:g} on")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Exponential backoff: the n-th retry waits `initial_delay * factor ** (n - 1)` seconds,
    at most `max_delay`; `jitter=0.2` spreads each wait by up to 20 % either way.

    >>> Retry(initial_delay=0.1).delay(attempt=3)
    0.4
    >>> Retry(max_retries=2).delay(attempt=3) is None
    True
    """

    max_retries: int = 3
    initial_delay: float = 1.0
    factor: float = 2.0
    max_delay: float = 30.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        _at_least(self, max_retries=0, initial_delay=0, factor=1, max_delay=0, jitter=0)
        if not isinstance(self.max_retries, int):
            raise ConfigError(f"Retry(max_retries={self.max_retries!r}): expected a whole number")
        if self.jitter > 1:
            raise ConfigError(f"Retry(jitter={self.jitter!r}): expected a share from 0 to 1")

    @classmethod
    def deliveries(
        cls,
        total: int,
        *,
        initial_delay: float = 1.0,
        factor: float = 2.0,
        max_delay: float = 30.0,
        jitter: float = 0.0,
    ) -> Retry:
        """The same, stated as the number of deliveries in all, the first one included.

        >>> Retry.deliveries(5).max_retries
        4
        """
        if not is_whole(total) or total < 1:
            raise ConfigError(f"Retry.deliveries({total!r}): expected a whole number from 1 on")
        return cls(
            max_retries=total - 1,
            initial_delay=initial_delay,
            factor=factor,
            max_delay=max_delay,
            jitter=jitter,
        )

    def delay(self, attempt: int, chance: float = 0.5) -> float | None:
        """Seconds to wait after delivery number `attempt` failed; None when it was the last.

        `chance`, from 0 to 1, places the wait within the jitter.
        """
        if attempt > self.max_retries:
            return None
        try:
            wait = min(self.initial_delay * self.factor ** (attempt - 1), self.max_delay)
        except OverflowError:
            wait = self.max_delay if self.initial_delay else 0.0
        return min(wait * (1 + self.jitter * (2 * chance - 1)), self.max_delay)

    def within(self, limit: Retry | NoRetry) -> Retry | NoRetry:
        """This policy, with no more retries and no longer waits than `limit` allows.

        >>> Retry(max_retries=100).within(Retry(max_retries=5)).max_retries
        5
        """
        if isinstance(limit, NoRetry):
            return limit
        return replace(
            self,
            max_retries=min(self.max_retries, limit.max_retries),
            max_delay=min(self.max_delay, limit.max_delay),
        )


@dataclass(frozen=True, slots=True)
class NoRetry:
    """A failure is final: the message is dead-lettered at once.

    >>> NoRetry().delay(attempt=1) is None
    True
    """

    max_retries: int = 0

    def __post_init__(self) -> None:
        if self.max_retries != 0:
            raise ConfigError("NoRetry takes no number of retries; use Retry(max_retries=…)")

    def delay(self, attempt: int, chance: float = 0.5) -> float | None:
        """Never again."""
        return None

    def within(self, limit: Retry | NoRetry) -> Retry | NoRetry:
        """No retry is within any limit."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Keep what could not be handled, in `{queue}.dlq` through the exchange `{exchange}.dlx`.

    Each name can be given, or made from the original one.

    >>> DeadLetter().queue_for("billing")
    'billing.dlq'
    >>> DeadLetter(queue=lambda queue: f"failed.{queue}").queue_for("billing")
    'failed.billing'
    """

    exchange: Name = None
    queue: Name = None
    routing_key: Name = None

    def exchange_for(self, exchange: str) -> str:
        """The dead-letter exchange beside `exchange`."""
        return _named(self.exchange, exchange, ".dlx")

    def queue_for(self, queue: str) -> str:
        """The dead-letter queue of `queue`."""
        return _named(self.queue, queue, ".dlq")

    def routing_key_for(self, queue: str) -> str:
        """The routing key of dead letters from `queue`."""
        return _named(self.routing_key, queue, ".dlq")


@dataclass(frozen=True, slots=True)
class NoDeadLetter:
    """What could not be handled is logged, counted as dropped, and gone.

    >>> NoDeadLetter()
    NoDeadLetter()
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What happens around a delivery. Unset parts come from the level below.

    Publish options win over the consumer, the consumer over the queue, the queue over the facade.

    >>> Policy(ttl=60).over(Policy(ttl=5, ack_timeout=10))
    Policy(retry=None, dead_letter=None, ttl=60, ack_timeout=10, max_redeliveries=None)
    """

    retry: Retry | NoRetry | None = None
    dead_letter: DeadLetter | NoDeadLetter | None = None
    ttl: float | None = None
    ack_timeout: float | None = None
    max_redeliveries: int | None = None

    def __post_init__(self) -> None:
        for name in ("ttl", "ack_timeout"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value > 0):
                raise ConfigError(f"{name}={value!r}: expected seconds above 0, or None")
        limit = self.max_redeliveries
        if limit is not None and not (is_whole(limit) and limit >= 0):
            msg = f"max_redeliveries={self.max_redeliveries!r}: expected a whole number from 0 on"
            raise ConfigError(msg)
        if not isinstance(self.retry, (Retry, NoRetry, type(None))):
            msg = f"retry={self.retry!r}: expected Retry(max_retries=3) or NoRetry()"
            raise ConfigError(msg)
        if not isinstance(self.dead_letter, (DeadLetter, NoDeadLetter, type(None))):
            msg = f"dead_letter={self.dead_letter!r}: expected DeadLetter() or NoDeadLetter()"
            raise ConfigError(msg)

    def over(self, below: Policy) -> Policy:
        """This policy, with what it leaves open taken from `below`."""
        return Policy(
            **{
                each.name: getattr(below if getattr(self, each.name) is None else self, each.name)
                for each in fields(self)
            }
        )
