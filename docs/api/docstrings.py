"""Makes docstrings ready for the API reference: examples as code, and the fields of values."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

FLAGS = re.compile(r"\s*# doctest: .*$")


class Docstrings(griffe.Extension):
    """Goes through the package once it is read."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Called by Griffe with everything it has read."""
        prepare(pkg)


def prepare(thing: griffe.Object) -> None:
    """A module, class, function or attribute, and all that is in it."""
    if thing.docstring is not None:
        text = fenced(thing.docstring.value)
        if thing.is_class and (lines := fields(thing)):
            text += "\n\n```python\n" + "\n".join(lines) + "\n```"
        thing.docstring.value = text
    for member in thing.members.values():
        if not member.is_alias:
            prepare(member)


def fenced(text: str) -> str:
    """Markdown takes a line with `>>>` for a quotation. An example ends at an empty line."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if not inside and line.startswith(">>> "):
            lines += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(FLAGS.sub("", line) if inside else line)
    if inside:
        lines.append("```")
    return "\n".join(lines)


def fields(value: griffe.Object) -> list[str]:
    """The fields that have no docstring, as they are written, with what is said beside them.

    Those of a dataclass are in its signature; they are shown again only if there is more to say.
    """
    lines = [
        textwrap.dedent(member.source).rstrip()
        for member in value.members.values()
        if member.is_attribute
        and not member.is_alias
        and not member.name.startswith("_")
        and member.docstring is None
        and member.annotation is not None
        and "property" not in member.labels
    ]
    lines = [line for line in lines if not line.startswith("self.")]
    if "dataclass" in value.labels and not any("  # " in line for line in lines):
        return []
    return lines
