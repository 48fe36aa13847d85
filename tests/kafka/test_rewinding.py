"""A queue is set back to a moment, and has again what it was given since."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from queuecraft import QueueCraft, QueueError
from queuecraft.cli import app
from queuecraft.testing import Ledger
from tests.kafka.place import Order, order_placed, running, topic, until


async def now() -> datetime:
    """A moment that is in no millisecond with what was before or comes next."""
    await asyncio.sleep(0.005)
    moment = datetime.now(UTC)
    await asyncio.sleep(0.005)
    return moment


async def handled(url: str, seen: Ledger, calls: int) -> None:
    """A worker comes, handles what there is, and goes."""
    qc = QueueCraft(url)
    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with qc, running(billing):
        await seen.wait_for(timeout=20, billing=calls)
        await until(lambda: qc.admin.inspect("billing"), lambda info: not info.ready)


async def test_what_came_since_a_moment_is_handled_again_and_nothing_older(url: str) -> None:
    seen = Ledger()
    async with QueueCraft(url) as qc:
        await qc.admin.declare("billing", "order.placed")
        await qc.publish_many(order_placed, [Order("old-1"), Order("old-2")])
        moment = await now()
        await qc.publish_many(order_placed, [Order(f"new-{n}") for n in range(5)])
        await handled(url, seen, 7)

        would = await qc.admin.rewind("billing", moment, dry_run=True)
        assert sum(each.messages for each in would) == 5
        assert {each.place.rpartition("/")[0] for each in would} == {topic(url, "order.placed")}
        assert (await qc.admin.inspect("billing")).ready == 0

        assert await qc.admin.rewind("billing", moment) == would
        assert (await qc.admin.inspect("billing")).ready == 5
        assert await qc.admin.rewind("billing", moment) == []
        await handled(url, seen, 12)
    again = sorted(order.id for order in seen.payloads()[7:])
    assert again == [f"new-{n}" for n in range(5)]


async def test_a_queue_is_set_back_to_its_binding_at_most_and_never_forwards(url: str) -> None:
    seen = Ledger()
    async with QueueCraft(url) as qc:
        await qc.publish(order_placed, Order("before"))
        await qc.admin.declare("billing", "order.placed")
        await qc.publish(order_placed, Order("o-1"))
        await handled(url, seen, 1)
        await qc.publish(order_placed, Order("o-2"))
        assert await qc.admin.rewind("billing", datetime.now(UTC) + timedelta(hours=1)) == []
        assert (await qc.admin.inspect("billing")).ready == 1
        await qc.admin.rewind("billing", datetime.fromtimestamp(0, UTC))
        await handled(url, seen, 3)
    assert sorted(order.id for order in seen.payloads()) == ["o-1", "o-1", "o-2"]


async def test_a_queue_with_workers_is_not_set_back(url: str) -> None:
    qc = QueueCraft(url)
    billing = qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    async with qc, running(billing):
        await until(lambda: qc.admin.inspect("billing"), lambda info: info.consumers)
        with pytest.raises(QueueError, match=r"has workers.*stop them first"):
            await qc.admin.rewind("billing", datetime.now(UTC), dry_run=True)


async def test_the_command_counts_asks_and_tells(url: str) -> None:
    seen = Ledger()
    async with QueueCraft(url) as qc:
        await qc.admin.declare("billing", "order.placed")
        await qc.publish_many(order_placed, [Order("o-1"), Order("o-2"), Order("o-3")])
        await handled(url, seen, 3)
        command = ["rewind", "billing", "--to", "1h", "--url", url]

        async def run(*more: str) -> tuple[int, str, str]:
            result = await asyncio.to_thread(CliRunner().invoke, app, [*command, *more])
            return result.exit_code, result.stdout, result.stderr

        code, out, _ = await run("--dry-run", "--json")
        told = json.loads(out)
        assert (code, told["messages"], told["dry_run"]) == (0, 3, True)
        assert sum(told["places"].values()) == 3
        code, out, err = await run()
        assert (code, out) == (2, "")
        assert "handle 3 messages of 'billing' again" in err
        assert (await qc.admin.inspect("billing")).ready == 0
        code, out, _ = await run("--yes")
        assert code == 0
        assert "3 messages of 'billing' come again" in out
        assert (await qc.admin.inspect("billing")).ready == 3
