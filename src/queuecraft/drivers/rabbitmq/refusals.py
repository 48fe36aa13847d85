"""What RabbitMQ says when it refuses, said so that a person knows what to do."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from queuecraft.drivers.rabbitmq.wire import Closed
from queuecraft.model.errors import QueueError, TopologyMismatch

REFUSED: Final = 403
NOT_FOUND: Final = 404
LOCKED: Final = 405  # exclusive, and another connection's
MISMATCH: Final = 406

_DIFFERENT: Final = re.compile(
    r"inequivalent arg '(?P<argument>.+?)' for (?P<what>(?:queue|exchange) '.*') in vhost '.*': "
    r"received (?P<asked>.+) but current is (?P<actual>.+)"
)
_VALUE: Final = re.compile(r"the value '(?P<value>.*)' of type '\w+'|'(?P<plain>.*)'")


@contextmanager
def refusable(operation: str, what: str) -> Generator[None]:
    """For what a broker may refuse: it closes the channel then, and nothing else."""
    try:
        yield
    except Closed as error:
        if error.code not in (REFUSED, NOT_FOUND, LOCKED, MISMATCH):
            raise
        raise refusal(error, operation, what) from None


def refusal(error: Closed, operation: str, what: str) -> QueueError:
    """The error to raise for a channel that the broker has closed.

    >>> text = "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'billing' in "
    >>> text += "vhost '/': received none but current is the value '60000' of type 'signedint'"
    >>> print(refusal(Closed(text, code=406), "declare", "billing").message)
    queue 'billing' exists with x-message-ttl='60000', and none was asked for; ask for the same, or
    delete it on the broker
    """
    said = told(error)
    if error.code == REFUSED:
        return QueueError(
            f"{said}; give the user that permission on it, or use another name",
            broker="rabbitmq",
            operation=operation,
            queue=what,
        )
    if (found := _DIFFERENT.search(said)) is not None:
        asked, actual = _value(found["asked"]), _value(found["actual"])
        text = (
            f"{found['what']} exists with {found['argument']}={actual}, and {asked} was asked for; "
            "ask for the same, or delete it on the broker"
        )
    elif error.code == NOT_FOUND:
        text = f"{said}; make it first, or have it made: declare=assert in the URL"
    elif error.code == LOCKED:
        text = f"{said}; it is another connection's own, use another name"
    else:
        text = f"{said}; ask for something else, or delete {what!r} on the broker"
    return TopologyMismatch(text, broker="rabbitmq", operation=operation, queue=what)


def told(error: Closed) -> str:
    """What the broker said, without our words around it.

    >>> told(Closed("the broker closed the channel: NOT_FOUND - no queue 'x' (404)", code=404))
    "NOT_FOUND - no queue 'x'"
    """
    text = error.message.removeprefix("the broker closed the channel: ")
    return text.removesuffix(f" ({error.code})")


def _value(said: str) -> str:
    """`none`, or the value in quotation marks."""
    found = _VALUE.fullmatch(said.strip())
    if found is None:
        return said.strip()
    value = found["value"] if found["plain"] is None else found["plain"]
    return repr(value)
