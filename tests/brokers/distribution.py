"""Kafka as Maven has it, fetched once for all checkouts of this user."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.java import find_java
from tests.brokers.installation import KAFKA, MAVEN, Unavailable, ensure

VERSION = "4.3.1"
CREDENTIALS = ("guest", "guest")
PATIENCE = 600.0  # some forty megabytes, over whatever line there is

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>queuecraft</groupId>
  <artifactId>kafka-to-test-against</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{version}</version>
    </dependency>
    <!-- The least that makes it say what is wrong. -->
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
  <build>
    <plugins>
      <plugin>
        <artifactId>maven-dependency-plugin</artifactId>
        <version>3.8.1</version>
      </plugin>
    </plugins>
  </build>
</project>
"""

# Nothing of this is in what is formatted but the number of the node.
_FORMATTED = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
log.dirs={folder}
"""

# It lives for minutes: compiling well and collecting in parallel would cost more than they bring.
_BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx512m")

# As Kafka's own script starts it.
_LASTING = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Xms1g", "-Xmx1g")


@dataclass(frozen=True, slots=True)
class Distribution:
    """The jars, a folder as a new broker wants it, and the classes that a start needs, unpacked.

    The last two save a start of Java and half of the other: a broker is there after two seconds.
    """

    folder: Path

    @classmethod
    def get(cls) -> Self:
        """The one in the cache; what it lacks is fetched and made, or `Unavailable` says why not.

        Others may be about to do the same, and wait for each other.
        """
        found = cls(_cache() / f"kafka-{VERSION}")
        ensure(KAFKA if found.jars.exists() else (*KAFKA, MAVEN))
        if not (found.jars.exists() and found.data.exists()):
            with found._locked():
                found._complete()
        return found

    @property
    def jars(self) -> Path:
        return self.folder / "jars"

    @property
    def data(self) -> Path:
        """What a broker starts from: a copy of this. It knows a user by name and password."""
        return self.folder / "data"

    @property
    def classes(self) -> Path:
        """For `-XX:SharedArchiveFile`; a Java that did not make it ignores it."""
        return self.folder / "classes.jsa"

    def command(
        self, name: str, *arguments: str, options: tuple[str, ...] = (), lasting: bool = False
    ) -> list[str]:
        """How a class of it is run: to be there soon, or, lasting, to do well in the long run."""
        return [
            *(_java(), *(_LASTING if lasting else _BRIEF), *options),
            *("-Djava.net.preferIPv4Stack=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
            *("-cp", f"{self.jars}/*", name, *arguments),
        ]

    @contextmanager
    def _locked(self) -> Generator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / "lock").open("w", encoding="ascii")
        except OSError as error:
            raise Unavailable(
                f"{self.folder} cannot be written: {error.strerror}; "
                "set XDG_CACHE_HOME to a folder that can"
            ) from None
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _complete(self) -> None:
        # Whatever is found under its own name is whole: it was renamed to it when it was.
        with tempfile.TemporaryDirectory(prefix=".new-", dir=self.folder) as name:
            new = Path(name)
            if not self.jars.exists():
                self._fetch(new)
            if not self.data.exists():
                self._format(new)

    def _fetch(self, new: Path) -> None:
        (new / "pom.xml").write_text(_POM.format(version=VERSION), encoding="ascii")
        maven = MAVEN.find()
        assert maven is not None
        failure = _run(
            *(maven, "--batch-mode", "--quiet", "-Dstyle.color=never"),
            *("--file", str(new / "pom.xml"), "dependency:copy-dependencies"),
            *("-DincludeScope=runtime", f"-DoutputDirectory={new / 'jars'}"),
        )
        if failure:
            raise Unavailable(
                f"mvn cannot fetch Kafka {VERSION} ({failure}); "
                "name a repository it can reach in its settings.xml"
            )
        (new / "jars").rename(self.jars)

    def _format(self, new: Path) -> None:
        user, password = CREDENTIALS
        settings = new / "server.properties"
        settings.write_text(_FORMATTED.format(folder=new / "data"), encoding="utf-8")
        failure = _run(
            *self.command(
                "kafka.tools.StorageTool",
                *("format", "--config", str(settings), "--cluster-id", "QueueCraft-tests-----w"),
                *("--add-scram", f"SCRAM-SHA-256=[name={user},password={password}]"),
                options=(f"-XX:ArchiveClassesAtExit={new / 'classes.jsa'}",),
            )
        )
        if failure:
            raise Unavailable(f"Kafka {VERSION} cannot be prepared ({failure}); try another Java")
        if (new / "classes.jsa").exists():
            (new / "classes.jsa").replace(self.classes)
        (new / "data").rename(self.data)


def _run(*command: str) -> str:
    """The first line of what a program complains of; empty if all went well."""
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {PATIENCE:.0f} seconds"
    if not answer.returncode:
        return ""
    lines = answer.stdout.strip().splitlines()
    return lines[0].rpartition("[ERROR] ")[2] if lines else f"exit status {answer.returncode}"


def _java() -> str:
    try:
        return str(find_java() / "bin" / "java")
    except ConfigError:
        raise Unavailable(
            "no Java 17 or newer; run: sudo apt-get install openjdk-17-jre-headless"
        ) from None


def _cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path("~/.cache").expanduser()) / "queuecraft"
