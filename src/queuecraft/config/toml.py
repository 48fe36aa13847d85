"""Settings in a TOML file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from queuecraft.config.file import pictured, read
from queuecraft.config.layer import Entry, Layer, entry, layer
from queuecraft.config.names import GROUPS, NAMES
from queuecraft.config.report import Report
from queuecraft.model import address
from queuecraft.model.checks import nearest, shown
from queuecraft.model.errors import ConfigError


def toml_layer(path: Path, report: Report, *, needed: bool, asked: str = "") -> Layer:
    """What a file says: at its top, in a table `[queuecraft]`, or in `[tool.queuecraft]`.

    `asked`: the variable that names it.
    """
    try:
        text = read(path)
        if text is None and not needed:
            return {}
        if text is None:
            who = f", which {asked} names" if asked else ""
            raise ConfigError(f"there is no file {pictured(path)}{who}")
        table = _ours(path, _parsed(path, text))
    except ConfigError as error:
        report.add(error.message)
        return {}
    return layer(_entries(table, "", path, report), report)


def _parsed(path: Path, text: str) -> Mapping[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        found = _PLACE.fullmatch(str(error))
        where = f", at {found[2]}{_reason(found[1])}" if found else ""
        example = 'expected lines such as concurrency = 8 or url = "local://"'
        raise ConfigError(f"{pictured(path)} is not TOML{where}; {example}") from None


_PLACE = re.compile(r"(.*) \(at ([a-z0-9, ]+)\)", re.DOTALL)
_HINTS = {
    "Invalid value": ", text needs quotes",
    "Cannot overwrite a value": ", a name is there twice",
}
_TELLING = re.compile(r"(?:[A-Za-z ,/]|'[=\]]{1,2}')+")


def _reason(text: str) -> str:
    """Why it is not, unless that quotes the line: there may be a password in it."""
    if not _TELLING.fullmatch(text):
        return ""
    return f": {text[0].lower()}{text[1:]}{_HINTS.get(text, '')}"


def _ours(path: Path, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a file that is about us."""
    tool = document.get("tool")
    ours = tool.get("queuecraft") if isinstance(tool, dict) else None
    if ours is None and path.name == "pyproject.toml":
        raise ConfigError(f"{pictured(path)} has no table [tool.queuecraft]")
    if ours is None:
        ours = document.get("queuecraft", document)
    if not isinstance(ours, dict):
        raise ConfigError(f"queuecraft in {pictured(path)} is {shown(ours)}, expected a table")
    return ours


def _entries(
    table: Mapping[str, Any], above: str, path: Path, report: Report
) -> Iterator[Entry | None]:
    for key, value in table.items():
        dotted = above + key
        if isinstance(value, dict) and dotted in GROUPS:
            yield from _entries(value, f"{dotted}.", path, report)
        elif dotted in NAMES:
            yield _entry(dotted, value, path, report)
        elif dotted in GROUPS:
            inside = next(name for name in NAMES if name.startswith(f"{dotted}."))
            report.add(f"{dotted} in {pictured(path)} is a table; set {inside}, for example")
        else:
            hint = nearest(dotted, NAMES)
            report.add(f"unknown setting {shown(dotted)} in {pictured(path)}; {hint}")


def _entry(dotted: str, value: Any, path: Path, report: Report) -> Entry | None:
    found = entry(NAMES[dotted], value, dotted, pictured(path), report, nothing="")
    return found if found is None else replace(found, value=_beside(path.parent, found))


def _beside(folder: Path, found: Entry) -> Any:
    """A value of a file; a path in it is taken from where the file lies."""
    key, value = found.name.key, found.value
    if key in ("credentials", "journal"):
        return folder / value
    if key == "delayed.store" and "://" not in value:
        return str(folder / Path(value).expanduser())
    if key in ("url", "delayed.store"):
        return address.beside(value, folder.as_posix())
    return value
