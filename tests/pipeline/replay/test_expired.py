"""A replay of what the lake has let go of meanwhile."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from queuecraft import QueueCraft
from queuecraft.pipeline.capture import Captured, capture
from queuecraft.pipeline.jobs.expire import expire
from queuecraft.pipeline.jobs.ingest import ingest
from queuecraft.pipeline.replay.execution import execute
from queuecraft.pipeline.replay.planning import plan
from queuecraft.pipeline.replay.question import Question
from tests.pipeline.replay.scene import Broker, archive, captured
from tests.pipeline.rows import segment_rows
from tests.pipeline.small import for_small_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400.0


def test_what_expired_before_it_was_sent_again_is_captured_again(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    message = captured(1, at=now.timestamp(), published_at=now.timestamp() - 60)
    lake = archive(tmp_path / "lake", [message])
    broker.declare("tap")
    with for_small_data(spark):
        ingest(spark, lake)
        planned = plan(spark, lake, Question(to="tap"))
        assert planned.messages == 1
        later = now + timedelta(days=60)
        assert expire(spark, lake, older_than=30 * DAY, now=later).segments == 1
        assert segment_rows(lake) == []
        assert execute(spark, lake, planned.id).done

    async def capturing() -> Captured:
        async with QueueCraft(broker.url) as qc:
            return await capture(qc, "tap", lake, once=True)

    state = asyncio.run(capturing())
    assert (state.rows, state.replayed) == (1, 0)
    (row,) = segment_rows(lake)
    assert (row["message_id"], row["replay_id"]) == ("m-00001", planned.id)
    assert row["payload"] == b'{"n":1}'
