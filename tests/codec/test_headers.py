"""Headers from strangers are read without harm, headers of users checked before they are sent."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.codec import headers
from queuecraft.model.errors import ConfigError, PayloadError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (3, 3),
        (-1, 0),
        (2**80, 1_000_000),
        (True, 0),
        (None, 0),
        ("7", 7),
        ("007", 7),
        ("", 0),
        ("-7", 0),
        ("1e3", 0),
        ("٣", 0),
        ("²", 0),
        ("9" * 100_000, 1_000_000),
        (b"7", 7),
        (b"\xff", 0),
        (3.9, 3),
        (float("nan"), 0),
        (float("inf"), 0),
        ([1], 0),
        ({}, 0),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_counter_is_sane_whatever_it_is_read_from(value: Any, expected: int) -> None:
    assert headers.count({headers.RETRY_COUNT: value}, headers.RETRY_COUNT) == expected


def test_a_counter_that_is_not_there_is_zero() -> None:
    assert headers.count({}, headers.REDELIVERIES) == 0


def test_what_a_broker_wrote_is_taken_off_and_the_rest_is_kept_in_order() -> None:
    kept = {"b": 1, "x-deathly": 2, "a": 3, headers.RETRY_COUNT: 4}
    written = {
        "x-death": [{"count": 1}],
        "x-first-death-queue": "q",
        "x-last-death-reason": "rejected",
        "x-delivery-count": 3,
    }

    assert list(headers.strip_broker_owned({**written, **kept}).items()) == list(kept.items())


def test_the_size_counts_names_values_and_what_is_nested() -> None:
    assert headers.size({}) == 0
    assert headers.size({"ab": "ü"}) == 6 + 2 + 2
    assert headers.size({"a": None, "b": 1, "c": b"xyz"}) == 3 * 7 + 8 + 3
    assert headers.size({"x-death": [{"queue": "q" * 1000}]}) > 1000


def test_the_size_of_deep_nesting_is_counted_without_recursion() -> None:
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]

    assert headers.size({"a": nested}) > 100_000


@given(st.text(), st.integers(0, 100), st.booleans())
def test_a_trimmed_text_is_valid_and_fits(text: str, limit: int, tail: bool) -> None:
    assert len(headers.trim(text, limit, tail=tail).encode()) <= limit


@given(st.text())
def test_a_text_that_fits_is_not_trimmed(text: str) -> None:
    assert headers.trim(text, len(text.encode())) == text


def test_half_a_surrogate_pair_becomes_something_that_can_be_sent() -> None:
    assert headers.trim("a\ud800b", 100) == "a?b"
    assert headers.trim("a\ud800b" * 100, 10, tail=True).encode()


def test_a_traceback_keeps_both_ends() -> None:
    text = "Traceback\n" + "  File ...\n" * 10_000 + "ValueError: bad"
    trimmed = headers.trim(text, headers.MAX_TRACEBACK, tail=True)

    assert trimmed.startswith("Traceback")
    assert trimmed.endswith("ValueError: bad")
    assert "…" in trimmed
    assert headers.MAX_TRACEBACK - 8 < len(trimmed.encode()) <= headers.MAX_TRACEBACK


class Tenant(enum.StrEnum):
    ACME = "acme"


def test_headers_of_every_allowed_kind_are_accepted() -> None:
    headers.check_user_headers(
        {
            "a": "x",
            "b": 1,
            "c": 1.5,
            "d": True,
            "e": b"x",
            "f": None,
            "g": Tenant.ACME,
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "tracestate": "a=1",
        }
    )


@pytest.mark.parametrize(
    "name",
    [*sorted(headers.RESERVED), "X-Retry-Count", "x-death", "x-first-death-queue", "", 5, b"a"],
    ids=repr,
)
def test_a_name_that_is_not_the_users_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError):
        headers.check_user_headers({name: "x"})


@pytest.mark.parametrize("name", ["n" * 256, "ü" * 128, "\ud800"])
def test_a_name_no_broker_would_carry_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="1 to 255 bytes"):
        headers.check_user_headers({name: "x"})


@pytest.mark.parametrize(
    "value", [[1], {"a": 1}, ..., 2**63, -(2**63) - 1, float("nan"), "\ud800"], ids=repr
)
def test_a_value_no_broker_would_carry_is_refused(value: Any) -> None:
    with pytest.raises(PayloadError, match="the header 'a'"):
        headers.check_user_headers({"a": value})


def test_headers_too_large_are_refused() -> None:
    headers.check_user_headers({"a": "x" * 65_000})
    with pytest.raises(PayloadError, match="the limit is 65,536"):
        headers.check_user_headers({"a": "x" * 65_536})


def test_a_dead_letters_headers_are_those_it_is_documented_to_have() -> None:
    assert {
        "x-original-queue",
        "x-original-routing-key",
        "x-error",
        "x-error-type",
        "x-traceback",
        "x-retry-count",
        "x-failed-at",
        "x-reason",
    } <= headers.DEAD_LETTER
    assert headers.DEAD_LETTER <= headers.RESERVED
    assert not {headers.TRACEPARENT, headers.TRACESTATE} & headers.RESERVED
