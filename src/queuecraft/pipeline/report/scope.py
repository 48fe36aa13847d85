"""What a report is about: a time, some queues, some events."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from queuecraft.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """From `since`, up to and without `until`; nothing named is everything. Events may be patterns,
    where `*` is one word and `#` any number of them.

    >>> print(Scope(queues=("billing",), since=datetime(2030, 1, 1, tzinfo=UTC)))
    queue billing, since 2030-01-01 00:00 UTC
    >>> print(Scope())
    everything
    """

    since: datetime | None = None
    until: datetime | None = None
    queues: tuple[str, ...] = ()
    events: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ConfigError(
                f"nothing lies between {_moment(self.since)} and {_moment(self.until)}; "
                "the first has to be the earlier one"
            )

    def __str__(self) -> str:
        return ", ".join(self.parts) or "everything"

    @property
    def parts(self) -> list[str]:
        """What narrows it, in words."""
        told: list[str] = []
        for name, chosen in (("queue", self.queues), ("event", self.events)):
            if chosen:
                told.append(f"{name}{'s' if len(chosen) > 1 else ''} {' and '.join(chosen)}")
        if self.since is not None:
            told.append(f"since {_moment(self.since)}")
        if self.until is not None:
            told.append(f"until {_moment(self.until)}")
        return told

    @property
    def timed(self) -> bool:
        """Whether it has a beginning or an end."""
        return self.since is not None or self.until is not None

    def at(self, column: str) -> Column:
        """Whether a time is in it."""
        from pyspark.sql import functions as f

        inside = f.lit(True)
        if self.since is not None:
            inside = inside & (f.col(column) >= f.lit(self.since))
        if self.until is not None:
            inside = inside & (f.col(column) < f.lit(self.until))
        return inside

    def overlaps(self, first: str, last: str) -> Column:
        """Whether a stretch of time is in it, at least in part."""
        from pyspark.sql import functions as f

        inside = f.lit(True)
        if self.since is not None:
            inside = inside & (f.col(last) >= f.lit(self.since))
        if self.until is not None:
            inside = inside & (f.col(first) < f.lit(self.until))
        return inside

    def about(self, frame: DataFrame) -> DataFrame:
        """The rows of its queues and events, as far as the table has such columns."""
        from pyspark.sql import functions as f

        if self.queues and "queue" in frame.columns:
            frame = frame.where(f.col("queue").isin(list(self.queues)))
        if self.events and "event" in frame.columns:
            chosen = f.lit(False)
            for event in self.events:
                chosen = chosen | _named(f.col("event"), event)
            frame = frame.where(chosen)
        return frame


def _named(column: Column, event: str) -> Column:
    from pyspark.sql import functions as f

    if "*" not in event and "#" not in event:
        return column == event
    return f.concat(column, f.lit(".")).rlike(pattern(event))


def pattern(event: str) -> str:
    """A topic pattern as a regular expression, for a name that a dot was put after.

    >>> bool(re.match(pattern("order.*"), "order.placed."))
    True
    """
    words = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    return (
        "^" + "".join(words.get(word, re.escape(word) + r"\.") for word in event.split(".")) + "$"
    )


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
