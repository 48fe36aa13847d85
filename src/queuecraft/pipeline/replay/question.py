"""Which messages are to be sent again, and where to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from queuecraft.model.checks import nearest, shown
from queuecraft.model.errors import ConfigError
from queuecraft.model.naming import check_name
from queuecraft.pipeline.replay.table import SETTABLE

Source: TypeAlias = Literal["archive", "dead-letters"]

SOURCES: tuple[Source, ...] = ("archive", "dead-letters")
CHUNK = 10_000
CANARY = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of the archive; what is left out does not matter.

    Times are those of publishing, from `since` up to and without `until`. `event` may be a pattern
    such as `order.*`. `where` is an expression of SQL over the columns of a message. `set` gives
    columns new values, by expressions too; `transform` names a function of yours, as
    `module:function`, that is handed the messages as a `DataFrame` and gives them back.

    They go to the queue `to`; or, as events, through the exchange they came by, `to_event` under
    that name; or else to where they came from. Dead letters go back to the queue that failed them,
    and messages chosen by `queue` to that one alone.

    The first `canary` messages are a chunk by themselves, then come chunks of `chunk`.

    >>> print(Question(event="order.*", where="priority > 5", to="billing"))
    archive, event order.*, where priority > 5, to queue billing
    """

    source: Source = "archive"
    since: datetime | None = None
    until: datetime | None = None
    event: str | None = None
    queue: str | None = None
    key: str | None = None
    fingerprint: str | None = None
    ids: tuple[str, ...] = ()
    where: str | None = None
    replayed: bool = False
    """Whether rows that a replay left in the archive count too."""
    quarantined: bool = False
    """Whether rows that the lake keeps apart count too: late, without an id, not the JSON that they
    say they are."""
    to: str | None = None
    to_event: str | None = None
    set: Mapping[str, str] = field(default_factory=dict[str, str])
    transform: str | None = None
    chunk: int = CHUNK
    canary: int = CANARY

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ConfigError(f"source={shown(self.source)}: expected archive or dead-letters")
        if self.to is not None and self.to_event is not None:
            raise ConfigError("messages go to a queue or out as an event, not both")
        if self.to is not None:
            check_name("queue", self.to)
        if self.to_event is not None:
            check_name("event", self.to_event)
            if "*" in self.to_event or "#" in self.to_event:
                raise ConfigError(f"to_event={self.to_event!r}: expected one event, not a pattern")
        for name, value in (("since", self.since), ("until", self.until)):
            if value is not None and value.tzinfo is None:
                raise ConfigError(f"{name}={value}: expected a time with its zone, as in UTC")
        for name, count in (("chunk", self.chunk), ("canary", self.canary)):
            if count < 1:
                raise ConfigError(f"{name}={count}: expected a number from 1 on")
        for column in self.set:
            if column not in SETTABLE:
                hint = nearest(column, SETTABLE)
                raise ConfigError(f"a message has no column {column!r} to be set; {hint}")

    @property
    def changes(self) -> bool:
        """Whether messages are sent otherwise than they are in the archive.

        >>> Question(to="billing").changes, Question(set={"priority": "9"}).changes
        (False, True)
        """
        return bool(self.set) or self.transform is not None or self.to_event is not None

    def __str__(self) -> str:
        told = [
            "dead letters" if self.source == "dead-letters" else "archive",
            *(
                f"{name} {value}"
                for name, value in (
                    ("event", self.event),
                    ("queue", self.queue),
                    ("key", self.key),
                    ("fingerprint", self.fingerprint),
                    ("since", _moment(self.since)),
                    ("until", _moment(self.until)),
                    ("where", self.where),
                )
                if value is not None
            ),
        ]
        if self.ids:
            told.append(f"{len(self.ids)} message{'s' if len(self.ids) > 1 else ''} by id")
        told += [f"set {name} = {value}" for name, value in self.set.items()]
        if self.transform is not None:
            told.append(f"transformed by {self.transform}")
        if self.to is not None:
            told.append(f"to queue {self.to}")
        if self.to_event is not None:
            told.append(f"as event {self.to_event}")
        return ", ".join(told)


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
