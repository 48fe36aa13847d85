"""How fast things go, from two looks."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from queuecraft.admin.rates import (
    Pace,
    arrivals,
    by_queue,
    drain,
    durations,
    p95,
    paces,
    since,
)
from queuecraft.drivers.base import QueueInfo
from queuecraft.model.presence import BOUNDS
from tests.admin.looks import process, worker


def info(ready: int | None = 0, **about: Any) -> QueueInfo:
    return QueueInfo(name="billing", ready=ready, **about)


def test_the_pace_is_what_was_done_between_two_signs_of_life() -> None:
    before = process("a", 10.0, worker(succeeded=100, failed=4, dead_lettered=1))
    now = process("a", 15.0, worker(succeeded=150, failed=9, dead_lettered=6))
    assert paces([before], [now]) == {("a", "billing"): Pace(11.0, 10.0, 1.0)}


def test_a_process_seen_first_tells_nothing_yet() -> None:
    assert paces([], [process("a", 15.0, worker(succeeded=150))]) == {}


def test_a_worker_that_is_new_in_its_process_tells_nothing_yet() -> None:
    before = process("a", 10.0, worker("other"))
    now = process("a", 15.0, worker("other", succeeded=5), worker("billing", succeeded=500))
    assert paces([before], [now]) == {("a", "other"): Pace(1.0, 1.0, 0.0)}


def test_counts_that_went_back_tell_nothing() -> None:
    before = process("a", 10.0, worker(succeeded=100))
    assert paces([before], [process("a", 15.0, worker(succeeded=3))]) == {}


def test_who_has_said_nothing_new_tells_nothing() -> None:
    same = process("a", 10.0, worker(succeeded=100))
    assert paces([same], [same]) == {}


@pytest.mark.parametrize("set_to", [3610.0, -3590.0])
def test_who_has_set_its_clock_tells_nothing(set_to: float) -> None:
    before = process("a", 0.0, worker(succeeded=100))
    now = process("a", set_to, worker(succeeded=200))
    assert paces([before], [now], elapsed=10.0) == {}


def test_processes_of_a_queue_are_added_up() -> None:
    before = [process("a", 0.0, worker()), process("b", 3.0, worker(), worker())]
    now = [
        process("a", 10.0, worker(succeeded=10)),
        process("b", 8.0, worker(succeeded=10), worker(succeeded=5)),
    ]
    assert by_queue(paces(before, now)) == {"billing": Pace(4.0, 4.0, 0.0)}


def test_the_share_of_failures_is_unknown_where_nothing_was_done() -> None:
    assert Pace().failure_ratio is None
    assert Pace(failed=2.0).failure_ratio == 1.0


def test_more_came_in_than_left_if_there_are_more_now() -> None:
    before = info(10, in_flight=5, delayed=0)
    assert arrivals(before, info(20, in_flight=5, delayed=10), 10.0, 3.0) == 5.0


def test_arrivals_are_never_below_nothing() -> None:
    assert arrivals(info(100), info(0), 10.0, 1.0) == 0.0


@pytest.mark.parametrize(
    ("before", "now", "settled"),
    [(None, info(1), 1.0), (info(1), info(1), None), (info(None), info(None), 1.0)],
)
def test_arrivals_are_unknown_where_something_is(
    before: QueueInfo | None, now: QueueInfo, settled: float | None
) -> None:
    assert arrivals(before, now, 10.0, settled) is None


def test_what_only_one_look_was_told_is_left_out() -> None:
    assert arrivals(info(0, in_flight=None), info(0, in_flight=50), 10.0, 1.0) == 1.0


@pytest.mark.parametrize(
    ("ready", "arriving", "settled", "expected"),
    [
        (0, 5.0, 5.0, 0.0),
        (100, 0.0, 10.0, 10.0),
        (100, 5.0, 10.0, 20.0),
        (100, 10.0, 10.0, inf),
        (100, 0.0, 0.0, inf),
        (3, 10.0, 10.0, 0.3),  # a queue in steady use
        (None, 1.0, 1.0, None),
    ],
)
def test_time_to_drain(
    ready: int | None, arriving: float, settled: float, expected: float | None
) -> None:
    assert drain(None, info(ready), 0.0, arriving, settled) == expected


def test_without_workers_that_tell_the_depth_alone_tells_when_it_is_empty() -> None:
    assert drain(info(100), info(50), 10.0, None, None) == 10.0
    assert drain(info(50), info(100), 10.0, None, None) == inf


def test_before_the_second_look_nobody_knows_unless_nobody_consumes() -> None:
    assert drain(None, info(50), 0.0, None, None) is None
    assert drain(None, info(50, consumers=0), 0.0, None, None) == inf


def test_durations_are_of_the_last_minute_and_not_of_all_time() -> None:
    slow = durations([process("a", 0.0, worker(durations=(0, 0, 0, 1000)))])
    now = durations([process("a", 60.0, worker(durations=(0, 100, 0, 1000)))])
    assert p95(since(slow, now).values()) == BOUNDS[1]


def test_a_duration_beyond_all_bounds_is_still_a_number() -> None:
    assert p95([(0,) * len(BOUNDS) + (5,)]) == BOUNDS[-1]


def test_durations_that_went_back_tell_nothing() -> None:
    assert since({("a", "q"): (5, 5)}, {("a", "q"): (1,)}) == {}
