"""Messages as rows of the journal."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Final

import msgspec

from queuecraft.codec.headers import (
    MAX_ERROR,
    MAX_TRACEBACK,
    ORIGINAL_ROUTING_KEY,
    REPLAY_ID,
    trim,
)
from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.model.fingerprint import fingerprint
from queuecraft.model.journal import Journal
from queuecraft.model.outcome import Failure
from queuecraft.observers.journal import alike
from queuecraft.observers.journal.headers import parted, text
from queuecraft.observers.journal.line import Line
from queuecraft.observers.journal.payload import Payloads
from queuecraft.observers.journal.row import Outcome
from queuecraft.runtime.successor import failures

MANY: Final = 8
"""Messages from which on it pays to look for what they have in common."""

MOST: Final = 1000
"""Messages on one line: as many are lost with it if it cannot be read."""


class Rows:
    """Makes the rows of one process."""

    def __init__(self, journal: Journal, payloads: Payloads) -> None:
        self._payloads = payloads
        self._together = not payloads.wanted
        self._with_headers = journal.payload != "none"
        self._service = journal.service
        self._host = socket.gethostname()
        self._process = os.getpid()
        here = {"service": self._service, "host": self._host, "process": self._process}
        self._published = msgspec.convert({"kind": "published", "at": 0.0, **here}, Line)
        self._succeeded = msgspec.structs.replace(
            self._published, kind="delivered", attempt=1, outcome="succeeded"
        )

    def published(self, at: float, messages: Sequence[Outgoing]) -> Sequence[Line]:
        """Rows of the messages that the broker has accepted."""
        lines: list[Line] = []
        for start in range(0, len(messages), MOST):
            some = messages[start : start + MOST]
            line = None
            if self._together and len(some) >= MANY:
                line = alike.publishes(self._published, at, some)
            lines += [self._line(at, each) for each in some] if line is None else [line]
        return lines

    def succeeded(
        self, at: float, deliveries: Sequence[Delivery], durations: Sequence[float]
    ) -> Sequence[Line]:
        """Rows of the deliveries that were handled; of those acknowledged by hand, nobody knows
        how long they took."""
        lines: list[Line] = []
        for start in range(0, len(deliveries), MOST):
            some, took = deliveries[start : start + MOST], durations[start : start + MOST]
            line = None
            if self._together and took and len(some) >= MANY:
                line = alike.deliveries(self._succeeded, at, some, took)
            lines += self._successes(at, some, took) if line is None else [line]
        return lines

    def _successes(
        self, at: float, deliveries: Sequence[Delivery], durations: Sequence[float]
    ) -> Sequence[Line]:
        took: Sequence[float | None] = durations or [None] * len(deliveries)
        return [
            self.delivered(at, each, "succeeded", attempt=failures(each) + 1, duration=seconds)
            for each, seconds in zip(deliveries, took, strict=True)
        ]

    def delivered(
        self,
        at: float,
        delivery: Delivery,
        outcome: Outcome,
        *,
        attempt: int,
        reason: str | None = None,
        failure: Failure | None = None,
        duration: float | None = None,
        delay: float | None = None,
    ) -> Line:
        """The row of one delivery, with all that is known of its end."""
        row = self._line(at, delivery.sent)
        if outcome == "succeeded":
            return msgspec.structs.replace(
                row,
                kind="delivered",
                queue=delivery.queue,
                attempt=attempt,
                redeliveries=delivery.redeliveries,
                outcome=outcome,
                duration=duration,
            )
        # Cut as in the headers of a dead letter, so that both have the same fingerprint.
        failure = failure or Failure("", "")
        reason = trim(str(reason), MAX_ERROR)
        kind = trim(failure.error_type, MAX_ERROR)
        error = trim(failure.error, MAX_ERROR)
        traceback = trim(failure.traceback, MAX_TRACEBACK, tail=True)
        return msgspec.structs.replace(
            row,
            kind="delivered",
            queue=delivery.queue,
            attempt=attempt,
            redeliveries=delivery.redeliveries,
            outcome=outcome,
            reason=reason,
            error_type=kind or None,
            error=error or None,
            fingerprint=fingerprint(kind or reason, error, traceback),
            duration=duration,
            delay=delay,
        )

    def _line(self, at: float, message: Outgoing) -> Line:
        """The row of a publish, which has all that a delivery's has of the message."""
        headers = message.headers
        encoding, body, base64 = message.content_encoding, None, None
        if self._payloads.wanted:
            body, base64, encoding = self._payloads.of(message)
        texts, others, event, replay = None, None, message.routing_key, None
        if headers:
            if self._with_headers:
                texts, others = parted(headers)
            # A dead letter goes by the event it was.
            event = text(headers, ORIGINAL_ROUTING_KEY) or event
            replay = text(headers, REPLAY_ID)
        return Line(
            "published",
            at,
            message.id,
            message.queue,
            message.exchange or None,
            event,
            message.key,
            published_at=message.timestamp,
            due_at=message.due_at,
            expires_at=message.expires_at,
            size=len(message.body),
            content_type=message.content_type,
            content_encoding=encoding,
            correlation_id=message.correlation_id,
            reply_to=message.reply_to,
            priority=message.priority,
            headers=texts,
            typed_headers=others,
            payload=body,
            payload_base64=base64,
            replay_id=replay,
            service=self._service,
            host=self._host,
            process=self._process,
        )
