"""A Redis that goes away takes no claim with it, and nothing is handled without one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from queuecraft import ConnectionLost, Event, QueueCraft
from queuecraft.middleware import Idempotent, RedisClaims
from queuecraft.stores.claims.base import CLAIMED, Busy, Done
from tests.features.life import running, until
from tests.proxy import Proxy

number = Event("number", int)


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    with Proxy.to(redis_url) as proxy:
        yield proxy


async def test_a_connection_that_was_cut_is_made_again(redis_url: str, proxy: Proxy) -> None:
    claims = RedisClaims(proxy.url(redis_url))
    other = RedisClaims(redis_url)
    assert await claims.claim("a", 60) is CLAIMED
    proxy.cut()
    assert await claims.claim("b", 60) is CLAIMED
    proxy.cut()
    assert await claims.complete("a", 60, b"1")
    proxy.cut()
    await claims.release("b")
    assert await other.claim("a", 60) == Done(b"1")
    assert await other.claim("b", 60) is CLAIMED
    assert claims.trouble is None
    for each in (claims, other):
        await each.close()


async def test_a_claim_whose_answer_was_lost_is_still_ours(redis_url: str, proxy: Proxy) -> None:
    claims = RedisClaims(proxy.url(redis_url))
    assert await claims.claim("first", 60) is CLAIMED
    used_up = proxy.cut_after(0, to="client")
    assert await claims.claim("a", 60) is CLAIMED
    assert used_up.is_set()
    other = RedisClaims(redis_url)
    assert isinstance(await other.claim("a", 60), Busy)
    for each in (claims, other):
        await each.close()


async def test_messages_wait_for_a_redis_that_is_away(
    redis_url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuecraft.middleware.idempotency.AWAY", 0.1)
    monkeypatch.setattr("queuecraft.stores.claims.claims.LONGEST_PAUSE", 0.1)
    qc = QueueCraft("local://", concurrency=4)
    claims = RedisClaims(proxy.url(redis_url))
    qc.use(Idempotent(claims))
    worker = qc.worker("numbers")
    seen: list[int] = []

    @worker.on(number)
    async def handle(n: int) -> None:
        seen.append(n)

    async with qc, running(worker):
        await qc.publish(number, 0)
        await until(lambda: seen == [0])
        proxy.refuse()
        proxy.cut()
        await qc.publish_many(number, range(1, 10))
        await until(lambda: qc.get_metrics().messages_postponed >= 9)
        assert seen == [0]
        assert not qc.health_check().ok
        proxy.restore()
        await until(lambda: qc.get_metrics().messages_succeeded == 10)
        assert qc.health_check().ok
        assert qc.get_metrics().messages_failed == 0
    assert sorted(seen) == list(range(10))


async def test_a_redis_that_is_silent_counts_as_lost(
    redis_url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuecraft.stores.claims.claims.PATIENCE", 0.05)
    claims = RedisClaims(proxy.url(redis_url))
    await claims.claim("a", 60)
    proxy.black_hole()
    with pytest.raises(ConnectionLost, match="no answer"):
        await claims.claim("b", 60)
    proxy.restore()
    monkeypatch.setattr("queuecraft.stores.claims.claims.PATIENCE", 5)
    async with asyncio.timeout(10):
        assert await claims.claim("b", 60) is CLAIMED
    await claims.close()
