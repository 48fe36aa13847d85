"""Handling once, in any process: what is done leaves a line in a file."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from queuecraft import Event, QueueCraft, Worker
from queuecraft.middleware import Deduplicate, Idempotent, RedisClaims, SqliteClaims
from queuecraft.stores.claims.claims import Claims
from tests.faults.child import change

LEASE = 1.0

charged = Event("order.charged", str)


class Told(msgspec.Struct, kw_only=True):
    """What a child is told, as JSON in its only argument."""

    url: str
    claims: str  # a file, or the URL of a Redis
    ledger: str
    deed: str = "handle"
    constants: dict[str, float] = {}


def claims_in(place: str) -> Claims:
    return RedisClaims(place) if "://" in place else SqliteClaims(place)


def note(told: Told, order: str) -> None:
    """The deed that is not to be done twice."""
    with Path(told.ledger).open("a", encoding="utf-8") as ledger:
        ledger.write(f"{order}\n")


def app(told: Told, **options: Any) -> tuple[QueueCraft, Worker]:
    """The application, the same in every process."""
    qc = QueueCraft(told.url, reconnect_delay=0.05, **options)
    qc.use(Idempotent(claims_in(told.claims), lease=LEASE))
    worker = qc.worker("billing")

    @worker.on(charged)
    async def charge(order: str) -> None:
        note(told, order)

    return qc, worker


async def publish(told: Told, order: str) -> str:
    """Publish what must be published but once."""
    qc = QueueCraft(told.url, reconnect_delay=0.05)
    key = Deduplicate(claims_in(told.claims), lambda publication: str(publication.payload), lease=1)
    qc.use_publishing(key)
    async with qc:
        return await qc.publish(charged, order)


async def main(told: Told) -> None:
    change(told.constants, setattr)
    if told.deed == "publish":
        await publish(told, "o-1")
        return
    qc, worker = app(told)
    async with qc:
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Told)))
