"""Compressed bodies come back as they were, and hostile ones do no harm."""

from __future__ import annotations

import gzip
import io
import sys
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.codec import Codec, Compressor, GzipCompressor, ZstdCompressor
from queuecraft.model.errors import ConfigError, PayloadError

MIB = 2**20
BOTH = pytest.mark.parametrize("compressor", [GzipCompressor(), ZstdCompressor()])


def zstd_stream(data: bytes) -> bytes:
    """A frame that does not say its size, as streaming writers make them."""
    target = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(target, closefd=False) as writer:
        writer.write(data)
    return target.getvalue()


def bomb(kind: str) -> bytes:
    if kind == "gzip":
        return gzip.compress(bytes(100 * MIB), compresslevel=9)
    if kind == "zstd":
        return zstandard.ZstdCompressor().compress(bytes(100 * MIB))
    return zstd_stream(bytes(100 * MIB))


@BOTH
@given(data=st.binary(max_size=5000))
def test_a_body_comes_back_as_it_was(compressor: Compressor, data: bytes) -> None:
    assert compressor.decompress(compressor.compress(data), limit=5000) == data


@given(st.binary(max_size=5000))
def test_a_zstd_body_of_unknown_size_comes_back_as_it_was(data: bytes) -> None:
    assert ZstdCompressor().decompress(zstd_stream(data), limit=5000) == data


@BOTH
@given(data=st.binary(max_size=500))
def test_any_bytes_are_unpacked_or_refused(compressor: Compressor, data: bytes) -> None:
    magic = compressor.compress(b"")[:4]
    for body in (data, magic + data):
        try:
            assert len(compressor.decompress(body, limit=1000)) <= 1000
        except PayloadError:
            pass


@BOTH
def test_a_body_of_just_the_limit_is_accepted_and_one_byte_more_refused(
    compressor: Compressor,
) -> None:
    packed = compressor.compress(bytes(1000))

    assert len(compressor.decompress(packed, limit=1000)) == 1000
    with pytest.raises(PayloadError, match="more than 999 bytes, the limit of max_message_bytes"):
        compressor.decompress(packed, limit=999)


@pytest.mark.parametrize("kind", ["gzip", "zstd", "zstd-stream"])
def test_a_bomb_is_not_unpacked(kind: str) -> None:
    packed = bomb(kind)
    compressor = GzipCompressor() if kind == "gzip" else ZstdCompressor()
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError, match="unpacks to more than"):
            compressor.decompress(packed, limit=MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 20 * MIB


@BOTH
@pytest.mark.parametrize("data", [b"", b"hello", bytes(5000)])
def test_a_body_cut_off_is_refused(compressor: Compressor, data: bytes) -> None:
    packed = compressor.compress(data)

    for length in range(len(packed)):
        with pytest.raises(PayloadError):
            compressor.decompress(packed[:length], limit=MIB)


@BOTH
@pytest.mark.parametrize("data", [b"", b"hello", bytes(5000)])
def test_a_body_followed_by_anything_is_refused(compressor: Compressor, data: bytes) -> None:
    packed = compressor.compress(data)

    for more in (b"x", packed, bytes(5000)):
        with pytest.raises(PayloadError):
            compressor.decompress(packed + more, limit=MIB)


def test_a_zstd_stream_cut_off_or_followed_by_anything_is_refused() -> None:
    packed = zstd_stream(bytes(range(256)) * 40)

    for body in (packed[:-1], packed + b"x", packed + bytes(1000)):
        with pytest.raises(PayloadError):
            ZstdCompressor().decompress(body, limit=MIB)


def test_a_zstd_window_of_gigabytes_is_refused() -> None:
    # Magic number, no content size, window descriptor for 2 GiB, one empty last block.
    frame = bytes.fromhex("28b52ffd") + b"\x00" + bytes([21 << 3]) + b"\x01\x00\x00"

    with pytest.raises(PayloadError):
        ZstdCompressor().decompress(frame, limit=MIB)


@BOTH
def test_the_same_body_gives_the_same_bytes(compressor: Compressor) -> None:
    assert compressor.compress(b"hello" * 100) == compressor.compress(b"hello" * 100)


def test_gzip_carries_no_time() -> None:
    assert GzipCompressor().compress(b"hello")[4:8] == bytes(4)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)

    with pytest.raises(ConfigError, match=r"queuecraft\[zstd\]"):
        Codec(compression="zstd")


def test_a_message_that_needs_a_missing_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    body, encoding = Codec(compression="zstd", threshold=0).encoder()([1])
    monkeypatch.setitem(sys.modules, "zstandard", None)

    with pytest.raises(PayloadError, match=r"queuecraft\[zstd\]"):
        Codec().decoder()(body, None, encoding)
