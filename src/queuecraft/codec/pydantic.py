"""Pydantic models as payloads, alone or inside other types."""

from __future__ import annotations

import importlib
import typing
from functools import partial
from typing import Any, NamedTuple

import msgspec

from queuecraft.codec.reason import reason
from queuecraft.codec.serializer import Decode, Encode
from queuecraft.codec.shape import type_name
from queuecraft.model.errors import ConfigError

# A model carries its compiled serializer and validator, so nothing here imports pydantic
# unless models are combined (`list[Model]`, `Model | Other`), when the user has imported it.


class Schema(NamedTuple):
    """The compiled halves of a pydantic type."""

    serializer: Any
    validator: Any


def is_model(payload_type: Any) -> bool:
    """Whether the type is a pydantic model or a pydantic dataclass.

    >>> import pydantic
    >>> class Order(pydantic.BaseModel):
    ...     id: str
    >>> is_model(Order), is_model(int)
    (True, False)
    """
    return isinstance(payload_type, type) and hasattr(payload_type, "__pydantic_validator__")


def schema(payload_type: Any) -> Schema | None:
    """Pydantic's view of a type, if the type is pydantic's to handle.

    >>> import pydantic
    >>> class Order(pydantic.BaseModel):
    ...     id: str
    >>> schema(list[Order]) is None, schema(list[int]) is None
    (False, True)
    """
    if is_model(payload_type):
        return _of_model(payload_type)
    if not _mentions_model(payload_type):
        return None
    pydantic = importlib.import_module("pydantic")
    try:
        adapter = pydantic.TypeAdapter(payload_type)
    except pydantic.errors.PydanticUserError:
        return None  # mixed with a type pydantic cannot hold: msgspec may know what to do
    return Schema(adapter.serializer, adapter.validator)


def json_encoder(found: Schema) -> Encode:
    """Write JSON with the model's own serializer.

    >>> import pydantic
    >>> class Order(pydantic.BaseModel):
    ...     id: str
    >>> json_encoder(schema(Order))(Order(id="o-1"))
    b'{"id":"o-1"}'
    """
    # No warnings about odd values: what is written is read back before it is sent.
    # False, not "none", which says the same in a microsecond more.
    return partial(found.serializer.to_json, by_alias=True, warnings=False)


def json_decoder(found: Schema) -> Decode:
    """Read JSON with the model's own validator.

    >>> import pydantic
    >>> class Order(pydantic.BaseModel):
    ...     id: str
    >>> json_decoder(schema(Order))(b'{"id":"o-1"}')
    Order(id='o-1')
    """
    return typing.cast(Decode, found.validator.validate_json)


def nested_as_json(value: Any) -> msgspec.Raw:
    """What msgspec writes into JSON for a model it meets inside another type.

    >>> import pydantic
    >>> class Order(pydantic.BaseModel):
    ...     id: str
    >>> msgspec.json.encode([Order(id="o-1")], enc_hook=nested_as_json)
    b'[{"id":"o-1"}]'
    """
    return msgspec.Raw(_serializer(value).to_json(value, by_alias=True, warnings=False))


def nested_as_builtins(value: Any) -> Any:
    """The same for formats other than JSON: the model in plain values.

    >>> import pydantic
    >>> class Order(pydantic.BaseModel):
    ...     id: str
    >>> nested_as_builtins(Order(id="o-1"))
    {'id': 'o-1'}
    """
    return _serializer(value).to_python(value, mode="json", by_alias=True, warnings=False)


def from_builtins(cls: type, value: Any) -> Any:
    """The model that plain values inside another type stand for.

    >>> import pydantic
    >>> class Order(pydantic.BaseModel):
    ...     id: str
    >>> from_builtins(Order, {"id": "o-1"})
    Order(id='o-1')
    """
    validator: Any = getattr(cls, "__pydantic_validator__", None)
    if validator is None:
        raise TypeError(f"{type_name(cls)} cannot be decoded")
    # By way of JSON, because strict models take "2024-01-01" for a date from JSON alone.
    body = msgspec.json.encode(value)
    try:
        return validator.validate_json(body)
    except ValueError as error:
        raise ValueError(reason(error)) from None  # pydantic's own text quotes the input


def _serializer(value: Any) -> Any:
    if not is_model(type(value)):
        raise TypeError(f"a value of type {type_name(type(value))} cannot be encoded")
    return type(value).__pydantic_serializer__


def _of_model(cls: Any) -> Schema:
    rebuild = getattr(cls, "model_rebuild", None)
    if rebuild is not None and not cls.__pydantic_complete__:
        try:
            rebuild()
        except Exception as error:
            raise ConfigError(
                f"the model {type_name(cls)} is not complete: {reason(error)}"
            ) from error
    return Schema(cls.__pydantic_serializer__, cls.__pydantic_validator__)


def _mentions_model(payload_type: Any) -> bool:
    return any(is_model(one) or _mentions_model(one) for one in typing.get_args(payload_type))
