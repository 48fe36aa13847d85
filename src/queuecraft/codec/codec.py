"""From payload to body and back: serialized, validated, compressed, and never too large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from queuecraft.codec.compression import Compressor
from queuecraft.codec.raw import RawSerializer
from queuecraft.codec.reason import refused, shorten
from queuecraft.codec.registry import Compressors, Serializers
from queuecraft.codec.serializer import Check, Decode, Encode, Serializer
from queuecraft.codec.shape import type_name
from queuecraft.codec.validation import kind_check, validator
from queuecraft.model.errors import ConfigError, PayloadError

EncodeBody: TypeAlias = Callable[[Any], tuple[bytes, str | None]]
"""payload -> (body, content encoding)"""

DecodeBody: TypeAlias = Callable[[bytes, str | None, str | None], Any]
"""(body, content type, content encoding) -> payload"""

# AMQP clients such as Kombu write the character set where the compression belongs.
_NOT_COMPRESSED = frozenset({"", "identity", "utf-8", "utf8", "us-ascii", "binary"})

_MAX_CACHED = 64


class Codec:
    """How an application writes and reads payloads.

    `bytes` as a payload type means the body as it is, whatever the serializer: it is neither
    encoded nor decoded, and every content type is welcome.

    >>> codec = Codec("json", compression="gzip", threshold=0)
    >>> body, encoding = codec.encoder(list[int])([1, 2, 3])
    >>> encoding
    'gzip'
    >>> codec.decoder(list[int])(body, codec.content_type, encoding)
    [1, 2, 3]
    """

    def __init__(
        self,
        serializer: str | Serializer = "json",
        compression: str | bool | Compressor | None = None,
        threshold: int = 1024,
        max_bytes: int = 16 * 2**20,
        serializers: Serializers | None = None,
        compressors: Compressors | None = None,
    ) -> None:
        if threshold < 0:
            raise ConfigError(f"compression_threshold={threshold} must be 0 or more bytes")
        if max_bytes < 1:
            raise ConfigError(f"max_message_bytes={max_bytes} must be 1 byte or more")
        self.serializers = serializers or Serializers()
        self.compressors = compressors or Compressors()
        self.serializer = (
            serializer if isinstance(serializer, Serializer) else self.serializers.get(serializer)
        )
        self.compressor = self._compressor(compression)
        self.threshold = threshold
        self.max_bytes = max_bytes

    @property
    def content_type(self) -> str:
        """What messages written by this codec carry.

        >>> Codec("msgpack").content_type
        'application/msgpack'
        """
        return self.serializer.content_type

    def content_type_for(self, payload_type: Any) -> str:
        """What messages of this payload type carry: bytes are just bytes.

        >>> Codec("json").content_type_for(bytes)
        'application/octet-stream'
        """
        return self._serializer_for(payload_type).content_type

    def encoder(self, payload_type: Any = None) -> EncodeBody:
        """The function that turns payloads of a type into `(body, content encoding)`.

        Made once per event, called once per message. It raises `PayloadError` for a payload that
        does not fit its type, cannot be encoded, or is larger than `max_bytes`.

        >>> Codec().encoder(int)("three")
        Traceback (most recent call last):
        queuecraft.PayloadError: the payload is of type str, expected int
        """
        serializer = self._serializer_for(payload_type)
        plain = _plain_encoder(
            payload_type,
            serializer,
            serializer.encoder(payload_type),
            validator(payload_type, serializer),
            self.max_bytes,
        )
        if self.compressor is None:
            return plain
        return _compressing(plain, self.compressor, self.threshold, self.max_bytes)

    def decoder(self, payload_type: Any = None) -> DecodeBody:
        """The function that turns `(body, content type, content encoding)` into a payload.

        Made once per handler, called once per message. A message without a content type is read
        with this codec's serializer, one with another known content type with that one's.
        Whatever is wrong with a message is a `PayloadError` whose cause is the first error.

        >>> read = Codec("msgpack").decoder(dict[str, int])
        >>> read(b'{"a": 1}', "application/json; charset=utf-8", None)
        {'a': 1}
        >>> read(b'{"a": 1}', "application/json", "br")
        Traceback (most recent call last):
        queuecraft.PayloadError: unknown content encoding 'br'; known: gzip, zstd
        """
        serializer = self._serializer_for(payload_type)
        own = serializer.content_type
        decode_own = serializer.decoder(payload_type)
        limit = self.max_bytes
        choose = _Choice(payload_type, decode_own, own, self.serializers)
        unpack = self._unpack

        def decode(body: bytes, content_type: str | None, content_encoding: str | None) -> Any:
            if len(body) > limit:
                raise _too_large(len(body), limit)
            if content_encoding is not None:
                body = unpack(body, content_encoding)
            if content_type is None or content_type == own:
                read = decode_own
            else:
                read = choose(content_type)
            try:
                return read(body)
            except (PayloadError, MemoryError):
                raise
            except Exception as error:
                what = f"the body cannot be read as {type_name(payload_type or Any)}"
                raise refused(what, error) from error

        return decode

    def _compressor(self, compression: str | bool | Compressor | None) -> Compressor | None:
        if compression is None or compression is False:
            return None
        if not isinstance(compression, Compressor):
            compression = self.compressors.get("gzip" if compression is True else compression)
        compression.check()
        return compression

    def _serializer_for(self, payload_type: Any) -> Serializer:
        return RawSerializer() if payload_type is bytes else self.serializer

    def _unpack(self, body: bytes, content_encoding: str) -> bytes:
        compressor = self.compressors.find(content_encoding.strip())
        if compressor is None:
            if content_encoding.strip().lower() in _NOT_COMPRESSED:
                return body
            raise PayloadError(
                f"unknown content encoding {shorten(content_encoding, 40)!r}; "
                f"known: {', '.join(self.compressors.names)}"
            )
        try:
            unpacked = compressor.decompress(body, self.max_bytes)
        except (PayloadError, MemoryError):
            raise
        except Exception as error:
            raise refused(f"the {compressor.name} body cannot be unpacked", error) from error
        if len(unpacked) > self.max_bytes:  # a compressor of the user's own may forget
            raise _too_large(len(unpacked), self.max_bytes)
        return unpacked


class _Choice:
    """Which decoder reads a content type; each is compiled once, the memory of names is bounded."""

    def __init__(self, payload_type: Any, own: Decode, name: str, serializers: Serializers) -> None:
        self._payload_type = payload_type
        self._own = own
        self._own_name = name
        self._serializers = serializers
        self._by_content_type: dict[str, Decode] = {}
        self._by_serializer: dict[str, Decode] = {}

    def __call__(self, content_type: str) -> Decode:
        found = self._by_content_type.get(content_type)
        if found is None:
            found = self._own if self._payload_type is bytes else self._find(content_type)
            # Content types come from strangers: remember a few, and no monsters.
            if len(self._by_content_type) < _MAX_CACHED and len(content_type) <= 100:
                self._by_content_type[content_type] = found
        return found

    def _find(self, content_type: str) -> Decode:
        bare, _, parameters = content_type.lower().partition(";")
        if "charset=" in parameters:
            charset = parameters.partition("charset=")[2].partition(";")[0].strip(" \"'")
            if charset not in ("utf-8", "utf8", "us-ascii"):
                raise PayloadError(f"unknown charset {shorten(charset, 40)!r}; only UTF-8 is read")
        if bare.strip() == self._own_name.lower():
            return self._own
        serializer = self._serializers.for_content_type(content_type)
        if serializer is None:
            raise PayloadError(
                f"unknown content type {shorten(content_type, 80)!r}; "
                "add a serializer that accepts it, or take the payload as bytes"
            )
        if serializer.name not in self._by_serializer:
            try:
                self._by_serializer[serializer.name] = serializer.decoder(self._payload_type)
            except ConfigError as error:
                what = f"content type {shorten(content_type, 80)!r} cannot be read"
                raise refused(what, error) from error
        return self._by_serializer[serializer.name]


def _plain_encoder(
    payload_type: Any, serializer: Serializer, write: Encode, check: Check | None, limit: int
) -> EncodeBody:
    def encode(payload: Any) -> tuple[bytes, str | None]:
        try:
            body = write(payload)
            if check is not None:
                check(payload, body)
        except (PayloadError, MemoryError):
            raise
        except Exception as error:
            kind_check(payload_type)(payload)  # says it better, if it is that
            what = f"the payload cannot be written as {serializer.name}"
            raise refused(what, error) from error
        if len(body) > limit:
            raise _too_large(len(body), limit)
        return body, None

    return encode


def _compressing(
    plain: EncodeBody, compressor: Compressor, threshold: int, limit: int
) -> EncodeBody:
    def encode(payload: Any) -> tuple[bytes, str | None]:
        body, _ = plain(payload)
        if len(body) < threshold:
            return body, None
        packed = compressor.compress(body)
        if threshold and len(packed) >= len(body):
            return body, None
        if len(packed) > limit:
            raise _too_large(len(packed), limit)
        return packed, compressor.name

    return encode


def _too_large(actual: int, limit: int) -> PayloadError:
    return PayloadError(
        f"the body has {actual:,} bytes, the limit is {limit:,}; send less (a reference instead "
        "of the data), or raise max_message_bytes on both sides"
    )
