"""QueueCraft in a web application: its life, and the way to it from endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket

from queuecraft import (
    ConfigError,
    ConnectionLost,
    Event,
    Message,
    QueueCraft,
    queue_module,
)
from queuecraft import Depends as Needs
from queuecraft.fastapi import lifespan, use_queue

order_placed = Event("order.placed", str)
Queued = Annotated[QueueCraft, Depends(use_queue)]


@asynccontextmanager
async def served(app: FastAPI) -> AsyncGenerator[httpx.AsyncClient]:
    """The application, started as a server would, and a client of it."""
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            yield client


routes = APIRouter()


@routes.post("/orders/{order}")
async def place(order: str, qc: Queued) -> str:
    return await qc.publish(order_placed, order)


@routes.get("/health")
async def health(qc: Queued) -> str:
    return qc.health_check().status


async def test_an_endpoint_publishes_and_a_worker_in_the_same_process_handles() -> None:
    qc = QueueCraft("local://")
    seen: asyncio.Queue[str] = asyncio.Queue()
    worker = qc.worker("billing").on(order_placed, seen.put)
    app = FastAPI(lifespan=lifespan(qc))
    app.include_router(routes)
    assert repr(qc) == "<QueueCraft local disconnected, 1 workers>"
    async with served(app) as client:
        assert worker.state == "running"
        answer = await client.post("/orders/o-1")
        assert answer.status_code == 200
        assert await asyncio.wait_for(seen.get(), 5) == "o-1"
        assert (await client.get("/health")).json() == "healthy"
    assert repr(worker) == "<Worker 'billing' on order.placed, stopped>"
    assert qc.connection_state == "closed"


async def test_the_end_of_the_application_waits_for_handlers() -> None:
    qc = QueueCraft("local://")
    inside, done = asyncio.Event(), asyncio.Event()
    worker = qc.worker("billing")

    @worker.on(order_placed)
    async def charge(order: str) -> None:
        inside.set()
        for _ in range(100):
            await asyncio.sleep(0)
        done.set()

    app = FastAPI(lifespan=lifespan(qc))
    app.include_router(routes)
    async with served(app) as client:
        await client.post("/orders/o-1")
        await inside.wait()
        assert not done.is_set()
    assert done.is_set()


async def test_workers_may_be_left_to_other_processes(tmp_path: Path) -> None:
    url = f"local://{tmp_path}/queue.db"

    def made() -> QueueCraft:
        qc = QueueCraft(url)
        qc.worker("billing").on(order_placed, print)
        return qc

    app = FastAPI(lifespan=lifespan(made, workers=False))
    app.include_router(routes)
    async with served(app) as client:
        assert app.state.queuecraft.workers[0].state == "new"
        assert (await client.post("/orders/o-1")).status_code == 200
    async with QueueCraft(url) as other:
        assert [each.payload for each in await other.admin.peek("billing")] == ["o-1"]


async def test_an_application_may_start_again_if_it_can_make_another(tmp_path: Path) -> None:
    module = queue_module(
        f"local://{tmp_path}/queue.db", setup=lambda qc: qc.worker("a").on("#", print)
    )
    app = FastAPI(lifespan=lifespan(module))
    app.include_router(routes)
    seen: list[Any] = []
    for _ in range(2):
        async with served(app) as client:
            assert (await client.get("/health")).json() == "healthy"
            seen.append(app.state.queuecraft)
    assert seen[0] is not seen[1]
    assert not hasattr(app.state, "queuecraft")


async def test_one_that_was_shut_down_says_so() -> None:
    app = FastAPI(lifespan=lifespan(QueueCraft("local://")))
    async with served(app):
        pass
    with pytest.raises(ConnectionLost, match="this QueueCraft is shut down; make a new one"):
        async with served(app):
            raise AssertionError


async def test_applications_within_an_application_have_the_same() -> None:
    inner, innermost = FastAPI(), FastAPI()
    inner.include_router(routes)
    innermost.include_router(routes)
    inner.mount("/v2", innermost)
    app = FastAPI(lifespan=lifespan(QueueCraft("local://")))
    app.mount("/api", inner)
    async with served(app) as client:
        assert (await client.get("/api/health")).json() == "healthy"
        assert (await client.get("/api/v2/health")).json() == "healthy"
    assert not hasattr(inner.state, "queuecraft")


async def test_a_websocket_has_it_too() -> None:
    app = FastAPI(lifespan=lifespan(lambda: QueueCraft("local://")))

    @app.websocket("/health")
    async def health(socket: WebSocket, qc: Queued) -> None:
        await socket.accept()
        await socket.send_text(qc.health_check().status)

    said: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        said.append(message.get("text"))

    scope = {"type": "websocket", "path": "/health", "headers": [], "query_string": b""}
    async with served(app):
        await app(scope, receive, send)
    assert "healthy" in said


async def test_a_lifespan_may_be_part_of_another() -> None:
    notes: list[str] = []
    qc = QueueCraft("local://")

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncGenerator[None]:
        notes.append("open database")
        async with lifespan(qc)(app):
            yield
        notes.append(f"close database, {qc.connection_state}")

    app = FastAPI(lifespan=life)
    app.include_router(routes)
    async with served(app) as client:
        assert (await client.get("/health")).json() == "healthy"
    assert notes == ["open database", "close database, closed"]


async def test_an_application_whose_life_never_began_is_told() -> None:
    app = FastAPI()
    app.include_router(routes)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop")
    async with client:
        with pytest.raises(ConfigError, match="this application has no QueueCraft"):
            await client.get("/health")


async def test_a_worker_that_cannot_start_keeps_the_application_from_starting() -> None:
    qc = QueueCraft("local://")
    qc.worker("nothing to do")
    app = FastAPI(lifespan=lifespan(qc))
    with pytest.raises(ConfigError, match="has no handlers"):
        async with served(app):
            raise AssertionError
    assert qc.connection_state == "closed"
    assert not hasattr(app.state, "queuecraft")


async def tenant(message: Message[Any]) -> str:
    return str(message.headers["tenant"])


async def setting() -> str:
    return "shared"


async def test_an_endpoint_and_a_handler_may_share_a_dependency() -> None:
    both = Annotated[str, Depends(setting), Needs(setting)]
    qc = QueueCraft("local://")
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def charge(order: str, it: Any, tenant: Any) -> None:
        await seen.put(f"{order} {it} {tenant}")

    charge.__annotations__.update(it=both, tenant=Annotated[str, Needs(tenant)])
    qc.worker("billing").on(order_placed, charge)
    app = FastAPI(lifespan=lifespan(qc))

    @app.post("/")
    async def index(it: Annotated[str, Depends(setting), Needs(setting)], qc: Queued) -> str:
        await qc.publish(order_placed, "o-1", headers={"tenant": "acme"})
        return it

    async with served(app) as client:
        assert (await client.post("/")).json() == "shared"
        assert await asyncio.wait_for(seen.get(), 5) == "o-1 shared acme"
