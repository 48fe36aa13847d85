"""Whatever is done to them, in whatever order: every store ends as the one in memory does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from os import urandom
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuecraft.model.envelope import Outgoing
from queuecraft.stores.base import START, DelayedStore, Notes, Waiting, Which
from queuecraft.stores.memory import MemoryDelayedStore
from tests.stores.conftest import KINDS, opened

Deed: TypeAlias = Callable[["Actor"], Awaitable[Any]]

NAMES = st.sampled_from(["a", "b", "c", "aa", "é", "b\0", "Z"])
TIMES = st.sampled_from([0.0, 1.0, 1.0000001, 2.5, 3.0, 60.0, 100.25])
HOLDS = st.sampled_from(["one", "two"])


class Actor:
    """A store, and what was taken from it and not settled yet."""

    def __init__(self, store: DelayedStore) -> None:
        self.store = store
        self.taken: list[list[Waiting]] = []


def _seen(found: Any) -> list[tuple[Any, ...]]:
    return [(e.message.id, e.message.body, e.due, e.failures, e.hold) for e in found]


def adds(name: str, due: float, limit: int, body: bytes) -> Deed:
    async def deed(actor: Actor) -> Any:
        added = await actor.store.add(Waiting(Outgoing(body, name), due, 0.0), limit)
        return added.accepted, added.size

    return deed


def takes(which: Which, hold: str) -> Deed:
    async def deed(actor: Actor) -> Any:
        taken = list(await actor.store.take(which, hold, which.now + 1.5))
        if taken:
            actor.taken.append(taken)
        return _seen(taken)

    return deed


def settles(at: int, how: str, now: float) -> Deed:
    async def deed(actor: Actor) -> Any:
        if not actor.taken:
            return None
        taken = actor.taken[at % len(actor.taken)]  # perhaps not for the first time
        if how == "forget":
            return await actor.store.forget(taken)
        await actor.store.put_back(taken, now=now, failed=how == "fail")
        return None

    return deed


def renews(at: int, until: float) -> Deed:
    async def deed(actor: Actor) -> Any:
        if not actor.taken:
            return None
        return _seen(await actor.store.renew(actor.taken[at % len(actor.taken)], until))

    return deed


def cancels(name: str, now: float) -> Deed:
    return lambda actor: actor.store.cancel(name, now)


def notes(put: dict[str, str], add: dict[str, int], remove: list[str]) -> Deed:
    async def deed(actor: Actor) -> Any:
        await actor.store.note(Notes(put, add, remove))
        return dict(await actor.store.notes())

    return deed


def pages(limit: int, due: float, name: str) -> Deed:
    async def deed(actor: Actor) -> Any:
        return _seen(await actor.store.page(limit, (due, name)))

    return deed


WHICH = st.builds(
    Which,
    TIMES,
    st.integers(1, 4),
    st.none() | TIMES,
    st.just(START) | st.tuples(TIMES, NAMES),
)
DEEDS = st.one_of(
    st.builds(adds, NAMES, TIMES, st.integers(1, 6), st.binary(max_size=3)),
    st.builds(takes, WHICH, HOLDS),
    st.builds(settles, st.integers(0, 3), st.sampled_from(["forget", "back", "fail"]), TIMES),
    st.builds(renews, st.integers(0, 3), TIMES),
    st.builds(cancels, NAMES, TIMES),
    st.builds(pages, st.integers(1, 4), TIMES, NAMES),
    st.builds(
        notes,
        st.dictionaries(st.sampled_from("xy"), st.sampled_from(["", "1", "é"]), max_size=2),
        st.dictionaries(st.sampled_from("pq"), st.integers(-3, 3), max_size=2),
        st.lists(st.sampled_from("xypq"), max_size=1),
    ),
)


async def _story(actor: Actor, deeds: list[Deed]) -> list[Any]:
    story: list[Any] = []
    for deed in deeds:
        story.append(await deed(actor))
        census = await actor.store.census(2.0)
        story.append([getattr(census, name) for name in census.__struct_fields__])
    return [*story, _seen(await actor.store.page(100, START))]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "memory"])
@settings(
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(deeds=st.lists(DEEDS, min_size=5, max_size=40))
async def test_a_store_is_like_the_one_in_memory(
    kind: str, deeds: list[Deed], request: pytest.FixtureRequest
) -> None:
    expected = await _story(Actor(MemoryDelayedStore()), deeds)
    with TemporaryDirectory(prefix=urandom(4).hex()) as folder:
        async with opened(kind, Path(folder), lambda: request.getfixturevalue("redis")) as store:
            assert await _story(Actor(store), deeds) == expected
