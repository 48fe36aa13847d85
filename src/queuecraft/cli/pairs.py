"""Options of the form NAME=VALUE."""

from __future__ import annotations

from collections.abc import Sequence

import typer


def pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """Names and values; the first `=` sets them apart.

    >>> pairs("--header", ["tenant=t1", "query=a=b"])
    {'tenant': 't1', 'query': 'a=b'}
    """
    found: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{option} {each!r}: expected NAME=VALUE, as tenant=t1")
        found[name] = value
    return found
