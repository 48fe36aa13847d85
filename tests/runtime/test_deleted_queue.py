"""A queue that is deleted under its worker is made again, and no other worker is disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from queuecraft import Message, QueueCraft
from queuecraft.drivers.base import QueueInfo
from queuecraft.facts import Disconnected
from queuecraft.testing import Ledger
from tests.runtime.support import Order, order_paid, order_placed, running


@pytest.fixture(params=["memory", "file", "rabbitmq"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "rabbitmq":
        return str(request.getfixturevalue("rabbitmq_url"))
    return "local://" if request.param == "memory" else f"local:///{tmp_path / 'queue.db'}"


@pytest.mark.parametrize("paused", [True, False])
async def test_a_queue_deleted_under_a_worker_costs_its_neighbours_nothing(
    url: str, paused: bool
) -> None:
    seen, begun, may_end = Ledger(), asyncio.Event(), asyncio.Event()
    lost: list[Disconnected] = []

    async def slow(order: Order, message: Message[Order]) -> None:
        begun.set()
        await may_end.wait()
        seen.record("audit", message)

    async with QueueCraft(url, reconnect_delay=0.01) as qc:
        qc.observe(Disconnected, lost.append)
        billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
        audit = qc.worker("audit").on(order_paid, slow)
        async with running(billing, audit):
            await qc.publish(order_placed, Order("o-1"))
            await qc.publish(order_paid, Order("o-2"))
            await seen.wait_for(billing=1)
            await begun.wait()
            if paused:
                billing.pause()
                if url.startswith("amqp"):  # begins anew when it is resumed
                    await until(qc, lambda found: found[0].consumers == 0)
            await qc.admin.delete("billing")
            billing.resume()
            await until(qc, lambda found: found and found[0].consumers)
            await qc.publish(order_placed, Order("o-3"))
            await seen.wait_for(billing=2)
            may_end.set()
            await seen.wait_for(audit=1)
        assert lost == []
        assert len(seen.calls) == 3
        assert (await qc.admin.inspect("audit")).ready == 0


async def until(qc: QueueCraft, enough: Callable[[Sequence[QueueInfo]], object]) -> None:
    """Wait until the broker says so of the queue."""
    async with asyncio.timeout(10):
        while not enough(await qc.admin.queues("billing")):  # noqa: ASYNC110  it tells nobody
            await asyncio.sleep(0.02)
