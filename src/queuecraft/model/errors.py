"""What can go wrong, said so that a person knows what to do."""

from __future__ import annotations

from typing import Literal


class QueueError(Exception):
    """The root of every error QueueCraft raises; it knows where it happened.

    >>> error = QueueError("the disk is full", broker="local", operation="send", queue="billing")
    >>> str(error)
    "the disk is full [broker=local operation=send queue='billing']"
    >>> error.queue
    'billing'
    """

    def __init__(
        self,
        message: str,
        *,
        broker: str | None = None,
        operation: str | None = None,
        queue: str | None = None,
        message_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.broker = broker
        self.operation = operation
        self.queue = queue
        self.message_id = message_id

    def __str__(self) -> str:
        context = [
            f"{name}={value}"
            for name, value in (
                ("broker", self.broker),
                ("operation", self.operation),
                ("queue", None if self.queue is None else repr(self.queue)),
                ("message", self.message_id),
            )
            if value is not None
        ]
        return f"{self.message} [{' '.join(context)}]" if context else self.message


class ConfigError(QueueError):
    """A setting, name or signature that cannot work; nothing was connected or sent."""


class ConnectionLost(QueueError):
    """The broker cannot be reached, or the connection to it broke."""


class PublishError(QueueError):
    """A publish did not succeed. `outcome` says whether the broker may have stored it.

    >>> error = PublishError("no answer within 30 s", outcome="unknown")
    >>> error.outcome  # "rejected": certainly not stored; "unknown": perhaps stored
    'unknown'
    """

    def __init__(
        self,
        message: str,
        *,
        outcome: Literal["rejected", "unknown"] = "rejected",
        results: tuple[str | QueueError, ...] = (),
        broker: str | None = None,
        operation: str | None = "publish",
        queue: str | None = None,
        message_id: str | None = None,
    ) -> None:
        super().__init__(
            message, broker=broker, operation=operation, queue=queue, message_id=message_id
        )
        self.outcome: Literal["rejected", "unknown"] = outcome
        self.results = results
        """What became of each message of a batch: its id, or its error."""


class Unroutable(PublishError):
    """No queue is bound to the event, so nobody would ever receive it."""


class CircuitOpen(QueueError):
    """The circuit breaker is open: the call was refused without being tried."""


class QueueFull(QueueError):
    """A limit on waiting messages is reached; try again later."""


class RequestTimeout(QueueError):
    """No reply came within the time given."""


class RemoteError(QueueError):
    """The handler that answers a request failed; this is what it said. It is text, whatever the
    error was over there: `error_type` is a name to compare with.

    >>> error = RemoteError("ValueError: no money", error_type="ValueError", error="no money")
    >>> error.error_type, error.error
    ('ValueError', 'no money')
    """

    def __init__(
        self,
        message: str,
        *,
        error_type: str = "",
        error: str = "",
        broker: str | None = None,
        operation: str | None = "request",
        queue: str | None = None,
        message_id: str | None = None,
    ) -> None:
        super().__init__(
            message, broker=broker, operation=operation, queue=queue, message_id=message_id
        )
        self.error_type = error_type
        self.error = error


class UnsupportedFeature(QueueError):
    """This broker cannot do what was asked; nothing was sent."""


class AlreadySettled(QueueError):
    """The message was acknowledged, retried or dead-lettered before, or timed out."""


class TopologyMismatch(QueueError):
    """A queue or exchange exists with other properties than those asked for."""


class PayloadError(QueueError):
    """A payload that does not fit its type, cannot be read, or is too large."""


# Tracebacks and dead letters name an error as its user imports it.
for _kind in (QueueError, *QueueError.__subclasses__(), Unroutable):
    _kind.__module__ = "queuecraft"
