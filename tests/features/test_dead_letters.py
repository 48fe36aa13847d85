"""Dead letters on every broker: sent back with care, summed up, found, and forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

from queuecraft import Filter, NoRetry, QueueCraft, Redrive
from tests.features.life import running, until


class Shop:
    """A queue whose handler fails until it is mended."""

    def __init__(self, url: str) -> None:
        self.qc = QueueCraft(url, presence=1.0)
        self.mended = False
        self.handled: list[int] = []
        self.worker = self.qc.worker("billing", retry=NoRetry())

        @self.worker.on("order.placed")
        async def charge(order: dict[str, Any]) -> None:
            if not self.mended:
                kind = ValueError if order["n"] % 2 else KeyError
                raise kind(f"order {order['n']} is refused")
            self.handled.append(order["n"])

    async def fail(self, count: int) -> list[str]:
        ids = [await self.qc.publish("order.placed", {"n": n}) for n in range(count)]
        await until(lambda: self.worker.counters.dead_lettered == count)
        return ids


async def test_a_canary_that_dies_keeps_the_rest_from_dying(url: str) -> None:
    shop = Shop(url)
    told: list[Redrive] = []
    async with shop.qc as qc, running(shop.worker):
        await shop.fail(6)

        stopped = await qc.dead_letters.redrive("billing", canary=2, on_progress=told.append)

        assert "died again" in str(stopped.stopped)
        assert stopped.moved == 2
        assert told[0].waiting
        await until(lambda: shop.worker.counters.dead_lettered == 8)
        assert await qc.dead_letters.count("billing") == 6

        shop.mended = True
        done = await qc.dead_letters.redrive("billing", canary=2, patience=2)

        assert (done.stopped, done.moved) == (None, 6)
        await until(lambda: len(shop.handled) == 6)
        assert sorted(shop.handled) == list(range(6))
        assert await qc.dead_letters.count("billing") == 0


async def test_what_is_meant_is_found_summed_up_and_forgotten(url: str) -> None:
    shop = Shop(url)
    async with shop.qc as qc, running(shop.worker):
        ids = await shop.fail(5)

        found = await qc.dead_letters.find("billing", ids[3])
        groups = await qc.dead_letters.groups("billing")
        gone = await qc.dead_letters.delete("billing", where=Filter(error="KeyError"))

        assert found is not None
        assert found.error == "order 3 is refused"
        assert [(each.error_type, each.count) for each in groups] == [
            ("KeyError", 3),
            ("ValueError", 2),
        ]
        assert (gone.moved, gone.kept) == (3, 2)
        left = [each.id for each in await qc.dead_letters.list("billing")]
        in_order = not url.startswith("kafka:")  # there each partition has an order of its own
        assert (left if in_order else sorted(left, key=ids.index)) == [ids[1], ids[3]]


async def test_a_watch_sees_queues_workers_and_what_failed(url: str) -> None:
    shop = Shop(url)
    async with shop.qc as qc, qc.admin.watch() as watch, running(shop.worker):
        await shop.fail(3)
        async with asyncio.timeout(25):
            while True:
                seen = await watch.look()
                if seen.workers and seen.groups and seen.dead == 3:
                    break
                await asyncio.sleep(0.5)

        assert seen.state == "connected"
        assert seen.workers[0].queue == "billing"
        assert seen.workers[0].state == "running"
        assert [each.count for each in seen.groups] == [2, 1]
        (billing,) = [row for row in seen.queues if row.name == "billing"]
        assert (billing.ready, billing.dead) == (0, 3)
        assert not [row for row in seen.queues if row.name.startswith("queuecraft.")]
        assert seen.status == "warning"
        assert "billing" in " ".join(seen.reasons)
