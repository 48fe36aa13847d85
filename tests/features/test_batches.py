"""On every broker, a handler of lists gets batches, and each message of them has its own end."""

from __future__ import annotations

import asyncio
from typing import Any

from queuecraft import BatchFailed, Event, Message, NoRetry, QueueCraft, Retry
from queuecraft.facts import MessagesAcked
from tests.features.life import running, until

SIZE = 20
number = Event("number", int)


async def emptied(qc: QueueCraft, queue: str = "numbers") -> None:
    """Return once nothing waits in the queue, and nothing is held."""
    async with asyncio.timeout(25):
        while True:
            info = await qc.admin.inspect(queue)
            if not (info.ready or info.in_flight or info.delayed):
                return
            await asyncio.sleep(0.02)


async def test_a_batch_is_acknowledged_as_one_after_its_handler(url: str) -> None:
    acked: list[int] = []
    inside: list[list[int]] = []
    leave = asyncio.Event()
    qc = QueueCraft(url)
    qc.observe(MessagesAcked, lambda fact: acked.append(len(fact.deliveries)))
    worker = qc.worker("numbers", batch_wait=20)

    @worker.on(number, batch_size=SIZE)
    async def store(numbers: list[int]) -> None:
        inside.append(numbers)
        await leave.wait()

    async with qc:
        await qc.publish_many(number, range(SIZE))
        async with running(worker):
            await until(lambda: inside)
            assert acked == []
            leave.set()
            await until(lambda: acked)
            await emptied(qc)
        assert sorted(inside[0]) == list(range(SIZE))
        assert (len(inside), acked) == (1, [SIZE])


async def test_what_is_there_is_handled_in_batches_up_to_their_size(url: str) -> None:
    seen: list[list[int]] = []
    qc = QueueCraft(url)
    worker = qc.worker("numbers", concurrency=2, batch_size=SIZE)

    @worker.on(number)
    def store(numbers: list[int], messages: list[Message[int]]) -> None:
        assert numbers == [message.payload for message in messages]
        seen.append(numbers)

    async with qc:
        await qc.publish_many(number, range(10 * SIZE))
        async with running(worker):
            await until(lambda: sum(map(len, seen)) >= 10 * SIZE)
            await emptied(qc)
    assert sorted(each for batch in seen for each in batch) == list(range(10 * SIZE))
    assert max(map(len, seen)) <= SIZE
    assert len(seen) < 5 * SIZE


async def test_those_fail_that_the_handler_names_and_the_others_do_not(url: str) -> None:
    seen: list[tuple[int, int]] = []
    qc = QueueCraft(url, retry=Retry(max_retries=1, initial_delay=0.1))
    worker = qc.worker("numbers", batch_size=SIZE, batch_wait=0.2)

    @worker.on(number)
    async def store(numbers: list[int], messages: list[Message[int]]) -> None:
        seen.extend((message.payload, message.attempt) for message in messages)
        thirds = [place for place, each in enumerate(numbers) if each % 3 == 0]
        raise BatchFailed({place: ValueError(f"no {numbers[place]}") for place in thirds})

    async with qc:
        await qc.publish_many(number, range(SIZE))
        async with running(worker):
            await until(lambda: qc.get_metrics().messages_dead_lettered == 7)
            await emptied(qc)
            dead = await qc.dead_letters.list("numbers")
    failing = [each for each in range(SIZE) if each % 3 == 0]
    assert sorted(seen) == sorted([(n, 1) for n in range(SIZE)] + [(n, 2) for n in failing])
    assert sorted((int(each.body), each.error) for each in dead) == [
        (each, f"no {each}") for each in failing
    ]


async def test_a_batch_that_fails_is_kept_with_all_its_messages(url: str) -> None:
    qc = QueueCraft(url, retry=NoRetry())
    worker = qc.worker("numbers", batch_size=SIZE)

    @worker.on(number)
    async def store(numbers: list[int]) -> None:
        raise ValueError("the disk is full")

    async with qc:
        await qc.publish_many(number, range(SIZE))
        await qc.publish("number", "not a number")
        async with running(worker):
            await until(lambda: qc.get_metrics().messages_dead_lettered == SIZE + 1)
            await emptied(qc)
            dead = await qc.dead_letters.list("numbers")
    reasons = sorted(each.reason or "" for each in dead)
    assert reasons == ["handler-error"] * SIZE + ["invalid-payload"]


async def test_messages_of_one_key_keep_their_order_through_failing_batches(url: str) -> None:
    handled: dict[str | None, list[int]] = {}
    calls = 0
    qc = QueueCraft(url, retry=Retry(max_retries=50, initial_delay=0.02, factor=1))
    worker = qc.worker("numbers", ordering="key", concurrency=3, batch_size=5)

    @worker.on(number)
    async def store(messages: list[Message[int]]) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise ValueError("now and then")
        for message in messages:
            handled.setdefault(message.key, []).append(message.payload)

    async with qc:
        for each in range(60):
            await qc.publish(number, each, key=f"k-{each % 4}")
        async with running(worker):
            await until(lambda: sum(map(len, handled.values())) >= 60)
            await emptied(qc)
    wanted: dict[Any, list[int]] = {f"k-{k}": list(range(k, 60, 4)) for k in range(4)}
    assert handled == wanted


async def test_a_batch_given_back_by_a_stopping_worker_is_handled_by_the_next(url: str) -> None:
    inside: list[list[int]] = []
    qc = QueueCraft(url)
    worker = qc.worker("numbers", batch_size=SIZE)

    @worker.on(number)
    async def store(numbers: list[int]) -> None:
        inside.append(numbers)
        if len(inside) == 1:
            await asyncio.Event().wait()

    async with qc:
        await qc.publish_many(number, range(SIZE))
        await worker.start()
        await until(lambda: inside)
        await worker.stop(drain=False)
        async with running(worker):
            await until(lambda: sum(map(len, inside[1:])) >= SIZE)
            await emptied(qc)
    assert sorted(each for batch in inside[1:] for each in batch) == list(range(SIZE))
    assert qc.get_metrics().messages_failed == 0
