"""Relays killed and frozen, a broker that goes away: nothing is lost, and nothing overtakes."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queuecraft import QueueCraft
from queuecraft.outbox import lease
from tests.brokers.redis import Redis
from tests.features.life import until
from tests.outbox.conftest import connected
from tests.outbox.programs import LENGTH, outbox, sell

pytestmark = pytest.mark.faults

SALES = 300


class Relays:
    """Three relays, each a process of its own."""

    def __init__(self, database: str, url: str) -> None:
        self._command = [sys.executable, "-m", "tests.outbox.programs", "serve", database, url]
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("QUEUECRAFT_")}
        self.all = [self._start() for _ in range(3)]

    def replace(self) -> None:
        """Kill one and start another."""
        victim = self.all.pop(random.randrange(len(self.all)))
        victim.kill()
        victim.wait()
        self.all.append(self._start())

    def freeze(self) -> Callable[[], None]:
        """Freeze one; call what is returned to thaw it."""
        victim = random.choice(self.all)
        victim.send_signal(signal.SIGSTOP)
        return lambda: victim.send_signal(signal.SIGCONT)

    def close(self) -> None:
        for each in self.all:
            each.kill()
            each.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.DEVNULL, stderr=None
        )


@pytest.fixture(autouse=True)
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LENGTH", LENGTH)


@pytest.fixture
def relays(database: str, tmp_path: Path) -> Iterator[Relays]:
    made = Relays(database, f"local://{tmp_path}/queue.db")
    yield made
    made.close()


def waiting(database: str) -> int:
    with connected(database) as shop:
        return outbox.waiting(shop)


async def check(qc: QueueCraft, total: int) -> None:
    peeked = await qc.admin.peek("sales", limit=100_000)
    first_seen = list(dict.fromkeys((each.id, each.payload) for each in peeked))
    assert {payload for _, payload in first_seen} == set(range(total))
    assert len(first_seen) == total  # what came twice came under the same id
    for key in range(3):
        of_key = [number for _, number in first_seen if number % 3 == key]
        assert of_key == sorted(of_key)


async def test_relays_are_killed_and_frozen_while_the_shop_sells(
    database: str, tmp_path: Path, relays: Relays
) -> None:
    async with QueueCraft(f"local://{tmp_path}/queue.db") as qc:
        await qc.admin.declare("sales", "sold")
        for first in range(0, SALES, 10):
            await asyncio.to_thread(sell, database, first)
            if first % 50 == 0:
                relays.replace()
            elif first % 50 == 20:
                thaw = relays.freeze()
                await asyncio.sleep(2 * LENGTH)  # longer than the others wait for it
                thaw()
        await until(lambda: waiting(database) == 0)
        await check(qc, SALES)


async def test_a_broker_goes_away_while_the_shop_sells(
    database: str, redis: Redis, redis_url: str
) -> None:
    if not redis.private:
        pytest.skip("needs a server of its own")
    url = f"{redis_url}&mode=list"
    qc = QueueCraft(url, reconnect_delay=0.05)
    async with qc, outbox.relaying(qc, database, poll=0.01):
        await qc.admin.declare("sales", "sold")
        for first in range(0, SALES, 10):
            await asyncio.to_thread(sell, database, first)
            if first % 100 == 50:
                await asyncio.to_thread(redis.kill)
                await asyncio.to_thread(sell, database, SALES + first)
                await asyncio.to_thread(redis.start)
        await until(lambda: waiting(database) == 0)
        peeked = await qc.admin.peek("sales", limit=100_000)
    assert {each.payload for each in peeked} >= set(range(SALES))
    first_seen = list(dict.fromkeys(each.payload for each in peeked))
    sold_in_order = [n for n in first_seen if n < SALES]
    for key in range(3):
        of_key = [number for number in sold_in_order if number % 3 == key]
        assert of_key == sorted(of_key)
