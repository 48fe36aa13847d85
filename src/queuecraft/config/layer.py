"""What one source says, and how the sources lie over one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from queuecraft.config.names import NAMES, PREFIX, Name
from queuecraft.config.report import Report
from queuecraft.model import address
from queuecraft.model.checks import shown
from queuecraft.model.journal import Journal
from queuecraft.model.settings import CHECKS, default, unknown


@dataclass(frozen=True, slots=True)
class Entry:
    """A value, by which name it was given, and where."""

    name: Name
    said: str
    place: str
    given: Any = field(repr=False)
    value: Any = field(repr=False)

    @property
    def label(self) -> str:
        """How to speak of it."""
        return f"{self.said} in {self.place}" if self.place else self.said

    @property
    def picture(self) -> str:
        """The same, with the value, unless that is a secret."""
        value = "" if self.name.check.secret else f"={shown(self.given)}"
        return f"{self.said}{value} in {self.place}" if self.place else f"{self.said}{value}"


Layer: TypeAlias = Mapping[str, Entry]
"""The entries of one source, by what they set."""


def entry(
    name: Name, given: Any, said: str, place: str, report: Report, *, nothing: str = "None"
) -> Entry | None:
    """An entry, if the value will do; `nothing` is how None is written there."""
    if not name.check.will_do(given):
        complaint = name.check.complaint(given, name.default, said, place, nothing=nothing)
        report.add(complaint + _meant(name, given, said), name.key)
        return None
    return Entry(name, said, place, given, None if given is None else name.convert(given))


def _meant(name: Name, given: Any, said: str) -> str:
    """Which other setting the value would do for, named as this one was."""
    other = NAMES.get(name.meant)
    if other is None or not isinstance(given, (str, int)):
        return ""
    variable = said.startswith(PREFIX)
    if not other.check.will_do(other.check.read(given) if isinstance(given, str) else given):
        return ""
    return f"; did you mean {other.variable if variable else other.path}?"


def layer(entries: Iterable[Entry | None], report: Report) -> Layer:
    """The entries of a source; one that says the same twice, and differently, is wrong."""
    found: dict[str, Entry] = {}
    for each in entries:
        if each is None or (each.value is None and each.name.key in address.FIELDS):
            continue
        other = found.setdefault(each.name.key, each)
        if other.value != each.value:
            report.add(f"{other.picture} and {each.picture} set the same; keep one", each.name.key)
    return found


def keywords(values: Mapping[str, Any], report: Report) -> Layer:
    """What was said in code."""
    entries: list[Entry | None] = []
    for name, value in values.items():
        if name not in CHECKS:
            report.add(unknown(name))
        elif name != "url" or value is not None:
            key = NAMES[name].key if name.startswith("redis_") else name
            named = Name(name, key, CHECKS[name], default(name))
            entries.append(entry(named, value, name, "", report))
    return layer(entries, report)


def merged(layers: Sequence[Layer]) -> Layer:
    """All of them in one, the later over the earlier. No address is made of two that were meant
    to be one each, and no password goes to a broker it was not given for."""
    result: dict[str, Entry] = {}
    for over in layers:
        for key in _hidden(result, over):
            result.pop(key, None)
        if "url" in result and over.keys() & {"username", "password"}:
            _open_up(result)
        result |= over
    return result


def _hidden(below: Layer, over: Layer) -> set[str]:
    """What is below and no longer counts."""
    hidden: set[str] = set()
    if "url" in over:
        hidden |= {"url", *address.FIELDS}
        if address.userinfo(over["url"].value)[1] is not None:
            hidden.add("credentials")
    if over.keys() & {"host", "port", "vhost"}:
        hidden.add("url")
    if "password" in over:
        hidden.add("credentials")
    if "credentials" in over and over["credentials"].value is not None:
        hidden.add("password")
    if "journal" in over and isinstance(over["journal"].value, Journal):
        hidden |= {"journal_payload", "journal_redact"}
    for group in ("retry", "dead_letter", "delayed"):
        if group in over:  # the whole policy, from code
            hidden |= {key for key in below if key.startswith(f"{group}.")}
    return hidden


def _open_up(result: dict[str, Entry]) -> None:
    """Take user name and password out of a URL, so that others can take their place."""
    url = result["url"]
    for key, value in zip(("username", "password"), address.userinfo(url.value), strict=True):
        if value is not None:
            result[key] = replace(url, value=value)
    result["url"] = replace(url, value=address.bare(url.value))
