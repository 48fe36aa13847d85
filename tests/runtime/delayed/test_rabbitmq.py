"""Delayed messages for a broker that has no place for them: they wait in a file."""

from __future__ import annotations

import asyncio
from pathlib import Path

from queuecraft import DelayedSettings, Event, Exchange, Queue, QueueCraft

order_placed = Event("order.placed", dict, exchange=Exchange("shop", "direct"))


async def test_messages_wait_in_a_file_and_move_to_rabbitmq(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    settings = DelayedSettings(store=str(tmp_path / "shelf.db"))
    got: asyncio.Queue[tuple[str, dict[str, int]]] = asyncio.Queue()
    adder = QueueCraft(rabbitmq_url, delayed=settings)
    mover = QueueCraft(rabbitmq_url, delayed=settings)
    worker = mover.worker("billing")

    @worker.on(order_placed)
    async def note(order: dict[str, int]) -> None:
        got.put_nowait(("event", order))

    @worker.on(Queue("billing", dict))
    async def note_queue(order: dict[str, int]) -> None:
        got.put_nowait(("queue", order))

    async with adder:
        await adder.delayed.add(order_placed, {"n": 1}, delay=0.2)
        await adder.delayed.add(Queue("billing", dict), {"n": 2}, delay=0.2)
    async with mover:
        async with mover.delayed.running(), asyncio.timeout(30):
            await worker.start()
            handled = [await got.get(), await got.get()]
        assert sorted(handled, key=str) == [("event", {"n": 1}), ("queue", {"n": 2})]
        assert (await mover.delayed.stats()).size == 0
