"""What waits for its time outlives the queue it is to come back to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from queuecraft import Message, Queue, QueueCraft, Retry, Worker
from queuecraft.facts import MessageRetried
from tests.brokers.rabbitmq import RabbitMQ
from tests.faults.rabbitmq.handlers import Seen, at_work, until
from tests.faults.rabbitmq.unsettled import Unsettled

pytestmark = pytest.mark.faults  # minutes in all; `make faults` runs it

PATIENCE = "dead_letter_worker_publisher_confirm_timeout"


@pytest.fixture
def eager(rabbitmq: RabbitMQ) -> Iterator[None]:
    """A broker that tries again each second, not every three minutes, to hand over what is due.

    Queues learn of it when they are declared.
    """
    assert "{ok,180000}" in rabbitmq.ctl("eval", f"application:get_env(rabbit, {PATIENCE}).")
    rabbitmq.ctl("eval", f"application:set_env(rabbit, {PATIENCE}, 1000).")
    yield
    rabbitmq.ctl("eval", f"application:set_env(rabbit, {PATIENCE}, 180000).")


@pytest.mark.xfail(
    reason="what finds its queue missing when it is due is kept in qc.undelivered.dlq, so that it "
    "holds up nobody; a queue that is declared again does not take it back by itself yet"
)
@pytest.mark.usefixtures("eager")
async def test_retries_and_delayed_messages_arrive_though_their_queue_was_missing_when_due(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    seen, retried = Seen(), asyncio.Event()
    jobs = list(range(20))

    async def fails_first(payload: object, message: Message) -> None:
        if message.attempt == 1 and payload in jobs:
            raise ValueError("not yet")
        await seen(payload, message)

    def worker_of(qc: QueueCraft) -> Worker:
        retry = Retry(max_retries=1, initial_delay=0.7)
        return qc.worker("billing", retry=retry, concurrency=20).on("order.*", fails_first)

    async with QueueCraft(rabbitmq_url) as qc:
        waiting: list[MessageRetried] = []

        def note(fact: MessageRetried) -> None:
            waiting.append(fact)
            if len(waiting) == len(jobs):
                retried.set()

        qc.observe(MessageRetried, note)
        async with at_work(worker_of(qc)):
            await qc.publish_many("order.placed", jobs)
            await retried.wait()
        await qc.send(Queue("billing"), "delayed", delay=0.7)
        due = time.monotonic() + 1.3
        await qc.admin.delete("billing")

        async def is_past() -> bool:
            return time.monotonic() > due

        await until(is_past)
        assert Unsettled(rabbitmq.management, rabbitmq_url).count() > 0

    async with QueueCraft(rabbitmq_url) as qc, at_work(worker_of(qc)):
        await seen.has(*jobs, "delayed")

    assert sorted(each.attempt for each in seen.messages if each.payload in jobs) == [2] * 20
