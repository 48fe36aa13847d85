"""Replays killed with -9, then resumed: every message arrives, and what arrives twice says so."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import queuecraft.pipeline.replay
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.replay.execution import execute, progress_of
from queuecraft.pipeline.replay.planning import plan
from queuecraft.pipeline.replay.question import Question
from queuecraft.pipeline.replay.state import replays
from tests.pipeline.replay.scene import Broker, archive, captured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
COUNT, CANARY, CHUNK = 2200, 200, 1000
PATIENCE = 300
KILLS = 10


def start(
    lake: Lake, replay_id: str, doom: str = "", passes: int = 0, rate: str = "", **env: str
) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "tests.pipeline.replay.child"]
    given = [str(lake.root), replay_id, doom, str(passes), rate]
    return subprocess.Popen(
        [*program, *given],
        cwd=ROOT,
        env={**os.environ, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def planned(
    spark: SparkSession, broker: Broker, folder: Path, canary: int = CANARY, chunk: int = CHUNK
) -> tuple[Lake, str]:
    lake = archive(folder, [captured(n, key=f"k-{n % 50}") for n in range(COUNT)])
    broker.declare("billing")
    return lake, plan(spark, lake, Question(to="billing", canary=canary, chunk=chunk)).id


def check_arrived(broker: Broker, replay_id: str, most_twice: int) -> None:
    received = broker.received("billing")
    times = Counter(each.sent.id for each in received)
    assert set(times) == {f"m-{n:05}" for n in range(COUNT)}
    assert {each.sent.headers["x-replay-id"] for each in received} == {replay_id}
    assert len(received) - COUNT <= most_twice
    # In order by key, for whoever leaves out what he has seen.
    seen: set[str] = set()
    latest: dict[str | None, str] = {}
    for each in received:
        if each.sent.id not in seen:
            seen.add(each.sent.id)
            assert latest.get(each.sent.key, "") < each.sent.id
            latest[each.sent.key] = each.sent.id


BETWEEN_CHUNKS = [
    ("replay.before_chunk", 1, 1, 0),
    ("replay.after_chunk", 1, 1, CHUNK),
    ("replay.after_ledger", 1, 2, 0),
]
BEFORE_PLAN, MID_CHUNK = "replay.before_plan", "replay.mid_chunk"


def test_no_point_is_forgotten() -> None:
    sources = Path(queuecraft.pipeline.replay.__file__).parent.glob("*.py")
    points = {
        name
        for source in sources
        for name in re.findall(r'failpoint\("([^"]+)"\)', source.read_text(encoding="utf-8"))
    }
    assert points == {BEFORE_PLAN, MID_CHUNK, *(point for point, *_ in BETWEEN_CHUNKS)}


def test_killed_before_there_is_a_plan_nothing_was_sent_and_it_is_planned_again(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    lake = archive(tmp_path / "lake", [captured(n) for n in range(20)])
    broker.declare("billing")
    with start(lake, "", BEFORE_PLAN) as child:
        assert child.wait(PATIENCE) == -9
    assert replays(lake) == []
    assert not broker.ids("billing")
    (left,) = lake.replays.iterdir()
    os.utime(left, (0, 0))
    result = plan(spark, lake, Question(to="billing"))
    assert not left.exists()
    assert result.messages == 20
    assert [each.plan.id for each in replays(lake)] == [result.id]
    assert execute(spark, lake, result.id).done
    assert len(broker.ids("billing")) == 20


@pytest.mark.parametrize(("doom", "passes", "done", "twice"), BETWEEN_CHUNKS)
def test_killed_between_chunks_it_goes_on(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    doom: str,
    passes: int,
    done: int,
    twice: int,
) -> None:
    lake, replay_id = planned(spark, broker, tmp_path / "lake")
    with start(lake, replay_id, doom, passes) as child:
        assert child.wait(PATIENCE) == -9
    assert progress_of(lake, replay_id).chunks_done == done
    assert replays(lake)[0].state == "interrupted"
    assert execute(spark, lake, replay_id).done
    check_arrived(broker, replay_id, twice)


def test_a_task_killed_amid_a_chunk_leaves_it_to_be_sent_again(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    lake, replay_id = planned(spark, broker, tmp_path / "lake")
    # Spark's workers are processes of their own, which find it in their environment.
    with start(lake, replay_id, QUEUECRAFT_FAILPOINT=MID_CHUNK) as child:
        assert child.wait(PATIENCE) == 1
    assert progress_of(lake, replay_id).chunks_done == 0
    before = len(broker.ids("billing"))
    assert before > 0, "it died after it had sent something"
    assert execute(spark, lake, replay_id).done
    check_arrived(broker, replay_id, before)


def test_killed_at_any_moment_it_goes_on(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    chunk = 200
    lake, replay_id = planned(spark, broker, tmp_path / "lake", canary=50, chunk=chunk)
    chance = random.Random(11)
    for number in range(KILLS):
        done = progress_of(lake, replay_id).chunks_done
        arrived = len(broker.ids("billing"))
        with start(lake, replay_id, rate="150") as child:
            deadline = time.monotonic() + PATIENCE
            while child.poll() is None and len(broker.ids("billing")) == arrived:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(chance.random() * 1.5)
            assert child.poll() is None, f"done before death number {number + 1}"
            child.kill()
        assert progress_of(lake, replay_id).chunks_done >= done
    assert progress_of(lake, replay_id).chunks_done > 0
    assert execute(spark, lake, replay_id).done
    received = broker.received("billing")
    assert {each.sent.id for each in received} == {f"m-{n:05}" for n in range(COUNT)}
    assert {each.sent.headers["x-replay-id"] for each in received} == {replay_id}
    assert len(received) - COUNT <= KILLS * chunk
