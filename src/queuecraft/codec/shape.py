"""What kind of payload a type describes, found out once, before any message is sent."""

from __future__ import annotations

import types
import typing
from typing import Any, TypeAlias

import msgspec
import msgspec.inspect

from queuecraft.model.errors import ConfigError

Classes: TypeAlias = tuple[type, ...]


def is_untyped(payload_type: Any) -> bool:
    """Whether the type says nothing, so that every value is welcome.

    >>> is_untyped(Any), is_untyped(None), is_untyped(int)
    (True, True, False)
    """
    return payload_type is None or payload_type is Any or payload_type is object


def is_protobuf(payload_type: Any) -> bool:
    """Whether the type is a protobuf message class.

    >>> is_protobuf(int)
    False
    """
    return isinstance(payload_type, type) and hasattr(payload_type, "SerializeToString")


def type_name(payload_type: Any) -> str:
    """A type the way its author would write it.

    >>> type_name(int), type_name(list[int]), type_name(typing.Optional[str])
    ('int', 'list[int]', 'Optional[str]')
    """
    if isinstance(payload_type, type) and not typing.get_args(payload_type):
        return payload_type.__name__
    return str(payload_type).replace("typing.", "").replace("__main__.", "")


def classes(payload_type: Any) -> Classes | None:
    """The classes a payload of this type may have; None if that cannot be told.

    A subclass counts, as it does for a type checker.

    >>> classes(list[int]), classes(float), classes(int | None)
    ((<class 'list'>,), (<class 'float'>, <class 'int'>), (<class 'int'>, <class 'NoneType'>))
    """
    if is_untyped(payload_type):
        return None
    if payload_type is float:
        return (float, int)
    if payload_type is bytes:
        return (bytes, bytearray, memoryview)
    if typing.is_typeddict(payload_type):
        return (dict,)
    for wrapped in ("__supertype__", "__value__"):  # NewType, `type X = ...`
        if not isinstance(payload_type, type) and hasattr(payload_type, wrapped):
            return classes(getattr(payload_type, wrapped))
    origin = typing.get_origin(payload_type)
    arguments = typing.get_args(payload_type)
    if origin is typing.Annotated:
        return classes(arguments[0])
    if origin is typing.Literal:
        return tuple(type(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return _joined(arguments)
    found = origin or payload_type
    if not isinstance(found, type):
        return None
    return classes(found) if origin and typing.is_typeddict(origin) else (found,)


def _joined(arguments: tuple[Any, ...]) -> Classes | None:
    joined: list[type] = []
    for argument in arguments:
        found = classes(argument)
        if found is None:
            return None
        joined.extend(found)
    return tuple(joined)


class Shape(msgspec.Struct, frozen=True):
    """What msgspec will meet in a type, at any depth.

    >>> shape(dict[str, float | None]).can_hide_null
    True
    >>> shape(list[float]).can_hide_null
    False
    """

    can_hide_null: bool
    """A null may stand where a float was, and nobody would notice."""

    custom: Classes
    """Classes msgspec does not know."""


def shape(payload_type: Any) -> Shape:
    """Look at a type and everything in it; a type that cannot travel is a `ConfigError`.

    >>> shape(list[int]).custom
    ()
    """
    try:
        root = msgspec.inspect.type_info(payload_type)
    except NameError as error:
        raise ConfigError(
            f"the annotations of {type_name(payload_type)} cannot be resolved: {error}; "
            "define the types it names at the top of a module"
        ) from error
    except TypeError as error:
        raise ConfigError(f"{type_name(payload_type)} cannot be a payload: {error}") from error

    floats = nulls = anything = False
    custom: list[type] = []
    waiting: list[Any] = [root]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            waiting.extend(node)
            continue
        if not isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field) or id(node) in seen:
            continue
        seen.add(id(node))
        floats |= isinstance(node, msgspec.inspect.FloatType)
        nulls |= isinstance(node, msgspec.inspect.NoneType)
        anything |= isinstance(node, msgspec.inspect.AnyType | msgspec.inspect.RawType)
        if isinstance(node, msgspec.inspect.CustomType):
            custom.append(node.cls)
        if isinstance(node, msgspec.inspect.DataclassType):
            _refuse_private_attrs(node.cls)
        waiting.extend(getattr(node, name) for name in node.__struct_fields__ if name != "default")
    return Shape(can_hide_null=anything or bool(custom) or (floats and nulls), custom=tuple(custom))


def _refuse_private_attrs(cls: type) -> None:
    # msgspec leaves an attrs class's underscored fields out without a word: data would be lost.
    private = [
        field.name for field in getattr(cls, "__attrs_attrs__", ()) if field.name.startswith("_")
    ]
    if private:
        raise ConfigError(
            f"{cls.__name__}.{private[0]} would not be sent: private fields of attrs classes "
            "stay behind; rename it without the underscore, or use a dataclass"
        )
