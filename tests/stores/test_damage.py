"""Stores that somebody has tampered with, or that have no room left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

from queuecraft import ConnectionLost, QueueCraft, QueueError
from queuecraft.model.envelope import Outgoing
from queuecraft.stores.base import NEVER, OneStepStore, Waiting, Which
from queuecraft.stores.sqlite import SqliteDelayedStore
from queuecraft.testing import FakeClock
from tests.brokers.redis import Redis

R = TypeVar("R")


async def _stuck(qc: QueueCraft) -> None:
    """One message cannot be read: it can be seen, is in nobody's way, and can be cancelled."""
    assert [each.id for each in await qc.delayed.list()] == ["broken", "whole"]
    result = await qc.delayed.cleanup()
    assert (result.cleaned, result.refused, result.size) == (1, 1, 1)
    assert [each.id for each in await qc.admin.peek("billing")] == ["whole"]
    assert await qc.delayed.cancel("broken")
    assert (await qc.delayed.stats()).size == 0


async def _filled(qc: QueueCraft) -> None:
    await qc.admin.declare("billing", "order.*")
    for name in ("broken", "whole"):
        await qc.delayed.add("order.placed", {}, delay=0, message_id=name)


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"no record", 5, "text"])
async def test_a_record_that_cannot_be_read_harms_nobody(tmp_path: Path, damage: Any) -> None:
    async with QueueCraft(f"local://{tmp_path}/queue.db", clock=FakeClock()) as qc:
        await _filled(qc)
        connection = apsw.Connection(str(tmp_path / "queue.db"))
        connection.execute("UPDATE shelf SET data = ? WHERE id = 'broken'", (damage,))
        connection.close()
        await _stuck(qc)


@pytest.mark.parametrize("damage", [("HDEL",), ("HSET", b"\xc1")])
async def test_a_record_in_redis_that_cannot_be_read_harms_nobody(
    redis: Redis, redis_url: str, damage: tuple[str, ...]
) -> None:
    async with QueueCraft(f"{redis_url}&mode=list", clock=FakeClock()) as qc:
        await _filled(qc)
        prefix = redis_url.partition("prefix=")[2]
        deed, *value = damage
        redis.call(deed, "{" + prefix + "}:shelf:data", "broken", *value)
        await _stuck(qc)


async def test_an_id_that_lost_its_place_in_redis_does_not_keep_the_mover_busy(
    redis: Redis, redis_url: str
) -> None:
    async with QueueCraft(f"{redis_url}&mode=list", clock=FakeClock()) as qc:
        await _filled(qc)
        prefix = redis_url.partition("prefix=")[2]
        redis.call("ZREM", "{" + prefix + "}:shelf:due", "broken")
        async with qc.delayed._place.store() as store:
            assert isinstance(store, OneStepStore)
            for now in (2_000_000_000.0, 2_000_000_001.0):
                await store.move(Which(now, 10))
            assert (await store.census(0.0)).next_at == NEVER
        assert [each.id for each in await qc.admin.peek("billing")] == ["whole"]


class FullDisk:
    """A file that takes no more."""

    async def read(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        raise AssertionError

    async def write(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        raise ConnectionLost("the disk is full") from apsw.FullError("full")


async def test_a_full_disk_is_no_connection_that_is_lost() -> None:
    store = SqliteDelayedStore(FullDisk())
    for use in (
        store.add(Waiting(Outgoing(b"", "m-1"), 0.0, 0.0), 10),
        store.take(Which(0.0, 1), "a", 1.0),
        store.cancel("m-1", 0.0),
    ):
        with pytest.raises(QueueError, match="the disk is full") as caught:
            await use
        assert not isinstance(caught.value, ConnectionLost)
