"""A queue that does not exist, and those that may have been meant."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from difflib import get_close_matches

from queuecraft.model.errors import QueueError

SHOWN = 10  # names of other queues in one message


class UnknownQueue(QueueError):
    """There is no queue of this name."""

    @classmethod
    def among(
        cls,
        name: str,
        known: Collection[str],
        *,
        operation: str,
        broker: str,
        partial: bool = False,
    ) -> UnknownQueue:
        """The error for a name, with what may have been meant instead. With `partial`, there may
        be queues that are not known here.

        >>> str(
        ...     UnknownQueue.among("biling", ["billing", "audit"], operation="peek", broker="local")
        ... )
        "there is no queue 'biling'; did you mean 'billing'? [broker=local operation=peek ...]"
        >>> UnknownQueue.among("audit", ["billing"], operation="bind", broker="local").message
        "there is no queue 'audit'; there are 'billing'; declare makes it: queuecraft declare ..."
        """
        close = get_close_matches(name, known, 3, cutoff=0.7)
        if close:
            hint = f"did you mean {' or '.join(map(repr, close))}?"
        elif known:
            more = len(known) - SHOWN
            names = ", ".join(map(repr, sorted(known)[:SHOWN]))
            hint = f"there are {names}" + (f" and {more} more" if more > 0 else "")
            hint += " and perhaps others" if partial else ""
        elif partial:
            hint = "which others there are, this broker does not tell; look at the spelling"
        else:
            hint = "there are none yet; a worker declares its queue when it starts"
        if operation == "bind":
            made = f"declare makes it: queuecraft declare {shlex.quote(name)} EVENT"
            hint += f" If not, {made}" if close else f"; {made}"
        return cls(
            f"there is no queue {name!r}; {hint}", broker=broker, operation=operation, queue=name
        )


UnknownQueue.__module__ = "queuecraft"  # as its user imports it
