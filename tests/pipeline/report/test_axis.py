"""Time cut into stretches, and labels for them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queuecraft.pipeline.report.axis import (
    FEWEST,
    MOST,
    WEEK,
    axis_over,
    stretch,
    ticks,
    time_lengths,
    time_ticks,
)
from queuecraft.pipeline.report.figures import Axis
from tests.pipeline.report.written import START

NINE = int(START.timestamp())
SECONDS = st.integers(-(10**11), 10**12)


def test_an_hour_is_cut_into_minutes_and_a_day_into_quarters_of_hours() -> None:
    assert axis_over(NINE, NINE + 59 * 60) == Axis(NINE, 60, 60)
    assert stretch(axis_over(NINE, NINE + 86_340)) == "15 minutes"


def test_one_minute_stands_in_the_middle_of_others() -> None:
    axis = axis_over(NINE, NINE)
    assert axis.count == FEWEST
    assert axis.place(NINE) == 5


def test_two_years_are_cut_into_weeks_that_begin_on_mondays() -> None:
    axis = axis_over(NINE, NINE + 2 * 365 * 86_400)
    assert axis.step == WEEK
    assert axis.moment(0).weekday() == 0


@given(SECONDS, st.integers(0, 10**12))
def test_no_time_has_more_stretches_than_a_plot_can_show(first: int, length: int) -> None:
    axis = axis_over(first, first + length)
    assert FEWEST <= axis.count <= MOST
    assert axis.place(first) is not None
    assert axis.place(first + length) is not None
    labels = time_ticks(axis)
    assert len(labels) <= 9
    assert all(0 <= place < 1 for place, _ in labels)


@given(st.floats(0, 1e18), st.booleans())
def test_the_marks_of_a_scale_reach_what_is_shown(highest: float, whole: bool) -> None:
    marks = ticks(highest, whole=whole)
    assert marks[0] == 0
    assert marks[-1] >= highest * (1 - 1e-6)
    assert 2 <= len(marks) <= 6
    assert marks == sorted(set(marks))


@given(st.floats(1e-6, 1e9), st.floats(1e-6, 1e9))
def test_lengths_of_time_lie_around_what_is_shown(one: float, other: float) -> None:
    low, high = sorted((one, other))
    marks = time_lengths(low, high)
    assert marks[0] <= low
    assert marks[-1] >= high
    assert 2 <= len(marks) <= 8
    assert marks == sorted(set(marks))
