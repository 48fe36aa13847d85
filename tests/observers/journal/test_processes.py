"""Processes that die, fork, or simply end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from queuecraft.observers.journal import Row
from tests.observers.journal import spooled
from tests.observers.journal.spooled import files, rows
from tests.observers.journal.test_spool import locked

OPENING = """
import asyncio, os, signal, sys, time
from queuecraft import Event, Journal, QueueCraft

number = Event("number", int)
qc = QueueCraft("local://", journal=Journal(sys.argv[1], flush_every=0.01))
qc.worker("numbers").on(number, lambda n: None)

def written(count):
    while qc.get_metrics().journal_written < count:
        time.sleep(0.001)
    print("written", os.getpid(), flush=True)

"""


@contextmanager
def program(lake: Path, text: str, failpoint: str = "") -> Generator[subprocess.Popen[str]]:
    environ = {**os.environ, "QUEUECRAFT_FAILPOINT": failpoint}
    with subprocess.Popen(
        [sys.executable, "-c", OPENING + text, str(lake)],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def complete(file: Path) -> list[Row]:
    """The rows up to the last complete line."""
    data = file.read_bytes()
    return spooled.read(data[: data.rfind(b"\n") + 1])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def test_a_killed_process_leaves_an_orphan_with_all_that_was_flushed(lake: Path) -> None:
    text = """
async def main():
    async with qc:
        await qc.publish_many(number, range(1000))
        written(1000)
        while True:
            await qc.publish_many(number, range(1000))

asyncio.run(main())
"""
    with program(lake, text) as process:
        assert said(process).startswith("written")
        (file,) = files(lake, "")
        assert file.suffix == ".open"
        assert locked(file)
        process.kill()
        process.wait()
    assert not locked(file)
    found = complete(file)
    assert len(found) >= 1000
    assert len({row.message_id for row in found}) == len(found)
    assert {row.process for row in found} == {process.pid}


@pytest.mark.parametrize(
    ("failpoint", "ending"), [("before_rename", ".open"), ("after_rename", ".jsonl")]
)
def test_a_process_that_dies_closing_a_file_leaves_it_whole(
    failpoint: str, ending: str, lake: Path
) -> None:
    text = """
async def main():
    async with qc:
        await qc.publish_many(number, range(1000))

asyncio.run(main())
"""
    with program(lake, text, f"journal.{failpoint}") as process:
        assert process.wait(30) == -signal.SIGKILL
    (file,) = files(lake, "")
    assert file.suffix == ending
    assert not locked(file)
    assert len(complete(file)) == 1000
    assert file.read_bytes().endswith(b"\n")


def test_a_program_that_never_shuts_down_loses_nothing_when_it_ends(lake: Path) -> None:
    text = """
async def main():
    await qc.open()
    await qc.publish_many(number, range(1000))

asyncio.run(main())
"""
    with program(lake, text) as process:
        assert process.wait(30) == 0
    assert len(rows(lake)) == 1000


def test_a_fork_writes_a_journal_of_its_own_and_lets_go_of_its_parent_s(lake: Path) -> None:
    text = """
async def main():
    await qc.open()
    await qc.publish_many(number, range(100))
    written(100)

asyncio.run(main())
if os.fork() == 0:
    asyncio.run(main())
    sys.stdin.readline()
else:
    signal.pause()
"""
    with program(lake, text) as process:
        parent, child = (int(said(process).split()[1]) for _ in range(2))
        try:
            assert parent == process.pid != child
            found = {complete(file)[0].process: file for file in files(lake, ".open")}
            assert set(found) == {parent, child}
            assert all(len(complete(file)) == 100 for file in found.values())
            os.kill(parent, signal.SIGKILL)
            process.wait()
            assert not locked(found[parent])
            assert locked(found[child])
        finally:
            os.kill(child, signal.SIGKILL)
