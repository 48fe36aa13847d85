"""Which columns a table for a queue may have, and what each of them is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from queuecraft.model.checks import nearest
from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.schemas import SEGMENTS

PAYLOAD = "payload"
_Kind: TypeAlias = tuple[str, Callable[[DataType], bool]]


def _is_texts(kind: DataType) -> bool:
    return (
        isinstance(kind, MapType)
        and isinstance(kind.keyType, StringType)
        and isinstance(kind.valueType, StringType)
    )


_TEXT: _Kind = ("string", lambda kind: isinstance(kind, StringType))
_TIME: _Kind = ("timestamp", lambda kind: isinstance(kind, TimestampType))
_BODY: _Kind = ("binary or string", lambda kind: isinstance(kind, BinaryType | StringType))
_COUNT: _Kind = (
    "int",
    lambda kind: isinstance(kind, ByteType | ShortType | IntegerType | LongType),
)
_TEXTS: _Kind = ("map<string,string>", _is_texts)

COLUMNS: Mapping[str, _Kind] = {
    "message_id": _TEXT,
    "key": _TEXT,
    "event": _TEXT,
    "headers": _TEXTS,
    "typed_headers": _TEXT,
    "priority": _COUNT,
    "correlation_id": _TEXT,
    "content_type": _TEXT,
    "content_encoding": _TEXT,
    "published_at": _TIME,
    "due_at": _TIME,
    "expires_at": _TIME,
    "replay_id": _TEXT,
}
"""What says something about a message, beside its payload."""


@dataclass(frozen=True, slots=True)
class Form:
    """The columns of a table that are about messages, and those that make up the payload."""

    about: tuple[str, ...]
    fields: tuple[str, ...] = ()
    """Together they are the payload, a JSON object; none if there is a column for it."""

    @classmethod
    def of(cls, schema: StructType) -> Form:
        """That of a table. Raises `ConfigError` if it has a column that nothing can be made of.

        >>> from pyspark.sql.types import DoubleType
        >>> Form.of(StructType().add("key", StringType()).add("total", DoubleType()))
        Form(about=('key',), fields=('total',))
        """
        kinds = {field.name: field.dataType for field in schema.fields}
        if len(kinds) < len(schema.fields):
            raise ConfigError("two columns have the same name; rename one")
        for name, kind in kinds.items():
            expected, fits = _BODY if name == PAYLOAD else COLUMNS.get(name, ("", lambda _: True))
            if not fits(kind):
                raise ConfigError(
                    f"column {name!r} is {kind.simpleString()}, expected {expected}; cast or "
                    "rename it"
                )
        about = tuple(name for name in kinds if name in COLUMNS)
        others = tuple(name for name in kinds if name not in COLUMNS and name != PAYLOAD)
        if PAYLOAD not in kinds:
            if not others:
                raise ConfigError(
                    f"there is no column {PAYLOAD!r}, and none that a payload could be made of"
                )
            return cls(about, others)
        for name in others:
            if name not in SEGMENTS.names:  # those come with what was read from a lake
                raise ConfigError(
                    f"column {name!r} beside {PAYLOAD!r} means nothing to a queue; "
                    f"{nearest(name, (PAYLOAD, *COLUMNS))} drop it, or leave out {PAYLOAD!r}: "
                    "then all columns together are the payload"
                )
        return cls(about)
