"""What is wrong so far; everything is told at once, at the end."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Report:
    """The lines to say, and the settings that have no value because theirs will not do."""

    lines: list[str] = field(default_factory=list)
    spoilt: set[str] = field(default_factory=set)

    def add(self, line: str, key: str | None = None) -> None:
        """One more that is wrong."""
        self.lines.append(line)
        if key is not None:
            self.spoilt.add(key)
