"""Rows get to the disk, or are counted; nothing else ever happens."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from queuecraft import Event, Journal, QueueCraft
from queuecraft.observers.journal import Line, writer
from queuecraft.observers.journal.lines import Note
from queuecraft.observers.journal.writer import TOGETHER, Writer
from tests.observers.journal.spooled import files, rows

OFTEN = 0.01


def until(condition: Callable[[], object], timeout: float = 20.0) -> None:
    """Return once the condition holds: another thread makes it so."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {timeout:g} s"
        time.sleep(0.001)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def begun(lake: Path) -> Generator[Callable[..., Writer]]:
    writers: list[Writer] = []

    def begin(**options: Any) -> Writer:
        writers.append(Writer(Journal(lake, **options), logging.getLogger("queuecraft")))
        return writers[-1]

    yield begin
    for each in writers:
        each.close()


def note(count: int = 1, size: int = 0) -> Note:
    row = Line("published", 1.5, "m" * size)
    return Note(count, lambda: [row] * count)


def are_closed(lake: Path, count: int) -> bool:
    return len(files(lake)) == count


def are_dropped(one: Writer, count: int) -> bool:
    return one.dropped == count


def test_what_is_noted_is_written_within_a_second(lake: Path, begun: Any) -> None:
    one = begun(flush_every=OFTEN)
    one.note(note())
    until(lambda: one.written == 1)
    (file,) = files(lake, ".open")
    assert file.read_bytes().endswith(b"}\n")
    one.note(note(3))
    one.note_late(note(2))
    until(lambda: one.written == 6)
    assert file.read_bytes().count(b"\n") == 6
    assert files(lake) == []


def test_enough_rows_do_not_wait(lake: Path, begun: Any) -> None:
    one = begun(flush_every=3600)
    one.note(note())
    until(lambda: one.written == 1)  # the first is written at once, the next within the hour
    one.note(note(TOGETHER, size=writer.EARLY // TOGETHER))
    until(lambda: one.written == 1 + TOGETHER)
    one.note_late(note(), size=writer.EARLY)
    until(lambda: one.written == 2 + TOGETHER)


def test_files_are_closed_in_time(lake: Path, begun: Any) -> None:
    one = begun(flush_every=OFTEN, close_every=OFTEN)
    for count in range(1, 4):
        one.note(note())
        until(partial(are_closed, lake, count))
    assert len(rows(lake)) == 3


def test_files_are_closed_when_they_are_large(lake: Path, begun: Any) -> None:
    one = begun(flush_every=OFTEN, close_at=1000)
    for count in range(1, 4):
        one.note(note(10, size=100))
        until(partial(are_closed, lake, count))
    assert [file.read_bytes().count(b"\n") for file in files(lake)] == [10, 10, 10]


def test_the_end_writes_everything(lake: Path, begun: Any) -> None:
    one = begun(flush_every=3600)
    for _ in range(1000):
        one.note(note())
    one.close()
    assert len(rows(lake)) == one.written == 1000
    one.close()
    one.note(note())
    assert (one.written, one.dropped) == (1000, 1)


def test_nothing_is_started_for_nothing(lake: Path, begun: Any) -> None:
    before = threading.active_count()
    one = begun()
    assert threading.active_count() == before
    one.note(note())
    assert threading.active_count() == before + 1
    one.close()
    assert threading.active_count() == before


def test_rows_beyond_the_limit_are_dropped_and_counted(
    lake: Path, begun: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, inside = threading.Event(), threading.Event()
    write = os.writev

    def slow(descriptor: int, pieces: Any) -> int:
        inside.set()
        assert stuck.wait(20)
        return write(descriptor, pieces)

    monkeypatch.setattr(os, "writev", slow)
    one = begun(flush_every=OFTEN, max_buffered=10_000)
    one.note(note())
    assert inside.wait(20)
    for _ in range(100):
        one.note_late(note(2), size=1000)
    kept = 1 + 2 * (10_000 // (1000 + 2 * writer.OVERHEAD) + 1)
    assert one.dropped == 201 - kept
    stuck.set()
    until(lambda: one.written == kept)
    one.note(note())
    one.close()
    assert (one.written, one.dropped) == (kept + 1, 201 - kept)
    assert len(rows(lake)) == kept + 1
    (told,) = [record.getMessage() for record in caplog.records]
    assert "loses rows: the disk does not keep up" in told


@pytest.mark.parametrize("at", ["folder", "lake"])
def test_a_folder_that_cannot_be_written_is_told_once_and_once_when_it_is_over(
    at: str, lake: Path, begun: Any, caplog: pytest.LogCaptureFixture
) -> None:
    obstacle = lake / "spool" if at == "folder" else lake
    obstacle.parent.mkdir(exist_ok=True)
    obstacle.write_text("in the way")
    one = begun(flush_every=OFTEN)
    for count in range(1, 4):
        one.note(note(5))
        until(partial(are_dropped, one, 5 * count))
    obstacle.unlink()
    sent = 15

    def over() -> bool:
        nonlocal sent
        one.note(note())
        sent += 1
        return len(caplog.records) > 1

    until(over)
    one.close()
    assert (one.dropped, one.written) == (15, sent - 15)
    assert len(rows(lake)) == sent - 15
    begin, end = [record.getMessage() for record in caplog.records]
    assert f"the journal in {lake} loses rows: [Errno" in begin
    assert end == f"the journal in {lake} is written again; 15 rows were lost"


def test_a_full_disk_leaves_no_half_line(
    lake: Path, begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(descriptor: int, pieces: Any) -> int:
        data = b"".join(pieces)
        return os.write(descriptor, data[: len(data) // 2])

    def full(descriptor: int, data: Any) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[: len(data) // 2])

    one = begun(flush_every=OFTEN)
    one.note(note())
    until(lambda: one.written == 1)
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", half)
        one.note(note(7))
        until(lambda: one.written == 8)  # in several goes
        patch.setattr(os, "write", full)
        one.note(note(7))
        until(lambda: one.dropped == 7)
    one.note(note(2))
    one.close()
    assert (one.written, one.dropped) == (10, 7)
    assert len(rows(lake)) == 10


def test_a_file_whose_end_cannot_be_mended_is_left_and_another_begun(
    lake: Path, begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    one = begun(flush_every=OFTEN)
    one.note(note())
    until(lambda: one.written == 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", broken)
        patch.setattr(os, "ftruncate", broken)
        one.note(note(7))
        until(lambda: one.dropped == 7)
    one.note(note(2))
    one.close()
    assert len(files(lake, ".open")) == len(files(lake)) == 1
    assert (one.written, one.dropped) == (3, 7)


def test_a_lake_that_is_removed_is_made_again_and_its_rows_are_counted_as_lost(
    lake: Path, begun: Any
) -> None:
    one = begun(flush_every=OFTEN)
    one.note(note(5))
    until(lambda: one.written == 5)
    shutil.rmtree(lake)
    one.note(note(2))
    until(lambda: one.dropped == 5)
    until(lambda: one.written == 2)
    one.close()
    assert len(rows(lake)) == 2


def test_a_lake_that_is_removed_before_the_end_is_counted_as_lost(lake: Path, begun: Any) -> None:
    one = begun(flush_every=OFTEN)
    one.note(note(5))
    until(lambda: one.written == 5)
    shutil.rmtree(lake)
    one.close()
    assert (one.written, one.dropped) == (0, 5)


def test_a_disk_that_fails_at_the_end_leaves_an_orphan(
    lake: Path, begun: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    one = begun()
    one.note(note(5))
    one.close()
    (file,) = files(lake, ".open")
    assert file.read_bytes().count(b"\n") == 5
    assert "Input/output error" in caplog.text


def test_a_row_that_cannot_be_made_is_counted_and_told(
    lake: Path, begun: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> list[Line]:
        raise RuntimeError("cannot be\x1b made")

    one = begun()
    one.note_late(Note(3, broken))
    one.note(Note(TOGETHER, broken))
    one.note(note())
    one.close()
    assert (one.written, one.dropped) == (1, 3 + TOGETHER)
    assert r"cannot be\x1b made" in caplog.messages[0]


def test_no_thread_no_rows_and_no_harm(
    lake: Path, begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    one = begun()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        one.note(note(3))
        assert one.dropped == 3
    one.note(note(2))
    one.close()
    assert (one.written, one.dropped) == (2, 3)


def test_rows_noted_by_many_threads_are_all_there(lake: Path, begun: Any) -> None:
    one = begun(flush_every=OFTEN, close_at=5000)

    def noting() -> None:
        for _ in range(500):
            one.note(note(2))
            one.note_late(note())

    threads = [threading.Thread(target=noting) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    one.close()
    assert (one.written, one.dropped) == (6000, 0)
    assert len(rows(lake)) == 6000


async def test_messages_do_not_care_for_a_journal_that_cannot_be_written(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.write_text("in the way")
    number = Event("number", int)
    qc = QueueCraft("local://", journal=lake)
    worker = qc.worker("numbers")
    worker.on(number, lambda n: None)
    async with qc:
        await qc.publish_many(number, range(1000))
    metrics = qc.get_metrics()
    assert metrics.messages_sent == 1000
    assert (metrics.journal_written, metrics.journal_dropped) == (0, 1000)
