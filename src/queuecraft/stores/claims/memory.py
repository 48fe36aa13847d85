"""Claims in memory: for one process, and gone with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from typing import ClassVar, Final

from queuecraft.clock import Clock
from queuecraft.stores.claims.base import CLAIMED, Answer, Busy, ClaimStore, Done

FEW: Final = 1024  # leases that are not worth looking through


class MemoryClaimStore(ClaimStore):
    """At most `limit` keys are remembered as done: then those that are over the soonest go first.

    >>> import asyncio
    >>> store = MemoryClaimStore()
    >>> asyncio.run(store.claim(["m-1", "m-2"], "one", lease=60))
    [Claimed(), Claimed()]
    >>> asyncio.run(store.complete({"m-1": b""}, "one", ttl=3600))
    ()
    >>> asyncio.run(store.claim(["m-1"], "two", lease=60))
    [Done(value=b'')]
    """

    inline: ClassVar[bool] = True

    def __init__(self, clock: Clock | None = None, limit: int = 1_000_000) -> None:
        self._now = (clock or Clock()).monotonic
        self._limit = limit
        self._held: dict[str, tuple[str, float]] = {}
        self._done: dict[str, tuple[float, Done]] = {}
        self._ends: list[tuple[float, str]] = []  # when what is done is over, the soonest first
        self._crowded = FEW

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def claim(self, keys: Sequence[str], owner: str, lease: float) -> Sequence[Answer]:
        now = self._now()
        self._clean(now)
        return [self._claim(key, owner, now, lease) for key in keys]

    async def complete(
        self, values: Mapping[str, bytes], owner: str, ttl: float
    ) -> Collection[str]:
        now = self._now()
        refused: list[str] = []
        for key, value in values.items():
            held = self._held.get(key)
            if held is not None and held[0] != owner and held[1] > now:
                refused.append(key)
                continue
            self._held.pop(key, None)
            known = self._done.get(key)
            if known is None or known[0] <= now:
                self._done[key] = (now + ttl, Done(value))
                heappush(self._ends, (now + ttl, key))
        self._clean(now)
        return refused or ()

    async def release(self, keys: Sequence[str], owner: str) -> None:
        for key in keys:
            if key in self._held and self._held[key][0] == owner:
                del self._held[key]

    async def renew(self, keys: Sequence[str], owner: str, lease: float) -> Collection[str]:
        now = self._now()
        lost: list[str] = []
        for key in keys:
            by, until = self._held.get(key, ("", 0.0))
            if by == owner and until > now:
                self._held[key] = (owner, now + lease)
            else:
                lost.append(key)
        return lost

    def __len__(self) -> int:
        """How many keys are held or remembered."""
        return len(self._held) + len(self._done)

    # -- inside --------------------------------------------------------------------------------

    def _claim(self, key: str, owner: str, now: float, lease: float) -> Answer:
        known = self._done.get(key)
        if known is not None and known[0] > now:
            return known[1]
        held = self._held.get(key)
        if held is not None and held[0] != owner and held[1] > now:
            return Busy(held[1] - now)
        self._held[key] = (owner, now + lease)
        return CLAIMED

    def _clean(self, now: float) -> None:
        ends, done = self._ends, self._done
        while ends and (ends[0][0] <= now or len(done) > self._limit):
            end, key = heappop(ends)
            if key in done and done[key][0] == end:  # and not done anew since
                del done[key]
        if len(self._held) > self._crowded:
            self._held = {key: held for key, held in self._held.items() if held[1] > now}
            self._crowded = max(FEW, 2 * len(self._held))
