"""Other processes that share delayed messages: they move, add, and die where they are told to."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]

PROGRAM = """
import asyncio, sys
from queuecraft import QueueCraft, QueueFull
from queuecraft.model.delayed import DelayedSettings

async def main(url, store, limit, deed, *rest):
    settings = DelayedSettings(store=store or None, limit=int(limit))
    async with QueueCraft(url, delayed=settings) as qc:
        if deed == "move":
            async with qc.delayed.running():
                while (await qc.delayed.stats()).size:
                    await asyncio.sleep(0.005)
        elif deed == "clean":
            await qc.delayed.cleanup()
        elif deed == "add":
            name, count = rest
            added = 0
            print("ready", flush=True)
            sys.stdin.readline()
            for n in range(int(count)):
                try:
                    await qc.delayed.add("order.placed", {}, delay=3600, message_id=f"{name}-{n}")
                    added += 1
                except QueueFull:
                    pass
            print(added, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


class Child:
    """A process on the same messages."""

    def __init__(
        self,
        url: str,
        *deed: str,
        store: str = "",
        limit: int = 10_000,
        dies_at: str = "",
    ) -> None:
        usual = {k: v for k, v in os.environ.items() if not k.startswith("QUEUECRAFT_")}
        armed = {"QUEUECRAFT_FAILPOINT": dies_at} if dies_at else {}
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, store, str(limit), *deed],
            cwd=ROOT,
            env={**usual, **armed},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    async def ends(self) -> int:
        """How it ended; killed, it is minus the number of the signal."""
        out, err = await asyncio.to_thread(self._process.communicate, None, 50)
        status = self._process.returncode
        assert status in (0, -9), (status, out, err)
        return status

    async def line(self) -> str:
        """What it prints next."""
        assert self._process.stdout is not None
        return (await asyncio.to_thread(self._process.stdout.readline)).strip()

    def tell(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Leave nothing behind."""
        self._process.kill()
        self._process.communicate()


async def all_added(children: Sequence[Child]) -> int:
    """How many messages several processes have added, all at once."""
    for child in children:
        assert await child.line() == "ready"
    for child in children:
        child.tell()
    return sum([int(await child.line()) for child in children])
