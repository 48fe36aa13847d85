"""A Spark session: on this machine with no set-up, or on the cluster that is named."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.python.filterPushdown.enabled": "true",
}
HERE: Mapping[str, str] = {  # one machine: no ports to be found by, few partitions, a quick start
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}


def spark_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    name: str = "queuecraft",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, made if there is none. `master` is Spark's own URL of a cluster,
    `remote` that of a Spark Connect server (`sc://…`); neither is this machine, unless
    `spark-submit` has said otherwise.

    Raises `ConfigError` if Spark or Java is missing, or if the session there is has another master.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError("Spark is not installed; pip install 'queuecraft[spark]'") from None
    if master is not None and remote is not None:
        raise ConfigError("a session has a master or is remote, not both")
    if master is not None and (running := SparkSession.getActiveSession()) is not None:
        _check_master(master, running.sparkContext.master or "")
    builder = SparkSession.builder.appName(name)
    if remote is not None:
        _check_remote(remote)
        builder = builder.remote(remote)
    else:
        submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # by spark-submit, which chose the master
        if not submitted:
            os.environ["JAVA_HOME"] = str(find_java())
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
            builder = builder.master(master or LOCAL)
            if (master or LOCAL).startswith("local"):
                for key, value in HERE.items():
                    builder = builder.config(key, value)
        elif master is not None:
            builder = builder.master(master)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _check_master(wanted: str, running: str) -> None:
    """A process has one session; how many cores it takes of its own machine is no matter."""
    if wanted != running and not (wanted.startswith("local") and running.startswith("local")):
        raise ConfigError(
            f"this process has a session on {running!r} already, and can have no other on "
            f"{wanted!r}; stop it first, or leave out the master"
        )


def _check_remote(remote: str) -> None:
    if not remote.startswith(("sc://", "local")):
        raise ConfigError(
            "a Spark Connect server has a URL such as 'sc://spark.example:15002'; for a cluster "
            "that is joined directly, name its master"
        )
    from importlib.util import find_spec

    if find_spec("grpc") is None:
        raise ConfigError(
            "Spark Connect needs more than Spark itself; pip install 'queuecraft[connect]'"
        )
