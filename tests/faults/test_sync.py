"""A publish that has returned is on the disk, not on its way: a power cut cannot take it.

No kill can show this, because what a dead process has written stays in the memory of the machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.faults.nursery import environment
from tests.faults.publisher import PublisherOptions
from tests.faults.trace import OPTIONS, Call, calls, unsynced

JOBS = 12
MARKER = r"\"what\":\"published\""


@pytest.fixture(scope="session")
def strace() -> str:
    found = shutil.which("strace")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-qq", "-y", "strace"], check=False)
        found = shutil.which("strace")
    if found is None:
        pytest.skip("NOT PROVEN that publishes are synced: strace is missing; apt install strace")
    probe = subprocess.run([found, "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("NOT PROVEN that publishes are synced: strace may not trace here (ptrace)")
    return found


def traced(strace: str, folder: Path, program: str) -> tuple[list[Call], str]:
    """What a publisher does, and the name of the log it writes to."""
    file = folder / "queue.db"
    told = PublisherOptions(
        url=f"local://{file}", folder=str(folder), in_flight=1, jobs=JOBS, pace=0
    )
    trace = folder / "trace"
    command = [sys.executable, "-m", f"tests.faults.{program}", msgspec.json.encode(told).decode()]
    subprocess.run(
        [strace, *OPTIONS, "-o", str(trace), *command],
        env=environment(),
        check=True,
        timeout=50,
    )
    return calls(trace.read_text(encoding="utf-8").splitlines()), f"{file}-wal"


def test_every_publish_is_synced_before_it_returns(strace: str, tmp_path: Path) -> None:
    seen, log = traced(strace, tmp_path, "publisher")

    assert unsynced(seen, log, MARKER) == []
    published = [call for call in seen if MARKER in call.text]
    assert len(published) == JOBS
    # The log was made by this process: without its entry in the folder it would be gone.
    made = next(call for call in seen if call.path == log)
    assert any(
        call.path == str(tmp_path) and call.result == 0
        for call in seen
        if made.ended < call.begun and call.ended < published[0].begun
    )


def test_a_publisher_that_does_not_sync_is_found_out(strace: str, tmp_path: Path) -> None:
    seen, log = traced(strace, tmp_path, "careless")

    wrong = unsynced(seen, log, MARKER)
    assert len(wrong) >= JOBS - 1  # a checkpoint may come to the help of one
    assert all(each.endswith("returned before it was synced") for each in wrong)


WRITE = '1 pwrite64(5</a-wal>, "...", 24, 0) = 24'
SYNC = "1 fdatasync(5</a-wal>) = 0"
PUBLISHED = '1 write(7</1.page>, "{\\"what\\":\\"published\\"}\\n", 20) = 20'
ELSEWHERE = "1 fdatasync(6</b-wal>) = 0"


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ([WRITE, SYNC, PUBLISHED], []),
        ([WRITE, SYNC, PUBLISHED, WRITE, SYNC, PUBLISHED], []),
        ([WRITE, PUBLISHED, SYNC], ["publish 1: returned before it was synced"]),
        ([WRITE, SYNC, WRITE, PUBLISHED], ["publish 1: returned before it was synced"]),
        ([WRITE, ELSEWHERE, PUBLISHED], ["publish 1: returned before it was synced"]),
        ([WRITE, SYNC, PUBLISHED, PUBLISHED], ["publish 2: nothing was written"]),
        (
            [WRITE, "1 fdatasync(5</a-wal>) = -1 EIO (Input/output error)", PUBLISHED],
            ["publish 1: returned before it was synced"],
        ),
        (
            [
                WRITE,
                "1 fdatasync(5</a-wal> <unfinished ...>",
                PUBLISHED.replace("1 write", "2 write"),
                "1 <... fdatasync resumed>) = 0",
            ],
            ["publish 1: returned before it was synced"],
        ),
        (
            [
                WRITE,
                "1 fdatasync(5</a-wal> <unfinished ...>",
                "2 fsync(9</c> <unfinished ...>",
                "1 <... fdatasync resumed>)        = 0",
                PUBLISHED,
            ],
            [],
        ),
        ([WRITE, SYNC], ["nothing was published"]),
    ],
)
def test_a_trace_is_read_for_what_it_shows(lines: list[str], wrong: list[str]) -> None:
    assert unsynced(calls(lines), "/a-wal", MARKER) == wrong
