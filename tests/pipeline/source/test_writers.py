from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from queuecraft import Message, QueueCraft
from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.source.site import Site
from queuecraft.pipeline.source.source import QueueCraftSource, source_for
from tests.pipeline.source.queues import declared, waiting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Shop = Callable[..., str]


def write(table: DataFrame, **options: Any) -> None:
    writer = table.write.format("queuecraft").option("connection", "shop")
    writer.options(**options).mode("append").save()


def ids(url: str, queue: str = "billing") -> list[str]:
    return sorted(each.id for each in waiting(url, queue, 5000))


def test_rows_become_messages_and_a_second_write_repeats_their_ids(
    source: SparkSession, shop: Shop, file_url: str
) -> None:
    url = shop(file_url)
    declared(url, "billing")
    table = source.range(0, 20, 1, 2).selectExpr("id as n", "concat('c-', id % 3) as key")
    write(table, queue="billing")
    found = waiting(url, "billing")
    assert sorted(each.payload["n"] for each in found) == list(range(20))
    assert {each.key for each in found} == {"c-0", "c-1", "c-2"}
    once = ids(url)
    assert len(set(once)) == 20
    write(table.repartition(3), queue="billing")  # as a task that is tried again, elsewhere
    assert ids(url) == sorted(once * 2)
    write(table, queue="billing", id_seed="another day")
    assert len(set(ids(url))) == 40


def test_events_reach_the_queues_that_are_bound_to_them(
    source: SparkSession, shop: Shop, file_url: str
) -> None:
    url = shop(file_url)
    declared(url, "billing", "order.placed")
    declared(url, "audit", "order.*")
    rows = [("m-1", "order.placed", '{"n": 1}'), ("m-2", "order.paid", '{"n": 2}')]
    table = source.createDataFrame(rows, "message_id string, event string, payload string")
    write(table)
    assert (ids(url, "billing"), ids(url, "audit")) == (["m-1"], ["m-1", "m-2"])
    stray = table.selectExpr("message_id", "'user.created' as event", "payload")
    with pytest.raises(PySparkException, match=r"no queue is bound to event 'user.created'.*m-"):
        write(stray)
    write(stray, unroutable="drop")
    assert ids(url, "audit") == ["m-1", "m-2"]


def test_what_a_broker_refuses_fails_the_task_and_is_named(
    source: SparkSession, shop: Shop, file_url: str
) -> None:
    url = shop(file_url, max_message_bytes=50)
    declared(url, "billing")
    rows = [("m-1", "1"), ("m-2", '"' + "x" * 50 + '"'), ("m-3", "3")]
    table = source.createDataFrame(rows, "message_id string, payload string").coalesce(1)
    too_large = r"row 2 of its partition cannot be sent: the body has 52 bytes.*message=m-2"
    with pytest.raises(PySparkException, match=too_large):
        write(table, queue="billing")
    missing = r"there is no such queue.*this task had written 0 before.*message=m-1"
    with pytest.raises(PySparkException, match=missing):
        write(table.where("message_id = 'm-1'"), queue="biling")


def test_dead_letters_are_read_from_one_queue_and_written_to_another(
    source: SparkSession, shop: Shop, file_url: str
) -> None:
    url = shop(file_url)

    async def fail() -> None:
        async with QueueCraft(url) as qc:
            billing = qc.worker("billing")
            failed = asyncio.Event()

            @billing.on("order.placed")
            async def handle(order: dict[str, int], message: Message[Any]) -> None:
                await message.dead_letter("too expensive")
                failed.set()

            await billing.start()
            await qc.publish("order.placed", {"n": 1}, message_id="m-1", headers={"tenant": "t1"})
            await failed.wait()

    asyncio.run(fail())
    declared(url, "billing", "order.placed")
    reader = source.read.format("queuecraft").option("connection", "shop")
    letters = reader.option("queue", "billing.dlq").load()
    assert [row.reason for row in letters.collect()] == ["too expensive"]
    write(letters, queue="billing")
    (message,) = waiting(url, "billing")
    assert (message.id, message.routing_key, message.payload) == ("m-1", "order.placed", {"n": 1})
    assert message.headers == {"tenant": "t1"}


@pytest.mark.parametrize("broker", ["rabbitmq", "redis"])
def test_tables_are_written_to_brokers(
    source: SparkSession, shop: Shop, broker: str, request: pytest.FixtureRequest
) -> None:
    url: str = request.getfixturevalue(f"{broker}_url") + (
        "&mode=list" if broker == "redis" else ""
    )
    shop(url)
    declared(url, "billing")
    write(
        source.range(0, 30, 1, 2).selectExpr("id as n", "'c-1' as key"), queue="billing", rate=500
    )
    found = waiting(url, "billing")
    assert sorted(each.payload["n"] for each in found) == list(range(30))
    assert {each.key for each in found} == {"c-1"}
    assert len({each.id for each in found}) == 30


KILLED = """
import pyarrow as pa
from queuecraft.pipeline.source.form import Form
from queuecraft.pipeline.source.messages import Target
from queuecraft.pipeline.source.place import Place
from queuecraft.pipeline.source.writers import Job

rows = pa.record_batch([pa.array([str(n) for n in range(700)])], names=["payload"])
job = Job(Place("shop", "billing", local=True), Target(queue="billing"), Form(()))
print(job.run(iter([rows]), 3, "", apart=False))
"""


def test_a_task_that_was_killed_repeats_the_ids_of_what_it_had_sent(file_url: str) -> None:
    declared(file_url, "billing")

    def run(**environ: str) -> subprocess.CompletedProcess[str]:
        known = os.environ | {"QUEUECRAFT_CONNECTION_SHOP_URL": file_url} | environ
        program = [sys.executable, "-c", KILLED]
        return subprocess.run(program, env=known, capture_output=True, text=True, check=False)

    assert run(QUEUECRAFT_FAILPOINT="sink.after_send").returncode == -signal.SIGKILL
    before = ids(file_url)
    assert 0 < len(before) < 700
    assert run().stdout == f"Written(partition=3, messages=700, bytes={10 + 180 + 1800})\n"
    after = Counter(ids(file_url))
    assert len(after) == 700
    assert sorted(id for id, times in after.items() if times == 2) == before


# -- streaming -------------------------------------------------------------------------------------


def streamed(source: SparkSession, folder: Path, checkpoint: Path) -> None:
    rows = source.readStream.schema("n bigint").json(str(folder))
    writer = rows.writeStream.format("queuecraft").option("connection", "shop")
    writer = writer.option("queue", "billing").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


def test_a_batch_that_is_tried_again_repeats_its_ids_and_a_later_one_does_not(
    source: SparkSession, shop: Shop, file_url: str, tmp_path: Path
) -> None:
    url = shop(file_url)
    declared(url, "billing")
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    lines = "\n".join(json.dumps({"n": n}) for n in (1, 2, 2))
    (folder / "one.json").write_text(lines)
    streamed(source, folder, checkpoint)
    first = ids(url)
    assert len(set(first)) == 3  # equal rows are messages of their own
    (checkpoint / "commits" / "0").unlink()  # as if it had died before the batch was done
    (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    streamed(source, folder, checkpoint)
    assert ids(url) == sorted(first * 2)
    (folder / "two.json").write_text(lines)  # the same rows again, in another batch
    streamed(source, folder, checkpoint)
    assert len(set(ids(url))) == 6


# -- what is refused while the query is planned ----------------------------------------------------


def planned(schema: str, options: Mapping[str, str], site: Site | None = None) -> Any:
    from pyspark.sql.types import StructType

    made = StructType()
    for column in schema.split(", "):
        name, _, kind = column.partition(" ")
        made = made.add(name, kind)
    source = source_for(site or Site(local=True, slots=4))(dict(options))
    return source.writer(made, False)


def test_a_rate_is_shared_by_the_tasks_that_run_at_once() -> None:
    billing = {"queue": "billing", "rate": "100"}
    assert planned("payload string", billing).job.rate == 25
    assert planned("payload string", billing | {"tasks": "2"}).job.rate == 50
    assert planned("payload string", {"queue": "billing"}).job.rate is None
    with pytest.raises(ConfigError, match=r"say it: .option\('tasks', 8\)"):
        planned("payload string", billing, Site())
    with pytest.raises(ConfigError, match="would send nothing"):
        planned("payload string", billing | {"rate": "0"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "say where the messages go"),
        ({"queue": "a", "exchange": "b"}, "'queue' or 'exchange'"),
        ({"queue": "a", "unroutable": "maybe"}, "expected 'error' or 'drop'"),
        ({"queue": "a", "url": "local:///q.db"}, "name a connection instead"),
        ({"queue": "a", "limit": "5"}, "no option 'limit' here"),
    ],
)
def test_a_write_that_cannot_be_meant_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        planned("payload string", options)


def test_a_queue_cannot_be_overwritten() -> None:
    from pyspark.sql.types import StructType

    source = QueueCraftSource({"queue": "billing"})
    with pytest.raises(ConfigError, match="cannot be overwritten"):
        source.writer(StructType().add("payload", "string"), True)
