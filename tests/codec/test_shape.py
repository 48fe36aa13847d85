"""What a type tells about its payloads."""

from __future__ import annotations

import collections.abc
from typing import Annotated, Any, Literal, NewType, TypedDict, TypeVar

import msgspec
import pytest

from queuecraft.codec.shape import classes, shape, type_name

OrderId = NewType("OrderId", str)


class Address(TypedDict):
    street: str


class Node(msgspec.Struct):
    weight: float
    next: Node | None = None


@pytest.mark.parametrize(
    ("payload_type", "expected"),
    [
        (str, (str,)),
        (OrderId, (str,)),
        (Address, (dict,)),
        (Annotated[int, msgspec.Meta(gt=0)], (int,)),
        (Literal["a", 1], (str, int)),
        (dict[str, int], (dict,)),
        (collections.abc.Sequence[int], (collections.abc.Sequence,)),
        (bytes, (bytes, bytearray, memoryview)),
        (Address | None, (dict, type(None))),
        (int | TypeVar("T"), None),
        (Any, None),
    ],
)
def test_the_classes_a_payload_may_have(payload_type: Any, expected: Any) -> None:
    assert classes(payload_type) == expected


def test_a_type_that_holds_itself_is_looked_at_once() -> None:
    assert shape(Node).can_hide_null
    assert shape(Node).custom == ()


def test_names_read_as_their_author_wrote_them() -> None:
    assert type_name(Node) == "Node"
    assert type_name(dict[str, int]) == "dict[str, int]"
