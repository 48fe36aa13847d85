"""A file system that fails, and says of what it has lost that it is on the disk."""

# ruff: noqa: ASYNC221, ASYNC240  files are what this is about, and nothing else runs meanwhile

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import apsw
import pytest

from queuecraft.drivers.base import ACCEPTED, ConnectionLost, Outgoing, Queue, Unknown
from queuecraft.drivers.local.sqlite import SqliteDriver, contents, database
from queuecraft.drivers.local.sqlite.filesystem import Filesystem
from queuecraft.model.errors import ConfigError
from queuecraft.runtime.delayed.file import OwnFileStore
from tests.drivers.local.sqlite.conftest import Opener
from tests.drivers.local.sqlite.file import locked, messages, rows

JOBS = Queue[object]("jobs")


@pytest.fixture
async def driver(open_driver: Opener) -> SqliteDriver:
    driver = await open_driver()
    await driver.declare(JOBS)
    return driver


@pytest.fixture
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for before the driver: its log is copied back when it has 20 pages."""
    monkeypatch.setattr(database, "CHECKPOINT", 20)


async def fill(driver: SqliteDriver, count: int) -> None:
    for n in range(count):
        await driver.send(messages("jobs", f"m-{n}"))


class Disk:
    """Breaks when told: what needs a journal is refused, and every sync succeeds."""

    def __init__(self) -> None:
        self.broken: Callable[[], bool] = lambda: False
        self.error = errno.EROFS

    def remove_attribute(self, _: int, __: str) -> None:
        raise OSError(self.error if self.broken() else errno.ENODATA, "asked")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "removexattr", disk.remove_attribute)
    return disk


@pytest.mark.parametrize("error", [errno.EROFS, errno.EIO])
async def test_what_a_disk_confirms_while_it_breaks_is_not_confirmed_to_the_publisher(
    driver: SqliteDriver, disk: Disk, error: int
) -> None:
    assert await driver.send(messages("jobs", "a")) == [ACCEPTED]
    asked = iter([False, True])  # before the first write, and after the commit
    disk.error, disk.broken = error, lambda: next(asked)

    (receipt,) = await driver.send(messages("jobs", "b"))

    assert isinstance(receipt, Unknown)
    assert "cannot be written to; see to its permissions and its filesystem" in str(receipt.error)
    with pytest.raises(ConnectionLost, match="cannot be written to"):  # until it is opened again
        await driver.send(messages("jobs", "c"))


async def test_nothing_is_written_to_a_disk_that_has_broken(
    open_driver: Opener, driver: SqliteDriver, disk: Disk
) -> None:
    await driver.send(messages("jobs", "a"))
    consumer = await driver.subscribe(JOBS, prefetch=1)
    disk.broken = lambda: True

    with pytest.raises(ConnectionLost):
        await consumer.receive(1, 0)
    with pytest.raises(ConnectionLost):
        await driver.send(messages("jobs", "b"))

    disk.broken = lambda: False
    again = await open_driver()
    assert [each.sent.id for each in await again.peek("jobs", 9)] == ["a"]


@pytest.mark.parametrize(
    "error", [errno.ENODATA, errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.EBADF]
)
async def test_a_disk_that_cannot_be_asked_is_believed(
    open_driver: Opener, disk: Disk, error: int
) -> None:
    disk.error, disk.broken = error, lambda: True
    driver = await open_driver()
    await driver.declare(JOBS)
    assert await driver.send(messages("jobs", "a")) == [ACCEPTED]


async def test_the_log_is_copied_back_now_and_then(
    path: Path, short_log: None, driver: SqliteDriver
) -> None:
    empty = path.stat().st_size
    await fill(driver, 100)
    assert path.stat().st_size > empty
    assert path.with_name("queue.db-wal").stat().st_size < 40 * 4200


async def test_a_log_that_is_not_on_the_disk_is_not_copied_back(
    path: Path, short_log: None, driver: SqliteDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()
    monkeypatch.setattr(Filesystem, "sync", lambda self: False)
    await fill(driver, 30)
    assert path.read_bytes() == before
    assert len(await driver.peek("jobs", 99)) == 30


async def test_a_reader_that_holds_the_log_up_makes_nobody_wait_for_the_disk(
    path: Path, short_log: None, driver: SqliteDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM message").fetchall()
    syncs: list[int] = []
    with monkeypatch.context() as counting:
        counting.setattr(os, "fdatasync", syncs.append)
        for n in range(100):
            await driver.send(messages("jobs", f"m-{n}"))
    assert 1 < len(syncs) < 50
    reader.close()
    await fill(driver, 100)
    assert rows_in_file(path) > 150


async def test_the_log_starts_anew_soon_after_its_reader_has_gone(
    path: Path, open_driver: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not wait until it has grown by as much again, with others in it by then."""
    monkeypatch.setattr(database, "CHECKPOINT", 40)
    driver = await open_driver()
    await driver.declare(JOBS)
    log = path.with_name("queue.db-wal")
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM message").fetchall()
    while log.stat().st_size < 41 * PAGE:
        await driver.send(messages("jobs", "m"))
    reader.close()
    before = log.stat().st_size
    await fill(driver, 100)
    assert log.stat().st_size < before + 10 * PAGE


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
async def test_a_sync_that_fails_is_remembered(
    path: Path, open_driver: Opener, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """The system tells of it once, and takes the next for granted."""
    await open_driver()
    filesystem = Filesystem(path)
    filesystem.open()
    assert filesystem.sync()
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", partial(fail, error))
        assert not filesystem.sync()
    assert not filesystem.sync()
    assert not filesystem.still_writes()


async def test_a_disk_that_breaks_while_it_syncs_is_asked_after_it(
    path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = database.Database(path)
    connection = place.connect(synchronous="FULL")
    before = path.read_bytes()

    def break_down(_: int) -> None:
        disk.broken = lambda: True

    monkeypatch.setattr(os, "fdatasync", break_down)
    place.copy_back(connection)
    place.disconnect(connection)
    place.close()
    assert path.with_name("queue.db-wal").exists()
    assert path.read_bytes() == before


async def test_an_ack_need_not_be_on_the_disk(driver: SqliteDriver, disk: Disk) -> None:
    await driver.send(messages("jobs", "a"))
    consumer = await driver.subscribe(JOBS, prefetch=1)
    deliveries = await consumer.receive(1, 5)
    asked = iter([False, True])
    disk.broken = lambda: next(asked)
    assert not await consumer.ack(deliveries)
    assert next(asked)


async def test_a_link_to_a_file_is_that_file(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    store = OwnFileStore(link)
    assert descriptors(path.with_name("queue.db-wal"))
    await store.close()


async def test_nothing_is_left_beside_a_file_that_is_refused(path: Path, tmp_path: Path) -> None:
    theirs = apsw.Connection(str(path))
    theirs.execute("PRAGMA journal_mode=WAL; CREATE TABLE theirs (a)").fetchall()
    theirs.close()
    with pytest.raises(ConfigError, match="of another program"):
        database.Database(path).connect(synchronous="FULL")
    assert list(tmp_path.iterdir()) == [path]


async def test_too_many_open_files_are_called_that(
    path: Path, open_driver: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_driver()
    monkeypatch.setattr(Filesystem, "open", lambda self: fail(errno.EMFILE, 0))
    with pytest.raises(ConnectionLost, match=r"let the process have more files open \(ulimit -n"):
        database.Database(path).connect(synchronous="FULL")


async def test_where_nobody_else_may_sync_it_is_left_to_sqlite(
    path: Path, short_log: None, driver: SqliteDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", partial(fail, errno.EINVAL))
    await fill(driver, 100)
    assert rows_in_file(path) > 50


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "dropped"])
@pytest.mark.parametrize("broken", [False, True])
async def test_the_last_to_go_copies_nothing_back_on_a_broken_disk(
    path: Path, disk: Disk, broken: bool, closed: bool
) -> None:
    place = database.Database(path)
    connection = place.connect(synchronous="FULL")
    before = path.read_bytes()
    disk.broken = lambda: broken

    if closed:
        place.disconnect(connection)
        place.close()
    del place, connection
    gc.collect()

    log = path.with_name("queue.db-wal")
    kept = broken or not closed
    assert (log.exists(), path.read_bytes() == before) == (kept, kept)
    assert not descriptors(log)


async def test_a_nearly_empty_file_does_not_shrink_on_a_broken_disk(
    path: Path, open_driver: Opener, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "SLACK", 0)
    place = database.Database(path)
    connection = place.connect(synchronous="NORMAL")
    driver = await open_driver()
    await driver.declare(JOBS)
    await driver.send([Outgoing(bytes(1000), f"m-{n}", queue="jobs") for n in range(300)])
    await driver.purge("jobs")
    log = path.with_name("queue.db-wal")
    before = log.stat().st_size
    disk.broken = lambda: True
    with pytest.raises(apsw.ReadOnlyError):
        contents.shrink(place, connection)
    assert log.stat().st_size == before
    place.disconnect(connection)
    place.close()


async def test_to_ask_costs_no_lock(path: Path, open_driver: Opener) -> None:
    """A process that closes a file loses every lock that it has there."""
    await open_driver()
    with locked(path):
        filesystem = Filesystem(path)
        filesystem.open()
        filesystem.close()
        other = subprocess.run(
            [sys.executable, "-c", LOCK, str(path)], capture_output=True, text=True, check=False
        )
    assert "BusyError" in other.stderr


async def test_who_has_closed_it_opens_nothing_any_more(path: Path, open_driver: Opener) -> None:
    """The thread of a session may still connect then."""
    await open_driver()
    log = path.with_name("queue.db-wal")
    there = descriptors(log)
    filesystem = Filesystem(path)
    filesystem.open()
    assert len(descriptors(log)) == len(there) + 1
    filesystem.close()
    filesystem.open()
    assert descriptors(log) == there
    assert not filesystem.sync()


async def test_a_closed_driver_has_nothing_open(path: Path, open_driver: Opener) -> None:
    driver = await open_driver()
    assert descriptors(path)
    await driver.close()
    assert not descriptors(path)


PAGE = 4096 + 24
LOCK = "import apsw, sys; apsw.Connection(sys.argv[1]).execute('BEGIN IMMEDIATE')"


def descriptors(file: Path) -> list[str]:
    """Those this process has open of a file, also if it was removed since."""
    found = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return [each for each in found if each.startswith(str(file))]


def rows_in_file(path: Path) -> int:
    """How many messages the file has without its log."""
    copy = path.with_name("copy.db")
    copy.write_bytes(path.read_bytes())
    return int(rows(copy, "SELECT count(*) FROM message")[0][0])


def fail(error: int, _: int) -> NoReturn:
    raise OSError(error, os.strerror(error))
