"""What is around handlers and publishing works the same on every broker."""

from __future__ import annotations

from time import monotonic

from queuecraft import Event, Message, NoRetry, QueueCraft
from queuecraft.middleware import (
    Breaker,
    Duplicator,
    Logging,
    Middleware,
    OutageGuard,
    Postponed,
    Publication,
    Publish,
    RateLimit,
    Timeout,
    Validation,
)
from tests.features.life import running, until

number = Event("number", int)


def stamped(publish: Publish) -> Publish:
    """Adds a header to all that is published."""

    async def stamping(publication: Publication) -> str:
        publication.set_header("x-tenant", "acme")
        return await publish(publication)

    return stamping


def positive(n: int) -> None:
    """No other numbers."""
    if n < 0:
        raise ValueError(f"{n} is below zero")


async def test_all_of_it_together(url: str) -> None:
    seen: list[tuple[int, object, int]] = []
    moments: list[float] = []
    around: list[Middleware] = [
        Logging(),
        Timeout(20),
        Validation(positive),
        RateLimit(20, burst=2),
        Duplicator(),
    ]
    async with QueueCraft(
        url, middleware=around, publish_middleware=[stamped], breaker=Breaker("broker")
    ) as qc:
        worker = qc.worker("numbers", concurrency=2, prefetch=10, retry=NoRetry())

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.append((n, message.headers.get("x-tenant"), message.attempt))
            moments.append(monotonic())

        async with running(worker):
            await qc.publish_many(number, [1, 2, 3, 4, -5, 6])
            await until(lambda: len(seen) == 10 and qc.get_metrics().messages_dead_lettered)
            await until(lambda: qc.get_metrics().in_flight == 0)
            metrics = qc.get_metrics()
            assert (metrics.messages_succeeded, metrics.messages_failed) == (5, 1)
            assert metrics.messages_postponed >= 3
            (letter,) = await qc.dead_letters.list("numbers")
            assert (letter.reason, letter.error) == ("invalid-payload", "-5 is below zero")
    assert sorted(n for n, _, _ in seen) == [1, 1, 2, 2, 3, 3, 4, 4, 6, 6]
    assert {(tenant, attempt) for _, tenant, attempt in seen} == {("acme", 1)}
    assert max(moments) - min(moments) > 0.1  # 20 a second, after two at once


async def test_in_an_outage_nothing_is_lost_and_nothing_is_dead(url: str) -> None:
    up, asked, paid = False, 0, list[int]()
    guard = OutageGuard(failure_rate=0.5, minimum=3, probe_every=0.2)
    async with QueueCraft(url) as qc:
        worker = qc.worker("numbers", concurrency=1, prefetch=5, middleware=[guard])

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            nonlocal asked
            asked += 1
            if n == 0 and message.attempt == 1 and asked == 1:
                raise Postponed(0.05)
            if not up:
                raise OSError("the bank is closed")
            paid.append(n)

        async with running(worker):
            await qc.publish_many(number, range(12))
            await until(lambda: guard.state != "closed" and asked > 5)
            up = True
            await until(lambda: len(paid) == 12)
            await until(lambda: qc.get_metrics().in_flight == 0)
        assert sorted(paid) == list(range(12))
        assert qc.get_metrics().messages_dead_lettered == 0
        assert guard.state == "closed"
