"""Ids of messages: 128 random bits each, asked of the system a block at a time.

Asking for each alone costs more than the rest of making a message, all the more where other threads
wait for the interpreter, which is let go of meanwhile.
"""

from __future__ import annotations

import os
from typing import Final

_BLOCK: Final = 256
_left: Final[list[str]] = []


def new_id() -> str:
    """An id that nobody else has.

    >>> len(new_id()), new_id() == new_id()
    (32, False)
    """
    try:
        return _left.pop()
    except IndexError:
        first, *others = new_ids(_BLOCK)
        _left.extend(others)
        return first


def new_ids(count: int) -> list[str]:
    """As many ids.

    >>> [len(each) for each in new_ids(2)]
    [32, 32]
    """
    drawn = os.urandom(16 * count).hex()
    return [drawn[at : at + 32] for at in range(0, 32 * count, 32)]


os.register_at_fork(after_in_child=_left.clear)  # or parent and child would draw the same
