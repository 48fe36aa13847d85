"""A cluster on this machine: a master, and workers that run the executors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from queuecraft.pipeline.java import find_java
from tests.brokers.port import Port
from tests.pipeline.cluster.daemon import HOME, SPARING, Daemon

WORKERS: Final = 2

# As an operator would have them: a program knows nothing of the cluster but its address.
DEFAULTS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": SPARING,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": SPARING,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
}


class Cluster:
    """One master and two workers with a core each. Executors have the variables of the workers."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._stack = ExitStack()
        self.url = ""
        self.master: Daemon

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            port, page = stack.enter_context(Port()), stack.enter_context(Port())
            self.url = f"spark://127.0.0.1:{port.number}"
            where = ("--host", "127.0.0.1", "--port", str(port.number))
            self.master = stack.enter_context(
                Daemon(
                    "org.apache.spark.deploy.master.Master",
                    *(*where, "--webui-port", str(page.number)),
                    ready="I have been elected leader",
                )
            )
            for _ in range(WORKERS):
                stack.enter_context(self._worker(stack.enter_context(Port())))
            self.master.wait_for("Registering worker", WORKERS)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _worker(self, page: Port) -> Daemon:
        return Daemon(
            "org.apache.spark.deploy.worker.Worker",
            *("--host", "127.0.0.1", "--webui-port", str(page.number)),
            *("--cores", "1", "--memory", "600m", self.url),
            ready="Successfully registered with master",
            environment=self._variables,
        )


def run(
    *command: str, folder: Path, settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program as a user of the cluster does, in a folder of its own, which knows of no
    connection to a broker."""
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    lines = [f"{name} {value}" for name, value in {**DEFAULTS, **(settings or {})}.items()]
    (conf / "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    known = {name: value for name, value in os.environ.items() if "QUEUECRAFT" not in name}
    return subprocess.run(
        command,
        cwd=folder,
        env={
            **known,
            "JAVA_HOME": str(find_java()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(HOME),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
