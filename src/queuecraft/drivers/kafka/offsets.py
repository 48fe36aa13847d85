"""Which records of a partition are finished: what may be committed, and what need not be run again.

A partition is committed by one number, below which everything is finished. Records above it that
are finished too are kept in the text Kafka stores beside that number, so that whoever gets the
partition next leaves them out.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Final
from zlib import compress, decompressobj, error

MAX_NOTE: Final = 3500  # bytes; Kafka takes 4,096 unless it is told otherwise
_MARK: Final = "qc1:"
_REACH: Final = 1 << 20  # offsets above the mark that a note can tell of


class Progress:
    """One partition: its low-water mark, what is held, and what is finished above the mark.

    >>> progress = Progress(10)
    >>> [progress.take(offset) for offset in (10, 11, 12)]
    [True, True, True]
    >>> progress.finish([11, 12]), progress.mark
    (False, 10)
    >>> progress.finish([10]), progress.mark
    (True, 13)
    """

    __slots__ = ("_finished", "_held", "_next", "mark")

    def __init__(self, mark: int, finished: Iterable[int] = ()) -> None:
        self.mark = mark
        """Everything below it is finished; -1 until the first record has come, if it is not known
        where the partition begins."""
        self._next = mark  # everything below it was taken, or will never be
        self._held: set[int] = set()
        self._finished = {offset for offset in finished if offset >= mark}
        self._advance()

    def take(self, offset: int) -> bool:
        """Hold a record that has come; False if it is held or finished already."""
        if self.mark < 0:
            self.mark = self._next = offset
        if offset < self.mark or offset in self._held or offset in self._finished:
            self._next = max(self._next, offset + 1)
            self._advance()
            return False
        self._held.add(offset)
        self._next = max(self._next, offset + 1)
        return True

    def finish(self, offsets: Iterable[int]) -> bool:
        """These need not come again; whether the mark has moved."""
        before = self.mark
        ended = set(offsets)
        self._held -= ended
        self._finished.update(offset for offset in ended if offset >= before)
        self._advance()
        return self.mark != before

    @property
    def held(self) -> int:
        """How many are neither finished nor given back."""
        return len(self._held)

    @property
    def gap(self) -> int:
        """How far those that were taken are ahead of the mark."""
        return self._next - self.mark

    def note(self) -> str:
        """What is finished above the mark, as a text for `noted`. If that is too long, the highest
        are left out: they will be run again if this process dies."""
        # Holes may be of any size, and a note has a bit for each offset.
        finished = sorted(each for each in self._finished if each < self.mark + _REACH)
        while finished:
            text = _written(self.mark, finished)
            if len(text) <= MAX_NOTE:
                return text
            finished = finished[: len(finished) // 2]
        return ""

    def _advance(self) -> None:
        if not self._held:
            # Offsets are not dense: transactions and compaction leave holes that nobody takes.
            self.mark = max(self.mark, self._next)
            self._finished = {each for each in self._finished if each >= self.mark}
            while self.mark in self._finished:
                self._finished.discard(self.mark)
                self.mark += 1
            self._next = max(self._next, self.mark)
            return
        lowest = min(self._held)
        if lowest > self.mark:
            self.mark = lowest
            self._finished = {each for each in self._finished if each > lowest}


def noted(mark: int, note: str | None) -> list[int]:
    """What a note says is finished above the mark; nothing, if it is none of ours.

    >>> progress = Progress(10, finished=[12, 15])
    >>> noted(10, progress.note())
    [12, 15]
    >>> noted(10, "somebody else's")
    []
    """
    if not note or not note.startswith(_MARK):
        return []
    try:
        packed = b64decode(note[len(_MARK) :], validate=True)
        bits = decompressobj().decompress(packed, _REACH // 8)  # anybody may have written it
    except (ValueError, error):
        return []
    return [
        mark + 8 * at + bit for at, byte in enumerate(bits) for bit in range(8) if byte >> bit & 1
    ]


def _written(mark: int, finished: list[int]) -> str:
    bits = bytearray((finished[-1] - mark) // 8 + 1)
    for offset in finished:
        bits[(offset - mark) // 8] |= 1 << (offset - mark) % 8
    return _MARK + b64encode(compress(bytes(bits))).decode("ascii")
