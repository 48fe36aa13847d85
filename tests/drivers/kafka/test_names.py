"""Names of topics: legal, never too long, and told apart."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft import Exchange
from queuecraft.drivers.base import Binding
from queuecraft.drivers.kafka.names import MAX_TOPIC, TIERS, Names, tier_for

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)
NAMES = Names("shop.", "events")
EVENTS = Exchange("events")
LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@given(TEXT, TEXT, st.integers(0, len(TIERS) - 1))
def test_every_name_is_one_that_kafka_takes(queue: str, event: str, tier: int) -> None:
    for name in (
        NAMES.event("events", event),
        NAMES.event(queue, event),
        NAMES.inbox(queue),
        NAMES.inbox(f"{queue}.dlq"),
        NAMES.retry(queue, tier),
        NAMES.delay(tier),
    ):
        assert LEGAL.fullmatch(name), name
        assert len(name) <= MAX_TOPIC


@given(st.text("ab.", min_size=240, max_size=300), st.text("ab.", min_size=240, max_size=300))
def test_long_names_are_told_apart(one: str, other: str) -> None:
    assert (NAMES.inbox(one) == NAMES.inbox(other)) == (one == other)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("order.placed", {"shop.order.placed"}),
        ("order.*", {"shop.order.placed", "shop.order.paid"}),
        ("#", {"shop.order.placed", "shop.order.paid", "shop.user.added.twice"}),
        ("*.added.#", {"shop.user.added.twice"}),
        ("order", set[str]()),
    ],
)
def test_a_binding_asks_for_events_and_never_for_what_is_private(
    pattern: str, found: set[str]
) -> None:
    topics = {
        "shop.order.placed",
        "shop.order.paid",
        "shop.user.added.twice",
        "shop.billing.inbox",
        "shop.billing.dlq",
        "shop.billing.retry.0",
        "shop.queuecraft.delay.3",
        "shop.queuecraft.topology",
        "shop.app.replies",
        "__consumer_offsets",
        "other.order.placed",
    }
    assert NAMES.bound(Binding(EVENTS, pattern), topics) == found


@given(st.floats(0, 1e7))
def test_nothing_waits_in_a_topic_for_longer_than_it_has_to(seconds: float) -> None:
    wait = TIERS[tier_for(seconds)]
    assert wait <= seconds or wait == TIERS[0]
