"""`queuecraft serve`, as a person or a service manager starts it."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from queuecraft import QueueCraft
from queuecraft.cli.processes.stop import Stop
from queuecraft.cli.serve import Place, _life, _server
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.http.secrets import Secrets
from queuecraft.runtime.delayed import Delayed
from tests.cli.running import PATIENCE, Running, application, eventually
from tests.cli.shell import Shell

OPERATOR = "operator-token-0123456789"
READER = "reader-token-0123456789"
TOKENS = {"QUEUECRAFT_TOKEN": OPERATOR, "QUEUECRAFT_READ_TOKEN": READER}

APP = """
from queuecraft import QueueCraft
qc = QueueCraft("local://./queue.db")
billing = qc.worker("billing")

@billing.on("order.*")
async def charge(order: dict) -> None: ...
"""


def address(running: Running) -> str:
    return running.until(r"answering at (http://\S+)")[0]


def get(url: str, token: str = "") -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.get(url, headers=headers, timeout=PATIENCE)


def test_it_answers_for_a_broker_until_sigterm(tmp_path: Path) -> None:
    url = f"local://{tmp_path / 'queue.db'}"
    with Running("serve", "--url", url, "--port", "0", folder=tmp_path, **TOKENS) as serving:
        site = address(serving)
        assert get(f"{site}/health").json() == {"status": "healthy"}
        assert get(f"{site}/metrics").status_code == 401
        assert "queuecraft_connection_status 1.0" in get(f"{site}/metrics", READER).text
        serving.send(signal.SIGTERM)
        assert serving.ends() == 0
        assert "tokens for operators, readers" in serving.output
        assert OPERATOR not in serving.output


def test_it_answers_for_an_application_and_declares_its_queues(tmp_path: Path) -> None:
    application(tmp_path, APP)
    with Running("serve", "shop:qc", "--port", "0", folder=tmp_path, **TOKENS) as serving:
        site = address(serving)
        assert 'queue="billing"' in get(f"{site}/metrics", READER).text
        serving.send(signal.SIGINT)
        assert serving.ends() == 0


def test_it_delivers_what_is_due(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    tokens = {**TOKENS, "QUEUECRAFT_URL": shell.url}
    with Running("serve", "--port", "0", folder=shell.folder, **tokens) as serving:
        site = address(serving)
        answer = httpx.post(
            f"{site}/delayed",
            json={"event": "order.placed", "payload": {"id": "o-1"}, "delay": 0.05},
            headers={"Authorization": f"Bearer {OPERATOR}"},
            timeout=PATIENCE,
        )
        assert answer.status_code == 201
        eventually(lambda: shell.ids("billing") == [answer.json()["id"]])
        serving.send(signal.SIGTERM)
        assert serving.ends() == 0


def test_listeners_do_not_keep_it_from_ending(tmp_path: Path) -> None:
    url = f"local://{tmp_path / 'queue.db'}"
    with Running("serve", "--url", url, "--port", "0", folder=tmp_path, **TOKENS) as serving:
        site = address(serving)
        headers = {"Authorization": f"Bearer {READER}"}
        with httpx.stream("GET", f"{site}/events", headers=headers, timeout=PATIENCE) as answer:
            chunks = answer.iter_text()
            assert "listening" in next(chunks)
            serving.send(signal.SIGTERM)
            assert list(chunks) is not None
        assert serving.ends() == 0


def test_without_tokens_it_serves_this_machine_alone(tmp_path: Path) -> None:
    url = f"local://{tmp_path / 'queue.db'}"
    with Running("serve", "--url", url, "--port", "0", folder=tmp_path) as serving:
        site = address(serving)
        assert "no tokens; whoever is at this machine" in serving.output
        assert get(f"{site}/metrics").status_code == 200
        port = httpx.URL(site).port
        assert get(f"http://localhost:{port}/delayed").json() == {"messages": [], "next": None}
        stranger = {"Host": f"evil.test:{port}"}
        assert httpx.get(f"{site}/health", headers=stranger).status_code == 400
        serving.send(signal.SIGTERM)
        assert serving.ends() == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_beyond_this_machine_it_wants_tokens(shell: Shell, host: str) -> None:
    code, out, err = shell.finished("serve", "--host", host, "--port", "0")
    assert (code, out) == (2, "")
    assert "QUEUECRAFT_TOKEN" in err
    assert "127.0.0.1" in err


def test_beyond_this_machine_with_tokens_it_answers_to_the_names_it_was_given(
    tmp_path: Path,
) -> None:
    url = f"local://{tmp_path / 'queue.db'}"
    command = ("serve", "--url", url, "--port", "0", "--host", "0.0.0.0")
    with Running(*command, "--allow-host", "queue.test", folder=tmp_path, **TOKENS) as serving:
        port = httpx.URL(address(serving)).port
        for host, status in (("queue.test", 200), ("127.0.0.1", 200), ("other.test", 400)):
            answer = httpx.get(f"http://127.0.0.1:{port}/health", headers={"Host": host})
            assert answer.status_code == status, host
        serving.send(signal.SIGTERM)
        assert serving.ends() == 0


def test_the_cron_secret_is_no_token_for_the_rest(shell: Shell) -> None:
    secret = {"CRON_SECRET": "cron-secret-0123456789"}
    code, _, err = shell.finished("serve", "--host", "0.0.0.0", env=secret)
    assert code == 2
    assert "QUEUECRAFT_TOKEN" in err


def test_a_port_in_use_is_told(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, err = shell.finished("serve", "--port", port)
    assert code == 2
    assert f"cannot listen on 127.0.0.1:{port}: it is in use" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nosuch:qc",), "there is no module nosuch"),
        (("nosuch",), "did you mean nosuch:qc?"),
        (("shop:qc", "--url", "local:///q.db"), "leave --url out"),
        (("--host", "no such host"), "expected an address"),
        (("--host", ""), "expected an address"),
        (("--url", "local://"), "always empty"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    shell: Shell, arguments: tuple[str, ...], told: str
) -> None:
    code, _, err = shell.finished("serve", *arguments)
    assert code == 2
    assert told in " ".join(err.replace("│", " ").split())


def test_a_broker_that_is_away_is_exit_code_3(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    url = f"amqp://guest:hush@127.0.0.1:{port}/"
    code, _, err = shell.finished("serve", "--port", "0", "--url", url)
    assert code == 3
    assert "hush" not in err


def test_json_logs_say_where_it_answers(tmp_path: Path) -> None:
    url = f"local://{tmp_path / 'queue.db'}"
    command = ("serve", "--url", url, "--port", "0", "--log-format", "json")
    with Running(*command, folder=tmp_path, **TOKENS) as serving:
        (line,) = serving.until(r'(\{.*"message": "serving".*\})')
        assert get(f"{json.loads(line)['url']}/health").status_code == 200
        serving.send(signal.SIGTERM)
        assert serving.ends() == 0


def test_without_its_packages_it_says_what_to_install(shell: Shell) -> None:
    program = """
import sys
sys.modules["uvicorn"] = None
sys.argv = ["queuecraft", "serve", "--port", "0"]
from queuecraft.cli import main
main()
"""
    answer = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        encoding="utf-8",
        cwd=shell.folder,
        env=shell.environment(),
        check=False,
        timeout=PATIENCE,
    )
    assert answer.returncode == 2
    assert "needs the package uvicorn: pip install 'queuecraft[http]'" in answer.stderr


# -- lived in this process -------------------------------------------------------------------------


@pytest.fixture
def alarm() -> Generator[None]:
    """The last deadline of a process is not to end this one."""
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


@asynccontextmanager
async def living(qc: QueueCraft) -> AsyncGenerator[tuple[Stop, str, asyncio.Task[int]]]:
    secrets = Secrets(token=OPERATOR, read_token=READER)
    stop = Stop(logging.getLogger("queuecraft.serve"))
    place = Place.found("127.0.0.1", 0)
    with place.listening() as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        announced = asyncio.Event()
        server = _server(qc, secrets, ["localhost"], trusted=False)
        task = asyncio.create_task(_life(qc, server, listening, stop, announced.set))
        await asyncio.wait_for(announced.wait(), PATIENCE)
        yield stop, url, task


async def test_asked_once_it_finishes_what_runs_asked_twice_it_does_not(
    alarm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, gate = asyncio.Event(), asyncio.Event()

    async def slow(self: Delayed, id: str) -> bool:
        entered.set()
        await gate.wait()
        return True

    monkeypatch.setattr(Delayed, "cancel", slow)
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    async with httpx.AsyncClient(headers=headers, verify=False) as client:
        async with living(QueueCraft()) as (stop, url, life):
            asking = asyncio.create_task(client.delete(f"{url}/delayed/m-1"))
            await entered.wait()
            stop.ask("the test")
            gate.set()
            assert (await asking).status_code == 204
            assert await life == 0
        entered.clear()
        gate.clear()
        async with living(QueueCraft()) as (stop, url, life):
            asking = asyncio.create_task(client.delete(f"{url}/delayed/m-1"))
            await entered.wait()
            stop.ask("the test")
            stop.force("the test insists")
            assert await life == 1
            asking.cancel()
        gate.set()


async def test_a_broker_without_a_place_for_delayed_messages_is_served_all_the_same(
    alarm: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    qc = QueueCraft("amqp://broker.test/", drivers=[MemoryDriver()])
    async with living(qc) as (stop, url, life), httpx.AsyncClient(verify=False) as client:
        assert (await client.get(f"{url}/health")).json() == {"status": "healthy"}
        stop.ask("the test")
        assert await life == 0
    assert "no delayed messages: " in caplog.text
    assert "delayed.store" in caplog.text


# -- the admin API -------------------------------------------------------------------------------


def test_it_keeps_an_audit_log_masks_fields_and_shows_reports(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.ok("publish", "order.placed", '{"id": "o-1", "card": "4111"}')
    (shell.folder / "reports").mkdir()
    (shell.folder / "reports" / "week.html").write_text("<h1>a week</h1>", encoding="utf-8")
    options = ("--audit", "audit.jsonl", "--mask", "*.card", "--reports", "reports")
    tokens = {**TOKENS, "QUEUECRAFT_URL": shell.url}
    with Running(
        *("serve", "--port", "0", "--no-dashboard", *options), folder=shell.folder, **tokens
    ) as serving:
        site = address(serving)
        assert get(f"{site}/", OPERATOR).status_code == 404
        (line,) = get(f"{site}/api/queues/billing/messages", OPERATOR).json()["messages"]
        assert "4111" not in line["preview"]
        (report,) = get(f"{site}/api/reports", READER).json()["reports"]
        assert get(f"{site}/reports/{report['name']}", READER).text == "<h1>a week</h1>"
        answer = httpx.post(
            f"{site}/api/queues/billing/purge",
            json={"confirm": "billing"},
            headers={"Authorization": f"Bearer {OPERATOR}"},
            timeout=PATIENCE,
        )
        assert answer.json() == {"purged": 1}
        serving.send(signal.SIGTERM)
        assert serving.ends() == 0
    lines = (shell.folder / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(each)["outcome"] for each in lines] == ["begun", "done: 1 purged"]


@pytest.mark.parametrize(
    "options", [("--audit", "missing/audit.jsonl"), ("--reports", "missing"), ("--mask", "")]
)
def test_what_it_cannot_use_keeps_it_from_starting(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    url = f"local://{tmp_path / 'queue.db'}"
    with Running(
        *("serve", "--url", url, "--port", "0", *options), folder=tmp_path, **TOKENS
    ) as serving:
        assert serving.ends() == 2
        assert options[0].strip("-") in serving.output
