"""Requests and replies, the same on every broker."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

import pytest

from queuecraft import Event, QueueCraft, RemoteError, RequestTimeout
from tests.features.life import running, until
from tests.proxy import Proxy


@dataclass
class Question:
    article: str
    pieces: int


@dataclass
class Price:
    article: str
    total: float


price_asked = Event("price.asked", Question)


async def test_many_requests_at_once_each_get_their_own_reply_or_error(url: str) -> None:
    async with QueueCraft(url) as shop, QueueCraft(url) as caller:
        if url == "local://":  # which each has for itself
            caller = shop
        pricing = shop.worker("pricing", concurrency=8)

        @pricing.on(price_asked)
        async def price(question: Question) -> Price:
            if question.pieces == 13:
                raise LookupError(f"no price for {question.article}")
            await asyncio.sleep(0)
            return Price(question.article, question.pieces * 1.5)

        async with running(pricing):
            asked = [
                caller.request(price_asked, Question(f"a-{n}", n), Price, timeout=20)
                for n in range(30)
            ]
            replies = await asyncio.gather(*asked, return_exceptions=True)

        failed = replies.pop(13)
        expected = [Price(f"a-{n}", n * 1.5) for n in range(30) if n != 13]
        assert replies == expected
        assert isinstance(failed, RemoteError)
        assert (failed.error_type, failed.error) == ("LookupError", "no price for a-13")
        assert await drained(shop, "pricing")


async def test_a_request_that_nobody_answers_in_time_ends_and_leaves_nothing(url: str) -> None:
    async with QueueCraft(url) as shop:
        pricing = shop.worker("pricing")
        handled: list[Question] = []
        pricing.on(price_asked, handled.append)
        await pricing.declare()
        with pytest.raises(RequestTimeout, match=r"no reply came within 1 s"):
            await shop.request(price_asked, Question("tea", 1), Price, timeout=1)
        await asyncio.sleep(0.5)  # its time began when it was made, a moment after ours
        async with running(pricing):
            await shop.publish(price_asked, Question("coffee", 2))
            await until(lambda: handled)
            # Another partition may bring the request that is too late after what came later.
            assert await drained(shop, "pricing")
        assert [each.article for each in handled] == ["coffee"]


async def test_the_queue_of_replies_goes_with_who_asked(url: str) -> None:
    async with QueueCraft(url) as shop:
        caller = shop if url == "local://" else QueueCraft(url)
        pricing = shop.worker("pricing")
        pricing.on(price_asked, _price)
        async with running(pricing):
            reply = await caller.request(price_asked, Question("tea", 2), Price, timeout=20)
            assert reply == Price("tea", 3.0)
            if caller is not shop:
                await caller.shutdown()
                assert await reply_queues(shop) == []


@pytest.mark.parametrize("url", ["rabbitmq", "redis lists", "redis streams"], indirect=True)
async def test_a_reply_outlives_the_connection_of_who_asked(url: str) -> None:
    with Proxy.to(url) as proxy:
        away = QueueCraft(proxy.url(url), reconnect_delay=0.05)
        async with QueueCraft(url) as shop, away as caller:
            pricing = shop.worker("pricing")
            go, begun = asyncio.Event(), asyncio.Event()

            @pricing.on(price_asked)
            async def price(question: Question) -> Price:
                begun.set()
                await go.wait()
                return await _price(question)

            async with running(pricing):
                asking = caller.request(price_asked, Question("tea", 2), Price, timeout=20)
                waiting = asyncio.ensure_future(asking)
                await begun.wait()
                proxy.refuse()
                proxy.cut()
                await until(lambda: caller.connection_state == "reconnecting")
                go.set()
                await until(lambda: pricing.counters.succeeded == 1)
                proxy.restore()
                assert await waiting == Price("tea", 3.0)


@pytest.mark.parametrize("url", ["file"], indirect=True)
async def test_the_queue_of_replies_does_not_outlive_who_was_killed(url: str) -> None:
    async with QueueCraft(url) as shop:
        pricing = shop.worker("pricing")
        asked: list[Question] = []
        pricing.on(price_asked, asked.append)
        await pricing.declare()
        script = f"""
import asyncio
from queuecraft import QueueCraft

async def main():
    await QueueCraft({url!r}).request("price.asked", {{"article": "tea", "pieces": 1}}, timeout=60)

asyncio.run(main())
"""
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
        async with asyncio.timeout(30):
            while not (await shop.admin.inspect("pricing")).ready:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert len(await reply_queues(shop)) == 1
        child.kill()
        await child.wait()
        async with running(pricing):
            await until(lambda: pricing.counters.succeeded == 1)
        assert await reply_queues(shop) == []


@pytest.mark.parametrize("url", ["file"], indirect=True)
async def test_a_request_whose_worker_was_killed_is_answered_by_another(url: str) -> None:
    async with QueueCraft(url) as shop:
        pricing = shop.worker("pricing")
        pricing.on(price_asked, _price)
        await pricing.declare()
        script = f"""
import asyncio, os, signal
from queuecraft import QueueCraft

worker = QueueCraft({url!r}).worker("pricing")

@worker.on("price.asked")
async def die(question: dict) -> None:
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(worker.run())
"""
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
        asking = shop.request(price_asked, Question("tea", 2), Price, timeout=30)
        waiting = asyncio.ensure_future(asking)
        await child.wait()
        async with running(pricing):
            assert await waiting == Price("tea", 3.0)


async def reply_queues(qc: QueueCraft) -> list[str]:
    """The queues of those who wait for replies, or did."""
    names = [each.name for each in await qc.admin.queues()]
    return [name for name in names if name.startswith("qc.reply.")]


async def _price(question: Question) -> Price:
    return Price(question.article, question.pieces * 1.5)


async def drained(qc: QueueCraft, queue: str) -> bool:
    """Whether nothing is left of the requests, neither in the queue nor beside it."""
    async with asyncio.timeout(20):
        while True:
            info = await qc.admin.inspect(queue)
            if not info.ready and not info.in_flight:
                return not info.dead
            await asyncio.sleep(0.05)
