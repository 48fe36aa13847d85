"""What is kept in memory has an end."""

from __future__ import annotations

from queuecraft.stores.claims.base import CLAIMED, Busy, Done
from queuecraft.stores.claims.memory import FEW, MemoryClaimStore
from queuecraft.testing import FakeClock


async def test_over_the_limit_what_would_be_over_the_soonest_is_forgotten() -> None:
    store = MemoryClaimStore(FakeClock(), limit=3)
    for key, ttl in (("a", 40), ("b", 10), ("c", 30), ("d", 20)):
        await store.complete({key: b""}, "one", ttl)
    await store.claim(["held"], "one", 5)
    answers = await store.claim(["a", "b", "c", "d", "held"], "two", 60)
    assert answers[:4] == [Done(), CLAIMED, Done(), Done()]
    assert isinstance(answers[4], Busy)


async def test_what_is_done_anew_is_not_forgotten_with_the_first_time() -> None:
    clock = FakeClock()
    store = MemoryClaimStore(clock)
    await store.complete({"a": b"first"}, "one", 100)
    await clock.advance(101)
    await store.complete({"a": b"second"}, "one", 100)
    assert await store.claim(["a"], "two", 60) == [Done(b"second")]


async def test_leases_that_nobody_ended_are_forgotten() -> None:
    clock = FakeClock()
    store = MemoryClaimStore(clock)
    await store.claim([f"old-{n}" for n in range(FEW)], "one", 10)
    await clock.advance(11)
    for n in range(10):
        await store.claim([f"new-{n}"], "one", 10)
    assert len(store) == 10
