"""What is said when Redis says no."""

from __future__ import annotations

from typing import Final

from queuecraft.drivers.base import ConnectionLost, Outgoing
from queuecraft.drivers.redis.client import RedisError
from queuecraft.model.errors import PublishError, QueueError, Unroutable

# Another connection, perhaps to another host, can do what this one cannot.
_ELSEWHERE: Final = (
    *("READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "MOVED", "ASK", "CLUSTERDOWN"),
    *("NOAUTH", "WRONGPASS", "UNBLOCKED"),
)
_REMEDIES: Final = {
    "OOM": "the server is out of memory; let workers empty its queues, or raise its maxmemory",
    "MISCONF": "the server cannot write to its disk, and takes nothing; its log says why",
    "NOPERM": "give the user these commands and all keys of the prefix",
    "WRONGTYPE": "somebody uses a key of ours for something else; delete it, or take ?prefix=",
    "BUSY": "another script keeps the server busy; try again",
}


def refusal(error: RedisError, operation: str, queue: str | None = None) -> QueueError:
    """The error to raise for one that the server has answered.

    >>> refusal(RedisError("NOPERM no permissions to run 'xadd'"), "send").message
    "NOPERM no permissions to run 'xadd'; give the user these commands and all keys of the prefix"
    """
    text = error.message
    if error.code == "GONE":
        # No reason to break the connection that all others use.
        return QueueError(text[5:], broker="redis", operation=operation, queue=queue)
    if error.code == "NOQUEUE":
        return no_queue(queue or "", operation)
    if error.code == "TAKEN":
        return QueueError(
            "the queue is exclusive and has a consumer; stop that one first",
            broker="redis",
            operation=operation,
            queue=queue,
        )
    code = code_of(text)
    if code in _ELSEWHERE:
        return ConnectionLost(text, broker="redis", operation=operation, queue=queue)
    if code in _REMEDIES:
        text = f"{text}; {_REMEDIES[code]}"
    return QueueError(text, broker="redis", operation=operation, queue=queue)


def code_of(text: str) -> str:
    """What kind of an error it is; before Redis 7 that of a command inside a script comes late.

    >>> code_of("ERR Error running script (call to f_0): @user_script:1: OOM command not allowed")
    'OOM'
    """
    first, *words = text.split()
    known = (*_ELSEWHERE, *_REMEDIES)
    return next((word for word in (first, *words) if word.lstrip("-") in known), first).lstrip("-")


def no_queue(name: str, operation: str) -> QueueError:
    """A queue does not exist."""
    return QueueError(
        f"there is no queue {name!r}; start its worker first, or declare it",
        broker="redis",
        operation=operation,
        queue=name,
    )


def homeless(message: Outgoing) -> PublishError:
    """A message has nowhere to go."""
    if message.queue is not None:
        return PublishError(
            "there is no such queue; start its worker first, or declare it",
            broker="redis",
            queue=message.queue,
            message_id=message.id,
        )
    return Unroutable(
        f"no queue is bound to event {message.routing_key!r} on exchange {message.exchange!r}, or "
        "nobody listens; start a worker for it first, or publish with unroutable='drop'",
        broker="redis",
        message_id=message.id,
    )


def let_down() -> PublishError:
    """The batch was to be stored whole, and another message of it could not be."""
    return PublishError("another message of the atomic batch was rejected", broker="redis")


def unstored(message: Outgoing, text: str) -> PublishError:
    """The server has refused a message, and says why."""
    error = refusal(RedisError(text), "send")
    return PublishError(error.message, broker="redis", queue=message.queue, message_id=message.id)
