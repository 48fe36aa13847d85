"""Stop the world at a named place: fail there, or die there."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager

from queuecraft import failpoints


class Failed(Exception):
    """What a failpoint raises when the test names no error of its own."""


class Passes:
    """How often an armed place was passed.

    >>> with failing("ack.before", times=0) as passes:
    ...     failpoints.failpoint("ack.before")
    >>> passes.count
    1
    """

    def __init__(self) -> None:
        self.count = 0


@contextmanager
def failing(
    name: str,
    error: BaseException | type[BaseException] | None = None,
    *,
    times: int | None = None,
    skip: int = 0,
) -> Generator[Passes]:
    """Raise `error` at the named place while the block runs.

    The first `skip` passes go well; after `times` failures the rest go well again.

    >>> with failing("move.after_send", OSError("the disk is full"), times=1) as passes:
    ...     try:
    ...         failpoints.failpoint("move.after_send")
    ...     except OSError as error:
    ...         print(error)
    ...     failpoints.failpoint("move.after_send")
    the disk is full
    >>> passes.count
    2
    """
    passes = Passes()
    raised = Failed(f"failpoint {name!r}") if error is None else error

    def act() -> None:
        passes.count += 1
        if passes.count > skip and (times is None or passes.count <= skip + times):
            raise raised

    with _armed(name, act):
        yield passes


@contextmanager
def killed_at(name: str, *, skip: int = 0) -> Generator[None]:
    """Die at the named place as by `kill -9`, after `skip` passes; for use in a child process.

    >>> with killed_at("move.after_send"):
    ...     pass  # nothing passes there: we live
    """
    passed = 0

    def act() -> None:
        nonlocal passed
        passed += 1
        if passed > skip:
            failpoints.arm(name)  # armed with nothing of our own, it kills
            failpoints.failpoint(name)

    with _armed(name, act):
        yield


def to_be_killed_at(name: str) -> dict[str, str]:
    """The environment for a child process that is to die at the named place.

    >>> to_be_killed_at("ack.before")["QUEUECRAFT_FAILPOINT"]
    'ack.before'
    """
    return {**os.environ, "QUEUECRAFT_FAILPOINT": name}


@contextmanager
def _armed(name: str, action: Callable[[], None]) -> Generator[None]:
    failpoints.arm(name, action)
    try:
        yield
    finally:
        failpoints.disarm(name)
