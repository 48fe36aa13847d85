"""One job at a time on a lake."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager

from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.jobs.anew import begin_anew
from queuecraft.pipeline.jobs.errors import NotNow
from queuecraft.pipeline.jobs.swap import finish_swaps
from queuecraft.pipeline.lake import Lake


@contextmanager
def alone(lake: Lake) -> Generator[Lake]:
    """Keep other jobs from a lake for as long as the block runs, and finish first what a job that
    died has left half done; one whose checkpoints were removed is made to start over. The lake it
    gives is the same, by a path that holds in every folder: a Spark Connect server has its own.

    Raises `ConfigError` if there is no lake, `NotNow` if another job is at work.
    """
    if not lake.root.is_dir():
        raise ConfigError(f"there is no lake at {lake.root}; is the path right?")
    lake.checkpoints.mkdir(exist_ok=True)
    number = os.open(lake.checkpoints / ".lock", os.O_CREAT | os.O_RDWR, 0o666)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotNow(
                f"another job is at work on the lake at {lake.root}; wait until it has ended"
            ) from None
        finish_swaps(lake)
        begin_anew(lake)
        yield Lake(lake.root.absolute())
    finally:
        os.close(number)
