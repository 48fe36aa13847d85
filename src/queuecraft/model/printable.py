"""Text of somebody else, made harmless."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text from a message, made harmless for a log or a terminal: what is not printable, line
    ends included, becomes an escape.

    >>> printable("red: \\x1b[31m")
    'red: \\\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
