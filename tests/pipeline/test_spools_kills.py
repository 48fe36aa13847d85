"""Converters killed at any moment, not only at those we have thought of."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.spools import convert
from tests.pipeline.segments import ROOT, ids, line, spool

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

PROGRAM = """
import sys
from queuecraft.pipeline import spools
from queuecraft.pipeline.lake import Lake
spools.TOGETHER = 20_000
print("ready", flush=True)
while True:
    spools.convert(Lake.at(sys.argv[1]))
"""


def test_each_line_arrives_once_through_forty_kills(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    sent: list[str] = []
    for turn in range(40):
        for number in range(20):
            names = [f"{turn}-{number}-{each}" for each in range(chance.randrange(1, 60))]
            suffix = chance.choice(["jsonl", "jsonl", "open"])
            spool(lake, f"{turn:02}-{number:02}.{suffix}", *map(line, names))
            sent += names
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(lake.root)], cwd=ROOT, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0, 0.35))  # when it is killed is what the test varies
            process.kill()
    convert(lake)
    assert sorted(ids(lake)) == sorted(sent), f"seed {seed}"
    assert [path.name for path in lake.spool.iterdir()] == [".lock"]
