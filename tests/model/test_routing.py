"""Which bindings take an event."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.model.errors import ConfigError
from queuecraft.model.queue import EXCHANGE_TYPES, ExchangeType
from queuecraft.model.routing import (
    headers_match,
    matches,
    overlap,
    specificity,
    topic_matches,
)

WORDS = st.sampled_from(["a", "b", "order"])
KEYS = st.lists(WORDS, max_size=6).map(".".join)
PATTERNS = st.lists(st.one_of(WORDS, st.sampled_from(["*", "#"])), min_size=1, max_size=6).map(
    ".".join
)


def words(text: str) -> list[str]:
    return text.split(".") if text else []


def naive(pattern: list[str], key: list[str]) -> bool:
    """The definition, word by word."""
    if not pattern:
        return not key
    first, *rest = pattern
    if first == "#":
        return naive(rest, key) or (bool(key) and naive(pattern, key[1:]))
    return bool(key) and first in ("*", key[0]) and naive(rest, key[1:])


@given(PATTERNS, KEYS)
def test_a_topic_matches_as_its_definition_says(pattern: str, key: str) -> None:
    assert topic_matches(pattern, key) == naive(words(pattern), words(key))


def test_a_pattern_of_many_wildcards_is_still_quick() -> None:
    pattern = ".".join(["#", "a"] * 200)
    assert not topic_matches(pattern, ".".join(["a"] * 199 + ["b"]))


def test_a_wildcard_inside_a_word_is_no_wildcard() -> None:
    assert not topic_matches("order*", "orders")
    assert topic_matches("order*", "order*")
    assert not topic_matches("a.b#", "a.bc")


def test_an_empty_key_has_no_words() -> None:
    assert topic_matches("#", "")
    assert not topic_matches("*", "")
    assert not topic_matches("a", "")


@given(PATTERNS, PATTERNS, KEYS)
def test_patterns_that_share_a_key_overlap(one: str, other: str, key: str) -> None:
    if topic_matches(one, key) and topic_matches(other, key):
        assert overlap(one, other)
        assert overlap(other, one)


def witness(one: str, other: str) -> str | None:
    """A key both patterns take, looked for among all short ones."""
    alphabet = sorted({*words(one), *words(other)} - {"*", "#"} | {"z"})
    keys = [""]
    for _ in range(len(words(one)) + len(words(other))):
        if found := next(
            (k for k in keys if topic_matches(one, k) and topic_matches(other, k)), None
        ):
            return found
        if "" in keys and topic_matches(one, "") and topic_matches(other, ""):
            return ""
        keys = [f"{k}.{w}" if k else w for k in keys for w in alphabet]
    return None


SHORT = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=3).map(".".join)


@given(SHORT, SHORT)
def test_patterns_that_overlap_share_a_key(one: str, other: str) -> None:
    assert overlap(one, other) == (witness(one, other) is not None)


@pytest.mark.parametrize(
    ("specific", "general"),
    [
        ("order.placed", "order.*"),
        ("order.placed", "*.placed"),
        ("order.*", "order.#"),
        ("order.*", "#"),
        ("order", "order.#"),
        ("order.placed", "order.placed.#"),
        ("order.*", "*.*"),
        ("order.#", "#"),
        ("#.placed", "#"),
        ("*.*", "order.#"),
    ],
)
def test_literals_win_over_stars_and_stars_over_hashes(specific: str, general: str) -> None:
    assert specificity(specific) > specificity(general)


def test_headers_must_all_match_by_default() -> None:
    wanted = {"format": "pdf", "pages": 2}
    assert headers_match(wanted, {"format": "pdf", "pages": 2, "more": True})
    assert not headers_match(wanted, {"format": "pdf"})
    assert not headers_match({**wanted, "x-match": "all"}, {"format": "pdf", "pages": 3})


def test_any_header_may_match() -> None:
    wanted = {"x-match": "any", "format": "pdf", "pages": 2}
    assert headers_match(wanted, {"pages": 2})
    assert not headers_match(wanted, {"pages": 3})
    assert not headers_match(wanted, {})


def test_headers_of_our_own_do_not_take_part() -> None:
    assert headers_match({"x-retry": 1, "format": "pdf"}, {"format": "pdf"})


def test_wanting_nothing_matches_all_or_nothing() -> None:
    assert headers_match({}, {"a": 1})
    assert not headers_match({"x-match": "any"}, {"a": 1})


def test_an_unknown_way_of_matching_is_refused() -> None:
    with pytest.raises(ConfigError, match="x-match='most'"):
        headers_match({"x-match": "most"}, {})


@pytest.mark.parametrize(
    ("kind", "pattern", "wanted", "taken"),
    [
        ("fanout", "whatever", {}, True),
        ("direct", "order.placed", {}, True),
        ("direct", "order.*", {}, False),
        ("direct", "#", {}, False),
        ("topic", "order.*", {}, True),
        ("topic", "user.*", {}, False),
        ("headers", "nothing", {"a": 1}, True),
        ("headers", "order.placed", {"a": 2}, False),
    ],
)
def test_the_type_of_the_exchange_decides(
    kind: ExchangeType, pattern: str, wanted: dict[str, Any], taken: bool
) -> None:
    assert matches(kind, pattern, wanted, "order.placed", {"a": 1}) is taken


def test_every_exchange_type_is_listed() -> None:
    assert get_args(ExchangeType) == EXCHANGE_TYPES
