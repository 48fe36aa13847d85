"""Programs of the shop, to be killed: one that sells, one that relays."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from queuecraft import Event, NoRetry, QueueCraft
from queuecraft.outbox import Outbox, lease
from tests.outbox.conftest import connected

sold = Event("sold", int, key=lambda number: str(number % 3))
lost = Event("lost", int)
outbox = Outbox()
LENGTH = 0.5


def sell(database: str, first: int) -> None:
    """Ten sales, each in a transaction of its own."""
    with connected(database) as shop:
        for number in range(first, first + 10):
            shop.cursor().execute(f"INSERT INTO orders VALUES ('{number}')")
            outbox.publish(shop, sold, number)
            shop.commit()


async def relay(database: str, url: str, *, once: bool) -> None:
    lease.LENGTH = LENGTH
    async with QueueCraft(url) as qc:
        await outbox.relay(qc, database, once=once, poll=0.02, retry=NoRetry())


def run(what: str, database: str, argument: str, *, killed_at: str = "") -> int:
    """Run one of them as a program of its own; how it ended."""
    known = {k: v for k, v in os.environ.items() if not k.startswith("QUEUECRAFT_")}
    armed = {"QUEUECRAFT_FAILPOINT": killed_at} if killed_at else {}
    answer = subprocess.run(
        [sys.executable, "-m", "tests.outbox.programs", what, database, argument],
        env={**known, **armed},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=40,
        check=False,
    )
    assert answer.returncode in (0, -9), answer.stdout
    return answer.returncode


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["sell", database, first]:
            sell(database, int(first))
        case ["relay", database, url]:
            asyncio.run(relay(database, url, once=True))
        case ["serve", database, url]:
            asyncio.run(relay(database, url, once=False))
        case _:
            sys.exit("usage: sell DATABASE FIRST | relay DATABASE URL | serve DATABASE URL")
