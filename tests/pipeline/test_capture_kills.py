"""Captures killed at any moment, not only at those we have thought of."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from queuecraft import QueueCraft
from queuecraft.pipeline.capture import capture
from queuecraft.pipeline.lake import Lake
from tests.pipeline.segments import ROOT, ids

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

KILLS = 15
ROWS = 50
PROGRAM = f"""
import asyncio, sys
from queuecraft import QueueCraft
from queuecraft.pipeline.capture import capture
from queuecraft.pipeline.lake import Lake

async def main():
    async with QueueCraft(sys.argv[1]) as qc:
        print("ready", flush=True)
        await capture(qc, "tap", Lake.at(sys.argv[2]), rows={ROWS}, seconds=0.05, force=True)

asyncio.run(main())
"""


async def test_the_embedded_queue(tmp_path: Path) -> None:
    await _loses_nothing(f"local://{tmp_path / 'queue.db'}", tmp_path)


async def test_rabbitmq(tmp_path: Path, rabbitmq_url: str) -> None:
    await _loses_nothing(rabbitmq_url, tmp_path)


@pytest.mark.parametrize("mode", ["list", "stream"])
async def test_redis(mode: str, tmp_path: Path, redis_url: str) -> None:
    await _loses_nothing(f"{redis_url}&mode={mode}", tmp_path)


async def _loses_nothing(url: str, folder: Path) -> None:
    lake = Lake.at(folder / "lake")
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    async with QueueCraft(url) as qc:
        await qc.admin.declare("tap", "order.*", dead_letters=False)
        publishing = asyncio.create_task(_publish(qc))
        for _ in range(KILLS):
            with _started(url, lake) as process:
                assert process.stdout is not None
                assert await asyncio.to_thread(process.stdout.readline) == b"ready\n"
                await asyncio.sleep(chance.uniform(0.5, 2.0))  # when is what the test varies
                process.kill()
        publishing.cancel()
        sent = await publishing
        await capture(qc, "tap", lake, once=True)
    found = ids(lake)
    print(f"{len(sent)} sent, {len(found) - len(set(found))} captured twice")
    assert set(found) == set(sent), f"seed {seed}"
    assert len(found) - len(sent) <= KILLS * ROWS, f"seed {seed}"


def _started(url: str, lake: Lake) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, url, str(lake.root)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


async def _publish(qc: QueueCraft) -> list[str]:
    """Go on until cancelled; the ids of all that was published."""
    ids: list[str] = []
    try:
        while True:
            batch = asyncio.ensure_future(qc.publish_many("order.placed", [{"n": len(ids)}] * 20))
            try:
                ids += map(str, await asyncio.shield(batch))
            except asyncio.CancelledError:
                ids += map(str, await batch)
                raise
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        return ids
