from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.session import spark_session
from queuecraft.pipeline.source.site import Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_counts(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert Site.of(spark) == Site(local=True, slots=os.cpu_count(), filters=True)


def test_there_is_one_session_and_it_stays_where_it_is(spark: SparkSession) -> None:
    assert spark_session().sparkContext is spark.sparkContext
    assert spark_session(master="local[1]").sparkContext is spark.sparkContext
    with pytest.raises(ConfigError, match=r"has a session on 'local\[\*\]' already"):
        spark_session(master="spark://elsewhere:7077")


def test_a_session_is_joined_in_one_way() -> None:
    with pytest.raises(ConfigError, match="a master or is remote, not both"):
        spark_session(master="local[1]", remote="sc://spark")
    with pytest.raises(ConfigError, match=r"a URL such as 'sc://spark\.example"):
        spark_session(remote="spark://elsewhere:7077")


def test_without_spark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ConfigError, match=r"pip install 'queuecraft\[spark\]'"):
        spark_session()


def test_without_java_it_says_so_before_spark_is_started(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", "from queuecraft.pipeline.session import *; spark_session()"],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path), "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Spark needs Java 17 or newer" in told.stderr.splitlines()[-1]


def test_the_library_is_imported_without_spark_and_arrow() -> None:
    code = (
        "import sys, queuecraft, queuecraft.pipeline, queuecraft.pipeline.connections\n"
        "assert not {'pyspark', 'pyarrow', 'pandas'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
