"""The FastAPI example: what its endpoints answer, and what its workers make of it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from examples.fastapi_app.app import app
from queuecraft.fastapi import use_queue
from queuecraft.model.errors import PublishError, QueueError, QueueFull
from queuecraft.testing import MockQueueCraft
from tests.features.life import until

ORDER = {"id": "o-1", "product": "teapot", "quantity": 2}


def client_of() -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop")


@pytest.fixture
async def client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of the application, which runs as a server would run it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QUEUECRAFT_URL", raising=False)
    async with app.router.lifespan_context(app), client_of() as client:
        yield client


async def test_an_order_is_taken_and_its_mail_written_once_however_often_it_is_placed(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "examples")
    for _ in range(3):
        answer = await client.post("/orders", json=ORDER, headers={"Idempotency-Key": "k-1"})
        assert (answer.status_code, answer.json()) == (202, {"message": "k-1"})
    qc = app.state.queuecraft
    await until(lambda: qc.get_metrics().messages_succeeded == 3)
    assert caplog.messages == ["mail: 2 teapot, order o-1"]


async def test_an_order_without_a_key_is_an_order_of_its_own(client: httpx.AsyncClient) -> None:
    ids = {(await client.post("/orders", json=ORDER)).json()["message"] for _ in range(2)}
    assert len(ids) == 2


async def test_a_price_is_asked_of_a_worker(client: httpx.AsyncClient) -> None:
    answer = await client.get("/prices/lamp")
    assert (answer.status_code, answer.json()) == (200, {"product": "lamp", "cents": 3950})
    assert (await client.get("/prices/unicorn")).status_code == 404


async def test_an_order_that_makes_no_sense_is_refused(client: httpx.AsyncClient) -> None:
    assert (await client.post("/orders", json={**ORDER, "quantity": 0})).status_code == 422


async def test_health_is_that_of_the_queue(client: httpx.AsyncClient) -> None:
    answer = await client.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "healthy"})


@pytest.mark.parametrize(
    "error", [PublishError("no", outcome="rejected"), QueueFull("too many wait")]
)
async def test_a_broker_that_takes_nothing_is_a_503(error: QueueError) -> None:
    async with MockQueueCraft() as mock:
        mock.fail_publishing(error)
        app.dependency_overrides[use_queue] = lambda: mock
        try:
            async with client_of() as client:
                answer = await client.post("/orders", json=ORDER)
        finally:
            app.dependency_overrides.clear()
    assert answer.status_code == 503
