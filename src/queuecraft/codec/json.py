"""Payloads as JSON, the default: readable by everyone, validated while it is read."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec

from queuecraft.codec import pydantic
from queuecraft.codec.serializer import Check, Decode, Encode, Serializer
from queuecraft.codec.shape import Shape, is_protobuf, is_untyped, shape, type_name
from queuecraft.model.errors import ConfigError, PayloadError


class JsonSerializer(Serializer):
    """JSON for dataclasses, Structs, TypedDicts, attrs classes, pydantic models, plain values.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Order:
    ...     id: str
    ...     total: float
    >>> body = JsonSerializer().encoder(Order)(Order("o-1", 9.5))
    >>> body
    b'{"id":"o-1","total":9.5}'
    >>> JsonSerializer().decoder(Order)(body)
    Order(id='o-1', total=9.5)
    """

    name = "json"
    content_type = "application/json"
    accepts = ("text/json",)

    def encoder(self, payload_type: Any) -> Encode:
        if found := pydantic.schema(payload_type):
            return pydantic.json_encoder(found)
        supported(payload_type)
        return msgspec.json.Encoder(enc_hook=pydantic.nested_as_json).encode

    def decoder(self, payload_type: Any) -> Decode:
        if is_untyped(payload_type):
            return msgspec.json.Decoder().decode
        if found := pydantic.schema(payload_type):
            return pydantic.json_decoder(found)
        supported(payload_type)
        typed = msgspec.json.Decoder(payload_type, dec_hook=pydantic.from_builtins)
        return cast(Decode, typed.decode)

    def guard(self, payload_type: Any) -> Check | None:
        if pydantic.schema(payload_type):
            return None  # what becomes of NaN is the model's to say: ser_json_inf_nan
        return refuse_not_a_number if supported(payload_type).can_hide_null else None


def refuse_not_a_number(payload: Any, body: bytes) -> None:
    """Refuse NaN and the infinities, which JSON cannot hold and msgspec writes as null.

    >>> refuse_not_a_number({"total": 9.5}, b'{"total":9.5}')
    >>> refuse_not_a_number({"total": float("nan")}, b'{"total":null}')
    Traceback (most recent call last):
    queuecraft.PayloadError: JSON cannot hold NaN or an infinity; send None or a string
    """
    # `in` would first try to take b"null" for a number, at twice the time.
    if body.find(b"null") >= 0 and holds_not_a_number(payload):
        raise PayloadError("JSON cannot hold NaN or an infinity; send None or a string")


def holds_not_a_number(payload: Any) -> bool:
    """Whether there is a NaN or an infinity anywhere in a payload.

    >>> holds_not_a_number([1.0, float("inf")]), holds_not_a_number([1.0, None])
    (True, False)
    """
    plain = msgspec.to_builtins(payload, str_keys=True, enc_hook=pydantic.nested_as_builtins)
    try:
        json.dumps(plain, allow_nan=False)  # a walk at the speed of C
    except ValueError:
        return True
    return False


def supported(payload_type: Any) -> Shape:
    """What msgspec will meet in this type; a `ConfigError` if it holds something unknown.

    >>> supported(list[complex])
    Traceback (most recent call last):
    queuecraft.ConfigError: list[complex] cannot be a payload: nothing is known about \
complex; use a dataclass, a msgspec.Struct, a TypedDict, an attrs class or a pydantic model
    """
    if is_untyped(payload_type):
        return Shape(can_hide_null=True, custom=())
    found = shape(payload_type)
    for cls in found.custom:
        if is_protobuf(cls):
            raise ConfigError(
                f"{type_name(cls)} is a protobuf message; choose serializer='protobuf'"
            )
        if not pydantic.is_model(cls):
            raise ConfigError(
                f"{type_name(payload_type)} cannot be a payload: nothing is known about "
                f"{type_name(cls)}; use a dataclass, a msgspec.Struct, a TypedDict, "
                "an attrs class or a pydantic model"
            )
    return found
