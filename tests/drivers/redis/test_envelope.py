"""Messages as they are kept, and anything else as a message."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from queuecraft.drivers.base import Outgoing
from queuecraft.drivers.redis.envelope import (
    AGAIN,
    OURS,
    decode,
    encode,
    strung,
    told_apart,
    unstrung,
)
from queuecraft.model.routing import headers_match

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
)


@given(st.binary(), st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES))
def test_a_message_comes_back_as_it_was(body: bytes, headers: dict[str, Any]) -> None:
    message = Outgoing(
        body,
        "m-1",
        "events",
        "order.placed",
        1.5,
        key="ö",
        headers=MappingProxyType(headers),
        priority=3,
    )
    got, again = decode(encode(message), "unused")
    assert (got.body, got.id, got.key, got.priority, again) == (body, "m-1", "ö", 3, 0)
    assert dict(got.headers) == headers


@given(st.binary())
@example(OURS)
@example(AGAIN)
@example(AGAIN + b"-0000001-1")
@example(AGAIN + b"00000001ff")
def test_anything_is_a_message(value: bytes) -> None:
    for data in (value, OURS + value, AGAIN + value, AGAIN + b"00000002" + value):
        message, again = decode(data, "m-1")
        assert isinstance(message.body, bytes)
        assert isinstance(message.id, str)
        assert isinstance(again, int)


def test_one_that_was_delivered_before_tells_how_often() -> None:
    inner = encode(Outgoing(b"{}", "m-1"))
    assert decode(AGAIN + b"0000000a00" + inner, "x")[1] == 10
    message, again = decode(AGAIN + b"0000000203abc" + b"hello", "x")
    assert (message.id, message.body, again) == ("abc", b"hello", 2)


@given(st.lists(st.binary()))
def test_what_is_strung_comes_apart_again(parts: list[bytes]) -> None:
    assert unstrung(strung(parts)) == parts


@given(VALUES, VALUES)
@example(1, True)
@example(1, 1.0)
@example(0, False)
@example(0.0, -0.0)
@example("1", 1)
@example(b"a", "a")
def test_headers_are_told_apart_as_python_does(one: object, other: object) -> None:
    same = told_apart({"x": one}) == told_apart({"x": other})
    assert same == headers_match({"x": one}, {"x": other})
