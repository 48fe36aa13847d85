"""A list of queues that may lack some, told to whoever reads it."""

from __future__ import annotations

from queuecraft.cli.output import note


class Hint:
    """Says once, on standard error, why there may be queues that are not listed."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._told = False

    def say(self, why: str | None) -> None:
        """Say it, if there is a reason and it was not said before."""
        if why is not None and not self._told:
            self._told = True
            note(sentence(why), as_json=self._as_json)


def sentence(why: str) -> str:
    """What is told of such a list.

    >>> sentence("the interface is away; start it")
    'there may be queues that are not listed: the interface is away; start it'
    """
    return f"there may be queues that are not listed: {why}"
