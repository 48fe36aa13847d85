"""Fields that are masked are masked, wherever they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.observers.journal.redaction import MASK, Redaction


@pytest.mark.parametrize(
    ("path", "value", "masked"),
    [
        ("a", {"a": 1, "b": 2}, {"a": MASK, "b": 2}),
        ("a.b", {"a": {"b": [1], "c": 2}}, {"a": {"b": MASK, "c": 2}}),
        ("a", {"b": 1}, {"b": 1}),
        ("a.b", {"a": 5}, {"a": 5}),
        ("a.b", {"a": None}, {"a": None}),
        ("a[].b", {"a": [{"b": 1}, {"c": 1}, 5]}, {"a": [{"b": MASK}, {"c": 1}, 5]}),
        ("a.b", {"a": [{"b": 1}]}, {"a": [{"b": MASK}]}),
        ("a[].b", {"a": {"b": 1}}, {"a": {"b": MASK}}),
        ("a[]", {"a": [1, 2]}, {"a": [MASK, MASK]}),
        ("a[]", {"a": "one"}, {"a": MASK}),
        ("a", {"a": [1, 2]}, {"a": MASK}),
        ("[].a", [{"a": 1}, {"b": 1}], [{"a": MASK}, {"b": 1}]),
        ("a", [[{"a": 1}]], [[{"a": MASK}]]),
        ("some field", {"some field": 1}, {"some field": MASK}),
        ("a", 5, 5),
    ],
    ids=str,
)
def test_a_path_leads_to_its_field(path: str, value: Any, masked: Any) -> None:
    result = Redaction([path]).apply(json.dumps(value).encode())
    assert result is not None
    assert json.loads(result) == masked


def test_a_field_said_twice_or_in_escapes_is_masked_too() -> None:
    redaction = Redaction(["card"])
    assert redaction.apply(b'{"card": 1, "card": 4111}') == b'{"card":"***"}'
    assert redaction.apply(rb'{"c\u0061rd": 4111}') == b'{"card":"***"}'


def test_what_is_not_masked_keeps_its_digits() -> None:
    body = b'{"price":1.50,"big":123456789012345678901234567890,"small":1E-400,"card":"***"}'
    assert Redaction(["card"]).apply(body.replace(b"***", b"4111")) == body


NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just("secret"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
PATHS = st.lists(
    st.lists(st.tuples(NAMES, st.integers(0, 2)), min_size=1, max_size=3).map(
        lambda steps: ".".join(name + "[]" * count for name, count in steps)
    ),
    min_size=1,
    max_size=3,
)


def found(value: Any, names: list[str]) -> list[Any]:
    """What is at a path, through lists at any place."""
    if isinstance(value, list):
        return [one for each in value for one in found(each, names)]
    if not names:
        return [value]
    if isinstance(value, dict) and names[0] in value:
        return found(value[names[0]], names[1:])
    return []


@given(VALUES, PATHS)
def test_nothing_is_left_where_a_path_leads(value: Any, paths: list[str]) -> None:
    result = Redaction(paths).apply(json.dumps(value).encode())
    assert result is not None
    for path in paths:
        names = path.replace("[]", "").split(".")
        assert set(map(str, found(json.loads(result), names))) <= {MASK}


@given(VALUES)
def test_what_no_path_leads_to_stays(value: Any) -> None:
    result = Redaction(["d", "a.d", "b[].d"]).apply(json.dumps(value).encode())
    assert result is not None
    assert json.loads(result) == value


@given(st.binary(max_size=50))
def test_anything_is_masked_or_refused(body: bytes) -> None:
    result = Redaction(["a"]).apply(body)
    assert result is None or json.loads(result) is not ...
