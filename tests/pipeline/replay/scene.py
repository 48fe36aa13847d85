"""A lake made by hand, a queue in a file, and what a replay has put there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from queuecraft import QueueCraft
from queuecraft.drivers.base import Delivery
from queuecraft.observers.journal.row import Row
from queuecraft.pipeline.columns import batch_of
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.segments import write_segment

R = TypeVar("R")

NOON = 1_767_268_800.0  # of the first of January 2026
DEEP = f'{{"deep":{"[" * 10_000}{"]" * 10_000}}}'  # headers that nobody can read


def captured(number: int, **more: Any) -> Row:
    """A message that a tap has taken: one a second, from noon on."""
    given: dict[str, Any] = {
        "kind": "captured",
        "at": NOON + 3600,
        "message_id": f"m-{number:05}",
        "queue": "tap",
        "exchange": "events",
        "event": "order.placed",
        "published_at": NOON + number,
        "content_type": "application/json",
        "payload": f'{{"n":{number}}}',
    }
    return Row(**{**given, **more})


def archive(folder: Path, rows: Sequence[Row]) -> Lake:
    """A lake with these rows in one more segment."""
    lake = Lake.at(folder)
    entries = [(row, None if row.payload is None else row.payload.encode()) for row in rows]
    write_segment(lake, batch_of(entries))
    return lake


class Broker:
    """A queue in a file, or another broker, and what is in it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def do(self, work: Callable[[QueueCraft], Awaitable[R]]) -> R:
        async def main() -> R:
            async with QueueCraft(self.url) as qc:
                return await work(qc)

        return asyncio.run(main())

    def declare(self, queue: str, *events: str) -> None:
        self.do(lambda qc: qc.admin.declare(queue, *events))

    def received(self, queue: str) -> list[Delivery]:
        """What waits in a queue, in order."""

        async def look(qc: QueueCraft) -> list[Delivery]:
            driver = qc._engine.connection.current
            assert driver is not None
            return list(await driver.peek(queue, 1_000_000))

        return self.do(look)

    def ids(self, queue: str) -> list[str]:
        return [each.sent.id for each in self.received(queue)]
