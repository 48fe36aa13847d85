"""The programs about lakes, replays and reports that need no more than Spark."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.replay.execution import execute
from queuecraft.pipeline.replay.planning import plan
from queuecraft.pipeline.replay.question import Question
from queuecraft.pipeline.schemas import EVENTS, MESSAGES
from tests.docs.blocks import changed, executed, left_to
from tests.pipeline.replay.scene import Broker, archive, captured
from tests.pipeline.report.shop import shop
from tests.pipeline.rows import delivered, published, row, table_rows, write_rows
from tests.pipeline.small import for_small_data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A queue in a file, which the variable of the application names."""
    found = Broker(f"local://{tmp_path}/queue.db")
    monkeypatch.setenv("QUEUECRAFT_URL", found.url)
    return found


def here(lake: Lake) -> dict[str, str]:
    """The lake of a page is this one."""
    return {'"./lake': f'"{lake.root}'}


def test_a_lake_is_ingested_put_together_and_rid_of_what_is_old(
    spark: SparkSession, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    (jobs,) = left_to(__file__, "docs/lake.md")
    now = datetime.now(UTC)
    long_ago = now - timedelta(days=92)
    write_rows(lake, [published("m-old", long_ago)], name="old", date=f"{long_ago:%Y-%m-%d}")
    for number in range(4):
        young = [published(f"m-{number}", now)]
        write_rows(lake, young, name=f"s-{number}", date=f"{now:%Y-%m-%d}")
    write_rows(lake, [row("published", None, now)], name="s-4", date=f"{now:%Y-%m-%d}")
    capsys.readouterr()
    with for_small_data(spark):
        executed(changed(jobs, here(lake)))
    assert capsys.readouterr().out == "6 1\n"
    (together,) = lake.segments.glob("date=*/*.parquet")
    assert together.match(f"date={now:%Y-%m-%d}/~*.parquet")
    young_ids = {f"m-{number}" for number in range(4)}
    assert {each["message_id"] for each in table_rows(lake, EVENTS)} == young_ids
    assert {each["message_id"] for each in table_rows(lake, MESSAGES)} == {*young_ids, None}


def test_a_lake_is_followed_as_it_grows_and_what_was_put_together_is_passed_over(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    (following,) = left_to(__file__, "docs/spark.md")
    write_rows(lake, [published("m-1"), delivered("m-1")], name="a")
    write_rows(lake, [published("m-0")], name="~b")
    growing: DataFrame = executed(changed(following, here(lake)))["growing"]
    out = str(tmp_path / "out")

    def read() -> list[tuple[str, str]]:
        """All that the stream has read so far."""
        writer = growing.writeStream.option("checkpointLocation", str(lake.checkpoints / "mine"))
        writer.trigger(availableNow=True).start(out).awaitTermination()
        rows = spark.read.parquet(out).select("message_id", "kind").collect()
        return sorted((each["message_id"], each["kind"]) for each in rows)

    with for_small_data(spark):
        assert read() == [("m-1", "delivered"), ("m-1", "published")]
        write_rows(lake, [published("m-2")], name="c")
        assert read() == [("m-1", "delivered"), ("m-1", "published"), ("m-2", "published")]


def test_a_function_in_a_module_changes_what_is_replayed(
    spark: SparkSession,
    lake: Lake,
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mending, _ = left_to(__file__, "docs/replay.md")
    (tmp_path / "mending.py").write_text(mending.code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    archive(lake.root, [captured(1), captured(2, payload='{"name":"test"}')])
    broker.declare("billing")
    with for_small_data(spark):
        made = plan(spark, lake, Question(to="billing", transform="mending:fix"))
        del sys.modules["mending"]
        execute(spark, lake, made.id)
    (arrived,) = broker.received("billing")
    assert (arrived.sent.id, arrived.sent.priority) == ("m-00001", 1)


def test_dead_letters_of_some_events_are_replayed_to_the_queue_that_failed_them(
    spark: SparkSession, lake: Lake, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    _, replay = left_to(__file__, "docs/replay.md")
    dead = {"kind": "delivered", "outcome": "dead-lettered", "queue": "billing", "attempt": 3}
    others = [captured(2), captured(3, **{**dead, "event": "user.created"})]
    archive(lake.root, [captured(1, **dead), *others])
    broker.declare("billing", "order.*")
    broker.declare("audit", "order.*")
    capsys.readouterr()
    with for_small_data(spark):
        names = executed(changed(replay, here(lake)))
    planned, *progress, result = capsys.readouterr().out.splitlines()
    assert planned == f"1 {names['planned'].lines}"
    assert progress
    assert all(names["planned"].id in line for line in progress)
    assert result == "1 None"
    assert (broker.ids("billing"), broker.ids("audit")) == (["m-00001"], [])


def test_a_report_of_a_queue_and_what_fails_are_read(
    spark: SparkSession, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    (report,) = left_to(__file__, "docs/reports.md")
    shop(lake)
    capsys.readouterr()
    with for_small_data(spark):
        html = executed(changed(report, here(lake)))["html"]
    assert capsys.readouterr().out.splitlines() == ["0.2 95.0", "bbbb 7", "aaaa 1"]
    assert "<title>billing: " in html
    assert "dead letter, NoMoney: 0 left" in html
