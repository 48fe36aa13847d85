"""Failing, and dying, at a named place."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from queuecraft.failpoints import failpoint
from queuecraft.testing import failing, killed_at, to_be_killed_at
from queuecraft.testing.failpoints import Failed


def passes(name: str, times: int) -> list[bool]:
    """Whether each pass goes well."""
    went: list[bool] = []
    for _ in range(times):
        try:
            failpoint(name)
            went.append(True)
        except Failed:
            went.append(False)
    return went


def test_it_fails_there_and_nowhere_else() -> None:
    with failing("ack.before"):
        failpoint("ack.after")
        with pytest.raises(Failed, match=r"ack\.before"):
            failpoint("ack.before")


def test_it_is_disarmed_when_the_block_ends_however_it_ends() -> None:
    with failing("ack.before"):
        pass
    failpoint("ack.before")
    with pytest.raises(KeyError), failing("ack.before"):
        raise KeyError
    failpoint("ack.before")


def test_some_passes_may_go_well_before_and_after() -> None:
    with failing("ack.before", skip=1, times=2) as seen:
        assert passes("ack.before", 5) == [True, False, False, True, True]
    assert seen.count == 5


@pytest.mark.parametrize("error", [OSError("disk"), OSError, KeyboardInterrupt])
def test_the_error_is_the_tests_choice(error: BaseException | type[BaseException]) -> None:
    expected = error if isinstance(error, type) else type(error)
    with failing("ack.before", error), pytest.raises(expected):
        failpoint("ack.before")


PASS_THREE_TIMES = """
from queuecraft.failpoints import failpoint
from queuecraft.testing import killed_at
import sys

with killed_at("ack.before", skip=int(sys.argv[1])):
    for number in range(3):
        print(number, flush=True)
        failpoint("ack.before")
"""


@pytest.mark.parametrize(("skip", "lines"), [("0", 1), ("2", 3)])
def test_a_child_dies_there_as_by_kill_9(skip: str, lines: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PASS_THREE_TIMES, skip], capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(done.stdout.split()) == lines


def test_a_child_can_be_armed_from_outside() -> None:
    program = "from queuecraft.failpoints import failpoint; failpoint('move.after_send')"
    done = subprocess.run(
        [sys.executable, "-c", program], env=to_be_killed_at("move.after_send"), check=False
    )
    assert done.returncode == -signal.SIGKILL


def test_who_does_not_pass_there_lives() -> None:
    with killed_at("ack.before"):
        failpoint("ack.after")
    failpoint("ack.before")
