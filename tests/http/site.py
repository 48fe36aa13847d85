"""The HTTP service on a real socket, and clients with and without tokens."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from queuecraft import QueueCraft
from queuecraft.http import LOCAL, MAX_BODY
from queuecraft.http.secrets import Secrets
from queuecraft.http.server import Server
from queuecraft.http.service import Service

OPERATOR = "operator-token-0123456789"
READER = "reader-token-0123456789"
CRON = "cron-secret-0123456789"
SECRETS = Secrets(token=OPERATOR, read_token=READER, cron_secret=CRON)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@dataclass
class Site:
    """A service that is up; `anybody`, `reader`, `operator` and `cron` are its clients."""

    qc: QueueCraft
    service: Service
    server: Server
    url: str
    anybody: httpx.AsyncClient
    reader: httpx.AsyncClient
    operator: httpx.AsyncClient
    cron: httpx.AsyncClient


@asynccontextmanager
async def serving(
    qc: QueueCraft | None = None,
    *,
    secrets: Secrets = SECRETS,
    **options: Any,
) -> AsyncGenerator[Site]:
    """Serve a QueueCraft while the block runs."""
    qc = QueueCraft() if qc is None else qc
    options = {"hosts": LOCAL, "max_body": MAX_BODY, **options}
    service = Service(qc, secrets, **options)
    server = Server(service, patience=5)
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(qc)
        task = asyncio.ensure_future(server.serve_on(listening))
        tokens: list[Mapping[str, str]] = [{}, *map(bearer, (READER, OPERATOR, CRON))]
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=url, headers=each, verify=False)
            )
            for each in tokens
        ]
        try:
            yield Site(qc, service, server, url, *clients)
        finally:
            server.stop()
            await task


PAGE = {"X-QueueCraft": "1"}
"""What a page of ours sends with every change."""


@asynccontextmanager
async def signed_in(
    site: Site, token: str = OPERATOR, name: str = "ada"
) -> AsyncGenerator[httpx.AsyncClient]:
    """A client that has nothing but the cookie of its session."""
    async with httpx.AsyncClient(base_url=site.url, verify=False) as browser:
        answer = await browser.post("/session", json={"token": token, "name": name})
        assert answer.status_code == 200, answer.text
        yield browser


async def ended(site: Site, answer: httpx.Response) -> dict[str, Any]:
    """The job that an answer tells of, once it has ended."""
    assert answer.status_code == 202, answer.text
    task = site.service._desk.jobs._tasks.get(answer.json()["id"])
    if task is not None:
        await asyncio.wait({task})
    job: dict[str, Any] = (await site.reader.get(f"/api/jobs/{answer.json()['id']}")).json()
    return job


def problem(answer: httpx.Response) -> dict[str, str]:
    """What an error says; every error has the same shape."""
    body = answer.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"type", "message", "hint"}
    assert all(isinstance(each, str) for each in body["error"].values())
    found: dict[str, str] = body["error"]
    return found
