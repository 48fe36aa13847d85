"""The service as a whole: served by itself, mounted in another app, and true to its document."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from queuecraft import ConfigError, ConnectionLost, QueueCraft
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.http import app
from queuecraft.model.delayed import DelayedSettings
from queuecraft.runtime.delayed import Delayed
from queuecraft.testing import FaultyDriver
from tests.http.site import CRON, OPERATOR, READER, Site, bearer, serving

TOKENS: Any = {"token": OPERATOR, "read_token": READER, "cron_secret": CRON}


class Quiet(uvicorn.Server):
    @asynccontextmanager
    async def on_a_socket(self) -> AsyncGenerator[httpx.AsyncClient]:
        """Serve while the block runs, as uvicorn itself would."""
        listening = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        task = asyncio.ensure_future(self._serve(sockets=[listening]))
        try:
            async with httpx.AsyncClient(base_url=url, verify=False) as client:
                yield client
        finally:
            self.should_exit = True
            await task


def served(api: FastAPI) -> Any:
    config = uvicorn.Config(api, log_config=None, log_level="warning", ws="none")
    return Quiet(config).on_a_socket()


async def test_served_by_itself_it_opens_and_shuts_down_its_queuecraft() -> None:
    qc = QueueCraft()
    async with served(app(qc, **TOKENS)) as client:
        assert (await client.get("/health")).json() == {"status": "healthy"}
        assert qc.health_check().ok
    assert qc.connection_state == "closed"


async def test_a_queuecraft_somebody_else_opened_is_left_open() -> None:
    async with QueueCraft() as qc:
        async with served(app(qc, **TOKENS)) as client:
            assert (await client.get("/health")).status_code == 200
        assert qc.connection_state == "connected"


async def test_mounted_in_another_app_it_keeps_its_rules() -> None:
    qc = QueueCraft()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with qc:
            yield

    shop = FastAPI(lifespan=lifespan)
    shop.mount("/queue", app(qc, **TOKENS))

    @shop.get("/")
    async def home() -> str:
        return "shop"

    async with served(shop) as client:
        assert (await client.get("/")).json() == "shop"
        assert (await client.get("/queue/health")).json() == {"status": "healthy"}
        assert (await client.get("/queue/metrics")).status_code == 401
        answer = await client.get("/queue/metrics", headers=bearer(READER))
        assert answer.status_code == 200
        answer = await client.put("/queue/delayed", headers=bearer(READER))
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
        body = {"event": "order.placed", "payload": 1, "delay": 60}
        answer = await client.post("/queue/delayed", json=body, headers=bearer(OPERATOR))
        assert answer.status_code == 201
        document = (await client.get("/queue/openapi.json", headers=bearer(READER))).json()
        assert "/delayed" in document["paths"]


async def test_stopped_it_finishes_the_requests_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, gate = asyncio.Event(), asyncio.Event()
    cancel = Delayed.cancel

    async def slow(self: Delayed, id: str) -> bool:
        entered.set()
        await gate.wait()
        return await cancel(self, id)

    monkeypatch.setattr(Delayed, "cancel", slow)
    async with serving() as site:
        id = await site.qc.delayed.add("order.placed", 1, delay=60)
        asking = asyncio.ensure_future(site.operator.delete(f"/delayed/{id}"))
        await entered.wait()
        site.server.stop()
        gate.set()
        assert (await asking).status_code == 204


async def test_a_broker_that_is_away_keeps_it_from_starting() -> None:
    driver = FaultyDriver(MemoryDriver())
    driver.refuse(opens=1_000)
    api = app(QueueCraft(drivers=[driver], reconnect_attempts=1), **TOKENS)
    with pytest.raises(ConnectionLost):
        async with api.router.lifespan_context(api):
            pass


def test_tokens_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECRAFT_TOKEN", OPERATOR)
    monkeypatch.setenv("QUEUECRAFT_READ_TOKEN", OPERATOR)
    with pytest.raises(ConfigError, match="are the same"):
        app(QueueCraft())


@pytest.mark.parametrize(
    "options", [{"allowed_hosts": "localhost"}, {"allowed_hosts": [1]}, {"max_body": 0}]
)
def test_a_setting_that_cannot_work_is_refused_at_once(options: Any) -> None:
    with pytest.raises(ConfigError):
        app(QueueCraft(), **TOKENS, **options)


def test_without_its_packages_it_says_what_to_install() -> None:
    program = """
import sys
sys.modules["fastapi"] = None
from queuecraft import ConfigError, QueueCraft
from queuecraft.http import app
try:
    app(QueueCraft())
except ConfigError as error:
    print(error)
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True
    )
    assert "pip install 'queuecraft[http]'" in answer.stdout


# -- the OpenAPI document --------------------------------------------------------------------------


async def test_every_page_says_who_may_see_it_and_what_it_may_answer() -> None:
    document = app(QueueCraft(), **TOKENS).openapi()
    schemes = document["components"]["securitySchemes"].keys()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if operation["tags"] == ["dashboard"]:
                continue  # files that hold no data, for everybody
            named = [name for each in operation["security"] for name in each]
            assert named, path
            assert set(named) <= schemes
            assert {"400", "401", "413", "500"} <= operation["responses"].keys(), (path, method)
            for status, answer in operation["responses"].items():
                if int(status) >= 400 and path != "/health":
                    assert list(answer["content"]) == ["application/json"]


async def tried(site: Site, folder: Path, *options: str) -> str:
    """What a machine says that reads the document and tries everything in it."""
    document = (await site.reader.get("/openapi.json")).json()
    (folder / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    schemes = {"read": READER, "operator": OPERATOR, "cron": CRON}
    settings = "".join(f'[auth.openapi.{k}]\nbearer = "{v}"\n' for k, v in schemes.items())
    # A request there may make sense by itself and not for the broker, as a name that is not
    # repeated or that no queue can have; and a job that is cancelled can still be looked at.
    settings += """
[[operations]]
include-path-regex = "^/api/(queues|dead-letters)"
checks.positive_data_acceptance.enabled = false

[[operations]]
include-path-regex = "^/api/jobs"
checks.use_after_free.enabled = false
"""
    (folder / "schemathesis.toml").write_text(settings, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", "openapi.json", "--no-color"),
        *("--url", site.url, "--seed", "1", *options),
        *("--suppress-health-check", "all", "--generation-database", "none"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


@asynccontextmanager
async def lived_in(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Site]:
    """A service for a broker with queues, messages and dead letters."""
    monkeypatch.setattr("queuecraft.http.feed.LONGEST", 0.01)  # so that streams end
    qc = QueueCraft(delayed=DelayedSettings(limit=1_000_000))
    async with serving(qc) as site:
        await qc.admin.declare("billing", "order.*")
        await qc.admin.declare("0", "#")  # what a machine calls things
        for n in range(20):
            await qc.publish("order.placed", {"n": n}, message_id="0" if n == 0 else f"m-{n}")
            story: Any = {"tenant": "t1"}
            await qc.send("billing.dlq", {"n": n}, headers=story)
            await qc.send("0.dlq", {"n": n}, message_id=str(n))
        yield site


@pytest.mark.timeout(180)
async def test_a_machine_that_reads_the_document_finds_nothing_untrue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lived_in(monkeypatch) as site:
        said = await tried(site, tmp_path, "--max-examples", "3", "--phases", "fuzzing,stateful")
    assert "Operations:       42 selected" in said


@pytest.mark.faults
@pytest.mark.timeout(900)
async def test_a_machine_that_tries_everything_finds_nothing_untrue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lived_in(monkeypatch) as site:
        await tried(site, tmp_path, "--max-examples", "30")
