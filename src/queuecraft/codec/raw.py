"""Payloads that are bytes already: sent and received as they are."""

from __future__ import annotations

from typing import Any

from queuecraft.codec.serializer import Decode, Encode, Serializer
from queuecraft.codec.shape import is_untyped, type_name
from queuecraft.model.errors import ConfigError


class RawSerializer(Serializer):
    """Bytes in, bytes out.

    >>> RawSerializer().encoder(bytes)(b"any \\x00 thing")
    b'any \\x00 thing'
    """

    name = "raw"
    content_type = "application/octet-stream"

    def encoder(self, payload_type: Any) -> Encode:
        _refuse_others(payload_type)
        return _as_bytes

    def decoder(self, payload_type: Any) -> Decode:
        _refuse_others(payload_type)
        return bytes


def _as_bytes(payload: Any) -> bytes:
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    # Not bytes(payload): bytes(5) would be five zeros.
    raise TypeError(f"a value of type {type_name(type(payload))} is not bytes")


def _refuse_others(payload_type: Any) -> None:
    if not is_untyped(payload_type) and payload_type not in (bytes, bytearray, memoryview):
        raise ConfigError(
            f"serializer='raw' carries bytes, not {type_name(payload_type)}; "
            "name bytes as the payload type, or choose another serializer"
        )
