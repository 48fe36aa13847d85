"""Writes down what becomes of every message."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar

from queuecraft.clock import Clock
from queuecraft.codec import Codec
from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.model.journal import Journal
from queuecraft.model.outcome import EXPIRED, Failure
from queuecraft.observers.journal.line import Line
from queuecraft.observers.journal.lines import Note
from queuecraft.observers.journal.payload import Payloads
from queuecraft.observers.journal.row import Outcome
from queuecraft.observers.journal.rows import Rows
from queuecraft.observers.journal.writer import Writer
from queuecraft.runtime.facts import (
    DelayedDelivered,
    Facts,
    MessageDeadLettered,
    MessageDropped,
    MessageFailed,
    MessageRetried,
    MessagesPublished,
    MessagesSucceeded,
    Shutdown,
)
from queuecraft.runtime.successor import failures

REMEMBERED: Final = 10_000
"""Failures whose end has not been told yet; some never are, such as on a lost connection."""

V = TypeVar("V")

_Ending: TypeAlias = MessageRetried | MessageDeadLettered | MessageDropped


class JournalObserver:
    """Keeps the journal of one QueueCraft: a row for each publish, and a row for each delivery
    with its outcome."""

    def __init__(
        self, journal: Journal, codec: Codec, clock: Clock, logger: logging.Logger
    ) -> None:
        self._journal = journal
        self._payloads = Payloads(journal, codec)
        self._rows = Rows(journal, self._payloads)
        self._writer = Writer(journal, logger)
        self._now = clock.now
        self._failed: dict[Delivery, float | None] = {}
        self._attempts: dict[Delivery, int] = {}

    @property
    def written(self) -> int:
        """Rows given to the disk so far."""
        return self._writer.written

    @property
    def dropped(self) -> int:
        """Rows that were lost: the disk was full or too slow."""
        return self._writer.dropped

    def attach(self, facts: Facts) -> None:
        """Listen from now on."""
        facts.observe(MessagesPublished, self.published)
        facts.observe(DelayedDelivered, self.published)
        facts.observe(MessagesSucceeded, self.succeeded)
        facts.observe(MessageFailed, self.failed)
        facts.observe(MessageRetried, self.retried)
        facts.observe(MessageDeadLettered, self.dead_lettered)
        facts.observe(MessageDropped, self.dropped_message)
        facts.observe(Shutdown, self.shut_down)
        os.register_at_fork(after_in_child=partial(_forked, weakref.ref(self)))

    # -- facts ---------------------------------------------------------------------------------

    def published(self, fact: MessagesPublished | DelayedDelivered) -> None:
        """The broker has these messages; those that waited in `qc.delayed` have got there now."""
        messages = fact.messages
        note = Note(len(messages), partial(self._rows.published, self._now(), messages))
        if self._payloads.wanted:
            self._writer.note_late(note, _size(messages))
        else:
            self._writer.note(note)

    def succeeded(self, fact: MessagesSucceeded) -> None:
        """Handlers returned."""
        deliveries = fact.deliveries
        if self._attempts and any(each in self._attempts for each in deliveries):
            for at, each in enumerate(deliveries):
                took = fact.durations[at] if fact.durations else None
                self._end(each, "succeeded", self._attempt(each), duration=took)
            return
        make = partial(self._rows.succeeded, self._now(), deliveries, fact.durations)
        note = Note(len(deliveries), make)
        if self._payloads.wanted:
            self._writer.note_late(note, _size([each.sent for each in deliveries]))
        else:
            self._writer.note(note)

    def failed(self, fact: MessageFailed) -> None:
        """A handler failed; what comes of it is told next, but not how long it took."""
        _remember(self._failed, fact.delivery, fact.duration)

    def retried(self, fact: MessageRetried) -> None:
        """It comes again: as a message that knows its attempt or, in a lane, as it is."""
        _remember(self._attempts, fact.delivery, fact.attempt)
        self._ended(fact, "retried", delay=fact.delay)

    def dead_lettered(self, fact: MessageDeadLettered) -> None:
        """It is kept."""
        self._ended(fact, "dead-lettered")

    def dropped_message(self, fact: MessageDropped) -> None:
        """It is gone."""
        self._ended(fact, "expired" if fact.reason == EXPIRED else "dropped")

    async def shut_down(self, fact: Shutdown) -> None:
        """Nothing more comes: write what there is, and let it be read."""
        await asyncio.to_thread(self._writer.close)

    def begin(self) -> None:
        """Begin anew in a process that was forked: the rows so far are its parent's."""
        self._rows = Rows(self._journal, self._payloads)
        self._writer.begin()
        self._failed.clear()
        self._attempts.clear()

    # -- one delivery --------------------------------------------------------------------------

    def _ended(self, fact: _Ending, outcome: Outcome, *, delay: float | None = None) -> None:
        self._end(
            fact.delivery,
            outcome,
            fact.attempt,
            reason=fact.reason,
            failure=fact.failure,
            duration=self._failed.pop(fact.delivery, None),
            delay=delay,
        )

    def _end(
        self,
        delivery: Delivery,
        outcome: Outcome,
        attempt: int,
        *,
        reason: str | None = None,
        failure: Failure | None = None,
        duration: float | None = None,
        delay: float | None = None,
    ) -> None:
        at, rows = self._now(), self._rows

        def make() -> list[Line]:
            row = rows.delivered(
                at,
                delivery,
                outcome,
                attempt=attempt,
                reason=reason,
                failure=failure,
                duration=duration,
                delay=delay,
            )
            return [row]

        kept = len(delivery.sent.body) + (0 if failure is None else len(failure.traceback))
        self._writer.note_late(Note(1, make), kept)

    def _attempt(self, delivery: Delivery) -> int:
        before = self._attempts.pop(delivery, None)
        return failures(delivery) + 1 if before is None else before + 1


def _remember(memory: dict[Delivery, V], delivery: Delivery, value: V) -> None:
    if len(memory) >= REMEMBERED:
        del memory[next(iter(memory))]
    memory[delivery] = value


def _size(messages: Sequence[Outgoing]) -> int:
    return sum([len(each.body) for each in messages])


def _forked(observer: weakref.ref[JournalObserver]) -> None:
    if (living := observer()) is not None:
        living.begin()
