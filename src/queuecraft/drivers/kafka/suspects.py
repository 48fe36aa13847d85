"""Records that were in the hands of somebody who died, and how often.

Kafka does not count deliveries. But beside a committed offset it keeps a text of ours, and in that
whoever has a partition says what may be in his hands, before it is; and that nothing is, when he
leaves. If it says something to who comes next, the one before has died.

As long as nobody has died, that is one number, said once: how many he takes at most. Once somebody
has, it is exactly those he has, said anew whenever they change, so that nobody is blamed for his
neighbour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final, TypeAlias

from queuecraft.drivers.kafka.bits import packed, unpacked

MAX_TEXT: Final = 550  # bytes
MOST: Final = 20_000  # records that are suspected at once

Hand: TypeAlias = int | frozenset[int]
"""What somebody may have of a partition: so many at most of those that come next, or just these."""


class Suspects:
    """Those of one partition.

    >>> taken = Suspects(hand=2)
    >>> Suspects.found(10, [11], 15, taken.text(10)).counts
    {10: 1, 12: 1}
    """

    __slots__ = ("counts", "hand")

    def __init__(self, counts: dict[int, int] | None = None, hand: Hand = 0) -> None:
        self.counts = counts or {}
        """How often each was in the hands of somebody who died; never 0."""
        self.hand = hand
        """What is in the hands of who has the partition now."""

    @classmethod
    def found(cls, mark: int, finished: Collection[int], end: int, text: str) -> Suspects:
        """What a text says to who gets a partition now that ends there; nothing, if it is none of
        ours."""
        done = frozenset(finished)
        counts: dict[int, int] = {}
        hand: Iterable[int] = ()
        for field in text.split(";")[1:]:
            what, _, bits = field.partition(":")
            if what == "h":
                hand = unpacked(mark, bits)
            elif what.startswith("h"):
                coming = (offset for offset in range(mark, end) if offset not in done)
                hand = islice(coming, min(_number(what[1:]), MOST))
            elif times := _number(what):
                counts |= dict.fromkeys(unpacked(mark, bits), times)
        for offset in hand:
            counts[offset] = counts.get(offset, 0) + 1
        return cls({offset: times for offset, times in counts.items() if offset not in done})

    def text(self, mark: int) -> str:
        """The same for who comes next. If that is too long, those go free that are suspected
        least."""
        if isinstance(self.hand, int):
            found = f";h{self.hand}" if self.hand else ""
        else:
            found = f";h:{packed(mark, self.hand)}" if self.hand else ""
            if len(found) > MAX_TEXT:
                found = f";h{len(self.hand)}"
        if not self.counts:
            return found
        alike: dict[int, list[int]] = {}
        for offset, times in self.counts.items():
            alike.setdefault(times, []).append(offset)
        for times, offsets in sorted(alike.items(), reverse=True):
            more = f";{times}:{packed(mark, offsets)}"
            if len(found) + len(more) > MAX_TEXT:
                break
            found += more
        return found

    def clear(self, offsets: Iterable[int]) -> None:
        """These are finished, and have killed nobody."""
        for offset in offsets:
            self.counts.pop(offset, None)

    def forget_below(self, mark: int) -> None:
        """All below it is finished, or never came."""
        self.clear([offset for offset in self.counts if offset < mark])


def is_in_hand(text: str | None) -> bool:
    """Whether a text says that somebody has, or had, something of a partition in hand.

    >>> is_in_hand("qc1:;h100"), is_in_hand("qc1:;2:eJwDAAAAAAE="), is_in_hand(None)
    (True, False, False)
    """
    return text is not None and ";h" in text


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
