"""A cluster that is not there, or not the one there is, is told at once and in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuecraft.cli.cluster import waiting
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.pipeline.session import spark_session
from tests.brokers.port import Port
from tests.pipeline.cluster.twins import small_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _report(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    small_lake(folder / "lake")
    return subprocess.run(
        [sys.executable, "-m", "queuecraft", "report", "lake", *options],
        cwd=folder,
        # Behind a proxy only the proxy can tell whether somebody answers.
        env={name: value for name, value in os.environ.items() if not name.endswith("_proxy")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_connect_server_that_does_not_answer_is_named_without_the_token(tmp_path: Path) -> None:
    with Port() as port:
        place = f"sc://127.0.0.1:{port.number}"
        told = _report(tmp_path, "--remote", f"{place}/;use_ssl=true;token=s3cret")
    assert told.returncode == 3
    assert told.stderr == (
        f"error: no Spark Connect server answers at '{place}': Connection refused; "
        "is it started, and the address right?\n"
    )


def test_masters_of_which_none_answers_are_named(tmp_path: Path) -> None:
    with Port() as one, Port() as other:
        place = f"spark://127.0.0.1:{one.number},127.0.0.1:{other.number}"
        told = _report(tmp_path, "--master", place)
    assert told.returncode == 3
    assert told.stderr == (
        f"error: no Spark master answers at '{place}': Connection refused; "
        "is it started, and the address right?\n"
    )


def test_a_port_that_is_none_is_told(tmp_path: Path) -> None:
    told = _report(tmp_path, "--remote", "sc://127.0.0.1:many")
    assert told.returncode == 3
    assert "answers at 'sc://127.0.0.1:many'" in told.stderr


def test_a_session_here_and_a_remote_one_exclude_each_other(spark: SparkSession) -> None:
    assert spark.sparkContext.master == "local[*]"
    with pytest.raises(ConfigError, match=r"on 'local\[\*\]' already.* leave out the remote"):
        spark_session(remote="sc://127.0.0.1:15002")


def test_what_spark_complains_of_in_a_command_is_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(QueueError) as caught, waiting("reading the tables"):
        spark.read.parquet(str(tmp_path / "elsewhere"))
    said = caught.value.message
    assert said.startswith("Spark stopped while reading the tables: [PATH_NOT_FOUND]")
    assert said.endswith("has to have the lake at the same path as this machine")
    assert "\n" not in said


def test_what_others_complain_of_stays_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"), waiting("reading the tables"):
        raise KeyError("mine")
