"""Queues of a broker that does not tell of all it has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queuecraft.drivers.base import QueueInfo


class Partial(list[QueueInfo]):
    """What a driver answers that can only list some: the rest may be asked for by name.

    >>> some = Partial([QueueInfo(name="billing")], "the interface is away; start it")
    >>> lacking(some)
    'the interface is away; start it'
    >>> lacking([]) is None
    True
    """

    def __init__(self, infos: Iterable[QueueInfo], lacking: str) -> None:
        super().__init__(infos)
        self.lacking = lacking
        """Why there may be others, then a semicolon and what to do about it."""


def lacking(infos: Sequence[QueueInfo]) -> str | None:
    """Why there may be queues that are not among these; None if these are all."""
    return infos.lacking if isinstance(infos, Partial) else None
