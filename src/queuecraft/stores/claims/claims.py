"""The claims of one process: gathered, kept alive while work goes on, opened again when lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from queuecraft.clock import Clock, Timer
from queuecraft.model.errors import ConnectionLost, QueueError
from queuecraft.model.ids import new_id
from queuecraft.stores.claims.base import CLAIMED, Answer, Busy, ClaimStore
from queuecraft.stores.claims.lane import Lane

R = TypeVar("R")

PATIENCE: Final = 10.0  # seconds without an answer, after which a store counts as lost
LONGEST_PAUSE: Final = 5.0  # seconds between tries to open it
GOODBYE: Final = 5.0  # seconds to answer those who still wait
SOONEST: Final = 0.1  # seconds until one asks again for what another of this process holds
RENEWALS: Final = 3  # in a lease


class Claims:
    """What many runners of a process share: each sees to one key, the store is asked for many.

    It is opened when first used. What one runner holds is busy to the others, and is renewed
    until it is completed or released.

    >>> from queuecraft.stores.claims.memory import MemoryClaimStore
    >>> async def opened():
    ...     return MemoryClaimStore()
    >>> async def main():
    ...     claims = Claims(opened)
    ...     print(await claims.claim("o-1", lease=60), await claims.claim("o-1", lease=60))
    ...     await claims.complete("o-1", ttl=3600, value=b"paid")
    ...     print(await claims.claim("o-1", lease=60))
    ...     await claims.close()
    >>> asyncio.run(main())
    Claimed() Busy(seconds=0.1)
    Done(value=b'paid')
    """

    def __init__(
        self, opened: Callable[[], Awaitable[ClaimStore]], *, clock: Clock | None = None
    ) -> None:
        self._made = opened
        self.clock = clock or Clock()
        self._owner = ""
        self._store: ClaimStore | None = None
        self._inline: ClaimStore | None = None  # the same, if there is nothing to gather
        self._opening: asyncio.Lock | None = None
        # And for how long they are leased; 0 while that is being asked for or ended.
        self._held: dict[str, float] = {}
        self._wanted: dict[str, int] = {}  # how often others here have asked for one of them
        self._timer: Timer | None = None
        self._shortest = 0.0  # of the leases that the timer is set for
        self._renewing: asyncio.Task[None] | None = None
        self._probe: Timer | None = None
        self._claim_lanes: dict[float, Lane[str, Answer]] = {}
        self._complete_lanes: dict[float, Lane[tuple[str, bytes], bool]] = {}
        self._release_lane: Lane[str | None, None] = Lane(self._release_many)
        self._failures = 0  # since it could last be opened
        self._retry_at = 0.0
        self.log = logging.getLogger("queuecraft")
        self.trouble: str | None = None
        """Why it cannot be reached; None while all is well."""

    async def claim(self, key: str, lease: float) -> Answer:
        """Hold a key if it is free. Raises `ConnectionLost` when that cannot be known."""
        held = self._held
        if key in held:
            return self._busy(key, lease)
        held[key] = 0.0  # before anybody else asks
        if self._inline is not None:
            try:
                (answer,) = await self._inline.claim((key,), self._owner, lease)
            except BaseException:
                self._forget(key)
                raise
        else:
            answer = await self._claimed(key, lease)
        if answer is not CLAIMED:
            self._forget(key)
            return answer
        held[key] = lease
        if self._timer is None or lease < self._shortest:
            self._renew_later()
        return answer

    async def complete(self, key: str, ttl: float, value: bytes = b"") -> bool:
        """A key that is held here is done, for so many seconds; False when another holds it by
        now, since its lease was over. Raises `ConnectionLost` when the store is away."""
        if self._inline is not None:
            self._forget(key)
            return not await self._inline.complete({key: value}, self._owner, ttl)
        lane = self._complete_lanes.get(ttl)
        if lane is None:
            lane = self._complete_lanes[ttl] = Lane(partial(self._complete_many, ttl))
        self._held[key] = 0.0
        future = lane.ask((key, value))
        future.add_done_callback(partial(self._end, key))
        return await asyncio.shield(future)

    async def release(self, key: str) -> None:
        """Free a key that is held here; if the store is away, it is free when its lease is over."""
        if self._inline is not None:
            self._forget(key)
            await self._inline.release((key,), self._owner)
            return
        self._held[key] = 0.0
        future = self._release_lane.ask(key)
        future.add_done_callback(partial(self._end, key))
        await asyncio.wait([future], timeout=GOODBYE)

    def abandon(self, key: str) -> None:
        """The same where nothing can be waited for."""
        try:
            self._release_lane.ask(key).add_done_callback(partial(self._end, key))
        except RuntimeError:  # there is no loop any more
            self._forget(key)

    async def close(self) -> None:
        """Let go of the store, once everything is answered. It is opened again when used."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        for timer in (self._timer, self._probe):
            if timer is not None:
                timer.cancel()
        self._timer = self._probe = None
        # That of releases comes last: a claim that nobody waits for any more ends there.
        lanes: list[Lane[Any, Any]] = [*self._claim_lanes.values(), *self._complete_lanes.values()]
        lanes.append(self._release_lane)
        try:
            async with asyncio.timeout(GOODBYE):
                for lane in lanes:
                    await lane.idle()
        except TimeoutError:
            for lane in lanes:
                await lane.give_up()
        self._opening = None
        await self._let_go()

    # -- what is held here ---------------------------------------------------------------------

    def _busy(self, key: str, lease: float) -> Busy:
        """Whoever holds it here may end at any moment, or take long: look again soon, and then
        less and less often."""
        asked = self._wanted[key] = self._wanted.get(key, 0) + 1
        return Busy(min(lease, SOONEST * 2.0 ** min(asked - 1, 30)))

    def _forget(self, key: str) -> None:
        self._held.pop(key, None)
        if self._wanted:
            self._wanted.pop(key, None)

    # -- gathered ------------------------------------------------------------------------------

    async def _claimed(self, key: str, lease: float) -> Answer:
        lane = self._claim_lanes.get(lease)
        if lane is None:
            lane = self._claim_lanes[lease] = Lane(partial(self._claim_many, lease))
        future = lane.ask(key)
        try:
            return await asyncio.shield(future)
        except BaseException:
            # If we were cancelled, the claim may be made all the same, for nobody.
            if future.done():
                self._give_back(key, future)
            else:
                future.add_done_callback(partial(self._give_back, key))
            raise

    def _give_back(self, key: str, future: asyncio.Future[Answer]) -> None:
        if not future.cancelled() and future.exception() is None and future.result() is CLAIMED:
            self._release_lane.ask(key).add_done_callback(partial(self._end, key))
        else:
            self._forget(key)

    def _end(self, key: str, future: asyncio.Future[Any]) -> None:
        """Only now may another of this process have the key: its claim must not be overtaken."""
        self._forget(key)
        if not future.cancelled():
            future.exception()  # perhaps nobody waits to hear of it

    async def _claim_many(self, lease: float, keys: list[str]) -> Sequence[Answer]:
        return await self._call(lambda store: store.claim(keys, self._owner, lease))

    async def _complete_many(self, ttl: float, done: list[tuple[str, bytes]]) -> Sequence[bool]:
        values = dict(done)
        refused = await self._call(lambda store: store.complete(values, self._owner, ttl))
        return [key not in refused for key, _ in done]

    async def _release_many(self, wanted: list[str | None]) -> Sequence[None]:
        keys = [key for key in wanted if key is not None]
        await self._call(lambda store: store.release(keys, self._owner))
        return [None] * len(wanted)

    # -- the store -----------------------------------------------------------------------------

    async def _call(self, work: Callable[[ClaimStore], Awaitable[R]]) -> R:
        try:
            try:
                result = await self._try(work)
            except ConnectionLost:
                if self._failures:  # it could not even be opened
                    raise
                result = await self._try(work)  # whatever it is, it may be done twice
        except Exception as error:
            self._in_trouble(error)
            raise
        if self.trouble is not None:
            self.trouble = None
            self.log.info("claims can be reached again")
        return result

    async def _try(self, work: Callable[[ClaimStore], Awaitable[R]]) -> R:
        store = await self._ready()
        try:
            async with asyncio.timeout(PATIENCE):
                return await work(store)
        except TimeoutError:
            await self._let_go(store)
            raise ConnectionLost(f"no answer within {PATIENCE:g} s") from None
        except ConnectionLost:
            await self._let_go(store)
            raise

    async def _ready(self) -> ClaimStore:
        if self._opening is None:
            self._opening = asyncio.Lock()
        failures = self._failures
        async with self._opening:
            if self._store is None and self._failures > failures:
                # Somebody has tried while we waited: no need to wait for the next try as well.
                raise ConnectionLost(self.trouble or "it cannot be opened")
            if self._store is not None and self._store.is_lost:
                await self._let_go()
            if self._store is None:
                if (pause := self._retry_at - self.clock.monotonic()) > 0:
                    await self.clock.sleep(pause)
                self._owner = self._owner or new_id()
                self._failures += 1
                pause = min(0.1 * 2.0 ** min(self._failures, 10), LONGEST_PAUSE)
                self._retry_at = self.clock.monotonic() + pause
                self._store = await self._opened()
                self._failures, self._retry_at = 0, 0.0
                self._inline = self._store if self._store.inline else None
            return self._store

    async def _opened(self) -> ClaimStore:
        try:
            async with asyncio.timeout(3 * PATIENCE):  # there may be several hosts
                store = await self._made()
                try:
                    await store.open()
                except BaseException:
                    await store.close()
                    raise
        except TimeoutError:
            raise ConnectionLost(f"no answer within {3 * PATIENCE:g} s") from None
        return store

    async def _let_go(self, store: ClaimStore | None = None) -> None:
        """Close the store; the one that is meant, if another has taken its place by now."""
        if self._store is not None and store in (None, self._store):
            store, self._store, self._inline = self._store, None, None
            await store.close()

    def _in_trouble(self, error: Exception) -> None:
        if self.trouble is None:
            unknown = None if isinstance(error, QueueError) else error
            text = "claims cannot be reached, and what needs them waits: %s"
            self.log.error(text, error, exc_info=unknown)
        self.trouble = str(error) or repr(error)
        if self._probe is None:
            self._probe = self.clock.call_later(LONGEST_PAUSE, self._look)

    def _look(self) -> None:
        """Whether it is back: those who were refused may never ask again."""
        self._probe = None
        if self.trouble is not None:
            self._release_lane.ask(None).add_done_callback(partial(self._end, ""))

    # -- renewing ------------------------------------------------------------------------------

    def _renew_later(self) -> None:
        leases = [lease for lease in self._held.values() if lease]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if leases:
            self._shortest = min(leases)
            self._timer = self.clock.call_later(self._shortest / RENEWALS, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        try:
            by_lease: dict[float, list[str]] = {}
            for key, lease in self._held.items():
                if lease:
                    by_lease.setdefault(lease, []).append(key)
            for lease, keys in by_lease.items():
                await self._renew_some(keys, lease)
        finally:
            self._renewing = None
            self._renew_later()

    async def _renew_some(self, keys: list[str], lease: float) -> None:
        try:
            lost = await self._call(lambda store: store.renew(keys, self._owner, lease))
        except Exception:  # it was said; there are two more tries in a lease
            return
        for key in lost:
            if self._held.get(key):  # and not completed or released meanwhile
                self.log.warning(
                    "the lease of %s was over while it was being worked on: others may have begun "
                    "with it",
                    key,
                )
