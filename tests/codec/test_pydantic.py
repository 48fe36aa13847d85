"""Pydantic models travel by their own rules, alone, combined and nested."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import msgspec
import pydantic
import pytest

from queuecraft.codec import Codec
from queuecraft.model.errors import ConfigError, PayloadError


class Order(pydantic.BaseModel):
    id: str
    total: float = pydantic.Field(ge=0)


class Special(Order):
    note: str = ""


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    day: datetime.date


class Renamed(pydantic.BaseModel):
    order_id: str = pydantic.Field(alias="orderId")


class Refund(pydantic.BaseModel):
    reason: str


@dataclasses.dataclass
class Batch:
    orders: list[Order]
    day: Strict


@pydantic.dataclasses.dataclass
class Checked:
    amount: int = pydantic.Field(gt=0)


class Plain(msgspec.Struct):
    x: int


TODAY = Strict(day=datetime.date(2024, 1, 1))
ORDER = Order(id="o-1", total=9.5)

PAYLOADS: list[tuple[Any, Any]] = [
    (Order, ORDER),
    (Strict, TODAY),
    (Renamed, Renamed(orderId="o-1")),
    (Checked, Checked(amount=1)),
    (list[Order], [ORDER]),
    (dict[str, Order], {"a": ORDER}),
    (Order | Refund, Refund(reason="late")),
    (Order | None, None),
    (Batch, Batch([ORDER], TODAY)),
    (tuple[Plain, Order], (Plain(1), ORDER)),
]


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
@pytest.mark.parametrize(("payload_type", "payload"), PAYLOADS, ids=lambda value: str(value)[:30])
def test_a_payload_comes_back_as_it_was(serializer: str, payload_type: Any, payload: Any) -> None:
    codec = Codec(serializer)
    body, encoding = codec.encoder(payload_type)(payload)

    assert codec.decoder(payload_type)(body, codec.content_type, encoding) == payload


def test_aliases_are_what_goes_over_the_wire() -> None:
    assert Codec().encoder(Renamed)(Renamed(orderId="o-1"))[0] == b'{"orderId":"o-1"}'


def test_a_model_in_an_untyped_payload_is_written() -> None:
    assert Codec().encoder()({"order": ORDER})[0] == b'{"order":{"id":"o-1","total":9.5}}'


def test_a_subclass_travels_as_the_type_that_was_promised() -> None:
    body, _ = Codec().encoder(Order)(Special(id="o-1", total=1.0, note="fragile"))

    assert Codec().decoder(Order)(body, None, None) == Order(id="o-1", total=1.0)


def test_a_model_spoiled_after_it_was_made_is_refused_on_publish() -> None:
    order = Order(id="o-1", total=9.5)
    order.total = -1.0

    with pytest.raises(PayloadError, match=r"does not fit Order.*total"):
        Codec().encoder(Order)(order)


def test_nan_in_a_model_is_refused_on_publish() -> None:
    class Reading(pydantic.BaseModel):
        degrees: float

    with pytest.raises(PayloadError, match="NaN"):
        Codec().encoder(Reading)(Reading(degrees=float("nan")))


@pytest.mark.parametrize("payload", [{"id": "o-1", "total": 1.0}, Refund(reason="late")])
def test_what_is_not_the_model_is_refused_on_publish(payload: Any) -> None:
    with pytest.raises(PayloadError, match=r"is of type (dict|Refund), expected Order"):
        Codec().encoder(Order)(payload)


@pytest.mark.parametrize("payload_type", [Order, list[Order], Batch])
def test_a_validation_error_does_not_repeat_the_payload(payload_type: Any) -> None:
    order = b'{"id": ["SECRET"], "total": -7.25}'
    bodies = {
        Order: order,
        list[Order]: b"[" + order + b"]",
        Batch: b'{"orders": [' + order + b'], "day": {"day": "2024-01-01"}}',
    }

    with pytest.raises(PayloadError) as caught:
        Codec().decoder(payload_type)(bodies[payload_type], None, None)

    assert "SECRET" not in str(caught.value)
    assert "7.25" not in str(caught.value)
    assert "valid string" in str(caught.value)
    assert len(str(caught.value)) <= 500


def test_many_errors_are_counted_not_listed() -> None:
    body = b"[{}, {}, {}, {}, {}]"  # each without its id and its total

    with pytest.raises(PayloadError, match="and 7 more"):
        Codec().decoder(list[Order])(body, None, None)


def test_a_model_that_cannot_be_completed_is_refused_before_any_message() -> None:
    class Incomplete(pydantic.BaseModel):
        other: Nowhere  # type: ignore[name-defined] # pyright: ignore[reportUndefinedVariable] # noqa: F821

    with pytest.raises(ConfigError, match="not complete"):
        Codec().encoder(Incomplete)


def test_a_mixture_neither_library_can_read_is_refused_before_any_message() -> None:
    with pytest.raises(ConfigError, match="cannot be a payload"):
        Codec().decoder(Order | Plain)
