"""`queuecraft lake ingest`, as far as it needs no Spark."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from queuecraft.cli.lake import ingest as command
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.pipeline.jobs.alone import alone
from queuecraft.pipeline.jobs.errors import NotNow
from queuecraft.pipeline.jobs.ingest import Ingested
from queuecraft.pipeline.lake import Lake
from tests.cli.shell import Shell

BUSY = NotNow("another job is at work on the lake; wait until it has ended")
UNREADABLE = NotNow("a.parquet cannot be read now")
NEW = Ingested(segments=1, rows=2)
GONE = ConfigError("there is no lake here; is the path right?")


@pytest.fixture(autouse=True)
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "session", lambda master, remote: None)
    Path("lake").mkdir()
    return Lake.at("lake")


def rounds(monkeypatch: pytest.MonkeyPatch, outcomes: Iterable[Ingested | QueueError]) -> None:
    """Let the rounds of an ingest end like this."""
    left = iter(outcomes)

    def ingest(spark: object, lake: Lake) -> Ingested:
        outcome = next(left)
        if isinstance(outcome, QueueError):
            raise outcome
        return outcome

    monkeypatch.setattr(command, "_ingest", ingest)


def test_what_passes_is_told_once_and_does_not_end_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds(monkeypatch, [BUSY, BUSY, BUSY, UNREADABLE, NEW, BUSY, GONE])
    result = shell("lake", "ingest", "lake", "--every", "1ms")
    assert result.exit_code == 2
    assert result.stdout == "Ingested 2 rows from 1 segment of lake in 0.0 s.\n"
    assert result.stderr.splitlines() == [
        f"note: {BUSY}; trying again every 0.001 s",
        f"note: {UNREADABLE}; trying again every 0.001 s",
        f"note: {BUSY}; trying again every 0.001 s",
        f"error: {GONE}",
    ]


def test_programs_are_told_of_it_in_json(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds(monkeypatch, [BUSY, GONE])
    result = shell("lake", "ingest", "lake", "--every", "1ms", "--json")
    passing, last = map(json.loads, result.stderr.splitlines())
    assert passing == {"note": f"{BUSY}; trying again every 0.001 s"}
    assert (last["kind"], last["exit_code"]) == ("ConfigError", 2)


def test_what_somebody_has_to_mend_ends_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds(monkeypatch, [QueueError("there is more than one segment 'a.parquet'")])
    result = shell("lake", "ingest", "lake", "--every", "1ms")
    assert result.exit_code == 1
    assert "more than one segment" in result.stderr


def test_a_single_round_ends_when_another_job_is_at_work(shell: Shell, lake: Lake) -> None:
    with alone(lake):
        result = shell("lake", "ingest", "lake", "--once")
    assert result.exit_code == 1
    assert "another job is at work on the lake" in result.stderr


def test_a_round_that_finds_another_job_at_work_is_followed_by_the_next(
    shell: Shell, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, tries = command._ingest, itertools.count(1)

    def ingest(spark: Any, lake: Lake) -> Ingested:
        if next(tries) == 3:
            raise GONE
        return work(spark, lake)

    monkeypatch.setattr(command, "_ingest", ingest)
    with alone(lake):
        result = shell("lake", "ingest", "lake", "--every", "1ms")
    assert (next(tries), result.exit_code) == (4, 2)
    assert result.stderr.count("another job is at work on the lake") == 1
