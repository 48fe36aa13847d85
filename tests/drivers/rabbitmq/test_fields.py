"""Headers are packed as pamqp would, read as pamqp reads them, and survive whatever is sent."""

from __future__ import annotations

import array
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import decode, encode

from queuecraft.drivers.rabbitmq.fields import (
    DEEPEST,
    Malformed,
    pack_table,
    pack_value,
    read_table,
    short,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
WHOLE = st.integers(-(2**63), 2**63 - 1)


def tables(*leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    values = st.recursive(
        st.one_of(TEXT, st.booleans(), WHOLE, st.none(), *leaves),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
        max_leaves=12,
    )
    return st.dictionaries(NAMES, values, max_size=5)


def plain(value: Any) -> Any:
    """As we read it: pamqp has bytearrays, datetimes and decimals."""
    match value:
        case bytearray():
            return bytes(value)
        case datetime():
            return int(value.timestamp())
        case Decimal():
            return float(value)
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case _:
            return value


def sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


# -- packing ---------------------------------------------------------------------------------------

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=60)
@given(tables(FINITE, st.binary()))
def test_what_was_packed_is_read_and_read_to_its_end(values: dict[str, Any]) -> None:
    packed = pack_table(values)
    assert read_table(b"before" + packed + b"after", 6) == (values, 6 + len(packed))


@settings(max_examples=60)
@given(tables(FINITE, st.binary()))
def test_pamqp_reads_what_we_pack(values: dict[str, Any]) -> None:
    packed = pack_table(values)
    size, read = decode.field_table(packed)
    assert (size, plain(read)) == (len(packed), values)


@settings(max_examples=60)
@given(
    tables(
        st.floats(allow_nan=False, allow_infinity=False, width=32),
        st.binary().map(bytearray),
        st.integers(0, 4_000_000_000).map(lambda when: datetime.fromtimestamp(when, UTC)),
        st.decimals(-1000, 1000, places=3),
    )
)
def test_we_read_what_pamqp_packs(values: dict[str, Any]) -> None:
    packed = encode.field_table(values)
    assert read_table(packed, 0) == (plain(decode.field_table(packed)[1]), len(packed))


@pytest.mark.parametrize("text", ["x" * 255, "é" * 127, ""])
def test_a_short_string_has_up_to_255_bytes(text: str) -> None:
    assert short(text) == bytes([len(text.encode())]) + text.encode()


@pytest.mark.parametrize("text", ["x" * 256, "é" * 128])
def test_a_longer_one_is_refused_with_its_length(text: str) -> None:
    with pytest.raises(ValueError, match=r"is 256 bytes long; AMQP allows 255"):
        short(text)


def test_a_header_name_is_a_short_string() -> None:
    with pytest.raises(ValueError, match="256 bytes"):
        pack_table({"x" * 256: 1})


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**400])
def test_a_number_of_more_than_64_bits_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        pack_value(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_refused_because_the_broker_would_cut_the_connection(
    value: float,
) -> None:
    with pytest.raises(ValueError, match="a header cannot be"):
        pack_table({"a": [value]})


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, Decimal(1)])
def test_what_has_no_type_in_amqp_is_refused_by_its_name(value: object) -> None:
    with pytest.raises(ValueError, match=type(value).__name__):
        pack_value(value)


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        pack_value("\ud800")


def test_a_view_of_wide_items_is_packed_as_its_bytes() -> None:
    numbers = array.array("I", [1, 2, 3])
    packed = pack_table({"a": memoryview(numbers), "b": 1})
    assert read_table(packed, 0)[0] == {"a": numbers.tobytes(), "b": 1}


# -- reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("t", b"\x02", True),
        ("b", b"\xff", -1),
        ("B", b"\xff", 255),
        ("s", b"\xff\xfe", -2),
        ("u", b"\xff\xfe", 65534),
        ("I", b"\xff\xff\xff\xfe", -2),
        ("i", b"\xff\xff\xff\xfe", 2**32 - 2),
        ("l", b"\x80" + bytes(7), -(2**63)),
        ("L", b"\x7f" + b"\xff" * 7, 2**63 - 1),
        ("f", b"\x3f\xc0\0\0", 1.5),
        ("d", b"\x3f\xf8" + bytes(6), 1.5),
        ("D", b"\x02\0\0\0\x96", 1.5),
        ("D", b"\x02\xff\xff\xff\x6a", -1.5),
        ("T", b"\0\0\0\0\x65\x53\xf1\0", 1_700_000_000),
        ("V", b"", None),
        ("S", sized("ü".encode()), "ü"),
        ("S", sized(b"\xff\xfe"), b"\xff\xfe"),
        ("x", sized(b"\xff\xfe"), b"\xff\xfe"),
        ("F", sized(b"\x01at\x01"), {"a": True}),
        ("A", sized(b"t\x01V"), [True, None]),
    ],
)
def test_every_type_of_field_is_read_as_pamqp_reads_it(kind: str, data: bytes, value: Any) -> None:
    packed = sized(b"\x01a" + kind.encode() + data)
    assert read_table(packed, 0) == ({"a": value}, len(packed))
    assert plain(decode.field_table(packed)[1]) == {"a": value}


def nested(kind: bytes, depth: int) -> bytes:
    data = b""
    for _ in range(depth):
        data = kind + sized(b"\x01a" + data if data and kind == b"F" else data)
    return sized(b"\x01a" + data)


@pytest.mark.parametrize("kind", [b"F", b"A"])
@pytest.mark.parametrize("depth", [DEEPEST, DEEPEST + 1, 10_000])
def test_a_message_from_the_abyss_costs_neither_the_connection_nor_the_stack(
    kind: bytes, depth: int
) -> None:
    packed = nested(kind, depth)
    values, end = read_table(packed, 0)
    assert end == len(packed)
    value: Any = values["a"]
    deep = 0
    while value and not isinstance(value, bytes):
        value = value["a"] if kind == b"F" else value[0]
        deep += 1
    assert deep <= DEEPEST
    assert isinstance(value, bytes) == (depth > DEEPEST)
    assert read_table(pack_table(values), 0)[0] == values


RAW = st.one_of(
    *(st.binary(min_size=size, max_size=size).map(letter.encode().__add__)
      for letter, size in {"t": 1, "b": 1, "B": 1, "s": 2, "U": 2, "u": 2, "I": 4, "i": 4,
                           "l": 8, "L": 8, "D": 5, "T": 8, "V": 0}.items()),
    st.binary(max_size=20).map(lambda data: b"S" + sized(data)),
    st.binary(max_size=20).map(lambda data: b"x" + sized(data)),
)  # fmt: skip
RAW_NAMES = st.binary(max_size=255).map(lambda data: bytes([len(data)]) + data)


@given(st.lists(st.tuples(RAW_NAMES, RAW)))
def test_whatever_the_broker_lets_pass_can_be_sent_on(fields: list[tuple[bytes, bytes]]) -> None:
    values, _ = read_table(sized(b"".join(name + value for name, value in fields)), 0)
    assert read_table(pack_table(values), 0)[0] == values


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\0\0\0\x01", "table that does not end"),
        (sized(b"\x01aZ"), "unknown type 'Z'"),
        (sized(b"\x01aS" + b"\0\0\0\xff"), "value that does not end"),
        (sized(b"\x01aA" + b"\0\0\0\xff"), "array that does not end"),
        (sized(b"\x01aA" + b"\0\0\0\x02" + b"l" + bytes(8)), "value that does not end"),
        (sized(b"\x01aF" + b"\0\0\0\x03" + b"\x01al" + bytes(8)), "value that does not end"),
    ],
)
def test_what_does_not_fit_together_is_malformed(data: bytes, complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        read_table(data, 0)
