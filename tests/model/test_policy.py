"""When to try again, and what a policy leaves to the level below."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.model.errors import ConfigError
from queuecraft.model.policy import DeadLetter, NoDeadLetter, NoRetry, Policy, Retry

RETRIES = st.builds(
    Retry,
    max_retries=st.integers(0, 10_000),
    initial_delay=st.floats(0, 1e6),
    factor=st.floats(1, 1e3),
    max_delay=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
)


def test_the_defaults_are_three_retries_from_one_second_doubling() -> None:
    retry = Retry()
    assert [retry.delay(attempt) for attempt in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, None]


def test_waits_grow_no_longer_than_the_maximum() -> None:
    retry = Retry(max_retries=100, initial_delay=1, factor=2, max_delay=30)
    assert [retry.delay(attempt) for attempt in (5, 6, 100)] == [16, 30, 30]


@given(RETRIES, st.integers(1, 10_000), st.floats(0, 1))
def test_a_wait_stays_within_its_limits(retry: Retry, attempt: int, chance: float) -> None:
    wait = retry.delay(attempt, chance)
    if attempt > retry.max_retries:
        assert wait is None
    else:
        assert wait is not None
        assert 0 <= wait <= retry.max_delay * (1 + retry.jitter) * (1 + 1e-9)


@given(RETRIES, st.integers(1, 10_000))
def test_a_later_wait_is_never_shorter(retry: Retry, attempt: int) -> None:
    earlier, later = retry.delay(attempt), retry.delay(attempt + 1)
    if earlier is not None and later is not None:
        assert later >= earlier


def test_no_delay_stays_no_delay_for_ever() -> None:
    assert Retry(max_retries=5000, initial_delay=0).delay(5000) == 0


def test_jitter_spreads_a_wait_either_way() -> None:
    retry = Retry(initial_delay=10, jitter=0.2)
    assert [retry.delay(1, chance) for chance in (0, 0.5, 1)] == pytest.approx([8, 10, 12])


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_retries": -1},
        {"max_retries": 1.5},
        {"max_retries": True},
        {"max_retries": "3"},
        {"initial_delay": -0.1},
        {"initial_delay": float("nan")},
        {"factor": 0.5},
        {"max_delay": None},
        {"jitter": 1.1},
        {"jitter": -0.1},
    ],
    ids=str,
)
def test_a_retry_that_cannot_work_is_refused_by_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=name):
        Retry(**wrong)


def test_a_number_of_deliveries_counts_the_first() -> None:
    assert Retry.deliveries(5, initial_delay=2, factor=3, max_delay=60, jitter=0.1) == Retry(
        max_retries=4, initial_delay=2, factor=3, max_delay=60, jitter=0.1
    )
    with pytest.raises(ConfigError, match=r"deliveries\(0\)"):
        Retry.deliveries(0)
    with pytest.raises(ConfigError, match=r"deliveries\('3'\)"):
        Retry.deliveries(cast(Any, "3"))


def test_a_publishers_policy_is_held_to_the_consumers_limits() -> None:
    limit = Retry(max_retries=5, max_delay=30)
    assert Retry(max_retries=100, max_delay=3600).within(limit) == Retry(max_retries=5)
    assert Retry(max_retries=2, max_delay=10).within(limit) == Retry(max_retries=2, max_delay=10)
    assert Retry(max_retries=2).within(NoRetry()) == NoRetry()
    assert NoRetry().within(limit) == NoRetry()


@given(RETRIES, RETRIES, st.integers(1, 10_000))
def test_within_a_limit_there_are_never_more_retries(one: Retry, limit: Retry, n: int) -> None:
    held = one.within(limit)
    if limit.delay(n) is None or one.delay(n) is None:
        assert held.delay(n) is None


def test_no_retry_takes_no_number() -> None:
    assert NoRetry().delay(1) is None
    with pytest.raises(ConfigError, match="Retry"):
        NoRetry(3)


def test_dead_letters_have_usual_names() -> None:
    names = DeadLetter()
    assert names.exchange_for("events") == "events.dlx"
    assert names.queue_for("billing") == "billing.dlq"
    assert names.routing_key_for("billing") == "billing.dlq"


def test_dead_letters_may_have_names_of_their_own() -> None:
    names = DeadLetter(exchange="failed", queue=lambda name: f"{name}.failed", routing_key="all")
    assert names.exchange_for("events") == "failed"
    assert names.queue_for("billing") == "billing.failed"
    assert names.routing_key_for("billing") == "all"


def test_a_policy_takes_what_it_leaves_open_from_below() -> None:
    publish = Policy(retry=NoRetry())
    consumer = Policy(retry=Retry(max_retries=9), ttl=60)
    facade = Policy(
        retry=Retry(), dead_letter=NoDeadLetter(), ttl=5, ack_timeout=10, max_redeliveries=0
    )
    assert publish.over(consumer).over(facade) == Policy(
        retry=NoRetry(), dead_letter=NoDeadLetter(), ttl=60, ack_timeout=10, max_redeliveries=0
    )


def test_over_does_not_depend_on_the_grouping() -> None:
    one, two, three = Policy(ttl=1), Policy(ack_timeout=2), Policy(ttl=3, max_redeliveries=3)
    assert one.over(two).over(three) == one.over(two.over(three))


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl": 0},
        {"ttl": -1},
        {"ttl": "60"},
        {"ttl": float("nan")},
        {"ttl": True},
        {"ack_timeout": 0},
        {"ack_timeout": "x"},
        {"max_redeliveries": -1},
        {"max_redeliveries": 1.5},
        {"max_redeliveries": "20"},
        {"retry": 3},
        {"retry": Retry},
        {"dead_letter": False},
    ],
    ids=str,
)
def test_a_policy_that_cannot_work_is_refused_by_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=name):
        Policy(**wrong)
