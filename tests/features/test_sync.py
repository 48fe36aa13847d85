"""Publishing from plain code, on every broker."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from queuecraft import Event
from queuecraft.sync import QueueCraft

number = Event("number", int)


async def test_what_threads_publish_is_confirmed_and_there(url: str) -> None:
    def publish() -> tuple[list[str], list[str]]:
        with QueueCraft(url) as qc:
            qc.admin.declare("numbers", "number")
            with ThreadPoolExecutor(4) as threads:
                ids = list(threads.map(lambda each: qc.publish(number, each), range(20)))
            ids += qc.publish_many(number, range(20, 30))
            assert qc.health_check().ok
            return ids, [each.id for each in qc.admin.peek("numbers", limit=50)]

    ids, found = await asyncio.to_thread(publish)
    assert len(set(ids)) == 30
    assert sorted(found) == sorted(ids)
