"""The measurements of scaling on a queue in a file, with few messages, and their page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.place import Site, in_a_file
from benchmarks.scaling import page
from benchmarks.scaling.__main__ import RESULTS, measure
from benchmarks.scaling.axes import AXES, FULL, Amount, Axis, OutOfPatience, by_queues
from benchmarks.scaling.findings import Curve, Findings, Point
from benchmarks.scaling.processes import together

TINY = Amount(
    messages=150,
    megabytes=1,
    sizes=(100, 10_000),
    queues=(1, 3),
    backlogs=(0, 200),
    handlers=(1, 8),
    processes=(1, 2),
)


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)
async def test_every_axis_gives_a_figure_for_each_of_its_lines(axis: Axis):
    figures = await axis.measure(Site(in_a_file), axis.points(TINY)[-1], TINY)

    assert figures.keys() == axis.lines.keys()
    assert all(figure > 0 for figure in figures.values())


async def test_queues_that_take_too_long_to_make_are_not_waited_for():
    with pytest.raises(OutOfPatience, match=r"\d+ queues were made in 0 s, too few to go on"):
        await by_queues(Site(in_a_file), 10_000, replace(TINY, patience=0.0))


def test_a_point_that_fails_says_why_and_the_others_are_measured():
    async def fragile(site: Site, x: int, amount: Amount) -> dict[str, float]:
        if x == 3:
            raise OutOfPatience("too many")
        return {"publish": 5.0 * x, "declare": 1.0}

    queues = next(axis for axis in AXES if axis.name == "queues")
    found, _ = measure(replace(queues, measure=fragile), "file", TINY, rounds=2, until=float("inf"))

    assert [point.figures.get("publish") for point in found.points] == [[5.0, 5.0], None]
    assert found.points[1].missing == "OutOfPatience: too many"


def test_without_time_only_the_first_point_is_measured_and_the_others_say_so():
    async def steady(site: Site, x: int, amount: Amount) -> dict[str, float]:
        return {"publish": 1.0}

    found, _ = measure(replace(AXES[0], measure=steady), "file", TINY, rounds=3, until=0.0)

    assert [point.missing for point in found.points] == ["", "no time left"]
    assert found.points[0].figures == {"publish": [1.0]}


def test_processes_are_timed_while_all_of_them_work():
    early, late = [0.0, 1.0, 2.0], [1.5, 2.0, 2.5]

    assert together([early, late]) == pytest.approx(2.5 / 0.5)


def test_processes_that_never_worked_together_are_timed_from_first_to_last():
    assert together([[0.0, 1.0], [2.0, 4.0]]) == pytest.approx(3.5 / 4.0)
    assert together([[0.0, 1.0, 2.0], []]) == pytest.approx(3 / 2.0)


def test_the_page_has_a_table_and_a_plot_for_each_line_and_what_is_missing(tmp_path):
    points = [
        Point(x=1, figures={"publish": [10.0, 30.0, 20.0], "declare": [5.0]}),
        Point(x=10, figures={"publish": [25.0], "declare": [5.0]}),
        Point(x=100, missing="OutOfPatience: 70 of 100 queues were made within 1 s"),
    ]
    found = Findings(
        at="2025-11-03T00:00:00+00:00",
        command="python -m benchmarks.scaling",
        quick=True,
        seconds=60.0,
        environment={
            "cpus": 2,
            "machine": "x86_64",
            "platform": "Linux",
            "implementation": "CPython",
            "python": "3.11",
            "loop": "asyncio",
            "packages": {},
        },
        curves=[Curve(axis="queues", broker="file", points=points)],
    )
    found.save(tmp_path / "found.json")

    written = page.write(Findings.read(tmp_path / "found.json"), tmp_path)
    text = written[0].read_text(encoding="utf-8")

    assert [path.name for path in written[1:]] == [
        "bench-scaling-queues-publish.svg",
        "bench-scaling-queues-declare.svg",
    ]
    assert "| 1 | 20.0 (10.0–30.0) |" in text
    assert "| 10 | 25.0 |" in text
    assert "- In a file, 100 queues: OutOfPatience: 70 of 100 queues were made" in text
    assert 'arguments={"x-queue-type": "quorum"}' in text
    assert "## Planning" in text


def test_the_page_and_its_plots_are_what_the_run_has_found(tmp_path):
    for path in page.write(Findings.read(RESULTS), tmp_path):
        committed = Path("docs") / path.relative_to(tmp_path)
        assert path.read_text(encoding="utf-8") == committed.read_text(encoding="utf-8"), (
            f"{committed} is not what {RESULTS} says: "
            f"run python -m benchmarks.scaling --again {RESULTS}"
        )


def test_the_full_run_covers_what_it_should():
    assert (FULL.sizes[0], FULL.sizes[-1]) == (100, 1_000_000)
    assert (FULL.queues[0], FULL.queues[-1]) == (1, 10_000)
    assert (FULL.backlogs[0], FULL.backlogs[-1]) == (0, 100_000)
    assert tuple(FULL.processes) == (1, 2, 4)
