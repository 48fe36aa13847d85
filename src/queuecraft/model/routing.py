"""Which bindings an event matches, by the type of the exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuecraft.model.errors import ConfigError
from queuecraft.model.queue import ExchangeType


def is_wild(pattern: str) -> bool:
    """Whether a topic pattern takes more than one routing key.

    >>> is_wild("order.*"), is_wild("order.placed")
    (True, False)
    """
    return any(word in ("*", "#") for word in pattern.split("."))


def topic_matches(pattern: str, routing_key: str) -> bool:
    """Whether a topic pattern takes a routing key: `*` is one word, `#` any number of words.

    >>> topic_matches("order.*", "order.placed"), topic_matches("order.*", "order.item.added")
    (True, False)
    >>> topic_matches("order.#", "order"), topic_matches("#", "order.item.added")
    (True, True)
    """
    if pattern == routing_key or pattern == "#":
        return True
    if "*" not in pattern and "#" not in pattern:
        return False
    # An empty key has no words, where split() would see an empty one.
    words = routing_key.split(".") if routing_key else []
    return _words_match(pattern.split("."), words)


def _words_match(pattern: Sequence[str], words: Sequence[str]) -> bool:
    # Dynamic programming over suffixes: patterns such as "#.a.#.b.#" stay polynomial.
    reachable = {0}
    for part in pattern:
        following: set[int] = set()
        for at in reachable:
            if part == "#":
                following.update(range(at, len(words) + 1))
            elif at < len(words) and part in ("*", words[at]):
                following.add(at + 1)
        if not following:
            return False
        reachable = following
    return len(words) in reachable


def headers_match(wanted: Mapping[str, Any], headers: Mapping[str, Any]) -> bool:
    """Whether message headers satisfy a binding; `x-match` is `all` (default) or `any`.

    >>> headers_match({"format": "pdf", "kind": "report"}, {"format": "pdf", "kind": "note"})
    False
    >>> headers_match({"x-match": "any", "format": "pdf", "kind": "report"}, {"format": "pdf"})
    True
    """
    mode = wanted.get("x-match", "all")
    if mode not in ("all", "any"):
        raise ConfigError(f"x-match={mode!r}: expected 'all' or 'any'")
    found = (
        name in headers and headers[name] == value
        for name, value in wanted.items()
        if not name.startswith("x-")
    )
    return any(found) if mode == "any" else all(found)


def matches(
    exchange_type: ExchangeType,
    pattern: str,
    wanted: Mapping[str, Any],
    routing_key: str,
    headers: Mapping[str, Any],
) -> bool:
    """Whether an exchange of this type gives the message to a queue bound this way."""
    match exchange_type:
        case "fanout":
            return True
        case "direct":
            return pattern == routing_key
        case "headers":
            return headers_match(wanted, headers)
        case "topic":
            return topic_matches(pattern, routing_key)


def specificity(pattern: str) -> tuple[int, int, int]:
    """How specific a pattern is; larger wins: literals, then `*`, then `#`, then more words given.

    >>> specificity("order.placed") > specificity("order.*") > specificity("order.#")
    True
    """
    words = pattern.split(".")
    hashes, stars = words.count("#"), words.count("*")
    kind = 0 if hashes else 1 if stars else 2
    return kind, len(words) - hashes - stars, -hashes


def overlap(one: str, other: str) -> bool:
    """Whether some routing key matches both patterns.

    >>> overlap("order.*", "*.placed"), overlap("order.*", "user.#")
    (True, False)
    """
    left, right = one.split("."), other.split(".")
    seen: set[tuple[int, int]] = set()
    open_pairs = [(0, 0)]
    while open_pairs:
        i, j = pair = open_pairs.pop()
        if pair in seen:
            continue
        seen.add(pair)
        a = left[i] if i < len(left) else None
        b = right[j] if j < len(right) else None
        if a is None and b is None:
            return True
        if a == "#":
            open_pairs += [(i + 1, j)] + ([(i, j + 1)] if b is not None else [])
        if b == "#":
            open_pairs += [(i, j + 1)] + ([(i + 1, j)] if a is not None else [])
        if a is not None and b is not None and (a == b or "*" in (a, b)) and "#" not in (a, b):
            open_pairs.append((i + 1, j + 1))
    return False
