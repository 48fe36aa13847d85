"""The page about Kafka: its program runs."""

from __future__ import annotations

from pathlib import Path

from tests.docs.blocks import changed, left_to
from tests.test_house import run


def test_the_first_program_runs(url: str, tmp_path: Path) -> None:
    (program,) = left_to(__file__, "docs/kafka.md")
    here = {"kafka://one:9092,two:9092?prefix=shop.": url}
    status, output = run(changed(program, here, stop_after="charged o-1"), tmp_path)
    assert (status, output) == (0, "charged o-1\n")
