"""The way of a delayed message: through exactly the levels whose times add up to its delay."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.drivers.rabbitmq import delays
from queuecraft.drivers.rabbitmq.delays import DUE, LEVELS, TICK, Level, levels, way
from queuecraft.model.routing import topic_matches

LONGEST = (1 << LEVELS) - 1
TICKS = st.integers(1, LONGEST) | st.integers(0, LEVELS - 1).map(lambda bit: 1 << bit)


def waits(level: Level, key: str) -> tuple[int, str]:
    """Milliseconds that a message waits on its way, and the exchange at its end: the bindings of
    each level are followed as the broker would, and exactly one of them must match."""
    total = 0
    at = level.name
    for each in reversed(list(levels(level.number))):
        assert at == each.name
        stays, passes = (topic_matches(each.pattern(bit), key) for bit in (1, 0))
        assert stays != passes
        if stays:
            total += each.arguments["x-message-ttl"]
            assert each.arguments["x-dead-letter-exchange"] == each.next
        at = each.next
    return total, at


@given(TICKS)
def test_the_levels_passed_add_up_to_the_delay(ticks: int) -> None:
    level, key = way(ticks / 10, "q.x")
    assert waits(level, key) == (100 * ticks, DUE.name)


@given(st.floats(0, LONGEST * TICK))
def test_no_delay_is_too_short_and_none_a_tick_too_long(seconds: float) -> None:
    level, key = way(seconds, "q.x")
    total, end = waits(level, key)
    assert end == DUE.name
    late = Fraction(total, 1000) - Fraction(seconds)
    # A float in seconds is good for microseconds here; the broker counts in milliseconds.
    assert -Fraction(1, 1_000_000) < late <= Fraction(TICK) + Fraction(1, 1_000_000)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e-9, 0.1])
def test_the_shortest_delay_is_one_tick(seconds: float) -> None:
    level, key = way(seconds, "q.x")
    assert waits(level, key) == (100, DUE.name)


def test_the_longest_delay_takes_the_longest_way_there_is() -> None:
    level, key = way(LONGEST * TICK, "q.x")
    assert waits(level, key) == (100 * LONGEST, DUE.name)
    assert level.number == LEVELS - 1


@pytest.mark.parametrize("seconds", [LONGEST * TICK + 1, 1e300, math.inf])
def test_a_delay_beyond_all_levels_is_refused_because_it_would_come_early(seconds: float) -> None:
    with pytest.raises(ValueError, match="a delay of more than 310 days"):
        way(seconds, "q.x")


@given(TICKS)
def test_a_message_starts_at_a_level_where_it_stays(ticks: int) -> None:
    level, key = way(ticks / 10, "q.x")
    assert topic_matches(level.pattern(1), key)
    assert level.number == ticks.bit_length() - 1


def test_levels_have_names_of_their_own_and_come_from_the_last_to_the_first() -> None:
    found = list(levels(LEVELS - 1))
    assert [level.number for level in found] == list(range(LEVELS))
    assert len({level.name for level in found}) == LEVELS
    assert found[0].next == DUE.name
    assert [level.next for level in found[1:]] == [level.name for level in found[:-1]]


def test_a_level_keeps_what_it_holds_until_the_next_has_it() -> None:
    for level in levels(LEVELS - 1):
        assert level.arguments["x-queue-type"] == "quorum"
        assert level.arguments["x-dead-letter-strategy"] == "at-least-once"
        assert level.arguments["x-overflow"] == "reject-publish"
        assert "x-dead-letter-routing-key" not in level.arguments, "the key is the way"


# -- where it ends ---------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
WORDS = st.lists(st.sampled_from(["order", "placed", "item", "0", "1", "q", "e"]), min_size=1)
KEYS = WORDS.map(".".join)
PATTERNS = st.lists(st.sampled_from(["order", "placed", "item", "*", "#"]), min_size=1).map(
    ".".join
)


@given(TICKS, NAMES, NAMES)
def test_a_message_for_a_queue_reaches_that_queue_and_no_other(
    ticks: int, name: str, other: str
) -> None:
    _, key = way(ticks / 10, delays.to_queue(name))
    assert topic_matches(delays.binding(delays.to_queue(name)), key)
    assert topic_matches(delays.binding(delays.to_queue(other)), key) == (name == other)


@given(TICKS, KEYS, PATTERNS)
def test_a_message_for_an_exchange_reaches_the_bindings_it_would_have_reached_at_once(
    ticks: int, routing_key: str, pattern: str
) -> None:
    _, key = way(ticks / 10, delays.to_exchange("events", routing_key))
    bound = delays.binding(delays.to_exchange("events", pattern))
    assert topic_matches(bound, key) == topic_matches(pattern, routing_key)
    elsewhere = delays.binding(delays.to_exchange("others", pattern))
    assert not topic_matches(elsewhere, key)


@given(TICKS, KEYS, NAMES)
def test_what_is_for_an_exchange_never_ends_in_a_queue_and_the_other_way_round(
    ticks: int, routing_key: str, name: str
) -> None:
    _, to_exchange = way(ticks / 10, delays.to_exchange("events", routing_key))
    _, to_queue = way(ticks / 10, delays.to_queue(name))
    assert not topic_matches(delays.binding(delays.to_queue(name)), to_exchange)
    assert not topic_matches(delays.binding(delays.to_exchange("events", "#")), to_queue)


@given(NAMES)
def test_a_name_with_dots_and_stars_is_but_one_word_on_the_way(name: str) -> None:
    assert delays.to_queue(name + ".*.#").count(".") == 1
    assert len(way(1, delays.to_queue(name * 10))[1]) < 100
