"""Queues that are nobody's but ours: no one judges them, and few need to see them."""

from __future__ import annotations

from typing import Final

from queuecraft.model.naming import PAUSES, REPLIES

PRIVATE: Final = ("queuecraft.", REPLIES)
"""What their names begin with."""


def is_private(queue: str) -> bool:
    """Whether a queue is for us alone: nobody has to start a worker for it.

    >>> is_private("queuecraft.pauses"), is_private("qc.reply.a1"), is_private("billing")
    (True, True, False)
    """
    return queue.startswith(PRIVATE)


def is_hidden(queue: str) -> bool:
    """Whether it is not even listed: the notes about pauses are read by `qc.admin.pauses()`.

    A queue for replies is listed, and what a command of ours has left behind, to be deleted.

    >>> is_hidden("queuecraft.pauses"), is_hidden("queuecraft.bench.0a1b")
    (True, False)
    """
    return queue == PAUSES
