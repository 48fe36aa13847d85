"""What every store of claims promises."""

from __future__ import annotations

import asyncio

from queuecraft.stores.claims.base import CLAIMED, Busy, ClaimStore, Done
from tests.stores.claims.conftest import Place


async def test_a_key_is_held_by_one_owner_and_the_others_are_told_for_how_long(
    store: ClaimStore,
) -> None:
    assert list(await store.claim(["a", "b"], "one", 100)) == [CLAIMED, CLAIMED]
    busy, free = await store.claim(["a", "c"], "two", 100)
    assert isinstance(busy, Busy)
    assert 90 < busy.seconds <= 100
    assert free == CLAIMED


async def test_an_owner_may_claim_its_own_key_again(store: ClaimStore) -> None:
    await store.claim(["a"], "one", 100)
    assert list(await store.claim(["a"], "one", 200)) == [CLAIMED]
    (busy,) = await store.claim(["a"], "two", 100)
    assert isinstance(busy, Busy)
    assert busy.seconds > 190


async def test_what_is_done_is_told_with_its_value_until_that_is_over(place: Place) -> None:
    store = place.store
    await store.claim(["a", "b"], "one", 100)
    assert not await store.complete({"a": b"", "b": b"\x00o-1\xff"}, "one", 1000)
    assert list(await store.claim(["a", "b"], "two", 100)) == [Done(), Done(b"\x00o-1\xff")]
    await place.advance(990)
    assert list(await store.claim(["a"], "two", 100)) == [Done()]
    await place.advance(20)
    assert list(await store.claim(["a"], "two", 100)) == [CLAIMED]


async def test_what_is_released_is_free(store: ClaimStore) -> None:
    await store.claim(["a"], "one", 100)
    await store.release(["a"], "one")
    assert list(await store.claim(["a"], "two", 100)) == [CLAIMED]


async def test_a_lease_that_is_over_frees_the_key(place: Place) -> None:
    await place.store.claim(["a"], "one", 100)
    await place.advance(101)
    assert list(await place.store.claim(["a"], "two", 100)) == [CLAIMED]


async def test_a_lease_that_is_renewed_goes_on(place: Place) -> None:
    store = place.store
    await store.claim(["a"], "one", 100)
    await place.advance(90)
    assert not await store.renew(["a"], "one", 100)
    await place.advance(90)
    (busy,) = await store.claim(["a"], "two", 100)
    assert isinstance(busy, Busy)
    assert busy.seconds <= 11


async def test_an_owner_whose_lease_is_over_changes_nothing_for_the_next(place: Place) -> None:
    store = place.store
    await store.claim(["a"], "one", 100)
    await place.advance(101)
    await store.claim(["a"], "two", 100)
    await store.release(["a"], "one")
    assert list(await store.renew(["a"], "one", 500)) == ["a"]
    assert list(await store.complete({"a": b"late"}, "one", 500)) == ["a"]
    (busy,) = await store.claim(["a"], "three", 100)
    assert isinstance(busy, Busy)
    assert busy.seconds <= 100
    assert not await store.complete({"a": b"two"}, "two", 500)
    assert list(await store.claim(["a"], "one", 100)) == [Done(b"two")]


async def test_work_that_outlived_its_lease_is_done_if_nobody_else_has_begun(place: Place) -> None:
    await place.store.claim(["a"], "one", 100)
    await place.advance(101)
    assert list(await place.store.renew(["a"], "one", 100)) == ["a"]
    assert not await place.store.complete({"a": b"1"}, "one", 500)
    assert list(await place.store.claim(["a"], "two", 100)) == [Done(b"1")]


async def test_what_is_done_stays_as_it_is(store: ClaimStore) -> None:
    await store.claim(["a"], "one", 100)
    await store.complete({"a": b"first"}, "one", 500)
    await store.release(["a"], "one")
    assert not await store.complete({"a": b"second"}, "two", 500)
    assert list(await store.renew(["a"], "one", 100)) == ["a"]
    assert list(await store.claim(["a"], "two", 100)) == [Done(b"first")]


async def test_two_owners_who_race_never_hold_the_same_key(store: ClaimStore) -> None:
    keys = [f"k-{n}" for n in range(50)]
    answers = await asyncio.gather(
        *(store.claim([key], owner, 100) for key in keys for owner in ("one", "two"))
    )
    winners = [sum(each == [CLAIMED] for each in answers[at : at + 2]) for at in range(0, 100, 2)]
    assert winners == [1] * len(keys)


async def test_what_is_over_does_not_stay_for_ever(place: Place) -> None:
    store = place.store
    for at in range(0, 300, 100):
        keys = [f"k-{at + n}" for n in range(100)]
        await store.claim(keys, "one", 100)
        await store.complete(dict.fromkeys(keys, b""), "one", 100)
    await store.claim([f"held-{n}" for n in range(50)], "one", 100)
    await place.advance(101)
    for n in range(5):
        await store.claim([f"later-{n}"], "one", 100)
    assert await place.size() <= 55
