"""A worker that dies after its deed and before it was written down does it again; one that dies
after it was written down does not, nor does any other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.faults.child import change
from tests.faults.nursery import ROOT, environment
from tests.faults.once import Told, app, charged, publish
from tests.features.life import running, until

_LOCAL = "queuecraft.drivers.local.sqlite"
_REDIS = "queuecraft.drivers.redis"
CONSTANTS = {
    "file": {
        f"{_LOCAL}.driver:POLL": 0.05,
        f"{_LOCAL}.pulse:LEASE": 0.8,
        f"{_LOCAL}.pulse:BEAT": 0.1,
        f"{_LOCAL}.session:LEASE": 0.8,
    },
    "redis": {
        f"{_REDIS}.driver:BEAT": 0.1,
        f"{_REDIS}.driver:LEASE": 0.8,
        f"{_REDIS}.session:LEASE": 0.8,
        f"{_REDIS}.session:BEAT": 0.1,
    },
}
"""So that it is soon seen that somebody has died."""

LATER = pytest.mark.faults
BROKERS = [
    "file",
    pytest.param("rabbitmq", marks=LATER),
    pytest.param("redis list", marks=LATER),
    pytest.param("redis stream", marks=LATER),
    pytest.param("kafka", marks=LATER),
]


@pytest.fixture(params=BROKERS)
def told(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    kind, _, mode = str(request.param).partition(" ")
    claims = str(tmp_path / "claims.db")
    match kind:
        case "file":
            url = f"local://{tmp_path}/queue.db"
        case "rabbitmq":
            url = str(request.getfixturevalue("rabbitmq_url"))
        case "redis":
            url = f"{request.getfixturevalue('redis_url')}&mode={mode}"
            claims = str(request.getfixturevalue("redis_url"))
        case _:
            kafka = request.getfixturevalue("kafka_url")
            url = f"{kafka}&session_timeout=1&refresh=0.3&drain_timeout=2"
    constants = CONSTANTS.get(kind, {})
    change(constants, monkeypatch.setattr)
    return Told(url=url, claims=claims, ledger=str(tmp_path / "ledger"), constants=constants)


@pytest.fixture
def born() -> Iterator[list[subprocess.Popen[bytes]]]:
    children: list[subprocess.Popen[bytes]] = []
    yield children
    for child in children:
        child.kill()
        child.communicate()


def start(told: Told, point: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.once", msgspec.json.encode(told).decode()],
        cwd=ROOT,
        env={**environment(), "QUEUECRAFT_FAILPOINT": point},
    )


async def dies(told: Told, point: str, born: list[subprocess.Popen[bytes]]) -> None:
    """Let a child do what it is told until it dies there."""
    born.append(start(told, point))
    assert await asyncio.to_thread(born[-1].wait, 50) == -9


def lines(told: Told) -> list[str]:
    ledger = Path(told.ledger)
    return ledger.read_text(encoding="utf-8").split() if ledger.exists() else []


@pytest.mark.parametrize(
    ("point", "times"), [("idempotent.after_handle", 2), ("idempotent.after_complete", 1)]
)
async def test_a_worker_that_dies_is_followed_by_one_that_knows_what_was_done(
    told: Told, point: str, times: int, born: list[subprocess.Popen[bytes]]
) -> None:
    qc, worker = app(told)
    async with qc:
        await worker.declare()
        await qc.publish(charged, "o-1")
        await dies(told, point, born)
        assert lines(told) == ["o-1"]
        async with running(worker):
            await until(lambda: qc.get_metrics().messages_succeeded == 1)
    assert lines(told) == ["o-1"] * times


@pytest.mark.parametrize(
    ("point", "sent"),
    [
        pytest.param("deduplicate.before_send", 1, marks=LATER),
        ("deduplicate.after_send", 2),
    ],
)
async def test_a_publisher_that_dies_is_followed_by_one_that_sends_the_same(
    told: Told, point: str, sent: int, born: list[subprocess.Popen[bytes]]
) -> None:
    qc, worker = app(told)
    async with qc:
        await worker.declare()
        await dies(msgspec.structs.replace(told, deed="publish"), point, born)
        id = await publish(told, "o-1")
        assert await publish(told, "o-1") == id
        async with running(worker):
            await until(lambda: qc.get_metrics().messages_succeeded == sent)
    assert lines(told) == ["o-1"]  # sent twice, perhaps, but as one and the same message
