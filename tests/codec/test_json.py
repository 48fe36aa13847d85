"""JSON holds every kind of payload type, and refuses what it would lose."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.codec import JsonSerializer, Serializer
from queuecraft.codec.json import holds_not_a_number, refuse_not_a_number
from queuecraft.model.errors import ConfigError, PayloadError


@dataclasses.dataclass
class Order:
    id: str
    total: float


class Item(msgspec.Struct, frozen=True):
    sku: str
    amount: Annotated[int, msgspec.Meta(gt=0)]


class Address(TypedDict):
    street: str


@attrs.define
class Customer:
    name: str
    address: Address


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Tree:
    children: list[Tree]


def round_trip(serializer: Serializer, payload_type: Any, payload: Any) -> Any:
    return serializer.decoder(payload_type)(serializer.encoder(payload_type)(payload))


TYPED = [
    (Order, Order("o-1", 9.5)),
    (Item, Item("s", 1)),
    (Address, {"street": "Main"}),
    (Customer, Customer("Ada", {"street": "Main"})),
    (Point, Point(1, 2)),
    (Tree, Tree([Tree([])])),
    (Colour, Colour.RED),
    (list[int], [1, 2]),
    (dict[str, Order], {"a": Order("o-1", 1.0)}),
    (Order | None, None),
    (Order | int, 3),
    (Literal["a", "b"], "a"),
    (uuid.UUID, uuid.UUID(int=7)),
    (datetime.datetime, datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)),
    (Any, {"a": [1, "x", None, True, 1.5]}),
    (None, [1]),
]


@pytest.mark.parametrize(("payload_type", "payload"), TYPED, ids=lambda value: str(value)[:30])
def test_a_payload_comes_back_as_it_was(payload_type: Any, payload: Any) -> None:
    assert round_trip(JsonSerializer(), payload_type, payload) == payload


values: Callable[[], st.SearchStrategy[Any]] = lambda: st.recursive(  # noqa: E731
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(values())
def test_any_plain_value_comes_back_as_it_was(value: Any) -> None:
    assert round_trip(JsonSerializer(), Any, value) == value


@given(st.builds(Order, st.text(), st.floats(allow_nan=False, allow_infinity=False)))
def test_any_order_comes_back_as_it_was(order: Order) -> None:
    assert round_trip(JsonSerializer(), Order, order) == order


def test_a_type_nothing_is_known_about_is_refused_before_any_message() -> None:
    class Socket: ...

    for compiled in (JsonSerializer().encoder, JsonSerializer().decoder):
        with pytest.raises(ConfigError, match="nothing is known about Socket"):
            compiled(list[Socket])


def test_a_protobuf_message_names_the_serializer_to_choose() -> None:
    from google.protobuf.wrappers_pb2 import StringValue

    with pytest.raises(ConfigError, match="serializer='protobuf'"):
        JsonSerializer().encoder(StringValue)


def test_a_union_that_cannot_be_told_apart_is_refused_before_any_message() -> None:
    with pytest.raises(ConfigError, match="more than one dataclass"):
        JsonSerializer().decoder(Order | Customer)


def test_annotations_that_cannot_be_resolved_are_refused_before_any_message() -> None:
    broken = dataclasses.make_dataclass("Broken", [("x", "Nowhere")])

    with pytest.raises(ConfigError, match="Nowhere"):
        JsonSerializer().decoder(broken)


def test_private_attrs_fields_are_refused_because_they_would_not_be_sent() -> None:
    @attrs.define
    class Secretive:
        _hidden: int = 1

    with pytest.raises(ConfigError, match="_hidden would not be sent"):
        JsonSerializer().encoder(Secretive)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_json_cannot_hold_is_found_at_any_depth(value: float) -> None:
    payload = {"orders": [Order("o-1", 1.0), Order("o-2", value)], 1: None}

    assert holds_not_a_number(payload)
    with pytest.raises(PayloadError, match="NaN"):
        refuse_not_a_number(payload, msgspec.json.encode(payload))


def test_only_types_in_which_null_can_hide_are_guarded() -> None:
    guard = JsonSerializer().guard

    assert guard(Any) is not None
    assert guard(dict[str, float | None]) is not None
    assert guard(Order) is None
