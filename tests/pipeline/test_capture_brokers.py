"""Captures on real brokers, killed at every place where it could matter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from queuecraft import DeadLetter, Policy, QueueCraft
from queuecraft.drivers.base import Delivery, Outgoing, Queue
from queuecraft.drivers.redis.driver import RedisDriver
from queuecraft.model.errors import ConfigError, QueueError, UnsupportedFeature
from queuecraft.pipeline import capture as capturing
from queuecraft.pipeline import tap
from queuecraft.pipeline.capture import capture
from queuecraft.pipeline.lake import Lake
from tests.brokers.rabbitmq import RabbitMQ
from tests.pipeline.segments import dies, rows
from tests.rabbitmq.place import interface

TOGETHER = 10
COUNT = 25
PROGRAM = f"""
import asyncio, sys
from queuecraft import QueueCraft
from queuecraft.pipeline.capture import capture
from queuecraft.pipeline.lake import Lake

async def main():
    async with QueueCraft(sys.argv[1]) as qc:
        await capture(qc, "tap", Lake.at(sys.argv[2]), rows={TOGETHER}, once=True)

asyncio.run(main())
"""
IN_THE_LAKE = ("segment.after_rename", "capture.before_ack")
POINTS = ("capture.before_segment", "segment.before_rename", *IN_THE_LAKE, "capture.after_ack")
MOST_TELLING = ("segment.before_rename", "capture.before_ack")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


@pytest.mark.parametrize("point", POINTS)
async def test_the_embedded_queue(point: str, lake: Lake, tmp_path: Path) -> None:
    await _loses_nothing(f"local://{tmp_path / 'queue.db'}", point, lake)


@pytest.mark.parametrize("point", MOST_TELLING)
async def test_rabbitmq(point: str, lake: Lake, rabbitmq_url: str) -> None:
    await _loses_nothing(rabbitmq_url, point, lake)


@pytest.mark.parametrize(("point", "mode"), [*zip(MOST_TELLING, ("list", "stream"), strict=True)])
async def test_redis(point: str, mode: str, lake: Lake, redis_url: str) -> None:
    await _loses_nothing(f"{redis_url}&mode={mode}", point, lake)


@pytest.mark.faults
@pytest.mark.parametrize("point", MOST_TELLING)
async def test_kafka(point: str, lake: Lake, kafka_url: str) -> None:
    await _loses_nothing(kafka_url, point, lake)


@pytest.mark.faults
async def test_what_kafka_gives_to_another_member_is_captured_when_it_comes_again(
    lake: Lake,
    kafka_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    holds, stop = asyncio.Event(), asyncio.Event()

    class Telling(tap.Tap):
        async def receive(self, limit: int, wait: float) -> Sequence[Delivery] | None:
            if got := await super().receive(limit, wait):
                holds.set()
            return got

    monkeypatch.setattr(capturing, "Tap", Telling)
    url = f"{kafka_url}&drain_timeout=0.2&session_timeout=6"
    async with QueueCraft(url) as qc, QueueCraft(url) as another, asyncio.timeout(60):
        await qc.admin.declare("tap", "order.*", dead_letters=False)
        sent = set(await qc.publish_many("order.placed", [{"n": n} for n in range(COUNT)]))
        task = asyncio.create_task(capture(qc, "tap", lake, seconds=1000, stop=stop))
        await holds.wait()
        driver = await another._engine.connection.ready()
        other = await driver.subscribe(Queue("tap"), prefetch=1)
        assert await other.receive(1, 30)
        # Whoever waits for messages is told when that wait is over.
        while not any("cannot capture tap" in each.message for each in caplog.records):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        holds.clear()
        await other.close()
        await holds.wait()
        stop.set()
        await task
        await capture(qc, "tap", lake, once=True)
    assert {row["message_id"] for row in rows(lake)} == sent


FAILED = Policy(dead_letter=DeadLetter(queue="payments.failed"))


async def test_dead_letters_of_another_name_in_the_embedded_queue(
    lake: Lake, tmp_path: Path
) -> None:
    await _are_refused(f"local://{tmp_path / 'queue.db'}", lake)


async def test_dead_letters_of_another_name_on_rabbitmq(
    lake: Lake, rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    await _are_refused(f"{rabbitmq_url}?management={interface(rabbitmq)}", lake)


@pytest.mark.parametrize("mode", ["list", "stream"])
async def test_dead_letters_of_another_name_on_redis(lake: Lake, redis_url: str, mode: str) -> None:
    await _are_refused(f"{redis_url}&mode={mode}", lake)


@pytest.mark.faults
async def test_dead_letters_of_another_name_on_kafka(lake: Lake, kafka_url: str) -> None:
    await _are_refused(kafka_url, lake)


async def _are_refused(url: str, lake: Lake) -> None:
    """Whoever captures knows nothing of the workers, but the broker does; a tap on all dead letters
    has copies, but on Kafka."""
    async with QueueCraft(url) as qc:
        await qc.admin.declare(Queue("payments", policy=FAILED), "payment.*")
        await qc.admin.declare("billing", "order.*")
    async with QueueCraft(url) as qc:
        with pytest.raises(QueueError, match="holds dead letters"):
            await capture(qc, "payments.failed", lake, once=True)
        await qc.admin.declare("tap", "#", exchange="events.dlx", dead_letters=False)
        driver = await qc._engine.connection.ready()
        letter = Outgoing(b"{}", "m-1", exchange="events.dlx", routing_key="billing.dlq")
        await driver.send([letter])
        copies = not driver.traits.partitioned
        assert (await capture(qc, "tap", lake, once=True)).rows == copies
        assert [each.id for each in await qc.admin.peek("billing.dlq")] == ["m-1"]


async def test_what_redis_would_forget_is_refused(lake: Lake, redis_url: str) -> None:
    url = f"{redis_url}&mode=list"
    async with QueueCraft(url, redis_delivery="at-most-once") as qc:
        await qc.admin.declare("tap", dead_letters=False)
        with pytest.raises(ConfigError, match="a capture that dies loses what it holds"):
            await capture(qc, "tap", lake, once=True, force=True)
    async with QueueCraft(f"{redis_url}&mode=pubsub") as qc:
        await qc.admin.declare("live", "order.*", dead_letters=False)
        with pytest.raises(UnsupportedFeature, match="keeps none for a capture that is not"):
            await capture(qc, "live", lake, once=True)


async def test_what_rabbitmq_would_take_back_is_not_held_for_so_long(
    lake: Lake, rabbitmq_url: str
) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.admin.declare("tap", dead_letters=False)
        with pytest.raises(ConfigError, match="at most 900 on RabbitMQ"):
            await capture(qc, "tap", lake, once=True, seconds=901)
        assert (await capture(qc, "tap", lake, once=True, seconds=900)).rows == 0


async def test_what_rabbitmq_brings_again_without_an_id_is_there_twice_and_never_merged(
    lake: Lake, rabbitmq_url: str
) -> None:
    async with QueueCraft(rabbitmq_url) as qc:
        found = await _captured_twice(qc, rabbitmq_url, lake, b"alike", b"alike", b"other")
    assert [row["payload"] for row in found] == 2 * [b"alike", b"alike", b"other"]
    assert len({row["message_id"] for row in found}) == 6
    assert all(row["message_id"].startswith("foreign-") for row in found)


@pytest.mark.parametrize("mode", ["list", "stream"])
async def test_what_redis_brings_again_without_an_id_has_the_one_it_had(
    lake: Lake, redis_url: str, mode: str
) -> None:
    url = f"{redis_url}&mode={mode}"
    async with QueueCraft(url) as qc:
        found = await _captured_twice(qc, url, lake, b"alike", b"alike", b"other")
    assert len(found) == 6
    assert len({(row["message_id"], row["payload"]) for row in found}) == 3


@pytest.mark.faults
async def test_what_kafka_brings_again_without_an_id_has_the_one_it_had(
    lake: Lake, kafka_url: str
) -> None:
    async with QueueCraft(kafka_url) as qc:
        found = await _captured_twice(qc, kafka_url, lake, b"alike", b"alike", b"other")
    assert len(found) == 6
    assert len({(row["message_id"], row["payload"]) for row in found}) == 3


async def _captured_twice(
    qc: QueueCraft, url: str, lake: Lake, *bodies: bytes
) -> list[dict[str, Any]]:
    """The rows of messages that have no id, and whose capture died when it had written them."""
    await qc.admin.declare("tap", dead_letters=False)
    driver = qc._engine.connection.current
    if isinstance(driver, RedisDriver):
        for body in bodies:
            if "mode=list" in url:
                await driver._call("test", "RPUSH", f"{driver.base}queue:tap", body)
            else:
                await driver._call("test", "XADD", f"{driver.base}stream:tap", "*", "data", body)
    else:
        assert driver is not None
        await driver.send([Outgoing(body, "", queue="tap") for body in bodies])
    dies("capture.before_ack", PROGRAM, url, str(lake.root))
    await capture(qc, "tap", lake, once=True)
    return rows(lake)


async def _loses_nothing(url: str, point: str, lake: Lake) -> None:
    async with QueueCraft(url) as qc:
        await qc.admin.declare("tap", "order.*", dead_letters=False)
        sent = set(await qc.publish_many("order.placed", [{"n": n} for n in range(COUNT)]))
        assert len(sent) == COUNT

        dies(point, PROGRAM, url, str(lake.root))

        found = rows(lake)
        expected = TOGETHER if point in (*IN_THE_LAKE, "capture.after_ack") else 0
        assert len(found) == expected, "what was there when it died"
        await capture(qc, "tap", lake, rows=TOGETHER, once=True)
        info = await qc.admin.inspect("tap")
        assert (info.ready, info.in_flight or 0) == (0, 0)
    found = rows(lake)
    keys = [(row["message_id"], row["queue"], row["kind"], row["attempt"]) for row in found]
    assert {id for id, *_ in keys} == sent, "nothing is lost"
    assert len(set(keys)) == COUNT, "and what is there twice can be told by its key"
    assert len(keys) == COUNT + (TOGETHER if point in IN_THE_LAKE else 0)
