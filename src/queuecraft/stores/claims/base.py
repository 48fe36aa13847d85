"""Claims on keys, whatever they are kept in: held by one owner for a while, then done or free.

A key is free, held by an owner until a time, or done until a time; what is over is free again, so
that an owner who dies holds up nobody for longer than a lease. Every method sees to many keys in
one step that nobody gets in between. Time is that of the store: the clock it was given, or the
server's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Final, TypeAlias

import msgspec


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """It is yours until the lease is over."""


class Done(msgspec.Struct, frozen=True, gc=False):
    """Somebody has done it, and left a value.

    >>> Done(b"m-1").value
    b'm-1'
    """

    value: bytes = b""


class Busy(msgspec.Struct, frozen=True, gc=False):
    """Another owner is at it, for so many seconds unless it says otherwise."""

    seconds: float


Answer: TypeAlias = Claimed | Done | Busy
CLAIMED: Final = Claimed()


class ClaimStore(ABC):
    """Keys, their owners, and what is done. Any method may raise `ConnectionLost`.

    An owner is whoever keeps order in its own ranks: to the store, it may claim the same key
    again and again. So a call whose answer was lost can be repeated.
    """

    inline: ClassVar[bool] = False
    """Whether its methods return without giving up the loop: there is nothing to gather."""

    @property
    def is_lost(self) -> bool:
        """Whether it is known to be of no use any more until it is opened again."""
        return False

    @abstractmethod
    async def open(self) -> None:
        """Be ready; idempotent."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of what was opened for this store alone."""

    @abstractmethod
    async def claim(self, keys: Sequence[str], owner: str, lease: float) -> Sequence[Answer]:
        """Hold those keys that are free, for so many seconds; an answer for each."""

    @abstractmethod
    async def complete(
        self, values: Mapping[str, bytes], owner: str, ttl: float
    ) -> Collection[str]:
        """These keys are done, for so many seconds. Returns those that another holds by now: they
        are left alone. One that is free is taken for done: its lease was over, the work is not
        undone by that. What is done already stays as it is."""

    @abstractmethod
    async def release(self, keys: Sequence[str], owner: str) -> None:
        """Free those that this owner holds."""

    @abstractmethod
    async def renew(self, keys: Sequence[str], owner: str, lease: float) -> Collection[str]:
        """Hold them for so many seconds from now. Returns those that it does not hold any more."""
