"""The command of a run, as a reader would repeat it."""

from __future__ import annotations

from collections.abc import Sequence

ELSEWHERE = ("--json", "--docs", "--renew")


def shown(arguments: Sequence[str]) -> list[str]:
    """Without where its results went, which changes nothing and means nothing elsewhere.

    >>> shown(["--quick", "--docs", "/somewhere"])
    ['--quick']
    """
    kept: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument in ELSEWHERE:
            next(left, None)
        elif not argument.startswith(tuple(f"{option}=" for option in ELSEWHERE)):
            kept.append(argument)
    return kept
