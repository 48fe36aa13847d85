"""What RabbitMQ itself sets aside, by age or for want of room, can be seen and sent back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from queuecraft import Queue, QueueCraft
from tests.faults.rabbitmq.handlers import Seen, at_work, until

LIMITS: Mapping[str, Mapping[str, Any]] = {
    "expired": {"x-message-ttl": 50},
    "maxlen": {"x-max-length": 2},
}

REASONS = {"expired": "expired", "maxlen": "queue-full"}


@pytest.mark.parametrize("reason", LIMITS)
async def test_what_the_broker_dead_letters_is_listed_and_can_be_sent_to_another_queue(
    rabbitmq_url: str, reason: str
) -> None:
    seen = Seen()
    short = Queue("short", arguments=LIMITS[reason])
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.worker(short).on("order.*", seen).declare()
        ids = [await qc.publish("order.placed", {"n": n}) for n in range(5)]
        gone = ids if reason == "expired" else ids[:3]

        async def are_dead() -> bool:
            return await qc.dead_letters.count("short") == len(gone)

        await until(are_dead)
        letters = await qc.dead_letters.list("short")
        assert [each.id for each in letters] == gone
        assert [qc.admin.payload_of(each)["n"] for each in letters] == [*range(len(gone))]
        assert {(each.queue, each.event, each.reason, each.failures) for each in letters} == {
            ("short", "order.placed", REASONS[reason], 0)
        }

        mended = qc.worker("mended").on("order.*", seen)
        async with at_work(mended):
            report = await qc.dead_letters.redrive("short", to="mended")
            assert (report.moved, report.refused) == (len(gone), 0)
            await seen.until(lambda: len(seen.messages) >= len(gone))
        assert [each.id for each in seen.messages] == gone
        assert await qc.dead_letters.count("short") == 0
