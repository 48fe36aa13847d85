"""MessagePack holds the same payload types as JSON, and bytes and NaN besides."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.codec import MsgpackSerializer
from queuecraft.model.errors import ConfigError


@dataclasses.dataclass
class Photo:
    name: str
    pixels: bytes
    brightness: float


class Order(pydantic.BaseModel):
    id: str
    total: float


def round_trip(payload_type: Any, payload: Any) -> Any:
    serializer = MsgpackSerializer()
    return serializer.decoder(payload_type)(serializer.encoder(payload_type)(payload))


plain_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(plain_values)
def test_any_plain_value_comes_back_as_it_was(value: Any) -> None:
    assert round_trip(Any, value) == value


@given(st.builds(Photo, st.text(), st.binary(), st.floats(allow_nan=False)))
def test_any_dataclass_comes_back_as_it_was(photo: Photo) -> None:
    assert round_trip(Photo, photo) == photo


def test_nan_comes_back_as_nan() -> None:
    assert math.isnan(round_trip(float, math.nan))


def test_a_pydantic_model_travels_as_its_json_form() -> None:
    order = Order(id="o-1", total=9.5)

    assert msgspec.msgpack.decode(MsgpackSerializer().encoder(Order)(order)) == {
        "id": "o-1",
        "total": 9.5,
    }
    assert round_trip(Order, order) == order
    assert round_trip(list[Order], [order]) == [order]


def test_a_pydantic_model_inside_a_struct_comes_back_as_it_was() -> None:
    batch = msgspec.defstruct("batch", [("orders", list[Order])])
    payload = batch(orders=[Order(id="o-1", total=9.5)])

    assert round_trip(batch, payload) == payload


def test_a_type_nothing_is_known_about_is_refused_before_any_message() -> None:
    with pytest.raises(ConfigError, match="complex"):
        MsgpackSerializer().encoder(complex)
    with pytest.raises(ConfigError, match="cannot be a payload"):
        MsgpackSerializer().decoder(Photo | msgspec.defstruct("other", [("x", int)]))
