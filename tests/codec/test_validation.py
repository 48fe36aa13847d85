"""A payload that its receiver would refuse is not sent."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, TypedDict

import attrs
import msgspec
import pytest

from queuecraft.codec import Codec, JsonSerializer, MsgpackSerializer, validator
from queuecraft.model.errors import PayloadError


@dataclasses.dataclass
class Order:
    id: str
    total: float


@dataclasses.dataclass
class Lookalike:
    id: str
    total: float


@dataclasses.dataclass
class Gift(Order):
    ribbon: str = "red"


@dataclasses.dataclass
class Empty: ...


@dataclasses.dataclass
class Single:
    name: str


@dataclasses.dataclass
class Discount:
    rate: float | None


class Item(msgspec.Struct):
    amount: Annotated[int, msgspec.Meta(gt=0)]


class Cat(msgspec.Struct, tag=True):
    name: str


class Persian(Cat, tag=True):
    hair: int = 1


@attrs.define
class Customer:
    name: str


class Address(TypedDict):
    street: str


@pytest.mark.parametrize(
    ("payload_type", "payload"),
    [
        (Order, Order("o-1", 9.5)),
        (Order, Order("o-1", 9)),
        (Order, Gift("o-1", 9.5)),
        (Empty, Empty()),
        (Single, Single("a")),
        (Item, Item(1)),
        (Customer, Customer("Ada")),
        (Address, {"street": "Main"}),
        (list[Order], [Order("o-1", 9.5)]),
        (float, 3),
        (Order | None, None),
        (Discount, Discount(None)),
    ],
    ids=str,
)
@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_a_payload_of_its_type_is_accepted(
    payload_type: Any, payload: Any, serializer: str
) -> None:
    Codec(serializer).encoder(payload_type)(payload)


@pytest.mark.parametrize(
    ("payload_type", "payload", "complaint"),
    [
        (Order, Lookalike("o-1", 9.5), "is of type Lookalike, expected Order"),
        (Order, {"id": "o-1", "total": 9.5}, "is of type dict, expected Order"),
        (Order, None, "is of type NoneType, expected Order"),
        (Order, ..., "is of type ellipsis, expected Order"),
        (Order, Order(1, 9.5), r"does not fit Order: Expected `str`, got `int` - at `\$.id`"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (Order, Order("o-1", True), "Expected `float`, got `bool`"),
        (Single, Single(None), "Expected `str`, got `null`"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (Item, Item(0), "Expected `int` >= 1"),
        (Customer, Customer(5), "Expected `str`, got `int`"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (Address, {"street": 5}, "Expected `str`, got `int`"),
        (Address, {}, "missing required field `street`"),
        (list[int], (1, 2), r"is of type tuple, expected list\[int\]"),
        (list[int], [1, "2"], r"Expected `int`, got `str` - at `\$\[1\]`"),
        (int, True, "Expected `int`, got `bool`"),
        (Order | None, 5, "is of type int, expected"),
        (Cat, Persian("Tom"), "does not fit Cat: Invalid value 'Persian'"),
    ],
    ids=str,
)
def test_a_payload_of_another_type_is_refused(
    payload_type: Any, payload: Any, complaint: str
) -> None:
    with pytest.raises(PayloadError, match=complaint):
        Codec().encoder(payload_type)(payload)


def test_two_classes_of_one_name_are_told_apart() -> None:
    other = dataclasses.make_dataclass("Order", [("id", str), ("total", float)])

    with pytest.raises(PayloadError, match=r"\w+\.Order, expected Order"):
        Codec().encoder(Order)(other("o-1", 9.5))


@pytest.mark.parametrize(
    ("payload_type", "payload"),
    [
        (Order, Order("o-1", float("nan"))),
        (Order, Order("o-1", float("inf"))),
        (Discount, Discount(float("nan"))),
        (list[float], [float("-inf")]),
        (Any, {"a": [float("nan")]}),
        (None, float("nan")),
    ],
    ids=str,
)
def test_a_number_json_cannot_hold_is_refused_and_msgpack_keeps_it(
    payload_type: Any, payload: Any
) -> None:
    with pytest.raises(PayloadError, match="NaN or an infinity"):
        Codec("json").encoder(payload_type)(payload)
    Codec("msgpack").encoder(payload_type)(payload)


def test_an_untyped_payload_needs_a_check_only_where_the_format_loses_values() -> None:
    assert validator(Any, JsonSerializer()) is not None
    assert validator(Any, MsgpackSerializer()) is None
