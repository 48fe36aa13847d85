"""The Spark that a command runs on: this machine, a cluster, or a Spark Connect server."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console

from queuecraft.cli.output import on_terminal
from queuecraft.model.errors import QueueError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="A Spark cluster, as spark://host:7077. Without it, this machine.",
        show_default=False,
    ),
]
Remote: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="URL",
        help="A Spark Connect server, as sc://host:15002.",
        show_default=False,
    ),
]


# Half of the processor time of a short job goes into compiling it well.
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def session(master: str | None, remote: str | None, *, quick: bool = False) -> SparkSession:
    """A Spark session that keeps quiet: what it has to say comes as an exception. `quick` is for
    work that takes seconds: on this machine it starts faster, and is slower in the long run."""
    from queuecraft.pipeline.session import spark_session

    here = master is None and remote is None
    settings = QUICK if quick and here else None
    with waiting("starting Spark"), _aside(), _uninterrupted():
        return spark_session(master=master, remote=remote, settings=settings)


@contextmanager
def waiting(what: str) -> Generator[Callable[[str], None]]:
    """Show what is being waited for, where a person looks on; call it with what comes next. What
    Spark complains of comes as a `QueueError`."""
    if not on_terminal(sys.stderr):
        with _in_a_sentence(what):
            yield lambda then: None
        return
    # A way of its own to the terminal, as standard error may be led elsewhere meanwhile.
    with (
        _in_a_sentence(what),
        open(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as screen,
        Console(file=screen).status(what) as shown,
    ):
        yield shown.update


@contextmanager
def _in_a_sentence(what: str) -> Generator[None]:
    try:
        yield
    except Exception as error:
        spark = sys.modules.get("pyspark.errors")
        if spark is None or not isinstance(error, spark.PySparkException):
            raise
        told = str(error).strip().partition("\n")[0].rstrip(".")
        hint = ""
        if "PATH_NOT_FOUND" in told:
            hint = "; a cluster or server has to have the lake at the same path as this machine"
        raise QueueError(f"Spark stopped while {what}: {told}{hint}") from error


@contextmanager
def _uninterrupted() -> Generator[None]:
    """Keep a Ctrl-C until the end: in the middle, it would leave a Java behind that waits for us
    for ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def note(number: int, frame: object) -> None:
        nonlocal asked
        asked = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


@contextmanager
def _aside() -> Generator[None]:
    """Lead the standard error of processes started in here away from the terminal: Java and Spark
    greet it with warnings that nobody can do anything about."""
    if os.environ.get("QUEUECRAFT_DEBUG") or "--debug" in sys.argv:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as told:
        try:
            os.dup2(told.fileno(), 2)
            yield
        except Exception:
            # Then it may be all that tells why.
            os.dup2(kept, 2)
            told.seek(0)
            os.write(2, told.read()[-8000:])
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
