"""Whatever is done, by whomever, in whatever order: every store does what a simple model does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from os import urandom
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuecraft.stores.claims.base import Answer, Busy, Claimed
from tests.stores.claims.conftest import KINDS, Place, opened

UNIT = 1000.0  # seconds: a server's clock goes on while we look, but not by as much

Deed: TypeAlias = tuple[Callable[["Model"], Any], Callable[[Place], Awaitable[Any]]]


class Model:
    """What is known of each key: its owner or None, until when, and the value."""

    def __init__(self) -> None:
        self.now = 0
        self.known: dict[str, tuple[str | None, int, bytes]] = {}

    def found(self, key: str) -> tuple[str | None, int, bytes] | None:
        found = self.known.get(key)
        return None if found is None or found[1] <= self.now else found

    def claim(self, keys: list[str], owner: str, lease: int) -> list[object]:
        answers: list[object] = []
        for key in keys:
            found = self.found(key)
            if found is not None and found[0] is None:
                answers.append(("done", found[2]))
            elif found is not None and found[0] != owner:
                answers.append(("busy", found[1] - self.now))
            else:
                self.known[key] = (owner, self.now + lease, b"")
                answers.append("claimed")
        return answers

    def complete(self, values: dict[str, bytes], owner: str, ttl: int) -> list[str]:
        refused: list[str] = []
        for key, value in values.items():
            found = self.found(key)
            if found is None or found[0] == owner:
                self.known[key] = (None, self.now + ttl, value)
            elif found[0] is not None:
                refused.append(key)
        return refused

    def release(self, keys: list[str], owner: str) -> None:
        for key in keys:
            if (found := self.found(key)) is not None and found[0] == owner:
                del self.known[key]

    def renew(self, keys: list[str], owner: str, lease: int) -> list[str]:
        ours = [key for key in keys if (found := self.found(key)) is not None and found[0] == owner]
        for key in ours:
            self.known[key] = (owner, self.now + lease, b"")
        return [key for key in keys if key not in ours]

    def pass_time(self, units: int) -> None:
        self.now += units


def _seen(answer: Answer) -> object:
    if isinstance(answer, Busy):
        return ("busy", round(answer.seconds / UNIT))
    return "claimed" if isinstance(answer, Claimed) else ("done", answer.value)


def claims(keys: list[str], owner: str, lease: int) -> Deed:
    async def deed(place: Place) -> Any:
        return [_seen(each) for each in await place.store.claim(keys, owner, lease * UNIT)]

    return lambda model: model.claim(keys, owner, lease), deed


def completes(values: dict[str, bytes], owner: str, ttl: int) -> Deed:
    async def deed(place: Place) -> Any:
        return list(await place.store.complete(values, owner, ttl * UNIT))

    return lambda model: model.complete(values, owner, ttl), deed


def releases(keys: list[str], owner: str) -> Deed:
    return lambda model: model.release(keys, owner), lambda place: place.store.release(keys, owner)


def renews(keys: list[str], owner: str, lease: int) -> Deed:
    async def deed(place: Place) -> Any:
        return list(await place.store.renew(keys, owner, lease * UNIT))

    return lambda model: model.renew(keys, owner, lease), deed


def passes(units: int) -> Deed:
    # A little more, so that what a server began a moment later is over as well.
    return lambda model: model.pass_time(units), lambda place: place.advance(units * UNIT + 1)


KEYS = st.lists(st.sampled_from(["a", "b", "c", "a\n", "{x}"]), min_size=1, max_size=3)
OWNERS = st.sampled_from(["one", "two", "d"])
UNITS = st.integers(1, 5)
VALUES = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.binary(max_size=3), min_size=1)
DEEDS = st.one_of(
    st.builds(claims, KEYS, OWNERS, UNITS),
    st.builds(completes, VALUES, OWNERS, UNITS),
    st.builds(releases, KEYS, OWNERS),
    st.builds(renews, st.lists(st.sampled_from("abc"), unique=True, min_size=1), OWNERS, UNITS),
    st.builds(passes, st.integers(1, 3)),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(deeds=st.lists(DEEDS, min_size=5, max_size=40))
async def test_a_store_does_what_the_model_does(
    kind: str, deeds: list[Deed], request: pytest.FixtureRequest
) -> None:
    model = Model()
    expected = [pure(model) for pure, _ in deeds]
    with TemporaryDirectory(prefix=urandom(4).hex()) as folder:
        async with opened(kind, Path(folder), lambda: request.getfixturevalue("redis")) as place:
            assert [await deed(place) for _, deed in deeds] == expected
