"""Payloads to bytes and back: formats, validation, compression, and the headers on the wire."""

from queuecraft.codec.codec import Codec, DecodeBody, EncodeBody
from queuecraft.codec.compression import Compressor, GzipCompressor, ZstdCompressor
from queuecraft.codec.json import JsonSerializer
from queuecraft.codec.msgpack import MsgpackSerializer
from queuecraft.codec.protobuf import ProtobufSerializer
from queuecraft.codec.raw import RawSerializer
from queuecraft.codec.registry import Compressors, Serializers
from queuecraft.codec.serializer import Check, Decode, Encode, Serializer
from queuecraft.codec.validation import validator

__all__ = [
    "Check",
    "Codec",
    "Compressor",
    "Compressors",
    "Decode",
    "DecodeBody",
    "Encode",
    "EncodeBody",
    "GzipCompressor",
    "JsonSerializer",
    "MsgpackSerializer",
    "ProtobufSerializer",
    "RawSerializer",
    "Serializer",
    "Serializers",
    "ZstdCompressor",
    "validator",
]
