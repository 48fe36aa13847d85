"""AMQP field tables: the headers of a message, packed and read in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from struct import Struct
from typing import Any, Final

DEEPEST: Final = 32  # tables within tables: the broker has no limit, and what is deeper stays bytes
_LONG: Final = Struct(">q")
_DOUBLE: Final = Struct(">d")
_SIZE: Final = Struct(">I")
LENIENT: Final = "ignore"  # the broker lets pass what is no UTF-8; "replace" would make it longer
_NAMES: Final = 1024  # header names whose encoding is remembered

_short_names: dict[str, bytes] = {}


class Malformed(ValueError):
    """Bytes that are no AMQP."""


def short(text: str) -> bytes:
    """A short string: at most 255 bytes.

    >>> short("id")
    b'\\x02id'
    """
    data = text.encode()
    if len(data) > 255:
        raise ValueError(f"{text[:40]!r}… is {len(data)} bytes long; AMQP allows 255 here")
    return bytes((len(data),)) + data


def pack_table(values: Mapping[str, Any]) -> bytes:
    """A table with its length before it.

    >>> read_table(pack_table({"a": 1, "b": "two", "c": None}), 0)
    ({'a': 1, 'b': 'two', 'c': None}, 28)
    """
    parts: list[bytes] = [b""]
    size = 0
    for name, value in values.items():
        key = _short_names.get(name)
        if key is None:
            key = short(name)
            if len(_short_names) < _NAMES:
                _short_names[name] = key
        packed = pack_value(value)
        parts += (key, packed)
        size += len(key) + len(packed)
    parts[0] = _SIZE.pack(size)
    return b"".join(parts)


def pack_value(value: Any) -> bytes:
    """One value, with the letter of its type before it."""
    if isinstance(value, str):
        data = value.encode()
        return b"S" + _SIZE.pack(len(data)) + data
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{value} does not fit into 64 bits")
        return b"l" + _LONG.pack(value)
    if isinstance(value, float):
        if not isfinite(value):  # RabbitMQ breaks on it, and cuts the connection
            raise ValueError(f"a header cannot be {value}")
        return b"d" + _DOUBLE.pack(value)
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return b"x" + _SIZE.pack(len(data)) + data
    if value is None:
        return b"V"
    if isinstance(value, Mapping):
        return b"F" + pack_table(value)
    if isinstance(value, list | tuple):
        data = b"".join(map(pack_value, value))
        return b"A" + _SIZE.pack(len(data)) + data
    raise ValueError(f"a header cannot be {type(value).__name__}")


def read_table(data: bytes, at: int, depth: int = 0) -> tuple[dict[str, Any], int]:
    """The table that starts here, and where what follows it starts. What is cut off in the middle
    of a number or a name is an `IndexError` or a `struct.error`: see `frames.read_properties`."""
    end = at + 4 + _SIZE.unpack_from(data, at)[0]
    if end > len(data):
        raise Malformed("a table that does not end")
    at += 4
    values: dict[str, Any] = {}
    while at < end:
        start = at + 1
        at = start + data[at]
        name = data[start:at].decode("utf-8", LENIENT)
        values[name], at = _read_value(data, at, depth)
    if at != end:
        raise Malformed("a table with a value that does not end")
    return values, at


def _read_value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    kind = data[at]
    at += 1
    if kind == 0x53:  # S, by far the most frequent
        start = at + 4
        at = start + _SIZE.unpack_from(data, at)[0]
        return _text(_slice(data, start, at)), at
    if kind == 0x56:  # V
        return None, at
    if kind == 0x78:  # x
        start = at + 4
        at = start + _SIZE.unpack_from(data, at)[0]
        return bytes(_slice(data, start, at)), at
    if kind in (0x46, 0x41):  # F, A
        if depth >= DEEPEST:
            start = at + 4
            at = start + _SIZE.unpack_from(data, at)[0]
            return _slice(data, start, at), at
        return (read_table if kind == 0x46 else _read_array)(data, at, depth + 1)
    known = _FIXED.get(kind)
    if known is None:
        raise Malformed(f"a field of an unknown type {chr(kind)!r}")
    layout, convert = known
    value = layout.unpack_from(data, at)
    at += layout.size
    return (value[0] if convert is None else convert(*value)), at


def _read_array(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    end = at + 4 + _SIZE.unpack_from(data, at)[0]
    if end > len(data):
        raise Malformed("an array that does not end")
    at += 4
    items: list[Any] = []
    while at < end:
        item, at = _read_value(data, at, depth)
        items.append(item)
    if at != end:
        raise Malformed("an array with a value that does not end")
    return items, at


def _slice(data: bytes, start: int, end: int) -> bytes:
    if end > len(data):
        raise Malformed("a value that does not end")
    return data[start:end]


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _decimal(scale: int, digits: int) -> float:
    return float(digits) / float(10**scale)


_FIXED: Final[Mapping[int, tuple[Struct, Callable[..., Any] | None]]] = {
    ord("t"): (Struct(">B"), bool),
    ord("b"): (Struct(">b"), None),
    ord("B"): (Struct(">B"), None),
    ord("s"): (Struct(">h"), None),
    ord("U"): (Struct(">h"), None),
    ord("u"): (Struct(">H"), None),
    ord("I"): (Struct(">i"), None),
    ord("i"): (Struct(">I"), None),
    ord("l"): (_LONG, None),
    ord("L"): (_LONG, None),
    ord("f"): (Struct(">f"), None),
    ord("d"): (_DOUBLE, None),
    ord("D"): (Struct(">Bi"), _decimal),
    ord("T"): (_LONG, None),  # signed, though AMQP says otherwise: it has to fit when sent on
}
