"""`POST /cron/cleanup`: for the clock that knows the secret, and for nobody else."""

from __future__ import annotations

import logging

import pytest

from queuecraft import QueueCraft
from queuecraft.http.secrets import Secrets
from queuecraft.model.delayed import DelayedSettings
from queuecraft.testing import FakeClock
from tests.http.site import CRON, OPERATOR, READER, SECRETS, bearer, problem, serving


async def test_with_the_secret_it_cleans_up_and_tells_what_it_did() -> None:
    clock = FakeClock()
    qc = QueueCraft(clock=clock, delayed=DelayedSettings(policy="drop", grace=60))
    async with serving(qc) as site:
        await qc.admin.declare("audit", "#")
        for n in range(3):
            await qc.delayed.add("number", n, delay=10)
        await qc.delayed.add("number", 4, delay=10_000)
        await clock.advance(1000)
        answer = await site.cron.post("/cron/cleanup")
        assert answer.status_code == 200
        told = answer.json()
        assert (told["cleaned"], told["size"], told["policy"]) == (3, 1, "drop")
        assert told["seconds"] >= 0
        again = (await site.cron.post("/cron/cleanup")).json()
        assert (again["cleaned"], again["size"]) == (0, 1)


@pytest.mark.parametrize("header", [{}, bearer("wrong"), bearer(OPERATOR), bearer(READER)])
async def test_without_it_401_and_a_logged_attempt(
    header: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving() as site:
        answer = await site.anybody.post("/cron/cleanup", headers=header)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="cron"'
        assert problem(answer)["type"] == "Unauthorized"
        assert (await site.qc.delayed.stats()).cleanup.runs == 0
    assert "refused to clean up for 127.0.0.1: it sent no valid CRON_SECRET" in caplog.text
    assert all(each not in caplog.text for each in (OPERATOR, READER, CRON, "wrong"))


async def test_where_no_secret_is_set_nobody_has_it_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secrets = Secrets(token=SECRETS.token, read_token=SECRETS.read_token)
    async with serving(secrets=secrets) as site:
        assert (await site.cron.post("/cron/cleanup")).status_code == 401
    assert "CRON_SECRET is not set" in caplog.text


async def test_the_secret_opens_nothing_else() -> None:
    async with serving() as site:
        for path in ("/metrics", "/delayed", "/events", "/health"):
            assert (await site.cron.get(path)).status_code == 401


async def test_only_post_cleans_up() -> None:
    async with serving() as site:
        answer = await site.cron.get("/cron/cleanup")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
