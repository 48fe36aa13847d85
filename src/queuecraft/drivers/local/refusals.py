"""What the embedded queue says no to, in the same words in memory and in a file."""

from __future__ import annotations

from collections.abc import Iterable

from queuecraft.drivers.base import Outgoing, Queue
from queuecraft.model.errors import (
    PublishError,
    QueueError,
    TopologyMismatch,
    Unroutable,
)


def check_same(existing: Queue, asked: Queue) -> None:
    """A queue exists with other properties than those asked for."""
    for name in ("durable", "exclusive", "auto_delete", "max_priority", "arguments"):
        have, want = getattr(existing, name), getattr(asked, name)
        if have != want:
            raise TopologyMismatch(
                f"queue {asked.name!r} exists with {name}={have!r}, {want!r} is asked for; "
                "delete the queue or ask for the same",
                broker="local",
                operation="declare",
                queue=asked.name,
            )


def no_queue(name: str, known: Iterable[str], operation: str) -> QueueError:
    """A queue does not exist."""
    names = ", ".join(sorted(known)) or "none yet"
    return QueueError(
        f"there is no queue {name!r}; known queues: {names}",
        broker="local",
        operation=operation,
        queue=name,
    )


def deleted(name: str) -> QueueError:
    """A queue is gone: no reason to break the connection that all others use."""
    return QueueError(
        "the queue was deleted under its consumer",
        broker="local",
        operation="receive",
        queue=name,
    )


def taken(name: str) -> QueueError:
    """An exclusive queue has a consumer."""
    return QueueError(
        "the queue is exclusive and has a consumer; stop that one first",
        broker="local",
        operation="subscribe",
        queue=name,
    )


def homeless(message: Outgoing) -> QueueError:
    """A message has nowhere to go."""
    if message.queue is not None:
        return PublishError(
            "there is no such queue; start its worker first, or declare it",
            broker="local",
            queue=message.queue,
            message_id=message.id,
        )
    return Unroutable(
        f"no queue is bound to event {message.routing_key!r} on exchange "
        f"{message.exchange!r}; start a worker for it first, or publish with "
        "unroutable='drop'",
        broker="local",
        message_id=message.id,
    )


def let_down() -> PublishError:
    """The batch was to be stored whole, and another message of it could not be."""
    return PublishError("another message of the atomic batch was rejected", broker="local")
