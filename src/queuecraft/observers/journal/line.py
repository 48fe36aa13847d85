"""A line of the journal: a row, or many that are alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from queuecraft.observers.journal.row import Row


class Each(msgspec.Struct, frozen=True, gc=False, eq=False, omit_defaults=True):
    """What is different in each of many rows, as lists of one length."""

    message_id: Sequence[str]
    size: Sequence[int]
    key: Sequence[str | None] | None = None
    duration: Sequence[float] | None = None
    published_at: Sequence[float | None] | None = None


class Line(Row, frozen=True, gc=False, eq=False, omit_defaults=True):
    """A row with nothing in `each`; otherwise as many rows as that has items, which share what the
    line says beside.

    >>> line = Line("published", 1.5, event="order.placed", each=Each(["m-1", "m-2"], [7, 9]))
    >>> msgspec.json.encode(line)
    b'{"kind":"published","at":1.5,"event":"order.placed","each":{"message_id":["m-1","m-2"],"size":[7,9]}}'
    >>> [(row.event, row.message_id, row.size) for row in line.rows()]
    [('order.placed', 'm-1', 7), ('order.placed', 'm-2', 9)]
    """

    each: Each | None = None

    @property
    def count(self) -> int:
        """How many rows there are on it."""
        return 1 if self.each is None else len(self.each.message_id)

    def rows(self) -> Sequence[Row]:
        """Those rows; raises ValueError if the lists differ in length."""
        if self.each is None:
            return (self,)
        values = list(msgspec.structs.astuple(self)[: len(_COLUMNS)])
        lists = [(_COLUMNS.index(name), found) for name, found in _lists(self.each)]
        places = [place for place, _ in lists]
        rows: list[Row] = []
        for items in zip(*(found for _, found in lists), strict=True):
            for place, item in zip(places, items, strict=True):
                values[place] = item
            rows.append(Row(*values))
        return rows


_COLUMNS: Final = Row.__struct_fields__


def _lists(each: Each) -> list[tuple[str, Sequence[object]]]:
    return [
        (name, found) for name, found in msgspec.structs.asdict(each).items() if found is not None
    ]
