"""What the journal writes is what the lake reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuecraft import Event, Journal, Message, QueueCraft, Retry
from tests.runtime.support import eventually, running

pytest.importorskip("pyarrow", reason="the lake needs it")

number = Event("number", int)


async def test_every_row_of_a_journal_gets_into_a_segment(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    from queuecraft.pipeline.lake import Lake
    from queuecraft.pipeline.spools import Converted, convert

    qc = QueueCraft("local://", journal=Journal(tmp_path, payload="full", redact=("card",)))
    worker = qc.worker("numbers", retry=Retry(max_retries=1, initial_delay=0))

    @worker.on(number)
    async def handle(n: int, message: Message[int]) -> None:
        if n % 10 == 0:
            raise ValueError(n)

    async with qc, running(worker):
        await qc.publish_many(number, range(1000), headers={"tenant": "t1", "n": 1})
        await eventually(lambda: worker.counters.dead_lettered == 100)
        await eventually(lambda: worker.counters.succeeded == 900)
    assert convert(Lake.at(tmp_path)) == Converted(segments=1, rows=2100)
    segment = pq.read_table(tmp_path / "segments")
    outcomes = segment.group_by(["kind", "outcome"]).aggregate([([], "count_all")]).to_pylist()
    assert {(each["kind"], each["outcome"]): each["count_all"] for each in outcomes} == {
        ("published", None): 1000,
        ("delivered", "succeeded"): 900,
        ("delivered", "retried"): 100,
        ("delivered", "dead-lettered"): 100,
    }
    assert set(segment["payload"].to_pylist()) == {str(n).encode() for n in range(1000)}
