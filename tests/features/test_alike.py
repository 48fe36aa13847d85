"""What a test sees without a broker is what happens with one: the same story on each."""

from __future__ import annotations

from typing import Any

from queuecraft import DeadLetter, Event, Message, QueueCraft, Retry, Worker
from queuecraft.facts import (
    MessageDeadLettered,
    MessageExpired,
    MessageRetried,
    MessagesSucceeded,
)
from queuecraft.model.outcome import DeadLettered, Retried
from queuecraft.testing import MockQueueCraft, testing
from tests.features.life import running, until

number = Event("number", int)
RETRY = Retry(max_retries=1, initial_delay=0.05, jitter=0)
ENDS = 5  # of the messages that are published below


def application(qc: QueueCraft) -> tuple[Worker, list[str]]:
    """Handlers that do well, fail once, fail always or ask for the end; and what is told."""
    story: list[str] = []
    worker = qc.worker("numbers", retry=RETRY, dead_letter=DeadLetter())

    @worker.on(number)
    async def handle(n: int, message: Message) -> None:
        story.append(f"handle {n} attempt {message.attempt} {message.headers.get('x-tenant')!r}")
        if n == 1 and message.attempt == 1:
            raise OSError("once")
        if n == 2:
            raise ValueError("always")
        if n == 3:
            await message.dead_letter("not wanted")

    def failure(fact: MessageRetried | MessageDeadLettered) -> str:
        return "" if fact.failure is None else f": {fact.failure.error_type}: {fact.failure.error}"

    qc.observe(
        MessageRetried,
        lambda fact: story.append(f"retried {fact.attempt} {fact.reason} {fact.delay}"),
    )
    qc.observe(
        MessageDeadLettered,
        lambda fact: story.append(f"dead {fact.attempt} {fact.reason}{failure(fact)}"),
    )
    qc.observe(MessageExpired, lambda fact: story.append("expired"))
    qc.observe(MessagesSucceeded, lambda fact: story.extend(["done"] * len(fact.deliveries)))
    return worker, story


async def publish_all(qc: QueueCraft) -> None:
    for n in range(4):
        await qc.publish(number, n, headers={"x-tenant": "acme"}, delay=0.0 if n else 0.1)
    text: Any = "three"
    await qc.publish("number", text)


def ends(story: list[str]) -> int:
    return sum(line.startswith(("done", "dead")) for line in story)


async def test_an_application_in_memory_does_what_it_does_on_a_broker(url: str) -> None:
    async with QueueCraft(url) as qc:
        worker, real = application(qc)
        async with running(worker):
            await publish_all(qc)
            await until(lambda: ends(real) == ENDS)
        letters = sorted(str(each.reason) for each in await qc.dead_letters.list("numbers"))
    qc = QueueCraft(url)
    worker, rehearsed = application(qc)
    async with testing(qc) as app:
        await publish_all(qc)
        await app.advance(1)
        kept = sorted(str(each.reason) for each in await qc.dead_letters.list("numbers"))
    assert sorted(rehearsed) == sorted(real)
    assert kept == letters == ["handler-error", "invalid-payload", "not wanted"]


async def test_a_mock_says_what_becomes_of_a_message_on_a_broker(url: str) -> None:
    async with QueueCraft(url) as qc:
        worker, real = application(qc)
        async with running(worker):
            for n in (0, 2, 3):
                await qc.publish(number, n)
            await until(lambda: ends(real) == 3)
    async with MockQueueCraft() as mock:
        worker, _ = application(mock)
        assert type(await mock.deliver(worker, 0)).__name__ == "Acked"
        first = await mock.deliver(worker, 2)
        second = await mock.deliver(worker, 2, attempt=2)
        third = await mock.deliver(worker, 3)
    assert isinstance(first, Retried)
    assert f"retried 1 {first.reason} {first.delay}" in real
    assert isinstance(second, DeadLettered)
    assert second.failure is not None
    assert f"dead 2 {second.reason}: ValueError: {second.failure.error}" in real
    assert isinstance(third, DeadLettered)
    assert f"dead 1 {third.reason}" in real
