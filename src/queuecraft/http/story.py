"""A fact as it is told to the world: names and counts, never payloads, and nothing without end."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from queuecraft import facts
from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.model.outcome import Failure
from queuecraft.observers.log import printable
from queuecraft.runtime.facts import Fact

LONGEST = 200  # characters of one text
NAMES = 20  # events told by name; the rest are told as "other"

_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_PRIVATE = frozenset({"stack", "traceback", "payload", "headers", "body", "at"})


def kind_of(fact: Fact | type[Fact]) -> str:
    """What a fact is called on the wire.

    >>> from queuecraft.facts import MessagesPublished
    >>> kind_of(MessagesPublished)
    'messages_published'
    """
    named = fact if isinstance(fact, type) else type(fact)
    return _WORD.sub("_", named.__name__).lower()


def kinds() -> list[str]:
    """Every kind there is.

    >>> "delayed_cleaned" in kinds()
    True
    """
    public = (getattr(facts, name) for name in facts.__all__)
    return sorted(kind_of(each) for each in public if each is not Fact)


def told(fact: Fact) -> str:
    """The fact as JSON on one line.

    >>> from queuecraft.facts import MessageFailed
    >>> delivery = Delivery(Outgoing(b"secret", "m-1", "events", "order.placed"), "billing")
    >>> told(MessageFailed(worker="billing", delivery=delivery, attempt=1, reason="handler-error"))
    '{"worker": "billing", "queue": "billing", "event": "order.placed", "message_id": "m-1", \
"attempt": 1, "reason": "handler-error"}'
    """
    return json.dumps(_fields(fact)).replace("\x7f", "\\u007f")


def _fields(fact: Fact) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in fact.__struct_fields__:
        value: Any = getattr(fact, name)
        if name in _PRIVATE:
            continue
        if isinstance(value, Delivery):
            found["queue"] = _text(value.queue)
            found["event"] = _text(value.sent.routing_key)
            found["message_id"] = _text(value.sent.id)
        elif name in ("messages", "deliveries") and isinstance(value, Sequence):
            found |= _batch(value)
        elif isinstance(value, Failure):
            found["error_type"] = _text(value.error_type)
        else:
            found |= _plain(name, value)
    return found


def _batch(items: Sequence[Any]) -> dict[str, Any]:
    sent: Iterable[Outgoing] = [each.sent if isinstance(each, Delivery) else each for each in items]
    events: Counter[str] = Counter(each.routing_key for each in sent)
    shown = {_text(name): count for name, count in events.most_common(NAMES)}
    rest = len(items) - sum(shown.values())
    if rest:
        shown["other"] = shown.get("other", 0) + rest
    told: dict[str, Any] = {"count": len(items), "events": shown}
    if items and isinstance(items[0], Delivery):
        told["queue"] = _text(items[0].queue)
    return told


def _plain(name: str, value: Any) -> dict[str, Any]:
    """A number, a text, a time, or a table of those; what is none of these is left out."""
    if isinstance(value, bool | int):
        return {name: value}
    if isinstance(value, float):
        return {name: value if abs(value) < float("inf") else None}
    if isinstance(value, str):
        return {name: _text(value)}
    if isinstance(value, datetime):
        return {name: value.isoformat()}
    if name == "durations" and isinstance(value, Sequence):
        return {"seconds": round(sum(value), 6)}
    if isinstance(value, Mapping):
        inside: dict[str, Any] = {}
        for key, each in list(value.items())[:NAMES]:
            inside |= _plain(_text(str(key)), each)
        return {name: inside}
    return {}


def _text(value: str) -> str:
    text = printable(value[:LONGEST])
    return text if len(text) <= LONGEST else text[:LONGEST]
