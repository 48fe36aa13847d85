"""A plan: which messages go where, before any of them does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from queuecraft.pipeline.replay.question import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The messages of one event that go to one place: a queue, or an exchange; neither is the
    exchange of the connection."""

    event: str | None
    queue: str | None
    exchange: str | None
    messages: int
    size: int  # bytes of payloads
    first: datetime | None
    last: datetime | None
    expired: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One of the first messages."""

    message_id: str
    event: str | None
    queue: str | None
    key: str | None
    published_at: datetime | None
    payload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a replay would do: the dry run.

    `messages` are planned, `expired` of them have run out of time and are left out when it is
    executed, unless that is asked for; `missing` were meant, but the archive has no payload of
    them.
    """

    id: str
    question: Question
    planned_at: datetime
    lines: tuple[Line, ...] = ()
    examples: tuple[Example, ...] = ()
    missing: int = 0
    transformed: bool = False  # by a function, which the question need not name

    @property
    def messages(self) -> int:
        """How many."""
        return sum(line.messages for line in self.lines)

    @property
    def size(self) -> int:
        """Bytes of their payloads."""
        return sum(line.size for line in self.lines)

    @property
    def expired(self) -> int:
        """How many have run out of time already."""
        return sum(line.expired for line in self.lines)

    @property
    def changed(self) -> bool:
        """Whether messages are sent otherwise than they are in the archive."""
        return self.transformed or self.question.changes

    @property
    def first(self) -> datetime | None:
        """When the oldest was sent."""
        return min((line.first for line in self.lines if line.first is not None), default=None)

    @property
    def last(self) -> datetime | None:
        """When the newest was sent."""
        return max((line.last for line in self.lines if line.last is not None), default=None)

    @property
    def chunks(self) -> list[int]:
        """How many messages each chunk has."""
        return chunk_sizes(self.messages, self.question.canary, self.question.chunk)


def chunk_sizes(count: int, canary: int, chunk: int) -> list[int]:
    """How many messages each chunk has.

    >>> chunk_sizes(25, canary=5, chunk=10), chunk_sizes(3, canary=5, chunk=10)
    ([5, 10, 10], [3])
    """
    full, rest = divmod(max(0, count - canary), chunk)
    return [size for size in (min(count, canary), *[chunk] * full, rest) if size]
