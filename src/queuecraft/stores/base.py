"""Where delayed messages wait, whatever it is made of.

A store keeps each message once, by its id, until somebody who has taken it says that it is
delivered. To take is to hold for a while: a mover that dies in between loses nothing, its hold
lapses and another takes the message. Whoever asks for many gets fewer if they are large, and none
only if there is none. Times are seconds since the epoch and always given by the
caller, so that one clock decides, in tests a fake one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from queuecraft.model.envelope import Outgoing
from queuecraft.model.errors import QueueError
from queuecraft.model.queue import Exchange

Cursor: TypeAlias = tuple[float, str]
"""A place in the order of delivery: when it is due, and the id."""

START: Final[Cursor] = (float("-inf"), "")
LONGEST_PAUSE: Final = 60.0
MOST_BYTES: Final = 32 * 1024 * 1024  # of messages that are handed out at once, unless it is one
NEVER: Final = float("inf")


class Waiting(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A message that waits.

    >>> Waiting(Outgoing(b"{}", "m-1"), due=60.0, added=0.0).cursor
    (60.0, 'm-1')
    """

    message: Outgoing
    due: float
    added: float
    exchange: Exchange | None = None  # to be made before the message is sent to it
    failures: int = 0  # deliveries that were refused so far
    hold: str = ""  # who has taken it

    @property
    def cursor(self) -> Cursor:
        """Its place among the others."""
        return self.due, self.message.id


class Which(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What to take: as a mover, the first whose time has come and that nobody holds.

    With `due_by`, as a cleanup: all that were due by then, from a place on, and also those that
    were refused and are to be tried again later.
    """

    now: float
    limit: int
    due_by: float | None = None
    after: Cursor = START


class Census(msgspec.Struct, frozen=True, gc=False, eq=False):
    """How many wait, and since when."""

    size: int = 0
    max_size: int = 0  # the most there have ever been
    overdue: int = 0
    oldest_due: float | None = None
    next_at: float = NEVER  # when there is something to take


class Added(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What became of an addition; a message whose id waits already counts as added."""

    accepted: bool
    size: int


class Moved(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What became of a message that was due: delivered, unless there is an error."""

    waiting: Waiting
    error: QueueError | None = None


class Notes(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Changes to what is written beside the messages, for every process to read."""

    put: Mapping[str, str] = {}
    add: Mapping[str, int] = {}
    remove: Sequence[str] = ()


def pause(failures: int) -> float:
    """Seconds until a message that was refused so often is tried again.

    >>> pause(1), pause(4), pause(1000)
    (1.0, 8.0, 60.0)
    """
    return min(2.0 ** min(failures - 1, 30), LONGEST_PAUSE)


class DelayedStore(ABC):
    """Messages that wait, by their ids. Any method may raise `ConnectionLost`."""

    @property
    def is_lost(self) -> bool:
        """Whether it is known to be of no use any more until it is opened again."""
        return False

    @abstractmethod
    async def open(self) -> None:
        """Be ready; idempotent."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of what was opened for this store alone. It can be opened again."""

    @abstractmethod
    async def add(self, waiting: Waiting, limit: int) -> Added:
        """Keep a message, unless so many wait already: looked at and done in one step."""

    @abstractmethod
    async def take(self, which: Which, hold: str, until: float) -> Sequence[Waiting]:
        """Hold messages, those due first in front; nobody else gets them until then."""

    async def renew(self, taken: Sequence[Waiting], until: float) -> Sequence[Waiting]:
        """Hold messages for longer. Returns those that nobody else has taken or cancelled since,
        even if their hold had lapsed.

        A store that cannot do so leaves it at this: none of them is held for longer.
        """
        return ()

    @abstractmethod
    async def forget(self, taken: Sequence[Waiting]) -> int:
        """They are delivered. Returns how many were still held by whoever took them."""

    @abstractmethod
    async def put_back(self, taken: Sequence[Waiting], *, now: float, failed: bool) -> None:
        """They are not delivered: to be taken again at once, or, if it failed, after a pause."""

    @abstractmethod
    async def cancel(self, id: str, now: float) -> bool:
        """Forget a message that nobody holds; False when there is none, or it is too late."""

    @abstractmethod
    async def page(self, limit: int, after: Cursor) -> Sequence[Waiting]:
        """Messages in the order in which they are due."""

    @abstractmethod
    async def census(self, overdue_by: float) -> Census:
        """How many wait; overdue are those that were due by then."""

    @abstractmethod
    async def note(self, notes: Notes) -> None:
        """Write something down beside the messages."""

    @abstractmethod
    async def notes(self) -> Mapping[str, str]:
        """All that is written down."""

    @abstractmethod
    async def exchange(self, name: str, value: str) -> str | None:
        """Write one thing down, and tell what was there before: of several processes that do so
        at once, each is told another."""


class OneStepStore(DelayedStore):
    """A store beside the queues: a message leaves the one and enters the others in one step."""

    @abstractmethod
    async def move(self, which: Which) -> Sequence[Moved]:
        """Deliver messages, exactly once. What is refused stays, to be tried again later."""
