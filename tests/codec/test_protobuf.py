"""Protobuf carries message classes, and says what to do when it cannot."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from queuecraft import Event, Queue, QueueCraft
from queuecraft.codec import Codec, ProtobufSerializer
from queuecraft.model.errors import ConfigError, PayloadError


def test_a_message_comes_back_as_it_was() -> None:
    codec = Codec("protobuf")
    body, encoding = codec.encoder(StringValue)(StringValue(value="o-1"))

    assert codec.decoder(StringValue)(body, codec.content_type, encoding).value == "o-1"


@pytest.mark.parametrize("payload_type", [int, dict[str, int]])
def test_other_types_are_refused_before_any_message(payload_type: Any) -> None:
    with pytest.raises(ConfigError, match="protobuf message classes"):
        ProtobufSerializer().encoder(payload_type)
    with pytest.raises(ConfigError, match="protobuf message classes"):
        ProtobufSerializer().decoder(payload_type)


@pytest.mark.parametrize("payload_type", [Any, None])
def test_without_a_type_nothing_can_be_written_and_bytes_are_read(payload_type: Any) -> None:
    with pytest.raises(ConfigError, match="protobuf message classes"):
        ProtobufSerializer().encoder(payload_type)
    assert Codec("protobuf").decoder(payload_type)(b"\n\x03o-1", None, None) == b"\n\x03o-1"


async def test_whoever_knows_no_types_can_look_after_protobuf_messages() -> None:
    placed = Event("order.placed", StringValue)
    async with QueueCraft("local://", serializer="protobuf") as qc:
        await qc.worker("billing").on(placed, print).declare()
        await qc.publish(placed, StringValue(value="o-1"))
        await qc.delayed.add(placed, StringValue(value="o-2"), delay=60)
        assert [each.payload for each in await qc.admin.peek("billing")] == [b"\n\x03o-1"]
        await qc.admin.declare(Queue("parked"))
        assert (await qc.admin.move("billing", "parked", where=bool)).moved == 1
        assert len((await qc.delayed.list()).messages) == 1


def test_another_message_class_is_refused_on_publish() -> None:
    with pytest.raises(PayloadError, match="Int32Value, expected StringValue"):
        Codec("protobuf").encoder(StringValue)(Int32Value(value=1))


def test_a_body_that_is_no_message_is_a_payload_error() -> None:
    with pytest.raises(PayloadError, match="StringValue"):
        Codec("protobuf").decoder(StringValue)(b"\xff", None, None)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)

    with pytest.raises(ConfigError, match=r"queuecraft\[protobuf\]"):
        ProtobufSerializer().encoder(StringValue)
