"""Plots: shapes as high as the numbers are large."""

from __future__ import annotations

import re

from queuecraft.pipeline.report.figures import Axis, Counts, Growth, Percentiles
from queuecraft.pipeline.report.plots import (
    DEEP,
    Scale,
    backlog_plot,
    latency_plot,
    sparkline,
    throughput_plot,
)
from tests.pipeline.report.written import START

AXIS = Axis(int(START.timestamp()), 60, 4)


def path(plot: str, name: str) -> str:
    (found,) = re.findall(rf'<path d="([^"]*)" class="{name}">', plot)
    return str(found)


def tops(bars: str) -> list[int]:
    return [DEEP - int(each) for each in re.findall(r"V(\d+)h", bars)]


def test_bars_are_stacked_and_as_high_as_their_counts() -> None:
    counts = [Counts(10, 10, 10), Counts(), Counts(0, 5, 3, 2), Counts(0, 8, 0, dead=8)]
    plot = throughput_plot(AXIS, counts)
    assert tops(path(plot, "fill ok")) == [1000, 300]
    assert tops(path(plot, "fill retry")) == [500]
    assert tops(path(plot, "fill dead")) == [800]
    assert "fill other" not in plot
    assert path(plot, "line published") == "M0 0H1L1 1000H2L2 1000H3L3 1000H4"


def test_one_failure_among_a_million_is_seen() -> None:
    plot = throughput_plot(AXIS, [Counts(delivered=10**6 + 1, succeeded=10**6, dead=1)] * 4)
    assert "fill dead" in plot


def test_a_line_breaks_where_nothing_was_measured() -> None:
    known, none = Percentiles(1.0, 2.0, 4.0), Percentiles()
    plot = latency_plot(AXIS, [known, known, none, known])
    assert path(plot, "line p99").count("M") == 2
    assert "3.2" in path(plot, "line p99")  # one alone is a dash as wide as its minute
    assert len(re.findall('class="fill band"', plot)) == 1


def test_latencies_far_apart_are_shown_by_powers() -> None:
    plot = latency_plot(AXIS, [Percentiles(0.001, 0.1, 10.0)] * 4)
    labels = re.findall(r">([\d.]+ [a-zµ]+)</text>", plot)
    assert labels == ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]


def test_latencies_of_nothing_make_a_plot_all_the_same() -> None:
    assert "<path" not in latency_plot(AXIS, [Percentiles()] * 4)
    assert 'class="line p50"' in latency_plot(AXIS, [Percentiles(0.0, 0.0, 0.0)] * 4)


def test_a_backlog_below_zero_is_drawn_below_the_line() -> None:
    plot = backlog_plot(AXIS, Growth("billing", -5, 10, 0, 0, 1, (None, 10, -5, None), (1,)))
    assert path(plot, "line backlog") == "M1 0H2L2 1000H3"
    assert path(plot, "fill backlog").endswith("V667H1Z")
    assert re.findall(r'<circle cx="([^"]*)" cy="([^"]*)"', plot) == [("37.5%", "8.0")]
    assert ">-5<" in plot


def test_a_scale_keeps_what_lies_outside_within_the_plot() -> None:
    scale = Scale([0.001, 1.0], log=True)
    assert [scale.height(each) for each in (0.0, 0.001, 1.0, 50.0)] == [0, 0, 1000, 1000]


def test_a_sparkline_of_nothing_is_a_flat_line() -> None:
    assert 'd="M0 1000H1L1 1000H2"' in sparkline([0, 0])
    assert "<svg" in sparkline([])
