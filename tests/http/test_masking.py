"""What is shown of a message, and to whom."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuecraft import ConfigError
from queuecraft.http.excerpt import DEEPEST, Excerpt, types_of
from queuecraft.http.masking import LARGEST, MASK, PREVIEW, Masks

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.decimals()
    | st.datetimes(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner)
    ),
)


@settings(max_examples=50)
@given(ANYTHING, st.integers(0, 50), st.integers(0, 50))
def test_whatever_comes_is_shown_as_json_within_its_room(
    value: Any, values: int, characters: int
) -> None:
    excerpt = Excerpt(values=values, characters=characters)
    text = json.dumps(excerpt.of(value), allow_nan=False)
    assert len(text) <= 100 + 12 * (values + characters) + 6000
    json.dumps(types_of(Excerpt().of(value)))


def test_what_is_large_deep_or_odd_is_cut_and_says_so() -> None:
    deep: Any = 1
    for _ in range(DEEPEST * 50):
        deep = [deep]
    for value in (deep, "x" * 100_000, list(range(30_000)), {str(n): n for n in range(30_000)}):
        excerpt = Excerpt()
        assert len(json.dumps(excerpt.of(value))) < 300_000
        assert excerpt.cut
    odd = [10**10_000, Decimal("1.50"), datetime(2030, 1, 1, tzinfo=UTC), {1}, (2,)]
    excerpt = Excerpt()
    shown = excerpt.of(odd)
    assert shown[0].startswith("0x")
    assert shown[1:] == ["1.50", "2030-01-01 00:00:00+00:00", [1], [2]]
    assert not excerpt.cut


def test_masked_fields_are_seen_by_nobody() -> None:
    masks = Masks(["*.card_number", "customer.name"])
    order = {
        "customer": {"name": "Ada", "id": 7},
        "lines": [{"card_number": "4111", "n": 1}],
        "card_number": {"first": "4111"},
    }
    assert masks.body(order, None, b"", whole=True).payload == {
        "customer": {"name": MASK, "id": 7},
        "lines": [{"card_number": MASK, "n": 1}],
        "card_number": MASK,
    }
    for whole in (True, False):
        assert "4111" not in str(masks.preview(order, None, whole=whole))
        assert "Ada" not in str(masks.body(order, None, b"", whole=whole))
    assert order["customer"] == {"name": "Ada", "id": 7}  # what was given is not changed


def test_readers_see_the_shape_alone() -> None:
    body = Masks().body({"id": "o-1", "total": 9.5, "paid": True}, None, b"", whole=False)
    assert body.payload == {"id": "str", "total": "float", "paid": "bool"}
    assert Masks().body("secret", None, b"", whole=False).payload == "str"


def test_a_preview_is_short_however_long_the_payload() -> None:
    for payload in ("x" * 10_000, list(range(10_000)), {"a": {"b": "c" * 500}}, "\x1b" * 300):
        preview = Masks().preview(payload, None, whole=True)
        assert preview is not None
        assert len(preview) <= PREVIEW


def test_a_body_that_cannot_be_read_is_shown_to_operators_unless_fields_are_masked() -> None:
    assert Masks().body(None, "no JSON", b"\xff", whole=True).body_base64 == "/w=="
    assert Masks().body(None, "no JSON", b"\xff", whole=False).body_base64 is None
    assert Masks(["card"]).body(None, "no JSON", b"\xff", whole=True).body_base64 is None
    large = Masks().body(None, "no JSON", b"x" * (LARGEST + 1), whole=True)
    assert large.truncated


def test_headers_are_masked_in_any_case_and_readers_see_only_ours() -> None:
    headers = {"Authorization": "Bearer x", "tenant": "t1", "x-replay-id": "r-1", "n": 3}
    masks = Masks(["authorization"])
    assert masks.headers(headers, whole=True) == {**headers, "Authorization": MASK}
    assert Masks(["X-Card"]).headers({"x-card": 1, "X-CARD": 2}, whole=True) == {
        "x-card": MASK,
        "X-CARD": MASK,
    }
    assert masks.headers(headers, whole=False) == {
        "Authorization": "str",
        "tenant": "str",
        "x-replay-id": "r-1",
        "n": "int",
    }


@pytest.mark.parametrize(
    "payload",
    [
        {"Card_Number": "4111"},
        {"a": [[{"CARD_NUMBER": ["4111"]}]]},
        {b"card_number": "4111"},
        b'{"card_number": "4111"}',
        {"inner": b"card_number=4111"},
        {"inner": ' {"card_number": "4111"}'},
        '[{"card_number": "4111"}]',
        type("Order", (), {"__str__": lambda _: "card_number=4111"})(),
    ],
)
def test_no_way_of_writing_a_masked_field_gets_past_the_mask(payload: Any) -> None:
    masks = Masks(["*.Card_Number"])
    told = [
        masks.body(payload, None, b"", whole=True).payload,
        masks.preview(payload, None, whole=True),
        masks.headers({"order": payload, "x-card_number": "1"}, whole=True),
    ]
    for each in map(repr, told):
        assert "4111" not in each
        assert "NDExMQ" not in each
        assert MASK in each


def test_what_can_hold_no_field_is_shown_beside_masks() -> None:
    plain = {"at": datetime(2030, 1, 1, tzinfo=UTC), "price": Decimal("1.50"), "said": "no {JSON}"}
    shown = Masks(["*.card"]).body(plain, None, b"", whole=True).payload
    assert shown == {"at": "2030-01-01 00:00:00+00:00", "price": "1.50", "said": "no {JSON}"}


@pytest.mark.parametrize("bad", ["card", [""], ["a\nb"], [1]])
def test_a_mask_that_cannot_work_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match="mask="):
        Masks(bad)
