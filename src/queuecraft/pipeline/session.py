"""A Spark session: on this machine with no set-up, or on the cluster that is named."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from queuecraft.model.errors import ConfigError, ConnectionLost
from queuecraft.pipeline.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
CONNECT_PORT = 15002
MASTER_PORT = 7077
PATIENCE = 10.0  # seconds for a cluster to take a connection
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

    Raises `ConfigError` if Spark or Java is missing, or if the session there is has another master,
    and `ConnectionLost` if nothing answers where the cluster should be.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError("Spark is not installed; pip install 'queuecraft[spark]'") from None
    if master is not None and remote is not None:
        raise ConfigError("a session has a master or is remote, not both")
    if remote is not None:
        _check_remote(remote)
    running = SparkSession.getActiveSession()
    if running is not None:
        _check_running(running, master, remote)
    builder = SparkSession.builder.appName(name)
    if remote is not None:
        _check_answers(remote, "sc://", CONNECT_PORT, "Spark Connect server")
        builder = builder.remote(remote)
    elif running is not None and _is_remote(running):
        for key, value in {**SETTINGS, **(settings or {})}.items():
            running.conf.set(key, value)
        return running
    else:
        if master is not None and running is None:
            _check_answers(master, "spark://", MASTER_PORT, "Spark master")
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


def _check_running(running: SparkSession, master: str | None, remote: str | None) -> None:
    """A process has one session; how many cores it takes of its own machine is no matter."""
    if _is_remote(running):
        here, other = "a Spark Connect server", master
    else:
        here = running.sparkContext.master or ""
        alike = master == here or ((master or "").startswith("local") and here.startswith("local"))
        other = remote if master is None or alike else master
        here = repr(here)
    if other is not None:
        raise ConfigError(
            f"this process has a session on {here} already, and can have no other on "
            f"{_shown(other)!r}; stop it first, or leave out the {'remote' if remote else 'master'}"
        )


def _is_remote(session: SparkSession) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect.")


def _check_answers(url: str, scheme: str, port: int, what: str) -> None:
    """Spark itself tries for a minute, or for ten, and says nothing meanwhile."""
    proxied = any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy"))
    if not url.startswith(scheme) or (scheme == "sc://" and proxied):
        return
    wrong = ""
    # A cluster may have several masters, of which one answers.
    for place in _shown(url).removeprefix(scheme).split(","):
        try:
            parts = urlsplit(f"//{place}")
            address = (parts.hostname or "", parts.port or port)
            with socket.create_connection(address, timeout=PATIENCE):
                return
        except (OSError, ValueError) as error:
            wrong = getattr(error, "strerror", None) or str(error)
    raise ConnectionLost(
        f"no {what} answers at {_shown(url)!r}: {wrong}; is it started, and the address right?"
    )


def _shown(url: str) -> str:
    """Without what is around the address, a token perhaps."""
    scheme, _, rest = url.partition("://")
    place = rest.partition("/")[0].partition(";")[0].rpartition("@")[2]
    return f"{scheme}://{place}" if rest else url


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
