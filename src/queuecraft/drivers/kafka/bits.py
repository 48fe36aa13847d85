"""Offsets as a short text: a bit for each from a mark on."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Final
from zlib import compress, decompressobj, error

REACH: Final = 1 << 20  # offsets above the mark that a text can tell of


def packed(mark: int, offsets: Iterable[int]) -> str:
    """Those from the mark on, as far as the text reaches.

    >>> unpacked(10, packed(10, [12, 15, 9]))
    [12, 15]
    """
    bits = 0
    for offset in offsets:
        if mark <= offset < mark + REACH:
            bits |= 1 << (offset - mark)
    return written(bits)


def written(bits: int) -> str:
    """Bits as a text."""
    raw = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return b64encode(compress(raw)).decode("ascii")


def unpacked(mark: int, text: str) -> list[int]:
    """The offsets that a text tells of; none, if it is none of ours: anybody may have written it.

    >>> unpacked(10, "somebody else's")
    []
    """
    try:
        bits = decompressobj().decompress(b64decode(text, validate=True), REACH // 8)
    except (ValueError, error):
        return []
    return [
        mark + 8 * at + bit for at, byte in enumerate(bits) for bit in range(8) if byte >> bit & 1
    ]
