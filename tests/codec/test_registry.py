"""Formats and compressions by name, the user's own among them."""

from __future__ import annotations

from typing import Any

import pytest

from queuecraft.codec import (
    Codec,
    Compressor,
    Compressors,
    Decode,
    Encode,
    JsonSerializer,
    Serializer,
    Serializers,
)
from queuecraft.model.errors import ConfigError, PayloadError


class Text(Serializer):
    name = "text"
    content_type = "text/plain"
    accepts = ("Text/Markdown",)

    def encoder(self, payload_type: Any) -> Encode:
        return str.encode

    def decoder(self, payload_type: Any) -> Decode:
        return bytes.decode


class Forgetful(Compressor):
    """It does not care for the limit."""

    name = "Forgetful"

    def compress(self, data: bytes) -> bytes:
        return data[:10]

    def decompress(self, data: bytes, limit: int) -> bytes:
        if data == b"boom":
            raise KeyError("boom")
        return data * 100


def test_a_serializer_of_ones_own_is_used_both_ways() -> None:
    codec = Codec("text", serializers=Serializers(Text()))
    body, _ = codec.encoder(str)("hello")

    assert (body, codec.content_type) == (b"hello", "text/plain")
    assert codec.decoder(str)(body, "text/plain", None) == "hello"


def test_a_serializer_of_ones_own_reads_what_others_send() -> None:
    known = Serializers()
    known.add(Text())

    assert Codec(serializers=known).decoder(str)(b"# hi", "text/markdown", None) == "# hi"


def test_a_serializer_object_needs_no_name() -> None:
    assert Codec(Text()).content_type == "text/plain"


def test_two_registries_share_nothing() -> None:
    Serializers().add(Text())
    Compressors().add(Forgetful())

    assert "text" not in Serializers().names
    assert "forgetful" not in Compressors().names


def test_the_last_of_one_name_wins() -> None:
    mine = JsonSerializer()

    assert Serializers(mine).get("json") is mine
    assert Serializers(mine).for_content_type("application/json") is mine


@pytest.mark.parametrize(
    ("content_type", "name"),
    [
        ("application/json", "json"),
        ("APPLICATION/JSON ; charset=UTF-8", "json"),
        ("application/cloudevents+json", "json"),
        ("application/x-msgpack", "msgpack"),
        ("application/vnd.google.protobuf", "protobuf"),
        ("application/octet-stream", "raw"),
    ],
)
def test_a_content_type_finds_its_serializer(content_type: str, name: str) -> None:
    found = Serializers().for_content_type(content_type)

    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("content_type", ["", ";", "json", "text/html", "+json/x", "\x00"])
def test_a_content_type_nobody_reads_finds_nothing(content_type: str) -> None:
    assert Serializers().for_content_type(content_type) is None


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'xml'; known: json, msgpack, protobuf, raw"):
        Codec("xml")
    with pytest.raises(ConfigError, match=r"'br'; known: gzip, zstd"):
        Codec(compression="br")


def test_a_compressor_of_ones_own_is_held_to_the_limit_and_its_errors_are_translated() -> None:
    decode = Codec(max_bytes=500, compressors=Compressors(Forgetful())).decoder()

    with pytest.raises(PayloadError, match="max_message_bytes"):
        decode(b"0123456789", None, "forgetful")
    with pytest.raises(PayloadError, match="Forgetful body cannot be unpacked"):
        decode(b"boom", None, "FORGETFUL")
