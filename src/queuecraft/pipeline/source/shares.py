"""Offsets of many partitions, and how the records between two of them are shared out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TypeAlias

from queuecraft.pipeline.source.log import Offset

Spot: TypeAlias = tuple[str, int]
"""A topic and the number of a partition."""
Spots: TypeAlias = dict[Spot, int]
"""Of each partition, the offset of the record that comes next."""


def spots_of(offset: Offset) -> Spots:
    """The partitions of an offset.

    >>> spots_of({"order.placed": {"0": 5, "1": 7}})
    {('order.placed', 0): 5, ('order.placed', 1): 7}
    """
    return {
        (topic, int(number)): at
        for topic, numbers in offset.items()
        for number, at in numbers.items()
    }


def offset_of(spots: Mapping[Spot, int]) -> Offset:
    """The other way. What is the same is written the same: Spark compares texts.

    >>> offset_of({("order.placed", 1): 7, ("order.placed", 0): 5})
    {'order.placed': {'0': 5, '1': 7}}
    """
    offset: Offset = {}
    for (topic, number), at in sorted(spots.items()):
        offset.setdefault(topic, {})[str(number)] = at
    return offset


def limited(begins: Mapping[Spot, int], ends: Mapping[Spot, int], rows: int) -> Spots:
    """Where to end if there may be no more than so many records. Each partition has its share by
    what lies before it, so that none runs ahead of the others in time; but none is left waiting.

    >>> limited({("a", 0): 0, ("a", 1): 10}, {("a", 0): 900, ("a", 1): 110}, 50)
    {('a', 0): 45, ('a', 1): 15}
    """
    sizes = {spot: end - begins[spot] for spot, end in ends.items() if end > begins[spot]}
    total = sum(sizes.values())
    if total <= rows:
        return dict(ends)
    given = {spot: max(1, size * rows // total) for spot, size in sizes.items()}
    rest = rows - sum(given.values())
    for spot in sorted(sizes, key=lambda each: (given[each] - sizes[each], each))[: max(0, rest)]:
        given[spot] += 1
    for _ in range(-rest):
        given[max(given, key=lambda each: (given[each], sizes[each]))] -= 1
    return {spot: begins[spot] + given.get(spot, 0) for spot in ends}


def shares(start: Offset, end: Offset, size: int) -> list[tuple[Offset, Offset]]:
    """What lies between two offsets, in parts of about so many records: large partitions are cut,
    small ones are put together. One that is not in `start` is new, and read from its beginning.

    >>> shares({"a": {"0": 0, "1": 5}}, {"a": {"0": 200, "1": 9}}, 100)[1:]
    [({'a': {'0': 100}}, {'a': {'0': 200}}), ({'a': {'1': 5}}, {'a': {'1': 9}})]
    """
    begins = spots_of(start)
    found: list[tuple[Spots, Spots]] = []
    room = 0
    for spot, last in spots_of(end).items():
        first = begins.get(spot)
        for begin, until in _cuts(first or 0, last, size, whole=first is None):
            if until - begin > room or spot in found[-1][1]:
                found.append(({}, {}))
                room = size
            room -= until - begin
            starts, ends = found[-1]
            if first is not None:
                starts[spot] = begin
            ends[spot] = until
    return [(offset_of(starts), offset_of(ends)) for starts, ends in found]


def _cuts(first: int, last: int, size: int, *, whole: bool) -> list[tuple[int, int]]:
    if last <= first:
        return []
    parts = 1 if whole else -(-(last - first) // size)
    places = [first + (last - first) * part // parts for part in range(parts + 1)]
    return list(pairwise(places))
