"""What things are called in Kafka: a topic for each event, and private ones for each queue."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from queuecraft.model.naming import REPLIES
from queuecraft.model.queue import Binding
from queuecraft.model.routing import is_wild, matches

MAX_TOPIC: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]*")
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]")
_PRIVATE: Final = re.compile(r"__.*|.*\.(inbox|dlq|replies|retry\.[0-9]+|delay\.[0-9]+)")
FORWARDERS: Final = "queuecraft.forwarders"
"""The group of those who move on what has waited."""
TIERS: Final = (0.2, 1.0, 5.0, 30.0, 300.0, 3600.0)
"""Seconds that a message waits in one topic for delayed ones before it moves on."""


@dataclass(frozen=True, slots=True)
class Names:
    """All names of one application, which begin with its prefix.

    >>> names = Names("shop.", "events")
    >>> names.event("events", "order.placed"), names.event("audit", "order.placed")
    ('shop.order.placed', 'shop.audit.order.placed')
    >>> names.inbox("billing"), names.inbox("billing.dlq"), names.retry("billing", 0)
    ('shop.billing.inbox', 'shop.billing.dlq', 'shop.billing.retry.0')
    """

    prefix: str
    exchange: str
    """The exchange whose events have topics of their own name."""

    @property
    def topology(self) -> str:
        """Where exchanges, queues and bindings are written down."""
        return f"{self.prefix}queuecraft.topology"

    @property
    def presence(self) -> str:
        """Where processes give signs of life."""
        return f"{self.prefix}queuecraft.presence"

    def event(self, exchange: str, routing_key: str) -> str:
        """The topic of an event."""
        place = "" if exchange == self.exchange else f"{spelled(exchange)}."
        return _fitting(f"{self.prefix}{place}{spelled(routing_key)}")

    def group(self, queue: str) -> str:
        """The consumer group that a queue is."""
        return f"{self.prefix}{queue}"

    @property
    def replies(self) -> str:
        """The topic of all replies to requests."""
        return f"{self.prefix}queuecraft.replies"

    def inbox(self, queue: str) -> str:
        """The topic of what is sent to a queue by name."""
        if queue.startswith(REPLIES):
            return self.replies
        if queue.endswith(".dlq"):
            return _fitting(f"{self.prefix}{spelled(queue[:-4])}", ".dlq")
        return _fitting(f"{self.prefix}{spelled(queue)}", ".inbox")

    def retry(self, queue: str, tier: int) -> str:
        """The topic of what is to come to a queue later."""
        return _fitting(f"{self.prefix}{spelled(queue)}", f".retry.{tier}")

    def delay(self, tier: int) -> str:
        """The topic of events that are to be published later."""
        return f"{self.prefix}queuecraft.delay.{tier}"

    def routing_key(self, exchange: str, topic: str) -> str | None:
        """The event of an exchange that a topic is of; None if it is of none.

        >>> Names("shop.", "events").routing_key("audit", "shop.audit.order.placed")
        'order.placed'
        """
        place = self.prefix + ("" if exchange == self.exchange else f"{spelled(exchange)}.")
        ours = topic in (self.topology, self.presence)
        if not topic.startswith(place) or _PRIVATE.fullmatch(topic) or ours:
            return None
        return topic[len(place) :] or None

    def bound(self, binding: Binding, topics: Iterable[str]) -> set[str]:
        """Those of the topics that a binding asks for."""
        exchange, pattern = binding.exchange, binding.pattern
        if not is_pattern(binding):
            return {self.event(exchange.name, pattern)}.intersection(topics)
        words = (word if word in ("*", "#") else spelled(word) for word in pattern.split("."))
        wanted = ".".join(words)
        found: set[str] = set()
        for topic in topics:
            key = self.routing_key(exchange.name, topic)
            if key is not None and matches(exchange.type, wanted, {}, key, {}):
                found.add(topic)
        return found


def is_pattern(binding: Binding) -> bool:
    """Whether it may ask for topics that do not exist yet.

    >>> from queuecraft import Exchange
    >>> is_pattern(Binding(Exchange("events"), "order.*"))
    True
    """
    if binding.exchange.type == "topic":
        return is_wild(binding.pattern)
    return binding.exchange.type == "fanout"


def spelled(name: str) -> str:
    """A name in the letters that Kafka allows; most are already.

    >>> spelled("order.placed"), spelled("größe")
    ('order.placed', 'gr_c3_b6_c3_9fe')
    """
    return name if _LEGAL.fullmatch(name) else _ILLEGAL.sub(_in_hex, name)


def _in_hex(found: re.Match[str]) -> str:
    return "".join(f"_{byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass"))


def _fitting(name: str, ending: str = "") -> str:
    """A name that is not too long: of one that is, the end is replaced by a sum of the whole."""
    if len(name) + len(ending) <= MAX_TOPIC:
        return name + ending
    mark = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: MAX_TOPIC - len(ending) - len(mark) - 1]}-{mark}{ending}"


def tier_for(seconds: float) -> int:
    """In which of the topics a message is to wait that has so long to wait: the longest wait that
    is not too long.

    >>> [TIERS[tier_for(each)] for each in (0.05, 1.5, 7, 90_000)]
    [0.2, 1.0, 5.0, 3600.0]
    """
    return max((at for at, wait in enumerate(TIERS) if wait <= seconds), default=0)
