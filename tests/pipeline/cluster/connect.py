"""A Spark Connect server on this machine, whose executors are those of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

from tests.brokers.port import Port
from tests.pipeline.cluster.daemon import Daemon
from tests.pipeline.cluster.standalone import DEFAULTS, Cluster


@contextmanager
def connect_server(cluster: Cluster) -> Generator[str]:
    """The URL of a server that runs until the end of the block."""
    with Port() as port:
        settings = {
            **DEFAULTS,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port.number),
        }
        given = [f"--conf={name}={value}" for name, value in settings.items()]
        with Daemon(
            *("org.apache.spark.deploy.SparkSubmit", "--master", cluster.url, *given),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            ready="Spark Connect server started",
            environment={"PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "768m"},
        ):
            yield f"sc://127.0.0.1:{port.number}"
