"""Payloads become messages and messages payloads, whoever sent them."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.codec import Codec, GzipCompressor
from queuecraft.codec.codec import _Choice
from queuecraft.model.errors import ConfigError, PayloadError

JSON = "application/json"


@dataclasses.dataclass
class Order:
    id: str
    total: float


ORDER = Order("o-1", 9.5)
BODY = b'{"id":"o-1","total":9.5}'


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
@pytest.mark.parametrize("compression", [None, False, True, "gzip", "zstd", GzipCompressor(9)])
@given(order=st.builds(Order, st.text(), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_payload_comes_back_as_it_was(serializer: str, compression: Any, order: Order) -> None:
    codec = Codec(serializer, compression=compression, threshold=0)
    body, encoding = codec.encoder(Order)(order)

    assert codec.decoder(Order)(body, codec.content_type, encoding) == order


def test_true_means_gzip() -> None:
    body, encoding = Codec(compression=True, threshold=0).encoder(Order)(ORDER)

    assert encoding == "gzip"
    assert gzip.decompress(body) == BODY


@pytest.mark.parametrize(("length", "expected"), [(97, None), (98, "gzip")])
def test_bodies_from_the_threshold_on_are_compressed(length: int, expected: str | None) -> None:
    _, encoding = Codec(compression="gzip", threshold=100).encoder(str)("x" * length)

    assert encoding == expected


def test_a_body_that_does_not_shrink_is_sent_as_it_is_unless_all_are_to_be_compressed() -> None:
    assert Codec(compression="gzip", threshold=1).encoder(Order)(ORDER) == (BODY, None)
    assert Codec(compression="gzip", threshold=0).encoder(Order)(ORDER)[1] == "gzip"


def test_a_body_too_large_is_refused_on_publish_even_if_it_would_shrink() -> None:
    for codec in (Codec(max_bytes=100), Codec(max_bytes=100, compression="gzip")):
        with pytest.raises(PayloadError, match=r"102 bytes, the limit is 100;.*max_message_bytes"):
            codec.encoder(str)("x" * 100)


def test_a_body_that_compression_makes_too_large_is_refused_on_publish() -> None:
    with pytest.raises(PayloadError, match="max_message_bytes"):
        Codec(max_bytes=len(BODY), compression="gzip", threshold=0).encoder(Order)(ORDER)


def test_a_body_too_large_is_refused_on_receipt_before_and_after_unpacking() -> None:
    decode = Codec(max_bytes=100).decoder(str)

    with pytest.raises(PayloadError, match="the body has 102 bytes"):
        decode(b'"' + b"x" * 100 + b'"', JSON, None)
    with pytest.raises(PayloadError, match="unpacks to more than 100 bytes"):
        decode(gzip.compress(b'"' + b"x" * 100 + b'"'), JSON, "gzip")


@pytest.mark.parametrize(
    "payload",
    [object(), {"a": object()}, "\ud800", 1j, type],
    ids=["object", "nested", "surrogate", "complex", "class"],
)
@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_a_value_that_cannot_be_encoded_is_refused_on_publish(
    payload: Any, serializer: str
) -> None:
    with pytest.raises(PayloadError, match=f"cannot be written as {serializer}") as caught:
        Codec(serializer).encoder()(payload)
    assert caught.value.__cause__ is not None


def test_a_payload_that_holds_itself_is_refused_on_publish() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(PayloadError, match="recursion"):
        Codec().encoder()(endless)


@pytest.mark.parametrize(
    "content_type", [JSON, "Application/JSON", "application/json; charset=utf-8", "text/json"]
)
@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_json_is_read_however_it_is_labelled(content_type: str, serializer: str) -> None:
    decode = Codec(serializer).decoder(Order)

    assert decode(BODY, content_type, None) == ORDER
    assert decode(BODY, content_type, None) == ORDER  # from memory


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_a_message_without_a_label_is_read_with_the_codecs_own_serializer(serializer: str) -> None:
    body, _ = Codec(serializer).encoder(Order)(ORDER)

    assert Codec(serializer).decoder(Order)(body, None, None) == ORDER


@pytest.mark.parametrize("encoding", ["identity", "", "utf-8", "UTF-8", "binary"])
def test_a_content_encoding_that_is_none_is_ignored(encoding: str) -> None:
    assert Codec().decoder(Order)(BODY, JSON, encoding) == ORDER


def test_a_content_encoding_is_known_in_any_case() -> None:
    assert Codec().decoder(Order)(gzip.compress(BODY), JSON, " GZIP ") == ORDER


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip,zstd", "br", "deflate", "x" * 100_000])
def test_an_unknown_or_layered_content_encoding_is_a_payload_error(encoding: str) -> None:
    with pytest.raises(PayloadError, match="unknown content encoding") as caught:
        Codec().decoder(Order)(gzip.compress(gzip.compress(BODY)), JSON, encoding)
    assert len(str(caught.value)) <= 500


@pytest.mark.parametrize("content_type", ["text/html", "", "x" * 100_000])
@pytest.mark.parametrize("payload_type", [Order, Any, None])
def test_an_unknown_content_type_is_a_payload_error(content_type: str, payload_type: Any) -> None:
    with pytest.raises(PayloadError, match="unknown content type") as caught:
        Codec().decoder(payload_type)(BODY, content_type, None)
    assert len(str(caught.value)) <= 500


def test_a_charset_other_than_utf8_is_a_payload_error() -> None:
    with pytest.raises(PayloadError, match="unknown charset 'latin-1'"):
        Codec().decoder(Any)(b'"\xe9"', 'application/json; charset="Latin-1"', None)


@pytest.mark.parametrize("content_type", ["application/octet-stream", "application/x-protobuf"])
def test_a_format_that_cannot_hold_the_type_is_a_payload_error(content_type: str) -> None:
    with pytest.raises(PayloadError, match="cannot be read") as caught:
        Codec().decoder(Order)(BODY, content_type, None)
    assert isinstance(caught.value.__cause__, ConfigError)


def test_strange_content_types_do_not_fill_the_memory() -> None:
    decode = Codec("msgpack").decoder(Order)

    for number in range(1000):
        assert decode(BODY, f"application/json; n={number}", None) == ORDER

    cells = [cell.cell_contents for cell in getattr(decode, "__closure__", ())]
    (choice,) = (found for found in cells if isinstance(found, _Choice))
    assert len(choice._by_content_type) == 64
    assert len(choice._by_serializer) == 1


@pytest.mark.parametrize("content_type", [None, JSON, "text/html", "application/octet-stream"])
@pytest.mark.parametrize("serializer", ["json", "msgpack", "raw"])
def test_bytes_are_the_body_as_it_is(content_type: str | None, serializer: str) -> None:
    codec = Codec(serializer)
    body = b"\xff\x00 anything"

    assert codec.encoder(bytes)(body) == (body, None)
    assert codec.content_type_for(bytes) == "application/octet-stream"
    assert codec.decoder(bytes)(body, content_type, None) == body


def test_bytes_are_compressed_like_any_other_body() -> None:
    codec = Codec(compression="gzip")
    body, encoding = codec.encoder(bytes)(bytes(5000))

    assert encoding == "gzip"
    assert codec.decoder(bytes)(body, None, encoding) == bytes(5000)


def test_what_is_not_bytes_is_refused_where_bytes_are_promised() -> None:
    with pytest.raises(PayloadError, match="is of type str, expected bytes"):
        Codec().encoder(bytes)("text")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"\xff\xfe",
        b'{"id": "\xff", "total": 1}',
        b'{"id": "o-1"}',
        b'{"id": "o-1", "total": "x"}',
        b'{"id": "o-1", "total": 1} trailing',
        b'{"id": "o-1", "total": 1e999}',
        b"[" * 100_000,
        b'{"id":' * 50_000,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_a_body_that_cannot_be_read_is_a_payload_error(body: bytes) -> None:
    with pytest.raises(PayloadError, match="cannot be read as Order") as caught:
        Codec().decoder(Order)(body, None, None)
    assert caught.value.__cause__ is not None
    assert len(str(caught.value)) <= 500


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deep_nesting_is_a_payload_error_without_a_type_too(opening: bytes) -> None:
    with pytest.raises(PayloadError, match="recursion"):
        Codec().decoder(Any)(opening * 100_000, None, None)
    with pytest.raises(PayloadError, match="recursion"):
        Codec("msgpack").decoder(Any)(b"\x91" * 100_000, None, None)


def test_running_out_of_memory_is_not_the_messages_fault() -> None:
    @dataclasses.dataclass
    class Greedy:
        x: int

        def __post_init__(self) -> None:
            if self.x > 5:
                raise MemoryError

    with pytest.raises(MemoryError):
        Codec().decoder(Greedy)(b'{"x": 6}', None, None)


@given(
    body=st.binary(max_size=200),
    content_type=st.none() | st.sampled_from([JSON, "application/msgpack", "x"]) | st.text(),
    encoding=st.none() | st.sampled_from(["gzip", "zstd", "identity"]) | st.text(),
)
@pytest.mark.parametrize("serializer", ["json", "msgpack"])
@pytest.mark.parametrize("payload_type", [Order, Any, bytes, list[dict[str, int | None]]], ids=str)
def test_no_message_raises_anything_but_a_payload_error(
    serializer: str, payload_type: Any, body: bytes, content_type: str | None, encoding: str | None
) -> None:
    with contextlib.suppress(PayloadError):
        Codec(serializer).decoder(payload_type)(body, content_type, encoding)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_of_the_wrong_shape_raises_nothing_but_a_payload_error(value: Any) -> None:
    with contextlib.suppress(PayloadError):
        Codec().decoder(Order)(json.dumps(value).encode(), JSON, None)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [({"threshold": -1}, "compression_threshold=-1"), ({"max_bytes": 0}, "max_message_bytes=0")],
)
def test_settings_out_of_range_are_named(settings: dict[str, int], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Codec(**settings)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_optional_libraries_are_not_imported_until_they_are_used() -> None:
    program = (
        "import sys; from queuecraft.codec import Codec;"
        "Codec(compression=True).encoder(list[int]);"
        "print(*(m for m in ('zstandard', 'google.protobuf', 'pydantic', 'attrs')"
        " if m in sys.modules))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True
    )
    assert answer.stdout.split() == []
