"""The file itself: whose it is, where it lies, and what becomes of one that is damaged."""

# ruff: noqa: ASYNC240  files are what this is about, and nothing else runs meanwhile

from __future__ import annotations

import asyncio
import os
import random
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from queuecraft import QueueCraft
from queuecraft.drivers.base import (
    ACCEPTED,
    Binding,
    ConnectionLost,
    Exchange,
    Move,
    Outgoing,
    Queue,
    Rejected,
    Unknown,
)
from queuecraft.drivers.local.sqlite import SqliteDriver, contents, database
from queuecraft.drivers.local.sqlite import driver as driver_module
from queuecraft.drivers.local.sqlite.schema import APPLICATION_ID, MIGRATIONS
from queuecraft.model.errors import ConfigError, QueueError
from tests.drivers.local.sqlite.conftest import Opener
from tests.drivers.local.sqlite.eventually import eventually
from tests.drivers.local.sqlite.file import messages, rows
from tests.drivers.local.sqlite.neighbour import Neighbour, neighbour

JOBS = Queue[Any]("jobs")


async def refusal(path: Path) -> QueueError:
    """What opening it says."""
    driver = SqliteDriver(path)
    with pytest.raises(QueueError) as caught:
        await driver.open()
    await driver.close()
    return caught.value


async def test_a_disk_without_room_for_the_index_of_the_log_is_called_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = database.Database(tmp_path / "queue.db")
    broken = apsw.IOError("disk I/O error")
    assert place.explain(broken, "open").message.endswith("; see to the disk it is on")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=4096))
    assert place.explain(broken, "open").message.endswith("is full; free some space")


# -- whose it is -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "making",
    [
        "CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)",
        "PRAGMA application_id=42",
        "PRAGMA user_version=1",
    ],
)
async def test_a_database_of_another_program_is_refused_and_left_as_it_is(
    path: Path, making: str
) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(making)
    connection.close()
    before = path.read_bytes()

    error = await refusal(path)

    assert isinstance(error, ConfigError)
    assert "of another program" in str(error)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path) -> None:
    path.write_text("Dear diary, " * 1000)

    error = await refusal(path)

    assert "no database" in str(error)
    assert path.read_text() == "Dear diary, " * 1000


async def test_a_file_of_a_newer_version_is_refused(open_driver: Opener, path: Path) -> None:
    await (await open_driver()).close()
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    connection.close()

    error = await refusal(path)

    assert isinstance(error, ConfigError)
    assert "newer QueueCraft" in str(error)


async def test_an_empty_file_is_adopted(open_driver: Opener, path: Path) -> None:
    path.touch()
    driver = await open_driver()
    await driver.declare(JOBS)
    assert await driver.send(messages("jobs", "a")) == [ACCEPTED]


# -- who may read it ---------------------------------------------------------------------------


async def modes(driver: SqliteDriver, path: Path) -> dict[str, int]:
    """Of the file and what belongs to it, while it is in use."""
    await driver.declare(JOBS)
    await driver.send(messages("jobs", "secret"))
    return {
        each.name.removeprefix(path.name): stat.S_IMODE(each.stat().st_mode)
        for each in path.parent.iterdir()
    }


@pytest.fixture
def generous() -> Generator[None]:
    """A umask that keeps nothing from anybody."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("generous")
async def test_a_new_file_can_be_read_by_its_owner_alone(open_driver: Opener, path: Path) -> None:
    driver = await open_driver()
    assert await modes(driver, path) == {"": 0o600, "-wal": 0o600, "-shm": 0o600, "-wake": 0o700}


@pytest.mark.usefixtures("generous")
async def test_a_file_that_is_there_keeps_its_mode(open_driver: Opener, path: Path) -> None:
    path.touch(mode=0o660)
    driver = await open_driver()
    assert await modes(driver, path) == {"": 0o660, "-wal": 0o660, "-shm": 0o660, "-wake": 0o700}


# -- where it lies -----------------------------------------------------------------------------


async def test_a_folder_is_refused(path: Path) -> None:
    path.mkdir()
    assert "is a folder" in str(await refusal(path))


async def test_a_missing_folder_is_named(path: Path) -> None:
    error = await refusal(path / "queue.db")
    assert f"the folder {str(path)!r} does not exist" in str(error)
    assert not path.exists()


@pytest.mark.parametrize("name", ["x" * 300, "x" * 252], ids=["the file", "its log"])
async def test_a_name_that_is_too_long_is_refused_in_words(tmp_path: Path, name: str) -> None:
    assert "cannot be opened" in str(await refusal(tmp_path / name))


@pytest.mark.parametrize(
    "name",
    ["with space.db", "ünï-☃.db", "100%.db", "%41.db", "?#&;.db", ":memory:", "file:x?mode=memory"],
)
async def test_names_with_odd_characters_are_files_like_others(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    driver = SqliteDriver(Path(name))  # a relative one, to see whether SQLite makes more of it
    await driver.open()
    await driver.declare(JOBS)
    await driver.subscribe(JOBS, prefetch=1)
    await driver.close()

    assert (tmp_path / name).stat().st_size > 0
    await driver.open()
    assert [info.name for info in await driver.inspect()] == ["jobs"]
    await driver.close()


async def test_a_path_longer_than_a_sockets_may_be_still_has_its_bell(
    tmp_path: Path, open_driver: Opener
) -> None:
    folder = tmp_path / ("d" * 200)
    folder.mkdir()
    driver = await open_driver(folder / "queue.db")
    await driver.declare(JOBS)
    await driver.subscribe(JOBS, prefetch=1)

    ((name,),) = rows(folder / "queue.db", "SELECT name FROM session")
    assert [each.name for each in (folder / "queue.db-wake").iterdir()] == [name]


async def test_a_url_may_escape_characters_or_be_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in (f"local://{tmp_path}/a%20b%3F.db", "local://./here.db"):
        async with QueueCraft(url) as qc:
            qc.worker("jobs")
    assert {each.name for each in tmp_path.glob("*.db")} == {"a b?.db", "here.db"}


async def test_a_relative_path_stays_the_same_file_wherever_the_process_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    driver = SqliteDriver(Path("queue.db"))
    await driver.open()
    await driver.declare(JOBS)
    await driver.close()
    monkeypatch.chdir(tmp_path / "elsewhere")

    await driver.open()

    assert [info.name for info in await driver.inspect()] == ["jobs"]
    await driver.close()
    assert not list((tmp_path / "elsewhere").iterdir())


async def test_those_who_come_by_a_link_are_neighbours_of_those_who_come_by_the_file(
    open_driver: Opener, path: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder").symlink_to(tmp_path)
    link = tmp_path / "link.db"
    link.symlink_to(path)
    ways = [path, link, tmp_path / "folder" / "link.db"]
    drivers = [await open_driver(way) for way in ways]
    await drivers[0].declare(JOBS)
    await drivers[0].send(messages("jobs", "a", "b", "c"))

    held: list[Any] = []
    for driver in drivers:
        subscription = await driver.subscribe(JOBS, prefetch=1)
        held.append((subscription, await subscription.receive(1, 0)))
    for driver in drivers:
        assert driver._missing() == set(), "one is taken for dead that is not"

    for subscription, taken in held:
        assert await subscription.ack(taken) == []


# -- its beginnings ----------------------------------------------------------------------------


async def test_processes_that_make_the_file_at_the_same_instant_share_it(path: Path) -> None:
    program = """
        for number in range(8):
            say("ready")
            heard()
            driver = SqliteDriver(Path(f"{sys.argv[1]}.{number}"))
            await driver.open()
            await driver.declare(Queue("jobs"))
            (receipt,) = await driver.send([Outgoing(b"", "m", queue="jobs")])
            say(type(receipt).__name__)
            await driver.close()
    """

    async def follow(process: Neighbour, barrier: asyncio.Barrier) -> list[str]:
        said: list[str] = []
        for _ in range(8):
            assert await process.says() == "ready"
            await barrier.wait()
            process.tell("go")
            said.append(await process.says())
        return said

    with (
        neighbour(path, program) as one,
        neighbour(path, program) as two,
        neighbour(path, program) as three,
    ):
        barrier = asyncio.Barrier(3)
        said = await asyncio.gather(*(follow(each, barrier) for each in (one, two, three)))

    assert said == [["Accepted"] * 8] * 3
    for number in range(8):
        made = path.with_name(f"{path.name}.{number}")
        assert rows(made, "SELECT stored FROM counter") == [(3,)]


async def test_an_older_file_is_brought_up_to_date_and_keeps_its_messages(
    open_driver: Opener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    await driver.send(messages("jobs", "a"))
    await driver.close()
    more = "CREATE TABLE novelty (a); INSERT INTO novelty VALUES (1);"
    monkeypatch.setattr(database, "MIGRATIONS", (*MIGRATIONS, more))

    newer, another = await open_driver(), await open_driver()

    assert [each.sent.id for each in await newer.peek("jobs", 1)] == ["a"]
    assert [each.sent.id for each in await another.peek("jobs", 1)] == ["a"]
    assert rows(path, "PRAGMA user_version") == [(len(MIGRATIONS) + 1,)]
    assert rows(path, "SELECT * FROM novelty") == [(1,)]


async def test_an_upgrade_that_fails_leaves_the_older_file(
    open_driver: Opener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    await driver.close()
    with monkeypatch.context() as patch:
        patch.setattr(
            database, "MIGRATIONS", (*MIGRATIONS, "DROP TABLE message; DROP TABLE nonsense")
        )
        assert "nonsense" in str(await refusal(path))

    await driver.open()
    assert await driver.send(messages("jobs", "a")) == [ACCEPTED]
    assert rows(path, "PRAGMA application_id") == [(APPLICATION_ID,)]


# -- what it may not do ------------------------------------------------------------------------


@pytest.fixture
async def shared(open_driver: Opener) -> AsyncIterator[Path]:
    """A file in a folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        driver = await open_driver(folder / "queue.db")
        await driver.declare(JOBS)
        await driver.close()
        yield folder / "queue.db"


@contextmanager
def nobody() -> Generator[None]:
    """Permissions do not bind the superuser; so be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


async def test_a_file_that_may_only_be_read_is_refused_in_words(shared: Path) -> None:
    shared.chmod(0o444)
    with nobody():
        assert f"{str(shared)!r} cannot be" in str(await refusal(shared))


async def test_a_folder_that_may_only_be_read_is_refused_in_words(shared: Path) -> None:
    shared.chmod(0o666)
    shared.parent.chmod(0o555)
    with nobody():
        assert f"{str(shared)!r} cannot be" in str(await refusal(shared))
    shared.parent.chmod(0o755)


async def test_a_folder_that_may_not_be_entered_is_refused_in_words(shared: Path) -> None:
    shared.parent.chmod(0o600)
    with nobody():
        error = await refusal(shared)
    shared.parent.chmod(0o755)
    assert "permissions" in str(error)


async def test_a_file_that_became_read_only_loses_the_connection(
    open_driver: Opener, path: Path
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    for connection in (driver._publishing, driver._consuming):
        assert connection is not None
        connection.execute("PRAGMA query_only=ON")  # gives the very error of a read-only disk

    with pytest.raises(ConnectionLost, match="cannot be written to"):
        await driver.send(messages("jobs", "a"))


async def test_a_full_disk_refuses_messages_and_keeps_what_it_has(open_driver: Opener) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    await driver.send(messages("jobs", "a"))
    subscription = await driver.subscribe(JOBS, prefetch=9)
    (held,) = await subscription.receive(1, 0)
    large = Outgoing(b"x" * 500_000, "large", queue="jobs")
    connections = (driver._publishing, driver._consuming)
    for connection in connections:
        assert connection is not None
        size = connection.execute("PRAGMA page_count").get
        connection.execute(f"PRAGMA max_page_count={size + 2}")

    small, refused = await driver.send([*messages("jobs", "b"), large])
    for receipt in (small, refused):
        assert isinstance(receipt, Rejected)
        assert "is full; free some space" in str(receipt.error)
    with pytest.raises(ConnectionLost, match="is full"):
        await subscription.move([Move(held, large)])
    assert [(info.ready, info.in_flight) for info in await driver.inspect()] == [(0, 1)]

    for connection in connections:
        assert connection is not None
        connection.execute("PRAGMA max_page_count=1000000")
    assert await driver.send([large]) == [ACCEPTED]
    assert await subscription.move([Move(held, large)]) == [ACCEPTED]
    assert [(info.ready, info.in_flight) for info in await driver.inspect()] == [(2, 0)]


class Failing:
    """A connection to a disk that fails. A faulty filesystem would be more like it, but SQLite's
    shared log cannot be put on one that is made of Python."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, query: str, *values: Any) -> Any:
        if query == "COMMIT":
            raise apsw.IOError("disk I/O error")
        return self._connection.execute(query, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


async def test_a_disk_that_fails_at_the_commit_leaves_it_open_whether_it_is_stored(
    open_driver: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    monkeypatch.setattr(driver, "_publishing", Failing(driver._publishing))
    (receipt,) = await driver.send(messages("jobs", "a"))
    monkeypatch.undo()

    assert isinstance(receipt, Unknown)
    assert await driver.send(messages("jobs", "b")) == [ACCEPTED]


# -- damage ------------------------------------------------------------------------------------


@pytest.fixture
async def filled(open_driver: Opener, path: Path) -> Path:
    """A file with a bit of everything in it."""
    driver = await open_driver()
    events = Exchange("events")
    for name in ("jobs", "more"):
        await driver.declare(Queue(name, bindings=(Binding(events, f"{name}.*"),)))
    await driver.send(
        [Outgoing(b"x" * 300, str(n), "events", "jobs.x", priority=n % 2) for n in range(60)]
    )
    await driver.send(messages("more", "later", due_at=4e9))
    dying = await driver.subscribe(JOBS, prefetch=9)
    await dying.receive(9, 0)
    await driver.close()
    return path


async def use(path: Path) -> list[QueueError]:
    """Do everything once; what goes wrong is said in the driver's own words."""
    driver = SqliteDriver(path)
    errors: list[QueueError] = []

    async def consume() -> None:
        subscription = await driver.subscribe(JOBS, prefetch=100)
        taken = await subscription.receive(100, 0)
        await subscription.release(taken[1:5])
        await subscription.move([Move(e, Outgoing(b"", "moved", queue="more")) for e in taken[5:7]])
        await subscription.ack(taken[7:])

    try:
        await driver.open()
        for call in (
            driver.inspect,
            driver.topology,
            lambda: driver.send([Outgoing(b"", "new", "events", "more.x")]),
            consume,
            lambda: driver.peek("more", 100),
            lambda: driver.purge("more"),
            lambda: driver.delete("jobs"),
        ):
            try:
                await call()
            except QueueError as error:
                errors.append(error)
    except QueueError as error:
        errors.append(error)
    finally:
        await driver.close()
    return errors


async def test_a_damaged_header_is_told(filled: Path) -> None:
    with filled.open("r+b") as file:
        file.write(b"\0" * 100)
    assert "no database" in str((await use(filled))[0])


async def test_a_file_cut_in_half_is_told(filled: Path) -> None:
    os.truncate(filled, filled.stat().st_size // 2)
    errors = await use(filled)
    assert any(isinstance(e, ConnectionLost) and "is damaged" in str(e) for e in errors)


async def test_a_damaged_page_is_told(filled: Path) -> None:
    connection = apsw.Connection(str(filled))
    page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'message'").get
    size = connection.execute("PRAGMA page_size").get
    connection.close()
    with filled.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)

    errors = await use(filled)

    assert errors
    assert all(isinstance(error, ConnectionLost) for error in errors)
    assert "restore it from a backup" in str(errors[0])


async def test_whatever_is_damaged_nothing_worse_than_an_error_comes_of_it(
    filled: Path, tmp_path: Path
) -> None:
    whole = filled.read_bytes()
    dice = random.Random(7)
    for number in range(60):
        damaged = bytearray(whole)
        at = dice.randrange(len(whole))
        match number % 4:
            case 0:
                damaged[at] ^= 1 << dice.randrange(8)
            case 1:
                for _ in range(40):
                    damaged[dice.randrange(len(whole))] = dice.randrange(256)
            case 2:
                damaged[at : at + 4096] = dice.randbytes(4096)
            case _:
                del damaged[at:]
        path = tmp_path / f"damaged-{number}.db"
        path.write_bytes(damaged)
        try:
            await use(path)
        except Exception as error:
            raise AssertionError(f"damage number {number}") from error


async def test_a_log_with_a_damaged_end_loses_only_that_end(
    open_driver: Opener, path: Path, tmp_path: Path
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    log = path.with_name("queue.db-wal")
    for id in "ab":
        await driver.send(messages("jobs", id))
    intact = log.stat().st_size
    await driver.send(messages("jobs", "c"))
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    shutil.copy(log, tmp_path / "copy.db-wal")
    with (tmp_path / "copy.db-wal").open("r+b") as file:
        file.seek(intact + 100)
        file.write(b"\xff" * 100)

    restored = await open_driver(copy)

    assert [each.sent.id for each in await restored.peek("jobs", 9)] == ["a", "b"]
    assert await restored.send(messages("jobs", "d")) == [ACCEPTED]


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
async def test_a_file_that_is_taken_away_is_noticed_and_made_anew(
    tmp_path: Path, replaced: bool
) -> None:
    path = tmp_path / "queue.db"
    driver = SqliteDriver(path)
    await driver.open()
    await driver.declare(Queue("billing"))
    path.rename(tmp_path / "elsewhere.db")
    if replaced:
        path.write_bytes(b"")
    with pytest.raises(ConnectionLost, match="removed or replaced"):
        await driver.send([Outgoing(b"", "m-1", queue="billing")])
    await driver.close()
    await driver.open()
    await driver.declare(Queue("billing"))
    assert list(await driver.send([Outgoing(b"", "m-1", queue="billing")])) == [ACCEPTED]
    await driver.close()


async def test_a_file_gives_back_what_a_backlog_has_taken(
    path: Path, open_driver: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "SLACK", 100)
    monkeypatch.setattr(driver_module, "POLL", 0.01)
    driver = await open_driver()
    await driver.declare(Queue("billing"))
    await driver.send([Outgoing(bytes(1000), f"m-{n}", queue="billing") for n in range(3000)])
    consumer = await driver.subscribe(Queue("billing"), prefetch=3000)
    deliveries = await consumer.receive(3000, 5)

    def size() -> int:
        return sum(each.stat().st_size for each in (path, path.with_name("queue.db-wal")))

    assert size() > 3_000_000
    await consumer.ack(deliveries[1:])
    await eventually(lambda: size() < 300_000)
    assert not await consumer.ack(deliveries[:1])
    assert rows(path, "SELECT count(*) FROM message") == [(0,)]
