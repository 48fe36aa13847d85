"""What is in a plan, small enough to be held while it is sent: a few bytes for each message."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, TypeAlias

Content: TypeAlias = tuple[str, str, bytes]
"""What a message is: its id, event and payload."""

SIZE: Final = 16  # bytes of a digest: no two contents have the same


class Contents:
    """Contents of messages, by their digests.

    >>> contents = Contents.of([("m-1", "order.placed", b"{}")])
    >>> ("m-1", "order.placed", b"{}") in contents, ("m-1", "order.placed", b"[]") in contents
    (True, False)
    """

    __slots__ = ("_digests",)

    def __init__(self) -> None:
        # By their first byte, and sorted in there: so sorting takes no memory to speak of.
        self._digests = [bytearray() for _ in range(256)]

    @classmethod
    def of(cls, contents: Iterable[Content]) -> Contents:
        """Those of messages, which are looked at one by one."""
        made = cls()
        for content in contents:
            digest = _digest(content)
            made._digests[digest[0]] += digest
        for digests in made._digests:
            digests[:] = b"".join(sorted(_at(digests, n) for n in range(len(digests) // SIZE)))
        return made

    def __contains__(self, content: Content) -> bool:
        digest = _digest(content)
        digests = self._digests[digest[0]]
        places = range(len(digests) // SIZE)
        found = bisect_left(places, digest, key=lambda place: _at(digests, place))
        return _at(digests, found) == digest


def _at(digests: bytearray, place: int) -> bytes:
    return bytes(digests[place * SIZE : (place + 1) * SIZE])


def _digest(content: Content) -> bytes:
    # With their lengths, so that "ab" and "c" are not "a" and "bc"; a hostile id may be no UTF-8.
    id, event = (text.encode(errors="surrogatepass") for text in content[:2])
    digest = blake2b(b"%d %d " % (len(id), len(event)), digest_size=SIZE)
    for part in (id, event, content[2]):
        digest.update(part)
    return digest.digest()
