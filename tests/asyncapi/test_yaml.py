"""YAML that every reader takes for what it was."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.asyncapi import to_yaml

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["no", "ON", "null", "~", "1.0", "0x1F", "-", "- a", "a: b", "#", "$ref", "2030-01-01", "="]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_is_what_is_read(value: Any) -> None:
    assert yaml.safe_load(to_yaml(value)) == value
