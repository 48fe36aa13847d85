"""The Spark that a command runs on: this machine, a cluster, or a Spark Connect server."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console

from queuecraft.cli.output import on_terminal

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
    with waiting("starting Spark"), _aside():
        return spark_session(master=master, remote=remote, settings=settings)


@contextmanager
def waiting(what: str) -> Generator[Callable[[str], None]]:
    """Show what is being waited for, where a person looks on; call it with what comes next."""
    if not on_terminal(sys.stderr):
        yield lambda then: None
        return
    # A way of its own to the terminal, as standard error may be led elsewhere meanwhile.
    with (
        open(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as screen,
        Console(file=screen).status(what) as shown,
    ):
        yield shown.update


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
