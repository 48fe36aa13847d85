"""Where delayed messages wait: what is set, or what fits the broker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from queuecraft import ConfigError, ConnectionLost, DelayedSettings, QueueCraft
from queuecraft.config import settings_from_environment, settings_from_file
from queuecraft.drivers.local.sqlite import SqliteDriver
from queuecraft.runtime.delayed.file import OwnFileStore
from queuecraft.stores.base import DelayedStore
from queuecraft.stores.memory import MemoryDelayedStore
from queuecraft.stores.sqlite import SqliteQueueStore
from queuecraft.testing import FakeClock, FaultyDriver
from tests.runtime.delayed.looking import ids


async def kept_by(qc: QueueCraft) -> type[DelayedStore]:
    async with qc.delayed._place.store() as store:
        return type(store)


async def test_a_queue_in_memory_keeps_them_in_memory() -> None:
    async with QueueCraft("local://") as qc:
        assert await kept_by(qc) is MemoryDelayedStore


@pytest.mark.parametrize("store", [None, "./queue.db", "queue.db", "local://./queue.db"])
async def test_in_the_file_of_the_queues_they_move_in_one_step(
    store: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with QueueCraft(
        f"local://{tmp_path}/queue.db", delayed=DelayedSettings(store=store)
    ) as qc:
        assert await kept_by(qc) is SqliteQueueStore


async def test_a_file_of_their_own_will_do(tmp_path: Path, clock: FakeClock) -> None:
    settings = DelayedSettings(store=str(tmp_path / "shelf.db"))
    async with QueueCraft("local://", clock=clock, delayed=settings) as qc:
        await qc.admin.declare("billing", "order.*")
        assert await kept_by(qc) is OwnFileStore
        async with qc.delayed.running():
            await qc.delayed.add("order.placed", {}, delay=5, message_id="m-1")
            await clock.advance(5)
        assert await ids(qc) == ["m-1"]
    assert (tmp_path / "shelf.db").exists()


async def test_a_driver_that_shares_no_file_leaves_them_one_beside_it(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "queue.db"
    driver = FaultyDriver(SqliteDriver(path, clock))
    settings = settings_from_environment({}, given={"url": f"local://{path}"})
    async with QueueCraft(settings=settings, drivers=[driver], clock=clock) as qc:
        await qc.admin.declare("billing", "order.*")
        assert await kept_by(qc) is OwnFileStore
        await qc.delayed.add("order.placed", {}, delay=0, message_id="m-1")
        assert (await qc.delayed.cleanup()).cleaned == 1
        assert await ids(qc) == ["m-1"]


@pytest.mark.parametrize("url", ["amqp://localhost", "amqps://localhost"])
async def test_a_broker_without_a_place_asks_for_one(url: str) -> None:
    with pytest.raises(ConfigError, match=r"set delayed\.store to a redis:// URL or to the path"):
        await QueueCraft(url).delayed.stats()


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings = DelayedSettings(store=str(tmp_path / "none" / "shelf.db"))
    async with QueueCraft(delayed=settings) as qc:
        with pytest.raises(ConfigError, match=r"the folder .*none' does not exist"):
            await qc.delayed.stats()


async def test_a_file_that_is_removed_is_noticed_and_made_again(tmp_path: Path) -> None:
    path = tmp_path / "shelf.db"
    async with QueueCraft(delayed=DelayedSettings(store=str(path))) as qc:
        await qc.delayed.stats()
        for end in ("", "-wal", "-shm"):
            os.remove(f"{path}{end}")
        with pytest.raises(ConnectionLost, match="was removed"):
            await qc.delayed.cancel("m-1")
        assert not await qc.delayed.cancel("m-1")
        assert path.exists()


def test_settings_come_from_files_and_variables(tmp_path: Path) -> None:
    (tmp_path / "qc.toml").write_text('[delayed]\nlimit = 5\npolicy = "drop"\ngrace = 0\n')
    from_file = settings_from_file(tmp_path / "qc.toml").delayed
    assert from_file == DelayedSettings(limit=5, policy="drop", grace=0)
    variables = {"QUEUECRAFT_DELAYED_LIMIT": "7", "QUEUECRAFT_DELAYED_SERVICE": "yes"}
    from_variables = settings_from_environment(variables).delayed
    assert from_variables == DelayedSettings(limit=7, service=True)


def test_a_setting_in_code_replaces_the_whole_table_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "qc.toml").write_text("[delayed]\nlimit = 5\nbatch = 9\n")
    given = {"delayed": DelayedSettings(limit=6)}
    assert settings_from_file(tmp_path / "qc.toml", given=given).delayed.batch == 1000


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("LIMIT", "0", "expected a whole number from 1 on"),
        ("BATCH", "10001", "expected a whole number from 1 to 10000"),
        ("POLICY", "ignore", "expected one of 'deliver', 'dead_letter', 'drop'"),
        ("WARN_AT", "2", "expected a share from 0 to 1"),
        ("GRACE", "-1", "expected seconds from 0 on"),
        ("CLEANUP_INTERVAL", "0", "expected seconds above 0"),
        ("WEBHOOK", "s3cret", "expected an http:// or https:// URL"),
        ("LIMTI", "5", "did you mean QUEUECRAFT_DELAYED_LIMIT"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_expected(
    variable: str, value: str, why: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from_environment({f"QUEUECRAFT_DELAYED_{variable}": value})
    assert why in str(caught.value)
    assert "s3cret" not in str(caught.value)
