"""Types of payloads as JSON schemas."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from queuecraft.codec import pydantic as models
from queuecraft.codec.shape import type_name
from queuecraft.model.errors import ConfigError

PLACE: Final = "#/components/schemas/{name}"


class Schemas:
    """The schemas of one document: each type that has a name is told once, and referred to.

    >>> class Order(msgspec.Struct):
    ...     id: str
    >>> schemas = Schemas()
    >>> schemas.of(list[Order])
    {'type': 'array', 'items': {'$ref': '#/components/schemas/Order'}}
    >>> schemas.named["Order"]["required"]
    ['id']
    """

    def __init__(self) -> None:
        self.named: dict[str, Any] = {}

    def of(self, payload_type: Any) -> dict[str, Any]:
        """The schema of a type. One that nothing can be told of fits everything."""
        if payload_type in (None, Any):
            return {}
        if payload_type is bytes:
            return {"description": "bytes, as they are"}
        if models.schema(payload_type) is not None:
            return self._of_model(payload_type)
        try:
            (found,), named = msgspec.json.schema_components(
                [payload_type], ref_template=PLACE, schema_hook=self._nested
            )
        except TypeError:  # a class of the user's, or a message of protobuf
            return {"description": type_name(payload_type)}
        self._add(named)
        return found

    def _of_model(self, payload_type: Any) -> dict[str, Any]:
        pydantic = importlib.import_module("pydantic")
        adapter = pydantic.TypeAdapter(payload_type)
        found: dict[str, Any] = adapter.json_schema(ref_template=PLACE.replace("{name}", "{model}"))
        self._add(found.pop("$defs", {}))
        if not models.is_model(payload_type) or "$ref" in found:
            return found
        self._add({payload_type.__name__: found})
        return {"$ref": PLACE.format(name=payload_type.__name__)}

    def _add(self, named: Mapping[str, Any]) -> None:
        for name, schema in named.items():
            if self.named.setdefault(name, schema) != schema:
                raise ConfigError(
                    f"two types of payloads are called {name!r}, and a document can tell only of "
                    "one; give one of them another name"
                )

    def _nested(self, payload_type: Any) -> dict[str, Any]:
        """A type that msgspec does not know, within one that it knows."""
        if models.is_model(payload_type):
            return self._of_model(payload_type)
        return {"description": type_name(payload_type)}
