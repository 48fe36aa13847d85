"""The pages of the matrix and of the soak are what the runs have found that are kept here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.fixtures import do_without
from tests.faults.matrix import __main__ as matrix
from tests.faults.matrix import report
from tests.faults.soak import __main__ as soak
from tests.faults.soak import page
from tests.test_house import ROOT


@pytest.mark.parametrize(
    ("path", "results", "made", "command"),
    [
        (
            matrix.PAGE,
            matrix.RESULTS,
            lambda data: report.markdown(report.read(data)),
            "python -m tests.faults.matrix",
        ),
        (
            soak.PAGE,
            soak.RESULTS,
            lambda data: page.page(page.read(data)),
            "python -m tests.faults.soak",
        ),
    ],
    ids=["matrix", "soak"],
)
def test_a_page_is_what_its_results_say(
    path: Path, results: Path, made: Callable[[bytes], str], command: str
) -> None:
    if not results.exists():
        do_without(f"{path.name}: there is no {results.relative_to(ROOT)}; write it: {command}")
    told = path.read_text(encoding="utf-8")
    assert told == made(results.read_bytes()), f"run {command} --again"
