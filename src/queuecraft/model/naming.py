"""What queues are called, and which names a broker would refuse."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable

from queuecraft.model.errors import ConfigError

MAX_NAME = 255
"""Bytes in a name, where the broker sets no smaller limit of its own."""

REPLIES = "qc.reply."
"""What the names of all queues for replies begin with; workers reply to no others."""

PAUSES = "queuecraft.pauses"
"""The queue of what is said about paused queues."""


def check_name(kind: str, name: object, limit: int = MAX_NAME) -> None:
    """Raise `ConfigError` unless `name` is a text that brokers accept.

    >>> check_name("queue", "billing")
    >>> check_name("queue", "")
    Traceback (most recent call last):
    queuecraft.ConfigError: a queue needs a name; it is empty
    """
    if not isinstance(name, str):
        raise ConfigError(f"the name of {_a(kind)} must be a str, not {type(name).__name__}")
    if not name:
        raise ConfigError(f"{_a(kind)} needs a name; it is empty")
    if not name.isprintable():
        raise ConfigError(f"{kind} name {name!r} has characters that cannot be printed")
    if (size := len(name.encode())) > limit:
        msg = f"{kind} name {name[:40]!r}… has {size} bytes, the broker allows {limit}; shorten it"
        raise ConfigError(msg)
    if kind == "event":
        _check_words(name)


def _check_words(event: str) -> None:
    """Brokers take `order.*x` and `a..b` for literal words, which no event is ever made of."""
    words = event.split(".")
    if "" in words:
        raise ConfigError(
            f"event {event!r} has an empty word; put one dot between words, as in 'order.placed'"
        )
    if any(mark in word and word != mark for word in words for mark in "*#"):
        raise ConfigError(
            f"event {event!r}: * and # stand for whole words, as in 'order.*' or 'order.#'"
        )


def _a(kind: str) -> str:
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"


def queue_name(
    explicit: str | None,
    service: str | None,
    events: Iterable[str],
    *,
    limit: int = MAX_NAME,
) -> str:
    """The name of a worker's queue: as given, or from its service, or from its events.

    >>> queue_name("billing", None, ["order.placed"])
    'billing'
    >>> queue_name(None, "shop", ["user.updated", "user.created"])
    'shop-a1f513f2'
    >>> queue_name(None, None, ["order.placed", "order.paid"])
    'queue.order.placed.order.paid'
    """
    names = list(dict.fromkeys(events))
    if explicit is not None:
        name = explicit
    elif not names:
        msg = "a worker without a name needs handlers to be named after: qc.worker('billing')"
        raise ConfigError(msg)
    elif service is not None:
        check_name("service", service, limit)
        name = f"{service}-{hashlib.sha256(':'.join(sorted(names)).encode()).hexdigest()[:8]}"
    else:
        name = "queue." + ".".join(names)
        if len(names) > 5 or len(name) > 100:
            warnings.warn(
                f"queue name {name[:60]!r}… is made of {len(names)} event names and changes with "
                "them; name the queue: qc.worker('billing')",
                stacklevel=3,
            )
    check_name("queue", name, limit)
    return name
