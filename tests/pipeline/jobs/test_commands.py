"""The commands that keep a lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from queuecraft.cli import app
from queuecraft.pipeline.lake import Lake
from tests.pipeline.rows import business, delivered, in_segments, published, write_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(180)  # on a busy machine Spark takes its time


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["lake", *map(str, arguments)])


def told(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.faults  # each job has tests of its own
def test_a_lake_is_ingested_compacted_and_expired(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    in_segments(lake, business(8), 4)
    (lake.segments / "date=2026-03-02" / "torn.parquet").touch()

    result = run("ingest", lake.root, "--once")
    assert result.exit_code == 0, result.output
    assert f"from 5 segments of {lake.root}" in result.stdout
    assert "In quarantine: 1 row, among them 1 segment that cannot be read." in result.stdout
    assert run("ingest", lake.root, "--once").stdout == f"Nothing is new in {lake.root}.\n"

    assert told("compact", lake.root)["segments_after"] == 1
    assert "nothing to put together" in run("compact", lake.root).stdout

    planned = told("expire", lake.root, "--older-than", "1d", "--dry-run")
    assert (planned["segments"], planned["dry_run"]) == (1, True)
    refused = run("expire", lake.root, "--older-than", "1d")
    assert refused.exit_code == 2
    assert "say --yes if that is meant" in refused.stderr
    result = run("expire", lake.root, "--older-than", "1d", "--yes")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Removed 1 segment and up to ")
    assert "Nothing in" in run("expire", lake.root, "--older-than", "1d").stdout


@pytest.mark.faults
def test_programs_are_told_in_json(spark: SparkSession, tmp_path: Path) -> None:
    write_rows(Lake.at(tmp_path), [published("m-1"), delivered("m-1")])
    done = told("ingest", tmp_path, "--once")
    assert (done["rows"], done["segments"], done["torn"], done["quarantined"]) == (2, 1, 0, 0)


@pytest.mark.parametrize(
    "command", [("ingest", "--once"), ("compact",), ("expire", "--older-than", "1d")]
)
def test_a_path_that_leads_nowhere_is_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    name, *options = command
    result = run(name, tmp_path / "nowhere", *options)
    assert result.exit_code == 2
    assert f"there is no lake at '{tmp_path / 'nowhere'}'" in result.stderr.replace("\n", "")
