"""A broker that cannot be used: which one, where it was looked for, why, and what to do."""

from __future__ import annotations

import os
import re
from typing import Final

from queuecraft.model.errors import ConnectionLost, QueueError
from queuecraft.model.masking import masked

REACH: Final = "start it, or name another with --url or QUEUECRAFT_URL"
CREDENTIALS: Final = "mend the user name or the password in the URL, or what `credentials` names"
VIRTUAL_HOST: Final = (
    "make it (rabbitmqctl add_vhost) and give the user rights there, or name another"
)

_REFUSED_CALL: Final = re.compile(r"\[Errno (\d+)\] Connect call failed \([^)]*\)")
_NUMBER: Final = re.compile(r"\[Errno -?\d+\] ")
_CREDENTIALS: Final = re.compile(r"password|credentials|authenticat|\bSASL\b", re.IGNORECASE)


def unreachable(url: str, error: ConnectionLost) -> ConnectionLost:
    """The error in words for a person who has given this URL; nothing secret of it is told.

    >>> lost = ConnectionLost("one:1: [Errno 111] Connect call failed ('10.0.0.1', 1)")
    >>> unreachable("redis://ada:s3cret@one:1/0?mode=list", lost).message
    'redis://one:1 cannot be used: one:1: Connection refused; start it, or name another with ...'
    """
    what, todo = divided(error)
    return ConnectionLost(
        f"{place(url)} cannot be used: {what}; {todo}",
        broker=error.broker,
        operation=error.operation,
        queue=error.queue,
    )


def divided(error: QueueError) -> tuple[str, str]:
    """What happened, and what to do about it: what the error says itself, or what helps with most
    of its kind.

    >>> divided(ConnectionLost("one:1: the password is wrong"))[1] == CREDENTIALS
    True
    """
    text = _REFUSED_CALL.sub(lambda found: os.strerror(int(found[1])), error.message)
    text = _NUMBER.sub("", text)
    if "there is no virtual host" in text:  # and then, what RabbitMQ says of it
        return text, VIRTUAL_HOST
    what, _, todo = text.partition("; ")
    return what, todo or (CREDENTIALS if _CREDENTIALS.search(what) else REACH)


def place(url: str) -> str:
    """The scheme and the hosts of a URL.

    >>> place("amqp://ada:s3cret@one,two:5673/shop?heartbeat=5")
    'amqp://one,two:5673'
    """
    scheme, _, rest = masked(url).partition("://")
    hosts = re.split(r"[/?]", rest.rpartition("@")[2], maxsplit=1)[0]
    return f"{scheme}://{hosts}" if hosts else "the broker"
