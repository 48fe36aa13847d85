"""How a topic that was deleted and made again is told from one that only goes on."""

from __future__ import annotations

from confluent_kafka import OFFSET_INVALID, TopicPartition

from queuecraft.drivers.kafka.remade import cut, short, starts
from queuecraft.drivers.kafka.topology import Reach, Span

NAME = "order.placed"


def given(*offsets: int) -> list[TopicPartition]:
    return [TopicPartition(NAME, number, offset) for number, offset in enumerate(offsets)]


def test_a_group_is_asked_for_where_it_goes_on_and_a_new_one_for_all_of_its_binding() -> None:
    reaches = {NAME: Reach("events", since=[5, 0, 7])}
    assert starts(given(6), reaches) == {(NAME, 0): 6}
    assert starts(given(OFFSET_INVALID), reaches) == {(NAME, 0): 5, (NAME, 2): 7}
    assert starts(given(6, OFFSET_INVALID), reaches) == {(NAME, 0): 6, (NAME, 2): 7}
    assert starts(given(OFFSET_INVALID, 0), {}) == {}


def test_what_was_unbound_is_given_nothing_of_a_topic_that_was_made_again() -> None:
    assert starts(given(6, OFFSET_INVALID), {NAME: Reach("events", [5, 5], until=[9, 9])}) == {}


def test_only_who_is_further_than_the_end_is_looked_at() -> None:
    where = {(NAME, 0): 5, (NAME, 1): 5, (NAME, 2): 5}
    assert short(where, {(NAME, 0): 4, (NAME, 1): 5}) == {(NAME, 0): 4}


def test_a_partition_that_has_lost_its_beginning_too_has_only_lost_its_end() -> None:
    ends = {(NAME, number): 90 for number in range(4)}
    lows = {(NAME, 0): 10, (NAME, 2): 10, (NAME, 3): 10}
    reaches = {NAME: Reach("events", since=[50, 50, 50, 95])}
    asked = given(100, 100, OFFSET_INVALID, 100)
    assert cut(asked, reaches, ends, lows) == {(NAME, 0): 90}
    assert cut(given(100), {}, ends, {}) == {}  # nobody knows: rather twice than never


def test_a_span_that_is_renewed_knows_of_other_topics_where_they_begin() -> None:
    span = Span({NAME: [5], "order.paid": [6]}).anew({NAME})
    assert span.since == {"order.paid": [6]}
