"""`/api/live` and the one look behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from queuecraft import QueueCraft
from queuecraft.http import lookout
from queuecraft.http.api import live
from queuecraft.http.lookout import Lookout
from tests.http.site import PAGE, problem, serving, signed_in
from tests.runtime.support import eventually


class Eye:
    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.aiter_lines()

    async def see(self) -> dict[str, Any]:
        """The next overview; raises `EOFError` at the end."""
        async with asyncio.timeout(10):
            async for line in self._lines:
                if line.startswith("data: "):
                    seen: dict[str, Any] = json.loads(line[6:])
                    return seen
        raise EOFError

    async def close(self) -> None:
        """Look until there is no more to see."""
        with suppress(EOFError):
            while True:
                await self.see()


@asynccontextmanager
async def looking(client: httpx.AsyncClient) -> AsyncGenerator[Eye]:
    async with client.stream("GET", "/api/live") as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Eye(answer)


async def test_it_shows_the_overview_again_when_something_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "SOONEST", 0.0)
    async with serving() as site, looking(site.reader) as eye:
        seen = await eye.see()
        assert (seen["role"], seen["queue_count"]) == ("reader", 0)
        await site.operator.post("/api/queues", json={"name": "billing"})
        while seen["queue_count"] == 0:
            seen = await eye.see()
        await site.operator.post("/api/dead-letters/billing/redrive", json={"dry_run": True})
        while not seen["jobs"]:
            seen = await eye.see()


async def test_who_signs_out_sees_no_more() -> None:
    async with serving() as site, signed_in(site) as browser, looking(browser) as eye:
        await eye.see()
        await browser.delete("/session", headers=PAGE)
        await eye.close()


async def test_only_so_many_look_and_a_server_that_stops_lets_them_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "MOST", 1)
    async with serving() as site, looking(site.reader) as eye:
        await eye.see()
        answer = await site.reader.get("/api/live")
        assert (answer.status_code, problem(answer)["type"]) == (503, "Busy")
        site.server.stop()
        await eye.close()


class Counted(Lookout):
    """Counts how often it looked."""

    @property
    def looks(self) -> int:
        return self._number


async def test_however_many_ask_it_looks_once_and_seldom_when_nobody_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookout, "SOONEST", 0.0)
    async with QueueCraft() as qc:
        post = Counted(qc)
        seen = await asyncio.gather(*(post.overview() for _ in range(50)))
        assert len({each.at for each in seen}) == 1
        assert post.looks == 1
        monkeypatch.setattr(lookout, "OFTEN", 0.0)
        post.hurry()
        await eventually(lambda: post.looks > 5)
        monkeypatch.setattr(lookout, "ASKED", -1.0)  # as if all had gone
        await asyncio.sleep(0.05)
        looks = post.looks
        await asyncio.sleep(0.2)
        assert post.looks <= looks + 1
        await post.overview()  # one who comes back is shown a fresh one
        assert post.looks > looks
        await post.close()


async def test_who_comes_just_after_a_look_does_not_wait_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SOONEST", "SELDOM", "WAITED"):
        monkeypatch.setattr(lookout, name, 3600.0)
    async with QueueCraft() as qc:
        post = Lookout(qc)
        post.start()  # as the service does, before anybody asks
        await eventually(lambda: post.last is not None)
        assert await post.overview() is post.last
        await post.close()


async def test_mounted_it_ends_with_its_queuecraft() -> None:
    qc = QueueCraft()
    async with qc:
        post = Lookout(qc)
        await post.overview()
        task = post._task
        assert task is not None
        assert not task.done()
    await asyncio.wait({task}, timeout=5)
    assert task.done()
