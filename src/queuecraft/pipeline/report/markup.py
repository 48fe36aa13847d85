"""HTML in which nothing from a message can be more than text."""

from __future__ import annotations

from html import escape
from typing import TypeAlias

from queuecraft.observers.log import printable

VOID = frozenset({"br", "meta"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Inside: TypeAlias = str | int | None


def element(name: str, /, *inside: Inside, **attributes: Inside) -> Markup:
    """An element; what is no `Markup` is escaped. An attribute that is None is left out, and
    underscores in names are hyphens.

    >>> element("p", "a <b>", element("br"), class_="note", aria_label='"')
    '<p class="note" aria-label="&quot;">a &lt;b&gt;<br></p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(*inside)}</{name}>")


def joined(*inside: Inside) -> Markup:
    """One after the other.

    >>> joined("<", element("b", "x"))
    '&lt;<b>x</b>'
    """
    return Markup("".join(_escaped(each) for each in inside if each is not None))


def _escaped(inside: Inside) -> str:
    return inside if isinstance(inside, Markup) else escape(printable(str(inside)))
