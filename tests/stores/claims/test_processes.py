"""Processes that want the same keys at the same moment: each key goes to one of them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
KEYS = 300

PROGRAM = """
import asyncio, random, sys
from queuecraft.middleware import RedisClaims, SqliteClaims
from queuecraft.stores.claims.base import CLAIMED, Busy

async def main(place, count):
    claims = RedisClaims(place) if "://" in place else SqliteClaims(place)
    keys = [f"k-{n}" for n in range(int(count))]
    random.shuffle(keys)
    won = []

    async def work(key):
        while isinstance(answer := await claims.claim(key, 60), Busy):
            await asyncio.sleep(0.005)
        if answer is CLAIMED:
            await asyncio.sleep(random.uniform(0, 0.002))
            if key.endswith("7") and random.random() < 0.5:  # it fails, and is tried again
                await claims.release(key)
                await work(key)
                return
            won.append(key)
            await claims.complete(key, 60)

    print("ready", flush=True)
    sys.stdin.readline()
    for at in range(0, len(keys), 50):
        await asyncio.gather(*map(work, keys[at:at + 50]))
    await claims.close()
    print(*won, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(params=["file", pytest.param("redis", marks=pytest.mark.faults)])
def processes(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[list[subprocess.Popen[str]]]:
    file = request.param == "file"
    place = str(tmp_path / "claims.db") if file else request.getfixturevalue("redis_url")
    born = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, place, str(KEYS)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    yield born
    for each in born:
        each.kill()
        each.communicate()


async def test_each_key_is_worked_on_once(processes: list[subprocess.Popen[str]]) -> None:
    for each in processes:
        assert each.stdout is not None
        assert await asyncio.to_thread(each.stdout.readline) == "ready\n"
    ends = await asyncio.gather(
        *(asyncio.to_thread(each.communicate, "go\n", 50) for each in processes)
    )
    won = Counter(key for out, _ in ends for key in out.split())
    assert won == dict.fromkeys([f"k-{n}" for n in range(KEYS)], 1)
    assert sum(bool(out.split()) for out, _ in ends) > 1  # or nobody was in anybody's way
