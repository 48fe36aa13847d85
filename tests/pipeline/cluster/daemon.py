"""A program of Spark's that runs in the background, started from the jars that PySpark brings."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from queuecraft.pipeline.java import find_java
from tests.brokers.process import Process, ProcessFailed, usual_environment

HOME: Final = Path(pyspark.__file__).parent
PATIENCE: Final = 90.0
SPARING: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Daemon:
    """`spark-class` with these arguments, on loopback, in a temporary folder of its own. It is up
    when it has said `ready`."""

    def __init__(
        self, *arguments: str, ready: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="queuecraft-spark-"))
        self._ready = ready
        self._process = Process(
            [str(HOME / "bin" / "spark-class"), *arguments],
            folder=self.folder,
            log=self.folder / "log",
            environment={
                **usual_environment(self.folder),
                "JAVA_HOME": str(find_java()),
                "SPARK_HOME": str(HOME),
                "SPARK_LOCAL_IP": "127.0.0.1",  # pages for browsers would be open to all else
                "SPARK_PUBLIC_DNS": "127.0.0.1",
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": f"{SPARING} -Dspark.master.rest.enabled=false",
                **(environment or {}),
            },
        )

    def __enter__(self) -> Self:
        try:
            self._process.start()
            self.wait_for(self._ready)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it, and remove its folder, also if it has ended by itself."""
        self._process.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def output(self) -> str:
        """Everything it has said."""
        return self._process.output

    def wait_for(self, text: str, times: int = 1) -> None:
        """Until it has said this so many times."""
        deadline = time.monotonic() + PATIENCE
        while self.output.count(text) < times:
            if not self._process.running or time.monotonic() > deadline:
                raise ProcessFailed(f"it did not say {text!r}:\n{self.output[-4000:]}")
            time.sleep(0.05)
