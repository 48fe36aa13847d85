"""Dead letters on Kafka that are sent back or forgotten, as far as they can be reached."""

from __future__ import annotations

import msgspec
import pytest

from queuecraft import Filter, QueueCraft
from queuecraft.drivers.kafka import member
from tests.runtime.support import dead_letter

COUNT = 4_000


@pytest.mark.faults
async def test_where_so_many_are_kept_that_kafka_reads_no_further_it_says_so(
    kafka_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "MOST_AHEAD", 50)
    monkeypatch.setattr("queuecraft.runtime.redrive.WAIT", 0.1)
    async with QueueCraft(kafka_url) as qc:
        await qc.admin.declare("billing", "order.*")
        driver = await qc._engine.connection.ready()
        # All in one partition: of another, a thousand may come at once, and be all it has.
        await driver.send(
            [msgspec.structs.replace(dead_letter(f"m-{n}"), key="o-1") for n in range(COUNT)]
        )
        ends = Filter(ids=frozenset({"m-0", f"m-{COUNT - 1}"}))

        result = await qc.dead_letters.delete("billing", where=ends)
        assert (result.total, result.moved) == (COUNT, 1)
        assert result.seen < COUNT
        assert str(result.stopped).startswith(f"only {result.seen:,} of 4,000 could be looked at")

        done = await qc.dead_letters.redrive("billing")  # nothing is kept, so nothing is in the way
        assert (done.moved, done.done, done.stopped) == (COUNT - 1, True, None)
