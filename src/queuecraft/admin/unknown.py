"""A queue that does not exist, and those that may have been meant."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from queuecraft.model.errors import QueueError

SHOWN = 10  # names of other queues in one message


class UnknownQueue(QueueError):
    """There is no queue of this name."""

    @classmethod
    def among(
        cls, name: str, known: Collection[str], *, operation: str, broker: str
    ) -> UnknownQueue:
        """The error for a name, with what may have been meant instead.

        >>> str(
        ...     UnknownQueue.among("biling", ["billing", "audit"], operation="peek", broker="local")
        ... )
        "there is no queue 'biling'; did you mean 'billing'? [broker=local operation=peek ...]"
        """
        close = get_close_matches(name, known, 3, cutoff=0.7)
        if close:
            hint = f"did you mean {' or '.join(map(repr, close))}?"
        elif known:
            more = len(known) - SHOWN
            names = ", ".join(map(repr, sorted(known)[:SHOWN]))
            hint = f"there are {names}" + (f" and {more} more" if more > 0 else "")
        else:
            hint = "there are none yet; a worker declares its queue when it starts"
        return cls(
            f"there is no queue {name!r}; {hint}", broker=broker, operation=operation, queue=name
        )
