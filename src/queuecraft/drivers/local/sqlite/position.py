"""Where a message stands: queue, priority and place in one number that sorts as they deliver."""

from __future__ import annotations

from typing import Final

PLACES: Final = 1 << 40  # messages a queue can have had before it must have been empty once
LEVELS: Final = 1 << 8  # priorities, the most urgent first
QUEUES: Final = 1 << 16
_LOWEST: Final = -(1 << 63)


def level(queue: int, priority: int = 0) -> int:
    """The position of place 0 among messages of one priority.

    >>> level(1, priority=9) < level(1, priority=0) < level(2, priority=9)
    True
    """
    return _LOWEST + (queue * LEVELS + (LEVELS - 1 - priority)) * PLACES


def level_of(position: int) -> int:
    """The position of place 0 among those of the same queue and priority.

    >>> level_of(level(7, 3) + 12345) == level(7, 3)
    True
    """
    return position - (position - _LOWEST) % PLACES


def bounds(queue: int) -> tuple[int, int]:
    """The first and the last position of a queue.

    >>> bounds(1)[1] + 1 == bounds(2)[0]
    True
    """
    first = level(queue, LEVELS - 1)
    return first, first + LEVELS * PLACES - 1
