"""What becomes of a delivery, decided by pure functions."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Final, TypeAlias

from queuecraft.model.errors import PayloadError
from queuecraft.model.policy import NoDeadLetter, NoRetry, Policy

HANDLER_ERROR: Final = "handler-error"
NACK: Final = "nack"
REQUEUE: Final = "requeue"
ACK_TIMEOUT: Final = "ack-timeout"
EXPIRED: Final = "expired"
CRASH_LOOP: Final = "crash-loop"
NO_HANDLER: Final = "no-handler"
INVALID_PAYLOAD: Final = "invalid-payload"
POSTPONED: Final = "postponed"

WAITS_HERE: Final = 5.0  # seconds a worker holds a message only to wait; longer is for the broker


class Postponed(Exception):
    """Raised by a handler, or by what is around it: not now, but in so many seconds. No failure is
    counted, and nothing waits for it meanwhile but its own lane with `ordering="key"`: the message
    comes again as if for the first time.

    >>> raise Postponed(2.5, "the bank is closed")
    Traceback (most recent call last):
    queuecraft.model.outcome.Postponed: for 2.5 s: the bank is closed
    """

    def __init__(self, seconds: float, reason: str = "") -> None:
        self.seconds = max(0.0, seconds)
        self.reason = reason
        super().__init__(f"for {self.seconds:g} s" + (f": {reason}" if reason else ""))


def held_back(seconds: float, reason: str) -> Postponed:
    """The same where all that is behind a message would have to wait as well: it stays with its
    worker and asks again, so that the worker is full and the rest stays in the queue.

    >>> held_back(30, "the bank is closed").seconds
    5.0
    """
    return Postponed(min(seconds, WAITS_HERE), reason)


@dataclass(frozen=True, slots=True)
class NoReply:
    """Returned in place of a result by what is around a handler: who has asked gets no reply."""


NO_REPLY: Final = NoReply()


class UnreadablePayload(PayloadError):
    """A received payload that no retry will make readable, as against one a handler refuses."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it travels with a message: text only, never a live exception.

    >>> Failure.of(KeyError("o-1")).error_type
    'KeyError'
    """

    error_type: str
    error: str
    traceback: str = ""

    @classmethod
    def of(cls, error: BaseException, *, chain: bool = True) -> Failure:
        """The type, message and traceback of an exception, and with `chain` of its causes."""
        kind = type(error)
        name = kind.__qualname__
        if kind.__module__ not in ("builtins", "__main__"):
            name = f"{kind.__module__}.{name}"
        try:
            text = str(error)
        except Exception:  # a user's __str__ may raise; the failure must still be recorded
            text = "(the error cannot be printed)"
        where = error.__traceback__
        while where is not None and _is_ours(where) and where.tb_next is not None:
            where = where.tb_next  # begin with the user's own code
        lines = traceback.format_exception(kind, error, where, limit=-25, chain=chain)
        return cls(name, text, "".join(lines))


def _is_ours(where: TracebackType) -> bool:
    module: str = where.tb_frame.f_globals.get("__name__", "")
    return module.startswith("queuecraft.runtime.")


@dataclass(frozen=True, slots=True)
class Acked:
    """Handled; the broker may forget it."""


@dataclass(frozen=True, slots=True)
class Retried:
    """Failed; comes back to this queue after `delay` seconds."""

    delay: float
    reason: str
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class PutOff:
    """Not handled yet; comes back to this queue after `delay` seconds, no failure older."""

    delay: float
    reason: str
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """Kept in the dead-letter queue."""

    reason: str
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """Gone, logged and counted: dead letters are off."""

    reason: str
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """Given back untouched, to the head of the queue."""


Outcome: TypeAlias = Acked | Retried | PutOff | DeadLettered | Dropped | Released


def after_failure(
    policy: Policy,
    attempt: int,
    reason: str,
    failure: Failure | None = None,
    *,
    delay: float | None = None,
    chance: float = 0.5,
) -> Outcome:
    """Again after a while if attempts are left, else the end; `delay` replaces the policy's wait.

    >>> from queuecraft import Retry
    >>> after_failure(Policy(retry=Retry(max_retries=1)), attempt=1, reason="handler-error").delay
    1.0
    >>> after_failure(Policy(retry=Retry(max_retries=1)), attempt=2, reason="handler-error")
    DeadLettered(reason='handler-error', failure=None)
    """
    retry = policy.retry or NoRetry()
    wait = retry.delay(attempt, chance)
    if wait is None:
        return at_the_end(policy, reason, failure)
    return Retried(wait if delay is None else delay, reason, failure)


def at_the_end(policy: Policy, reason: str, failure: Failure | None = None) -> Outcome:
    """Dead-lettered where dead letters are kept, else dropped.

    >>> at_the_end(Policy(dead_letter=NoDeadLetter()), "expired")
    Dropped(reason='expired', failure=None)
    """
    if isinstance(policy.dead_letter, NoDeadLetter):
        return Dropped(reason, failure)
    return DeadLettered(reason, failure)


def after_error(
    policy: Policy,
    attempt: int,
    error: BaseException,
    chance: float = 0.5,
    *,
    failure: Failure | None = None,
) -> Outcome:
    """What an exception means: a payload that cannot be read never will be, the rest may pass.
    `failure` is the error as text, where that is known already.

    >>> from queuecraft import Retry
    >>> after_error(Policy(retry=Retry()), 1, UnreadablePayload("not JSON")).reason
    'invalid-payload'
    """
    if isinstance(error, UnreadablePayload):
        # Behind it is the error of a validator, and pydantic's quotes the payload.
        failure = Failure.of(error.__cause__ or error, chain=False)
        return at_the_end(policy, INVALID_PAYLOAD, failure)
    failure = failure or Failure.of(error)
    return after_failure(policy, attempt, HANDLER_ERROR, failure, chance=chance)
