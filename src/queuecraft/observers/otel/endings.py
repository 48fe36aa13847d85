"""What became of a message that failed, told in its span."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import time_ns
from typing import Final, TypeAlias
from weakref import WeakSet

from opentelemetry.trace import Span

from queuecraft.model.envelope import Delivery
from queuecraft.observers.otel.conventions import (
    ATTEMPT,
    DELAY,
    MESSAGE_ID,
    REASON,
    Value,
)
from queuecraft.observers.otel.telemetry import mark_failed
from queuecraft.observers.otel.trouble import Trouble
from queuecraft.runtime.facts import (
    Disconnected,
    Facts,
    MessageDeadLettered,
    MessageDropped,
    MessageFailed,
    MessagePostponed,
    MessageRetried,
    Shutdown,
    WorkerStopped,
)

Key: TypeAlias = tuple[str, str]
"""Queue and message id."""

MOST: Final = 1000  # spans that wait for their ending
PATIENCE: Final = 5.0  # seconds a span waits for it, or a little longer


@dataclass(slots=True, eq=False)
class Handling:
    """A handler at work, and the span around it."""

    span: Span
    keys: tuple[Key, ...]
    told: set[Key] = field(default_factory=set[Key])
    ended: int | None = None
    """When it returned, in nanoseconds; None while it runs."""
    failed: bool = False
    """Whether the reason is in the span already."""
    expected: frozenset[Key] = frozenset()
    """Whose ending is still to be told in the span."""


class Endings:
    """Holds the span of a failed handler open until it is known what became of its message: that is
    decided, and confirmed by the broker, a little after the handler has returned."""

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble
        self._running: dict[Key, Handling] = {}
        self._ended: dict[Key, Handling] = {}  # a retry may run before the first try is told of
        self._waiting: dict[Handling, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None  # where the next sweep is due
        self._known: WeakSet[Facts] = WeakSet()

    def observe(self, facts: Facts) -> None:
        """Listen from now on."""
        if facts in self._known:
            return
        self._known.add(facts)
        facts.observe(MessageFailed, self._failed)
        facts.observe(MessageRetried, self._retried)
        facts.observe(MessagePostponed, self._postponed)
        facts.observe(MessageDeadLettered, self._dead_lettered)
        facts.observe(MessageDropped, self._dropped)
        for over in (Disconnected, WorkerStopped, Shutdown):
            facts.observe(over, self._give_up)

    def begin(self, span: Span, keys: tuple[Key, ...]) -> Handling:
        """A handler begins."""
        handling = Handling(span, keys)
        for key in keys:
            self._running[key] = handling
        return handling

    def end(self, handling: Handling, expected: Iterable[Key] = ()) -> None:
        """A handler has returned, or failed; what is to be told of these messages is awaited."""
        handling.ended = time_ns()
        handling.expected = frozenset(expected) - handling.told
        for key in handling.keys:
            if self._running.get(key) is handling:
                del self._running[key]
        if not handling.expected:
            self._close(handling)
            return
        self._waiting[handling] = None
        for key in handling.expected:
            self._ended[key] = handling
        if len(self._waiting) > MOST:
            self._close(next(iter(self._waiting)))
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(PATIENCE, self._sweep)

    # -- facts ---------------------------------------------------------------------------------

    def _failed(self, fact: MessageFailed) -> None:
        key = _key(fact.delivery)
        handling = self._ended.get(key) or self._running.get(key)
        if handling is not None and len(handling.keys) == 1:
            handling.failed = True
            kind = fact.reason if fact.failure is None else fact.failure.error_type
            mark_failed(handling.span, kind, fact.reason)

    def _retried(self, fact: MessageRetried) -> None:
        labels: dict[str, Value] = {REASON: fact.reason, DELAY: fact.delay, ATTEMPT: fact.attempt}
        self._tell("retry", fact.delivery, labels)

    def _postponed(self, fact: MessagePostponed) -> None:
        self._tell("postponed", fact.delivery, {REASON: fact.reason, DELAY: fact.delay})

    def _dead_lettered(self, fact: MessageDeadLettered) -> None:
        self._tell("dead letter", fact.delivery, {REASON: fact.reason, ATTEMPT: fact.attempt})

    def _dropped(self, fact: MessageDropped) -> None:
        self._tell("dropped", fact.delivery, {REASON: fact.reason, ATTEMPT: fact.attempt})

    def _tell(self, what: str, delivery: Delivery, labels: dict[str, Value]) -> None:
        key = _key(delivery)
        handling = self._ended.get(key) or self._running.get(key)
        if handling is None:
            return
        if len(handling.keys) > 1:
            labels[MESSAGE_ID] = delivery.sent.id
        handling.told.add(key)
        handling.span.add_event(what, labels)
        if handling.ended is not None and handling.expected <= handling.told:
            self._close(handling)

    def _give_up(self, fact: object) -> None:
        """What is not known by now will not be told."""
        for handling in list(self._waiting):
            self._close(handling)

    def _sweep(self) -> None:
        """Let go of those that have waited long enough: a connection may have been lost."""
        self._loop = None
        limit = time_ns() - int(PATIENCE * 1e9)
        for handling in list(self._waiting):
            if (handling.ended or 0) <= limit:
                self._close(handling)
        if self._waiting:
            self._loop = asyncio.get_running_loop()
            self._loop.call_later(PATIENCE, self._sweep)

    def _close(self, handling: Handling) -> None:
        self._waiting.pop(handling, None)
        for key in handling.expected:
            if self._ended.get(key) is handling:
                del self._ended[key]
        try:
            handling.span.end(handling.ended)
        except Exception as error:
            self._trouble.tell(error)


def _key(delivery: Delivery) -> Key:
    return delivery.queue, delivery.sent.id
