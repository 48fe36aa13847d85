"""On every broker: what comes twice is handled once, what is published twice is sent once."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

from queuecraft import Event, Message, QueueCraft, Worker
from queuecraft.middleware import Deduplicate, Idempotent, MemoryClaims, SqliteClaims
from tests.features.life import running, until

order_placed = Event("order.placed", str)


async def test_a_message_that_comes_again_is_handled_once(url: str, tmp_path: Path) -> None:
    qc = QueueCraft(url)
    claims = SqliteClaims(tmp_path / "claims.db")
    qc.use(Idempotent(claims))
    qc.use_publishing(Deduplicate(MemoryClaims(), "once"))
    worker = qc.worker("billing", concurrency=4)
    seen: Counter[str] = Counter()

    @worker.on(order_placed)
    async def charge(order: str, message: Message) -> None:
        seen[message.id] += 1
        if order == "fails" and seen[message.id] == 1:
            await message.retry(delay=0)

    async with qc, running(worker):
        for _ in range(3):
            await qc.publish(order_placed, "same", message_id="m-1")
        sent = [await qc.publish(order_placed, "", headers={"once": "o-1"}) for _ in range(3)]
        await qc.publish(order_placed, "fails", message_id="m-2")
        await until(lambda: qc.get_metrics().messages_succeeded == 5)
    assert len(set(sent)) == 1
    assert seen == {"m-1": 1, sent[0]: 1, "m-2": 2}


async def test_what_one_worker_has_handled_another_acknowledges_unrun(
    url: str, tmp_path: Path
) -> None:
    qc = QueueCraft(url)
    seen: Counter[str] = Counter()

    def another() -> Worker:
        # As in another process: nothing is shared but the file.
        claims = SqliteClaims(tmp_path / "claims.db")
        once = Idempotent(claims, lambda message: message.payload)
        worker = qc.worker("billing", concurrency=4, middleware=[once])

        @worker.on(order_placed)
        async def charge(order: str) -> None:
            seen[order] += 1

        return worker

    orders = [f"o-{n}" for n in range(10)]
    async with qc, running(another(), another()):
        for succeeded in (10, 20, 30):
            await qc.publish_many(order_placed, orders)
            await until(partial(_succeeded, qc, succeeded))
    assert seen == dict.fromkeys(orders, 1)


def _succeeded(qc: QueueCraft, count: int) -> bool:
    return qc.get_metrics().messages_succeeded == count
