"""Which handler takes which event."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft import ConfigError, NoRetry
from queuecraft.model.routing import specificity, topic_matches
from queuecraft.runtime.router import REMEMBERED, Router, check_ties
from queuecraft.testing import Ledger
from tests.runtime.support import Stage, contents, running, staged


def test_a_literal_wins_over_a_star_and_a_star_over_a_hash() -> None:
    router = Router([("#", "hash"), ("order.*", "star"), ("order.placed", "literal")])
    assert router.find("order.placed") == "literal"
    assert router.find("order.paid") == "star"
    assert router.find("order.item.added") == "hash"
    assert router.find("user.created") == "hash"


def test_the_order_of_registration_does_not_matter() -> None:
    routes = [("order.placed", "literal"), ("order.*", "star"), ("#", "hash")]
    assert Router(routes).find("order.placed") == Router(routes[::-1]).find("order.placed")


def test_more_words_are_more_specific_within_a_hash() -> None:
    router = Router([("#", "all"), ("order.#", "orders"), ("order.item.#", "items")])
    assert router.find("order.item.added") == "items"
    assert router.find("order") == "orders"
    assert router.find("user") == "all"


def test_what_nothing_matches_finds_nothing() -> None:
    router = Router([("order.*", "star")])
    assert router.find("user.created") is None
    assert router.find("order") is None
    assert router.find("order.item.added") is None
    assert router.find("") is None


def test_no_routes_find_nothing() -> None:
    router: Router[str] = Router([])
    assert router.find("order.placed") is None
    assert router.only is None


def test_one_route_alone_is_known_as_such() -> None:
    assert Router([("order.placed", "a")]).only == "a"
    assert Router([("order.placed", "a"), ("order.paid", "b")]).only is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order.*", "*.placed"),
        ("*.b.c", "a.*.c"),
        ("#.placed", "#.placed"),
        ("order.placed", "order.placed"),
        ("a.#.c", "a.c.#"),
        ("*", "*"),
    ],
)
def test_patterns_that_would_compete_are_refused(one: str, other: str) -> None:
    with pytest.raises(ConfigError):
        Router([(one, 1), (other, 2)])


@pytest.mark.parametrize(
    ("one", "other"),
    [("order.*", "user.*"), ("*.a", "*.b"), ("a.*", "a.*.*"), ("order.placed", "order.*")],
)
def test_patterns_that_never_meet_are_welcome(one: str, other: str) -> None:
    check_ties([one, other])


def test_a_tie_names_both_patterns() -> None:
    with pytest.raises(ConfigError, match=r"'order\.\*' and '\*\.placed'"):
        check_ties(["order.*", "*.placed"])


def test_what_is_remembered_is_bounded() -> None:
    router = Router([("#", "all")])
    for number in range(3 * REMEMBERED):
        assert router.find(f"user.{number}") == "all"
        assert len(router.known) <= REMEMBERED


def test_a_key_that_found_nothing_is_not_remembered() -> None:
    router = Router([("order.*", "star")])
    for number in range(100):
        router.find(f"hostile.{number}")
    assert router.known == {}


def test_a_router_may_be_told_to_remember_nothing() -> None:
    router = Router([("order.*", "star")], remember=False)
    assert router.find("order.placed") == router.find("order.placed") == "star"
    assert router.known == {}


words = st.sampled_from(["a", "b", "*", "#"])
patterns = st.lists(words, min_size=1, max_size=4).map(".".join)
keys = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)


@given(st.lists(patterns, min_size=1, max_size=5, unique=True), keys)
def test_the_most_specific_of_those_that_match_is_found(routes: list[str], key: str) -> None:
    try:
        router = Router([(pattern, pattern) for pattern in routes])
    except ConfigError:
        return
    matching = [pattern for pattern in routes if topic_matches(pattern, key)]
    for _ in range(2):  # found, then remembered
        found = router.find(key)
        if not matching:
            assert found is None
        else:
            assert found in matching
            assert specificity(found) == max(map(specificity, matching))


@given(st.lists(patterns, min_size=1, max_size=5, unique=True), keys)
def test_no_two_handlers_are_ever_equally_right(routes: list[str], key: str) -> None:
    try:
        check_ties(routes)
    except ConfigError:
        return
    ranks = [specificity(pattern) for pattern in routes if topic_matches(pattern, key)]
    assert len(ranks) == len(set(ranks))


# -- in a worker -----------------------------------------------------------------------------


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


async def test_each_event_reaches_its_most_specific_handler_once(stage: Stage) -> None:
    seen = Ledger()
    worker = stage.qc.worker("audit")
    for name, pattern in (("hash", "#"), ("star", "order.*"), ("literal", "order.placed")):
        worker.on(pattern, seen.recording(name))
    async with running(worker):
        for event in ("order.placed", "order.paid", "user.created", "order.item.added"):
            await stage.qc.publish(event, event)
        await stage.clock.settle()
    assert [(call.name, call.payload) for call in seen.calls] == [
        ("literal", "order.placed"),
        ("star", "order.paid"),
        ("hash", "user.created"),
        ("hash", "order.item.added"),
    ]


async def test_an_event_that_lost_its_handler_is_kept_as_a_dead_letter(stage: Stage) -> None:
    seen = Ledger()
    old = stage.qc.worker("audit").on("order.placed", seen.recording("old"))
    async with running(old):
        pass
    await stage.qc.publish("order.placed", 1)
    new = stage.qc.worker("audit", retry=NoRetry()).on("order.paid", seen.recording("new"))
    async with running(new):
        await stage.clock.settle()
        (letter,) = await contents(stage.driver, "audit.dlq")
    assert letter.headers["x-reason"] == "no-handler"
    assert "order.placed" in str(letter.headers["x-error"])
    assert seen.calls == []


async def test_an_event_whose_handler_comes_with_the_next_deploy_survives(stage: Stage) -> None:
    seen = Ledger()
    new = stage.qc.worker("audit").on("order.*", seen.recording("new"))
    await stage.driver.declare(new.definition)
    await stage.qc.publish("order.paid", 1)
    old = stage.qc.worker("audit").on("order.placed", seen.recording("old"))
    async with running(old):
        await stage.clock.settle()
    async with running(new):
        await stage.clock.advance(5)
    assert seen.ids("old") == []
    assert seen.attempts("new") == [2]
