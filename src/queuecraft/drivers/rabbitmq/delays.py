"""Delays without a plugin: binary levels of queues in which messages wait, and the way through.

A delay is a number of ticks. Level n is a queue whose messages expire after 2ⁿ ticks; the bits of
the number, in the routing key, say on which levels a message stays. The queues are quorum queues
that hand over at least once: a classic one loses what expires while its target is missing.

A level tries again what it cannot hand over, and stands still when it has 32 of them: a queue that
was deleted would stop the delays of all others. What is due for nobody is therefore kept apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from queuecraft.drivers.base import Exchange

TICK: Final = 0.1  # seconds
LEVELS: Final = 28
LONGEST: Final = TICK * ((1 << LEVELS) - 1)  # seconds: 310 days
PREFIX: Final = "qc.delay"
UNDELIVERED: Final = Exchange("qc.undelivered", "fanout")
UNDELIVERED_QUEUE: Final = f"{UNDELIVERED.name}.dlq"
DELAYED_FOR: Final = "x-delayed-for"
"""The header with the name of the one queue a message is to end in."""

_OTHERWISE: Final = {"alternate-exchange": UNDELIVERED.name}
DUE: Final = Exchange(f"{PREFIX}.due", arguments=_OTHERWISE)
_ANY: Final = "*." * LEVELS


@dataclass(frozen=True, slots=True)
class Level:
    """One of the queues, with the exchange before it."""

    number: int

    @property
    def name(self) -> str:
        """Of both, the exchange and the queue.

        >>> Level(3).name
        'qc.delay.03'
        """
        return f"{PREFIX}.{self.number:02}"

    @property
    def next(self) -> str:
        """The exchange that comes after it."""
        return Level(self.number - 1).name if self.number else DUE.name

    @property
    def arguments(self) -> dict[str, Any]:
        """Of the queue."""
        return {
            "x-queue-type": "quorum",
            "x-message-ttl": round(1000 * TICK) << self.number,
            "x-dead-letter-exchange": self.next,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }

    def pattern(self, bit: int) -> str:
        """What is bound to the queue (1) and what passes it by (0)."""
        return f"{'*.' * (LEVELS - 1 - self.number)}{bit}.#"


def levels(top: int) -> Iterator[Level]:
    """All that a message passes that starts at this one, from the last to the first."""
    return map(Level, range(top + 1))


def way(seconds: float, destination: str) -> tuple[Level, str]:
    """Where to publish what is to wait so long, and its routing key. Never too short a time.

    >>> level, key = way(0.5, "q.billing")
    >>> level.number, key.endswith(".1.0.1.q.billing")
    (2, True)

    Raises `ValueError` for more than they can wait together.
    """
    if seconds > LONGEST:
        raise ValueError(f"a delay of more than {LONGEST // 86_400:.0f} days; use qc.delayed")
    ticks = max(1, math.ceil(seconds / TICK))
    bits = f"{ticks:0{LEVELS}b}"
    return Level(ticks.bit_length() - 1), f"{'.'.join(bits)}.{destination}"


def to_queue(name: str) -> str:
    """The destination that is one queue. A hash, because a name may have dots and be long."""
    return f"q.{_digest(name)}"


def to_exchange(name: str, routing_key: str) -> str:
    """The destination that is an exchange, by a routing key or, in a binding, a pattern."""
    return f"e.{_digest(name)}.{routing_key}"


def due_at(exchange: Exchange) -> Exchange:
    """What stands in, when messages are due, for an exchange that does not go by routing keys: it
    is bound to the same queues in the same way, and tells what none of them wants.

    >>> due_at(Exchange("audit", "fanout"))
    Exchange(name='qc.delay.due.fanout.b81f37a043a6f767', type='fanout', ...)
    """
    name = f"{DUE.name}.{exchange.type}.{_digest(exchange.name)}"
    return Exchange(name, exchange.type, arguments=_OTHERWISE)


def binding(destination: str) -> str:
    """The pattern for what has arrived at a destination.

    >>> binding("q.billing").count("*")
    28
    """
    return _ANY + destination


def destination(routing_key: str) -> str:
    """Where something was on its way to, by the routing key it had in a level of delay.

    >>> destination(way(0.5, "q.billing")[1])
    'q.billing'
    """
    return routing_key.split(".", LEVELS)[-1]


def _digest(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:16]
