"""Smaller bodies on the wire, undone on receipt without ever unpacking a bomb."""

from __future__ import annotations

import importlib
import zlib
from abc import ABC, abstractmethod
from typing import Any

from queuecraft.codec.reason import refused
from queuecraft.model.errors import ConfigError, PayloadError


class Compressor(ABC):
    """A way to compress. Add your own to `Compressors` and name it in the settings.

    >>> class Reversed(Compressor):
    ...     name = "reversed"
    ...
    ...     def compress(self, data):
    ...         return data[::-1]
    ...
    ...     def decompress(self, data, limit):
    ...         return data[::-1]
    >>> Reversed().decompress(b"cba", limit=100)
    b'abc'
    """

    name: str
    """What the setting `compression` and the header `content-encoding` call it."""

    @abstractmethod
    def compress(self, data: bytes) -> bytes:
        """The body, smaller if it can be."""

    @abstractmethod
    def decompress(self, data: bytes, limit: int) -> bytes:
        """The body as it was; `PayloadError` as soon as it is seen to pass `limit` bytes."""

    def check(self) -> None:
        """Raise `ConfigError` if something needed is not installed."""
        return


class GzipCompressor(Compressor):
    """gzip, from the standard library; the same body always gives the same bytes.

    >>> gzip = GzipCompressor()
    >>> gzip.decompress(gzip.compress(b"hello"), limit=100)
    b'hello'
    >>> gzip.decompress(gzip.compress(bytes(1_000_000)), limit=1000)
    Traceback (most recent call last):
    queuecraft.PayloadError: the gzip body unpacks to more than 1,000 bytes, \
the limit of max_message_bytes
    """

    name = "gzip"

    def __init__(self, level: int = 6) -> None:
        self.level = level

    def compress(self, data: bytes) -> bytes:
        return zlib.compress(data, self.level, wbits=_GZIP)  # zlib writes mtime 0

    def decompress(self, data: bytes, limit: int) -> bytes:
        stream = zlib.decompressobj(wbits=_GZIP)
        try:
            body = stream.decompress(data, limit + 1)
        except zlib.error as error:
            raise refused("the gzip body cannot be unpacked", error) from error
        if len(body) > limit:
            raise _too_large(self.name, limit)
        _refuse_ragged_end(self.name, stream)
        return body


class ZstdCompressor(Compressor):
    """Zstandard: smaller and several times faster than gzip; needs `queuecraft[zstd]`.

    >>> zstd = ZstdCompressor()
    >>> zstd.decompress(zstd.compress(b"hello"), limit=100)
    b'hello'
    """

    name = "zstd"

    def __init__(self, level: int = 3) -> None:
        self.level = level

    def check(self) -> None:
        _zstandard()

    def compress(self, data: bytes) -> bytes:
        # A context each time: sharing one between threads is not safe.
        packed: bytes = _zstandard().ZstdCompressor(level=self.level).compress(data)
        return packed

    def decompress(self, data: bytes, limit: int) -> bytes:
        zstandard = _zstandard()
        try:
            size: int = zstandard.frame_content_size(data)
            if size > limit:
                raise _too_large(self.name, limit)
            if size > 0:
                # The size is known, and libzstd writes no further than that.
                body: bytes = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
                return body
            return self._stream(zstandard, data, limit)
        except zstandard.ZstdError as error:
            raise refused("the zstd body cannot be unpacked", error) from error

    def _stream(self, zstandard: Any, data: bytes, limit: int) -> bytes:
        window = max(limit, _ZSTD_WINDOW)
        stream = zstandard.ZstdDecompressor(max_window_size=window).decompressobj()
        parts: list[bytes] = []
        total = 0
        for start in range(0, len(data), _ZSTD_SLICE):
            if stream.eof:
                raise _ragged(self.name)
            part = stream.decompress(data[start : start + _ZSTD_SLICE])
            total += len(part)
            if total > limit:
                raise _too_large(self.name, limit)
            parts.append(part)
        _refuse_ragged_end(self.name, stream)
        return b"".join(parts)


_GZIP = 31
"""zlib's word for: a gzip header and trailer, nothing else, with the largest window."""

_ZSTD_WINDOW = 8 * 2**20
"""What RFC 8878 asks every decoder to support."""

_ZSTD_SLICE = 256
"""Four bytes can stand for 128 KiB, so this bounds what one step may unpack to 8 MiB."""


def _zstandard() -> Any:
    try:
        return importlib.import_module("zstandard")
    except ImportError as error:
        raise ConfigError(
            "zstd compression needs the package zstandard: pip install 'queuecraft[zstd]'"
        ) from error


def _too_large(name: str, limit: int) -> PayloadError:
    return PayloadError(
        f"the {name} body unpacks to more than {limit:,} bytes, the limit of max_message_bytes"
    )


def _ragged(name: str) -> PayloadError:
    return PayloadError(f"the {name} body is followed by other data")


def _refuse_ragged_end(name: str, stream: Any) -> None:
    if not stream.eof:
        raise PayloadError(f"the {name} body is cut off before its end")
    if stream.unused_data:
        raise _ragged(name)
