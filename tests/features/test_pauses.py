"""Pauses and signs of life, the same on every broker."""

from __future__ import annotations

import asyncio

from queuecraft import Message, QueueCraft
from queuecraft.model.presence import Presence
from tests.features.life import running, until

OFTEN = 0.1  # seconds between two looks


def shop(url: str, handled: list[int]) -> QueueCraft:
    """A process of its own, as far as the broker can tell."""
    qc = QueueCraft(url, presence=OFTEN)

    @qc.worker("billing").on("order.placed")
    async def charge(order: int) -> None:
        handled.append(order)

    return qc


async def test_a_paused_queue_waits_in_every_process_and_goes_on_when_it_is_resumed(
    url: str,
) -> None:
    handled: list[int] = []
    later: list[int] = []
    async with shop(url, handled) as one, QueueCraft(url) as operator:
        if url == "local://":  # which each has for itself
            operator = one
        assert await operator.admin.pauses() == {}
        (billing,) = one.workers
        async with running(billing):
            await one.publish("order.placed", 1)
            await until(lambda: handled == [1])
            await operator.admin.pause("billing", reason="the bank is down", by="ada")
            await until(lambda: billing.paused == "paused by ada: the bank is down")
            await one.publish("order.placed", 2)
        pause = (await operator.admin.pauses())["billing"]
        assert (pause.reason, pause.by, pause.paused) == ("the bank is down", "ada", True)

        # All have gone; whoever begins now finds it said.
        other = one if url == "local://" else shop(url, later)
        async with other:
            (billing,) = other.workers
            async with running(billing):
                assert billing.state == "paused"
                await other.publish("order.placed", 3)
                assert (handled, later) == ([1], [])
                await operator.admin.resume("billing", by="ada")
                await until(lambda: sorted(handled + later) == [1, 2, 3])
                assert billing.paused is None
            assert await operator.admin.pauses() == {}


async def test_what_comes_for_a_paused_worker_stays_in_its_queue(url: str) -> None:
    handled: list[int] = []
    async with QueueCraft(url) as qc:
        billing = qc.worker("billing", prefetch=5)

        @billing.on("order.placed")
        async def charge(order: int, message: Message[int]) -> None:
            assert message.redeliveries == 0
            handled.append(order)

        async with running(billing):
            await qc.publish("order.placed", 1)
            await until(lambda: handled == [1])
            billing.pause("by hand")  # while it waits for the next, and holds none
            for order in (2, 3, 4):
                await qc.publish("order.placed", order)
            async with asyncio.timeout(20):
                while (await qc.admin.inspect("billing")).ready != 3:  # noqa: ASYNC110  it tells nobody
                    await asyncio.sleep(0.01)
            assert handled == [1]
            billing.resume()
            await until(lambda: sorted(handled) == [1, 2, 3, 4])


async def test_a_process_with_workers_is_seen_until_it_has_stopped(url: str) -> None:
    handled: list[int] = []
    async with shop(url, handled) as one, QueueCraft(url) as operator:
        if url == "local://":
            operator = one

        async def seen() -> list[Presence]:
            await asyncio.sleep(0.01)
            found = await operator.admin.workers()
            assert found is not None
            return found

        assert await seen() == []
        async with running(*one.workers), asyncio.timeout(20):
            await one.publish("order.placed", 1)
            while not (told := await seen()) or not told[0].workers[0].succeeded:
                pass
            (process,) = told
            assert (process.state, process.every) == ("connected", OFTEN)
            (worker,) = process.workers
            assert (worker.queue, worker.succeeded, worker.failed) == ("billing", 1, 0)
        async with asyncio.timeout(20):
            while await seen():
                pass
