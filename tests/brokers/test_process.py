"""Programs in the background: they obey, and they never outlive the one who started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.process import Process, ProcessFailed, usual_environment

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0

# Starts a program in the folder, tells its process id, and waits.
STARTER = """
import os
import signal
import sys
from pathlib import Path
from tests.brokers.process import Process, usual_environment

folder = Path(sys.argv[1])
process = Process(
    ["sleep", "1000"],
    folder=folder,
    log=folder / "output",
    environment=usual_environment(folder),
)
process.start()
print(process.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a folder").mkdir()
    return tmp_path / "a folder"


@pytest.fixture
def sleeper(folder: Path) -> Iterator[Process]:
    process = make(folder, "sleep", "1000")
    process.start()
    yield process
    process.close()


def make(folder: Path, *command: str) -> Process:
    return Process(
        command, folder=folder, log=folder / "output", environment=usual_environment(folder)
    )


def state(pid: int) -> str:
    """One letter, as `ps` shows it: Z for a dead one whose parent has not looked, X for none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def until(condition) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_runs_until_it_is_killed_and_can_be_started_again(sleeper, folder):
    first = sleeper.pid
    assert sleeper.running
    sleeper.kill()
    assert not sleeper.running
    assert state(first) == "X"
    assert folder.exists()

    sleeper.start()
    assert sleeper.running
    assert sleeper.pid != first


def test_starting_what_runs_changes_nothing(sleeper):
    before = sleeper.pid
    sleeper.start()
    assert sleeper.pid == before


def test_a_frozen_one_stands_still_when_the_call_returns(sleeper):
    for _ in range(2):
        sleeper.send(signal.SIGSTOP)
        assert state(sleeper.pid) == "T"
        sleeper.send(signal.SIGSTOP)
        assert sleeper.running
        sleeper.send(signal.SIGCONT)
        until(lambda: state(sleeper.pid) in "RS")


def test_a_frozen_one_can_be_killed(sleeper):
    sleeper.send(signal.SIGSTOP)
    sleeper.kill()
    assert state(sleeper.pid) == "X"


def test_closing_ends_it_and_removes_its_folder(sleeper, folder):
    sleeper.close()
    assert state(sleeper.pid) == "X"
    assert not folder.exists()


def test_what_it_leaves_running_in_its_group_ends_with_it(folder):
    shell = make(folder, "sh", "-c", "sleep 1000 & echo $!; wait")
    shell.start()
    until(lambda: shell.output.endswith("\n"))
    child = int(shell.output)
    shell.kill()
    until(lambda: state(child) in "XZ")
    shell.close()


def test_its_exit_status_and_output_are_kept(folder):
    shell = make(folder, "sh", "-c", "echo words; exit 3")
    shell.start()
    assert shell.wait(PATIENCE) == 3
    assert shell.output == "words\n"
    with pytest.raises(ProcessFailed, match="start"):
        shell.send(signal.SIGTERM)


def test_a_program_that_does_not_exist_says_so(folder):
    with pytest.raises(ProcessFailed, match="no-such-program"):
        make(folder, "no-such-program").start()


def test_it_is_out_of_reach_of_a_terminal(sleeper):
    assert os.getsid(sleeper.pid) not in (os.getsid(0), 0)


@pytest.fixture
def starter(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, folder], cwd=ROOT, stdout=subprocess.PIPE
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_the_process_that_started_it(starter, folder, number):
    pid = int(starter.stdout.readline())
    assert state(pid) not in "XZ"
    starter.send_signal(number)
    until(lambda: state(pid) in "XZ")
    until(lambda: not folder.exists())


def test_it_ends_even_if_a_fork_of_that_process_lives_on(folder):
    program = STARTER.replace(
        "print(process.pid", "child = os.fork()\nif child:\n    print(child, process.pid"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, folder], cwd=ROOT, stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        fork, pid = map(int, starter.stdout.readline().split())
        try:
            starter.kill()
            until(lambda: state(pid) in "XZ")
            assert state(fork) not in "XZ"
        finally:
            os.kill(fork, signal.SIGKILL)


def test_it_ends_when_the_leash_is_asked_to(folder):
    process = make(folder, "sleep", "1000")
    process.start()
    assert process._leash is not None
    process._leash.terminate()
    process.wait(PATIENCE)
    assert state(process.pid) == "X"
    assert not folder.exists()
