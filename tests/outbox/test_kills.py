"""A process that dies on any line, selling or relaying, loses nothing and invents nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from queuecraft import NoRetry, QueueCraft
from queuecraft.outbox import lease
from tests.faults.failpoints import SOURCE, found_in
from tests.outbox.conftest import connected
from tests.outbox.programs import LENGTH, lost, outbox, run, sell

RELAYING = ("outbox.after_read", "outbox.after_send", "outbox.before_commit", "outbox.after_commit")
SELLING = ("outbox.after_insert",)
AGAIN = {"outbox.after_send", "outbox.before_commit"}
"""The broker has them, and the table does not know: they are published again."""

DATABASES = pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.faults)], indirect=True
)


@pytest.fixture(autouse=True)
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LENGTH", LENGTH)


async def published(qc: QueueCraft) -> list[tuple[str, int]]:
    return [(each.id, each.payload) for each in await qc.admin.peek("sales", limit=1000)]


@DATABASES
@pytest.mark.parametrize(
    "point",
    [each if each in AGAIN else pytest.param(each, marks=pytest.mark.faults) for each in RELAYING],
)
async def test_a_relay_is_killed_and_another_goes_on(
    point: str, database: str, tmp_path: Path
) -> None:
    url = f"local://{tmp_path}/queue.db"
    async with QueueCraft(url) as qc:
        await qc.admin.declare("sales", "sold")
        sell(database, 0)

        assert run("relay", database, url, killed_at=point) == -9
        before = await published(qc)
        sell(database, 10)
        await outbox.relay(qc, database, once=True)

        after = await published(qc)
    counts = Counter(after)
    assert {payload for _, payload in after} == set(range(20))
    assert len(counts) == 20  # a repeated one is recognised by its id
    repeated = {one for one, times in counts.items() if times > 1}
    assert bool(repeated) is (point in AGAIN)
    assert repeated <= set(before)
    first_seen = list(dict.fromkeys(payload for _, payload in after))
    for key in range(3):
        of_key = [number for number in first_seen if number % 3 == key]
        assert of_key == sorted(of_key)


@DATABASES
@pytest.mark.parametrize("point", SELLING)
async def test_a_sale_is_killed_and_publishes_what_it_had_sold(
    point: str, database: str, tmp_path: Path
) -> None:
    assert run("sell", database, "0", killed_at=point) == -9
    assert run("sell", database, "10") == 0

    async with QueueCraft() as qc:
        await qc.admin.declare("sales", "sold")
        await outbox.relay(qc, database, once=True)
        told = {payload for _, payload in await published(qc)}
    with connected(database) as shop:
        cursor = shop.cursor()
        cursor.execute("SELECT id FROM orders")
        assert {int(id) for (id,) in cursor.fetchall()} == told == set(range(10, 20))


@DATABASES
async def test_a_relay_is_killed_as_it_keeps_a_message_aside(database: str, tmp_path: Path) -> None:
    url = f"local://{tmp_path}/queue.db"
    with connected(database) as shop:
        outbox.publish(shop, lost, 1)
        shop.commit()

    assert run("relay", database, url, killed_at="outbox.before_commit") == -9
    with connected(database) as shop:
        assert (outbox.waiting(shop), outbox.refused(shop)) == (1, [])

    async with QueueCraft(url) as qc:
        await outbox.relay(qc, database, once=True, retry=NoRetry())
    with connected(database) as shop:
        assert (outbox.waiting(shop), len(outbox.refused(shop))) == (0, 1)


def test_no_failpoint_of_the_outbox_is_forgotten() -> None:
    sources = (path.read_text(encoding="utf-8") for path in (SOURCE / "outbox").glob("*.py"))
    assert {*RELAYING, *SELLING} == {point for source in sources for point in found_in(source)}
