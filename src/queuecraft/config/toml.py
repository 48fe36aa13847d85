"""Settings in a TOML file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from queuecraft.config.file import pictured, read
from queuecraft.config.layer import Entry, Layer, entry, layer
from queuecraft.config.names import GROUPS, NAMES
from queuecraft.config.report import Report
from queuecraft.model.checks import shown
from queuecraft.model.errors import ConfigError


def toml_layer(path: Path, report: Report, *, needed: bool) -> Layer:
    """What a file says: at its top, in a table `[queuecraft]`, or in `[tool.queuecraft]`."""
    try:
        text = read(path)
        if text is None and not needed:
            return {}
        if text is None:
            raise ConfigError(f"there is no file {pictured(path)}")
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
        # Only the place: the line itself may hold a password.
        found = re.search(r"\(at ([a-z0-9, ]+)\)$", str(error))
        where = f", at {found[1]}" if found else ""
        example = 'expected lines such as concurrency = 8 or url = "local://"'
        raise ConfigError(f"{pictured(path)} is not TOML{where}; {example}") from None


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
            close = get_close_matches(dotted, NAMES, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(NAMES)}"
            report.add(f"unknown setting {shown(dotted)} in {pictured(path)}; {hint}")


def _entry(dotted: str, value: Any, path: Path, report: Report) -> Entry | None:
    found = entry(NAMES[dotted], value, dotted, pictured(path), report)
    if found is not None and found.name.key == "credentials":
        return replace(found, value=path.parent / found.value)  # beside the file that names it
    return found
