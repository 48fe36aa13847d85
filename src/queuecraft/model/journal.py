"""What the journal writes down, and where."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from os import PathLike, fspath
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from queuecraft.model.checks import SECONDS, Check, one_of, or_none, refusal, text, whole

Payload: TypeAlias = Literal["none", "headers", "full"]

_MIB = 2**20
_FIELD = re.compile(r"(?:[^.\[\]]+(?:\[\])*|(?:\[\])+)(?:\.[^.\[\]]+(?:\[\])*)*")


@dataclass(frozen=True, slots=True)
class Journal:
    """The setting `journal`, where a folder alone does not say enough.

    No payload is written unless you ask for it: `"headers"` writes what a message carries beside
    it, `"none"` not even that. `"full"` is for archives and replays, with the fields in `redact`
    masked.

    >>> Journal("./lake", payload="full", redact=("card.number", "lines[].sku")).payload
    'full'
    >>> Journal("./lake", redact="card.number")
    Traceback (most recent call last):
    queuecraft.ConfigError: journal.redact='card.number': expected a list of fields, such as ...
    """

    path: str | PathLike[str]
    """The folder of the lake, on this machine; it is made when the first row is written."""
    _: KW_ONLY
    payload: Payload = "headers"
    redact: tuple[str, ...] = ()
    """Fields of JSON payloads that are masked. A list is looked through, with `[]` or without. A
    payload that is no JSON is then left out."""
    service: str | None = None
    """What this application is called in the lake."""
    flush_every: float = 1.0
    """Seconds: no more is lost when the process is killed."""
    close_every: float = 60.0
    """Seconds until what was written can be read by others."""
    close_at: int = 64 * _MIB
    """Bytes of a file after which the next one begins."""
    max_buffered: int = 64 * _MIB
    """Bytes that may wait for the disk; rows that come then are dropped and counted."""

    def __post_init__(self) -> None:
        if isinstance(self.redact, list):
            object.__setattr__(self, "redact", tuple(self.redact))
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        bad = [name for name, check in CHECKS.items() if not check.will_do(values[name])]
        if bad:
            raise refusal(
                [
                    CHECKS[name].complaint(values[name], DEFAULTS[name], f"journal.{name}")
                    for name in bad
                ]
            )


def is_folder(value: Any) -> bool:
    """Whether a journal can be kept there: a path of this machine, not a URL."""
    try:
        path = fspath(value)
    except TypeError:
        return False
    if not isinstance(path, str):
        return False
    return bool(path.strip()) and "\0" not in path and "://" not in path


def are_fields(value: Any) -> bool:
    """Whether these are paths of fields, as in `lines[].sku`."""
    return isinstance(value, (tuple, list)) and all(
        isinstance(each, str) and _FIELD.fullmatch(each) for each in value
    )


def fields_of(said: str) -> object:
    """Fields from a text, with commas between them.

    >>> fields_of("card.number, email")
    ('card.number', 'email')
    """
    return tuple(each.strip() for each in said.split(",") if each.strip())


PAYLOAD = one_of("none", "headers", "full")
REDACT = Check(are_fields, "a list of fields", "card.number and lines[].sku", fields_of)

CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "path": Check(is_folder, "a folder of this machine", "'./lake'"),
        "payload": PAYLOAD,
        "redact": REDACT,
        "service": or_none(text("a text", "'shop'")),
        "flush_every": SECONDS,
        "close_every": SECONDS,
        "close_at": whole(1, "bytes from 1 on", "67108864"),
        "max_buffered": whole(1, "bytes from 1 on", "67108864"),
    }
)
"""What each of them may be."""

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "path": "none",
        **{each.name: repr(each.default) for each in fields(Journal) if each.name != "path"},
    }
)
