"""Payloads as MessagePack: smaller than JSON, and it holds bytes and NaN as they are."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from queuecraft.codec import pydantic
from queuecraft.codec.json import supported
from queuecraft.codec.serializer import Decode, Encode, Serializer
from queuecraft.codec.shape import is_untyped


class MsgpackSerializer(Serializer):
    """MessagePack for the same types as JSON; a pydantic model travels as its JSON form.

    >>> MsgpackSerializer().encoder(dict[str, int])({"a": 1})
    b'\\x81\\xa1a\\x01'
    >>> MsgpackSerializer().decoder(dict[str, int])(b"\\x81\\xa1a\\x01")
    {'a': 1}
    """

    name = "msgpack"
    content_type = "application/msgpack"
    accepts = ("application/x-msgpack", "application/vnd.msgpack")

    def encoder(self, payload_type: Any) -> Encode:
        if found := pydantic.schema(payload_type):
            to_json = pydantic.json_encoder(found)
            return lambda payload: msgspec.msgpack.encode(msgspec.json.decode(to_json(payload)))
        supported(payload_type)
        return msgspec.msgpack.Encoder(enc_hook=pydantic.nested_as_builtins).encode

    def decoder(self, payload_type: Any) -> Decode:
        if is_untyped(payload_type):
            return msgspec.msgpack.Decoder().decode
        if found := pydantic.schema(payload_type):
            from_json = pydantic.json_decoder(found)
            return lambda body: from_json(msgspec.json.encode(msgspec.msgpack.decode(body)))
        supported(payload_type)
        typed = msgspec.msgpack.Decoder(payload_type, dec_hook=pydantic.from_builtins)
        return cast(Decode, typed.decode)
