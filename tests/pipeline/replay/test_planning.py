"""Plans: what is asked becomes a table, and nothing is sent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet
from pyspark.sql import functions as f

from queuecraft import ConfigError, QueueCraft, QueueError
from queuecraft.pipeline.capture import capture
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.replay import planning
from queuecraft.pipeline.replay.ledger import Ledger, new_id, sweep
from queuecraft.pipeline.replay.order import STRETCH, numbered
from queuecraft.pipeline.replay.plan import Plan
from queuecraft.pipeline.replay.planning import found, plan
from queuecraft.pipeline.replay.question import Question
from queuecraft.pipeline.replay.state import replays
from queuecraft.pipeline.replay.table import MESSAGE, PLAN
from queuecraft.pipeline.schemas import EVENTS
from tests.pipeline.replay.scene import NOON, Broker, archive, captured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows(lake: Lake, made: Plan) -> list[dict[str, object]]:
    table = parquet.read_table(Ledger.of(lake, made.id).table)
    return table.sort_by("position").to_pylist()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    more: dict[int, dict[str, Any]]
    more = {2: {"expires_at": NOON + 1}, 3: {"event": "user.created", "headers": {"a": "b"}}}
    messages = [captured(n, **more.get(n, {})) for n in (4, 2, 0, 3, 1)]
    return archive(
        tmp_path_factory.mktemp("plans") / "lake", [*messages, captured(9, payload=None)]
    )


def test_a_plan_says_what_would_go_where(spark: SparkSession, lake: Lake) -> None:
    made = plan(spark, lake, Question(canary=2, chunk=2))
    assert (made.messages, made.size, made.expired, made.missing) == (5, 35, 1, 1)
    assert (made.first, made.last) == (
        datetime.fromtimestamp(NOON, UTC),
        datetime.fromtimestamp(NOON + 4, UTC),
    )
    assert [(line.event, line.queue, line.exchange, line.messages) for line in made.lines] == [
        ("order.placed", None, "events", 4),
        ("user.created", None, "events", 1),
    ]
    assert made.chunks == [2, 2, 1]
    assert made.examples[0].message_id == "m-00000"
    assert made.examples[0].payload == '{"n":0}'
    written = rows(lake, made)
    assert [(row["message_id"], row["position"], str(row["chunk"])) for row in written] == [
        ("m-00000", 0, "0"),
        ("m-00001", 1, "0"),
        ("m-00002", 2, "1"),
        ("m-00003", 3, "1"),
        ("m-00004", 4, "2"),
    ]
    assert written[3]["headers"] == [("a", "b")]
    assert {row["replay_id"] for row in written} == {made.id}
    assert Ledger.of(lake, made.id).plan() == made
    assert not made.changed
    assert replays(lake)[-1].state == "planned"
    assert not (Ledger.of(lake, made.id).folder / "chosen").exists()


def shouting(messages: DataFrame) -> DataFrame:
    assert messages.columns == list(MESSAGE.names)
    return messages.withColumn("payload", f.upper(f.col("payload").cast("string")))


@pytest.mark.parametrize(
    ("stretch", "asked", "transform"),
    [
        (STRETCH, {}, None),
        (20, {}, None),
        (20, {"set": {"priority": "7"}}, None),
        (STRETCH, {}, shouting),
        (20, {}, shouting),
    ],
    ids=["few", "many", "set", "changed", "many changed"],
)
def test_messages_of_one_moment_keep_the_order_in_which_they_were_captured(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stretch: int,
    asked: dict[str, Any],
    transform: planning.Transform | None,
) -> None:
    lake = Lake.at(tmp_path / "lake")

    async def captured_at_once(qc: QueueCraft) -> None:
        await qc.admin.declare("tap", "order.*", dead_letters=False)
        await qc.publish_many("order.placed", [{"n": n} for n in range(50)], key="o-1")
        await capture(qc, "tap", lake, rows=20, once=True)

    broker.do(captured_at_once)
    monkeypatch.setattr(planning, "STRETCH", stretch)
    written = rows(lake, plan(spark, lake, Question(**asked), transform=transform))
    assert len({row["published_at"] for row in written}) == 1
    assert [str(row["payload"]).upper() for row in written] == [
        str(b'{"N":%d}' % n).upper() for n in range(50)
    ]
    assert set(written[0]) == {*PLAN.names, "chunk"}


def test_what_is_planned_is_recognised_by_its_contents(spark: SparkSession, lake: Lake) -> None:
    made = plan(spark, lake, Question(canary=2, chunk=2))
    contents = Ledger.of(lake, made.id).contents()
    planned: list[Any] = rows(lake, made)
    assert len(planned) == 5
    for row in planned:
        assert (row["message_id"], row["event"], row["payload"]) in contents
        assert (row["message_id"], row["event"], row["payload"] + b" ") not in contents


def test_the_table_of_events_is_read_where_there_is_one(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    other = Lake.at(tmp_path)
    segments = spark.read.parquet(str(lake.segments)).drop("date")
    ingested = segments.where(f.col("message_id") == "m-00001").withColumn("segment", f.lit("s"))
    ingested.select(*EVENTS.names).write.parquet(str(other.tables / "events" / "date=2026-01-01"))
    made = plan(spark, other, Question(to="billing"))
    assert [row["message_id"] for row in rows(other, made)] == ["m-00001"]


def test_columns_are_set_and_functions_applied_before_it_is_written(
    spark: SparkSession, lake: Lake
) -> None:
    values = {"payload": "upper(cast(payload as string))", "key": "message_id", "priority": "'7'"}

    def without_users(messages: DataFrame) -> DataFrame:
        return messages.where("event <> 'user.created'").withColumn("more", f.lit(1))

    asked = Question(to="billing", set=values, where="message_id > 'm-00001'")
    made = plan(spark, lake, asked, transform=without_users)
    assert Ledger.of(lake, made.id).plan().transformed, "which its question does not tell"
    assert [
        (row["message_id"], row["key"], row["priority"], row["payload"]) for row in rows(lake, made)
    ] == [
        ("m-00002", "m-00002", 7, b'{"N":2}'),
        ("m-00004", "m-00004", 7, b'{"N":4}'),
    ]
    assert made.chunks == [2]


BY_CHANCE = "cast(reflect('java.lang.Math', 'random') as double)"


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake with more messages than are brought into order in one go."""
    monkeypatch.setattr(planning, "STRETCH", 20)
    return archive(tmp_path / "lake", [captured(n) for n in range(100)])


def by_chance(messages: DataFrame) -> DataFrame:
    """Leave out some, others each time; as does one that asks a service."""
    return messages.where(f"{BY_CHANCE} < 0.5")


def none(messages: DataFrame) -> DataFrame:
    return messages.where("false")


@pytest.mark.parametrize(
    ("values", "transform"),
    [
        ({}, by_chance),
        ({"published_at": f"timestamp_seconds(1e9 * {BY_CHANCE})"}, None),
        ({"published_at": "null"}, None),
        ({"priority": "7"}, None),
        ({}, None),
    ],
    ids=["a transform", "an expression", "no times", "always the same", "unchanged"],
)
def test_what_is_not_the_same_each_time_is_asked_for_once(
    spark: SparkSession, many: Lake, values: dict[str, str], transform: planning.Transform | None
) -> None:
    made = plan(spark, many, Question(set=values, canary=7, chunk=10), transform=transform)
    written = rows(many, made)
    assert [row["position"] for row in written] == list(range(len(written)))
    by_chunk = [0] * len(made.chunks)
    for row in written:
        by_chunk[int(str(row["chunk"]))] += 1
    assert by_chunk == made.chunks
    assert len({row["message_id"] for row in written}) == made.messages == len(written)
    assert len(written) == 100 or transform is not None
    folder = Ledger.of(many, made.id).folder
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "plan", "plan.json"]


def test_of_many_messages_a_transform_may_leave_none(spark: SparkSession, many: Lake) -> None:
    assert plan(spark, many, transform=none).messages == 0
    assert list(many.replays.iterdir()) == []


@pytest.mark.parametrize("place", ["position + 1", "position div 2 * 2", "null", "-position"])
def test_a_plan_that_does_not_add_up_is_no_plan(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    before = list(lake.replays.glob("*"))

    def otherwise(messages: DataFrame, between: Sequence[int]) -> DataFrame:
        wrong = f.expr(place).cast("bigint")
        return numbered(messages, between).withColumn("position", wrong)

    monkeypatch.setattr(planning, "numbered", otherwise)
    with pytest.raises(QueueError, match=r"5 messages .* do not add up; .* plan the replay anew"):
        plan(spark, lake, Question(canary=2, chunk=2))
    assert list(lake.replays.glob("*")) == before


def test_what_a_planning_that_died_has_left_is_gone_with_the_next(
    spark: SparkSession, lake: Lake
) -> None:
    left = lake.replays / new_id()
    (left / "chosen").mkdir(parents=True)
    plan(spark, lake, Question(event="none.such"))
    assert left.exists(), "it may be under way"
    os.utime(left, (0, 0))
    plan(spark, lake, Question(event="none.such"))
    assert not left.exists()


def test_while_it_is_planned_nobody_takes_it_for_left_behind(
    spark: SparkSession, lake: Lake
) -> None:
    seen: list[Path] = []

    def meanwhile(messages: DataFrame) -> DataFrame:
        (folder,) = set(lake.replays.iterdir()) - before
        os.utime(folder, (0, 0))
        sweep(lake)
        seen.append(folder)
        return messages

    before = set(lake.replays.glob("*"))
    made = plan(spark, lake, transform=meanwhile)
    assert [Ledger.of(lake, made.id).folder] == seen


def test_what_cannot_be_planned_is_told_and_leaves_nothing_behind(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    before = list(lake.replays.glob("*"))

    def refused(question: Question, **more: Any) -> str:
        with pytest.raises(QueueError) as told:
            plan(spark, lake, question, **more)
        return told.value.message

    assert "the columns are message_id, queue" in refused(Question(set={"key": "nokey"}))
    assert "try_cast" in refused(Question(where="cast(event as int) = 1"))
    assert "no id or no payload" in refused(Question(set={"payload": "null"}))
    assert "payload of none" in refused(Question(ids=("m-00009",)))
    assert "no column payload" in refused(Question(), transform=lambda df: df.drop("payload"))
    assert plan(spark, lake, Question(event="none.such")).messages == 0
    assert list(lake.replays.glob("*")) == before
    with pytest.raises(ConfigError, match="nothing to replay"):
        plan(spark, Lake.at(tmp_path / "nowhere"))


def test_compressed_payloads_are_not_set_by_an_expression(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = archive(tmp_path, [captured(1, content_encoding="gzip")])
    with pytest.raises(ConfigError, match="1 of the messages are compressed"):
        plan(spark, lake, Question(set={"payload": "'{}'"}))


def test_a_transform_is_found_by_its_name() -> None:
    assert found("queuecraft.pipeline.replay.order:numbered").__name__ == "numbered"
    for wrong in ("numbered", "no.such:thing", "json:nothing", "json:__name__"):
        with pytest.raises(ConfigError, match="transform="):
            found(wrong)


def test_a_question_that_makes_no_sense_is_refused() -> None:
    wrongs: Sequence[dict[str, Any]] = (
        {"to": "a", "to_event": "b"},
        {"to": ""},
        {"to_event": "order.*"},
        {"chunk": 0},
        {"canary": 0},
        {"set": {"size": "1"}},
        {"since": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"source": "elsewhere"},
    )
    for wrong in wrongs:
        with pytest.raises(ConfigError):
            Question(**wrong)
