"""Settings in environment variables, and in a `.env` file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from queuecraft.config import dotenv
from queuecraft.config.file import pictured, read
from queuecraft.config.layer import Entry, Layer, entry, layer
from queuecraft.config.names import FOREIGN, NAMES, PREFIX, VARIABLES
from queuecraft.config.report import Report
from queuecraft.model.checks import shown
from queuecraft.model.errors import ConfigError


def dotenv_lines(path: Path, report: Report, *, needed: bool) -> Mapping[str, dotenv.Line]:
    """The variables of a `.env` file, which need not be there unless it was asked for."""
    try:
        text = read(path)
    except ConfigError as error:
        report.add(error.message)
        return {}
    if text is None:
        if needed:
            report.add(f"there is no file {pictured(path)}")
        return {}
    found, wrong = dotenv.parse(text)
    for number in wrong:
        report.add(f"{pictured(path)}, line {number} is no variable; {dotenv.EXPECTED}")
    return found


def dotenv_layer(path: Path, lines: Mapping[str, dotenv.Line], report: Report) -> Layer:
    """What the variables of a `.env` file say."""
    texts = {variable: line.value for variable, line in lines.items()}
    places = {v: f"{pictured(path)}, line {line.number}" for v, line in lines.items()}
    return layer(_entries(texts, places, report), report)


def environment_layer(environ: Mapping[str, str], report: Report) -> Layer:
    """What the variables of the environment say."""
    return layer(_entries(environ, {}, report), report)


def _entries(
    texts: Mapping[str, str], places: Mapping[str, str], report: Report
) -> Iterator[Entry | None]:
    for variable, text in texts.items():
        place = places.get(variable, "")
        name = VARIABLES.get(variable)
        if name is None:
            _unless_a_slip(variable, place, report)
        # Kubernetes sets QUEUECRAFT_PORT=tcp://… beside a service that is called queuecraft.
        elif name.key != "port" or "://" not in text:
            stripped = text if name.key == "password" else text.strip()
            value = name.check.read(stripped)
            yield entry(name, value, variable, place, report, nothing="none")


def _unless_a_slip(variable: str, place: str, report: Report) -> None:
    """Others share the prefix, such as tokens: only what looks like a slip is refused."""
    rest = variable.removeprefix(PREFIX)
    if rest == variable or rest in FOREIGN:
        return
    known = [*(each.removeprefix(PREFIX) for each in VARIABLES), *sorted(FOREIGN)]
    close = get_close_matches(rest, known, 1, cutoff=0.8)
    close = close or [each for each in known if _a_letter_apart(rest, each)] or _ending_in(rest)
    if close:
        where = f" in {place}" if place else ""
        meant = " or ".join(PREFIX + each for each in close)
        report.add(f"{shown(variable)[1:-1]}{where} is no setting; did you mean {meant}?")


def _a_letter_apart(one: str, other: str) -> bool:
    """Whether a letter is missing or wrong, or two have changed places: in a short name that is too
    much for a likeness of letters.

    >>> [_a_letter_apart(each, "URL") for each in ("ULR", "UR", "URI", "TTL", "CURLY")]
    [True, True, True, False, False]
    """
    if len(one) < len(other):
        one, other = other, one
    if len(one) - len(other) > 1:
        return False
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(other))
    if len(one) > len(other):
        return one[at + 1 :] == other[at:]
    swapped = one[at : at + 2] == other[at : at + 2][::-1]
    return one[at + 1 :] == other[at + 1 :] or (swapped and one[at + 2 :] == other[at + 2 :])


def _ending_in(rest: str) -> list[str]:
    """The settings whose table was left out, or the first words. Names of queues and files are
    not among them: QUEUECRAFT_QUEUE and QUEUECRAFT_FILE may well be somebody else's."""
    return [
        name.variable.removeprefix(PREFIX)
        for name in NAMES.values()
        if name.path == name.key
        and not name.key.startswith(("dead_letter.", "credentials"))
        and name.variable.endswith(f"_{rest}")
        and not name.key.endswith(".enabled")
    ]
