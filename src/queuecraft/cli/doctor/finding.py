"""One thing the doctor looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was looked at, how it is, and what to do if it is not well.

    >>> Finding(about="java", verdict="ok", text="17").well
    True
    """

    about: str
    verdict: Verdict
    text: str
    todo: str = ""

    @property
    def well(self) -> bool:
        """Whether nothing has to be done."""
        return self.verdict in ("ok", "skipped")


def ok(about: str, text: str) -> Finding:
    """All is well."""
    return Finding(about=about, verdict="ok", text=text)


def warning(about: str, text: str, todo: str) -> Finding:
    """It works, and should be looked into."""
    return Finding(about=about, verdict="warning", text=text, todo=todo)


def failed(about: str, text: str, todo: str) -> Finding:
    """It does not work."""
    return Finding(about=about, verdict="failed", text=text, todo=todo)


def skipped(about: str, text: str) -> Finding:
    """It was not looked at, or is not needed here."""
    return Finding(about=about, verdict="skipped", text=text)
