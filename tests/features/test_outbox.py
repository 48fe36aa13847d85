"""The outbox, on every broker."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from queuecraft import Event, Message, NoRetry, QueueCraft
from queuecraft.outbox import Outbox
from tests.features.life import running, until

number = Event("number", int)
outbox = Outbox()


async def test_what_is_committed_arrives_in_order_and_what_nobody_wants_is_kept(
    url: str, tmp_path: Path
) -> None:
    seen: list[tuple[str, int, str | None]] = []
    qc = QueueCraft(url)
    worker = qc.worker("numbers")

    @worker.on(number)
    async def note(value: int, message: Message[int]) -> None:
        seen.append((message.id, value, message.key))

    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        outbox.create(shop)
        ids = [outbox.publish(shop, number, each, key="k") for each in range(5)]
        ids.append(outbox.send(shop, "numbers", 5))
        lost = outbox.send(shop, "nobody", 6)
        shop.commit()
        async with qc, running(worker):
            await outbox.relay(qc, f"sqlite:///{tmp_path}/shop.db", once=True, retry=NoRetry())
            await until(lambda: len(seen) == 6)
        assert [each.id for each in outbox.refused(shop)] == [lost]

    of_key = [(id, value) for id, value, key in seen if key == "k"]
    assert of_key == list(zip(ids, range(5), strict=False))
    assert {id for id, _, _ in seen} == set(ids)
