"""`GET /health`: a word for everybody, reasons for those with a token."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queuecraft import ConnectionLost, QueueCraft
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.model.delayed import DelayedSettings
from queuecraft.testing import FaultyDriver
from tests.http.site import OPERATOR, bearer, problem, serving
from tests.runtime.support import eventually

WHOLE = {"status", "connection", "delayed", "delayed_error"}


async def test_anybody_is_told_the_word_and_nothing_else() -> None:
    async with serving() as site:
        answer = await site.anybody.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "healthy"})


async def test_with_a_token_come_the_connection_the_sizes_and_the_cleanups() -> None:
    qc = QueueCraft()
    async with serving(qc) as site:
        qc.worker("audit").on("#", print)
        await qc.admin.declare("audit", "#")
        await qc.publish("number", 1)
        await qc.delayed.add("number", 2, delay=60)
        await qc.delayed.cleanup()
        for client in (site.reader, site.operator):
            answer = await client.get("/health")
            assert answer.status_code == 200
            told = answer.json()
            assert told.keys() == WHOLE
            assert told["connection"]["state"] == "connected"
            assert told["connection"]["last_message_at"] is not None
            assert told["connection"]["last_error"] is None
            delayed = told["delayed"]
            assert (delayed["size"], delayed["max_size"], delayed["limit"]) == (1, 1, 10_000)
            assert delayed["status"] == "healthy"
            assert delayed["cleanup"]["runs"] == 1
            assert delayed["cleanup"]["success_rate"] == 1.0


async def test_a_lost_connection_is_critical_and_503() -> None:
    driver = FaultyDriver(MemoryDriver())
    qc = QueueCraft(drivers=[driver], reconnect_delay=0.01)
    async with serving(qc) as site:
        driver.refuse(opens=1_000_000)
        await driver.drop()
        with pytest.raises(ConnectionLost):
            await qc.admin.queues()
        await eventually(lambda: qc.connection_state == "reconnecting")
        answer = await site.anybody.get("/health")
        assert (answer.status_code, answer.json()) == (503, {"status": "critical"})
        told = (await site.reader.get("/health")).json()
        assert told["connection"]["status"] == "unhealthy"


@pytest.mark.parametrize(
    ("size", "word", "status"),
    [(7, "healthy", 200), (8, "warning", 200), (9, "warning", 200), (10, "critical", 503)],
)
async def test_delayed_messages_near_their_limit_are_a_warning_and_at_it_critical(
    size: int, word: str, status: int
) -> None:
    qc = QueueCraft(delayed=DelayedSettings(limit=10))
    async with serving(qc) as site:
        for n in range(size):
            await qc.delayed.add("number", n, delay=60)
        answer = await site.anybody.get("/health")
        assert (answer.status_code, answer.json()) == (status, {"status": word})
        told = (await site.reader.get("/health")).json()
        assert (told["delayed"]["size"], told["delayed"]["status"]) == (size, word)


async def test_a_wrong_token_is_refused_rather_than_told_less() -> None:
    async with serving() as site:
        answer = await site.anybody.get("/health", headers=bearer("wrong"))
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert problem(answer)["type"] == "Unauthorized"


async def test_head_has_the_status_and_no_body() -> None:
    async with serving() as site:
        answer = await site.anybody.head("/health")
    assert (answer.status_code, answer.content) == (200, b"")


async def test_however_many_ask_at_once_the_store_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as site:
        asked = 0
        gate = asyncio.Event()
        stats = site.qc.delayed.stats

        async def slow() -> Any:
            nonlocal asked
            asked += 1
            await gate.wait()
            return await stats()

        monkeypatch.setattr("queuecraft.runtime.delayed.Delayed.stats", lambda _: slow())
        answers = [asyncio.ensure_future(site.anybody.get("/health")) for _ in range(10)]
        await eventually(lambda: asked)
        answers[0].cancel()
        gate.set()
        assert {(await each).status_code for each in answers[1:]} == {200}
        assert asked < 10


async def test_a_store_that_does_not_answer_is_critical(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuecraft.http.waiting.PATIENCE", 0.01)
    async with serving() as site:

        async def never(_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr("queuecraft.runtime.delayed.Delayed.stats", never)
        answer = await site.anybody.get("/health", headers=bearer(OPERATOR))
        assert answer.status_code == 503
        assert "no answer" in answer.json()["delayed_error"]
        answer = await site.reader.get("/delayed/stats")
        assert (answer.status_code, problem(answer)["type"]) == (503, "NoAnswer")
