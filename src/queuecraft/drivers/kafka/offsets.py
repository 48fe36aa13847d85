"""Which records of a partition are finished: what may be committed, and what need not be run again.

A partition is committed by one number, below which everything is finished. Records above it that
are finished too are kept in the text Kafka stores beside that number, so that whoever gets the
partition next leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from queuecraft.drivers.kafka.bits import REACH, unpacked, written

MAX_NOTE: Final = 3500  # bytes; Kafka takes 4,096 unless it is told otherwise
MARK: Final = "qc1:"


class Progress:
    """One partition: its low-water mark, and what is finished above it, as stretches. Records come
    in the order of their offsets; all between the mark and the next one that is in no stretch is
    held.

    >>> progress = Progress(10)
    >>> [progress.take(offset) for offset in (10, 11, 12)]
    [True, True, True]
    >>> progress.finish([11, 12]), progress.mark
    (False, 10)
    >>> progress.finish([10]), progress.mark
    (True, 13)
    """

    __slots__ = ("_begins", "_early", "_ends", "_next", "mark")

    def __init__(self, mark: int, finished: Iterable[int] = ()) -> None:
        self.mark = mark
        """Everything below it is finished; -1 until the first record has come, if it is not known
        where the partition begins."""
        self._next = mark  # everything below it was taken, or will never be
        self._ends: dict[int, int] = {}  # of each stretch above the mark, by where it begins
        self._begins: dict[int, int] = {}  # the same, by where it ends
        self._early = {offset for offset in finished if offset >= mark}  # and not taken yet
        self._skip()

    def take(self, offset: int) -> bool:
        """Hold a record that has come; False if it is held or finished already."""
        if offset == self._next and not self._early:  # as nearly all
            self._next = offset + 1
            return True
        if offset < self._next:
            return False
        if self.mark < 0:
            self.mark = offset
        elif offset > self._next:
            # Offsets are not dense: transactions and compaction leave holes that nobody takes.
            self._early -= self._within(self._next, offset)
            self._close(self._next, offset)
        self._next = offset + 1
        if offset not in self._early:
            return True
        self._early.discard(offset)
        self._close(offset, offset + 1)
        self._skip()
        return False

    def read_to(self, end: int) -> bool:
        """All records before this were taken, or will never be; whether that is news.

        >>> progress = Progress(10)
        >>> progress.take(10), progress.read_to(12), progress.mark
        (True, True, 10)
        >>> progress.finish([10]), progress.mark
        (True, 12)
        """
        if end <= max(self._next, 0):
            return False
        if self.mark < 0:  # nothing has come, from the beginning on
            self.mark = end
        else:
            self._early -= self._within(self._next, end)
            self._close(self._next, end)
        self._next = end
        self._skip()
        return True

    def finish(self, offsets: Sequence[int]) -> bool:
        """These, which are held, need not come again; whether the mark has moved."""
        before = self.mark
        first, count = offsets[0], len(offsets)
        if offsets == list(range(first, first + count)):  # as nearly always
            self._close(first, first + count)
        else:
            for offset in sorted(set(offsets)):
                self._close(offset, offset + 1)
        self._skip()
        return self.mark != before

    @property
    def held(self) -> int:
        """How many are neither finished nor given back."""
        return self.gap - sum(end - start for start, end in self._ends.items())

    @property
    def gap(self) -> int:
        """How far those that were taken are ahead of the mark."""
        return self._next - self.mark

    def note(self) -> str:
        """What is finished above the mark, as a text for `noted`. If that is too long, the highest
        are left out: they will be run again if this process dies."""
        if not (self._ends or self._early):
            return ""
        # Holes may be of any size, and a note has a bit for each offset.
        mark, reach, bits = self.mark, REACH, 0
        for start, end in self._ends.items():
            if start < mark + reach:
                length = min(end, mark + reach) - start
                bits |= ((1 << length) - 1) << (start - mark)
        for offset in self._early:
            if offset < mark + reach:
                bits |= 1 << (offset - mark)
        while bits:
            text = MARK + written(bits)
            if len(text) <= MAX_NOTE:
                return text
            reach = min(reach, bits.bit_length()) // 2
            bits &= (1 << reach) - 1
        return ""

    def _close(self, start: int, end: int) -> None:
        """Nothing from the one to the other need come again."""
        beyond = self._ends.pop(end, end)
        self._begins.pop(beyond, None)
        start = self._begins.pop(start, start)
        if start == self.mark:
            self.mark = beyond
        else:
            self._ends[start] = beyond
            self._begins[beyond] = start

    def _skip(self) -> None:
        """Go past what was finished before it came, once all below it is finished."""
        while self.mark == self._next and self.mark in self._early:
            self._early.discard(self.mark)
            self.mark = self._next = self.mark + 1

    def _within(self, start: int, end: int) -> set[int]:
        """What was finished before it came, and never will, from the one to the other."""
        if end - start < len(self._early):
            return self._early.intersection(range(start, end))
        return {each for each in self._early if start <= each < end}


def noted(mark: int, note: str | None) -> list[int]:
    """What a note says is finished above the mark; nothing, if it is none of ours.

    >>> progress = Progress(10, finished=[12, 15])
    >>> noted(10, progress.note())
    [12, 15]
    >>> noted(10, "somebody else's")
    []
    """
    if not note or not note.startswith(MARK):
        return []
    return unpacked(mark, note[len(MARK) :].partition(";")[0])
