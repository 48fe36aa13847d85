"""Who may do what over HTTP, and what everybody else is told."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest

from queuecraft import ConfigError
from queuecraft.http.secrets import Secrets
from tests.http.site import CRON, OPERATOR, READER, bearer, problem, serving

READS = ("/metrics", "/delayed", "/delayed/stats", "/openapi.json")
DOES = (("POST", "/delayed"), ("DELETE", "/delayed/m-1"))


async def test_without_a_token_nothing_but_health_is_answered() -> None:
    async with serving() as site:
        for method, path in (*(("GET", each) for each in (*READS, "/events")), *DOES):
            answer = await site.anybody.request(method, path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == 'Bearer realm="queuecraft"'
            assert problem(answer)["type"] == "Unauthorized"


async def test_the_read_token_looks_and_changes_nothing() -> None:
    async with serving() as site:
        for path in READS:
            assert (await site.reader.get(path)).status_code == 200, path
        for method, path in DOES:
            answer = await site.reader.request(method, path)
            assert (answer.status_code, problem(answer)["type"]) == (403, "Forbidden")


async def test_the_operator_token_does_all_but_the_cron() -> None:
    async with serving() as site:
        for path in READS:
            assert (await site.operator.get(path)).status_code == 200
        for method, path in DOES:
            assert (await site.operator.request(method, path)).status_code not in (401, 403)
        assert (await site.operator.post("/cron/cleanup")).status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        f"Basic {OPERATOR}",
        OPERATOR,
        f"Bearer {OPERATOR}x",
        f"Bearer {OPERATOR[:-1]}",
        f"Bearer {CRON}",
        "Bearer \xe9",
        "Bearer " + "x" * 5000,
    ],
)
async def test_what_is_not_quite_the_token_is_no_token(header: str) -> None:
    async with serving() as site:
        headers = {b"Authorization": header.encode("latin-1")}
        answer = await site.anybody.get("/metrics", headers=httpx.Headers(headers))
        assert answer.status_code == 401


async def test_a_token_given_twice_is_refused() -> None:
    async with serving() as site:
        twice = [("Authorization", f"Bearer {OPERATOR}")] * 2
        assert (await site.anybody.get("/metrics", headers=twice)).status_code == 401


async def test_the_name_of_the_scheme_may_be_written_in_any_case() -> None:
    async with serving() as site:
        answer = await site.anybody.get("/delayed", headers={"Authorization": f"bEARER {READER}"})
        assert answer.status_code == 200


async def test_who_is_refused_learns_nothing_from_a_body_that_makes_no_sense() -> None:
    async with serving() as site:
        answer = await site.anybody.post(
            "/delayed", content=b"{", headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 401


async def test_with_no_token_set_nobody_gets_in() -> None:
    async with serving(secrets=Secrets()) as site:
        assert (await site.anybody.get("/health")).json() == {"status": "healthy"}
        for header in ({}, {"Authorization": "Bearer"}, bearer("None"), bearer(OPERATOR)):
            assert (await site.anybody.get("/metrics", headers=header)).status_code == 401
            assert (await site.anybody.post("/cron/cleanup", headers=header)).status_code == 401


async def test_trusting_its_machine_it_still_does_not_trust_a_proxy() -> None:
    async with serving(secrets=Secrets(), trusted=True) as site:
        assert (await site.anybody.get("/metrics")).status_code == 200
        assert (await site.anybody.delete("/delayed/m-1")).status_code == 404
        for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Forwarded-Proto"):
            answer = await site.anybody.get("/metrics", headers={name: "10.0.0.1"})
            assert answer.status_code == 401
        host = site.url.removeprefix("http://")
        for version, status in (("1.1", b"200"), ("1.0", b"401")):
            reader, writer = await asyncio.open_connection(*host.split(":"))
            asked = f"GET /metrics HTTP/{version}\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            writer.write(asked.encode())
            assert (await reader.readline()).split()[1] == status
            writer.close()
            await writer.wait_closed()
        assert (await site.anybody.post("/cron/cleanup")).status_code == 401


async def test_where_there_are_tokens_being_near_is_not_enough() -> None:
    async with serving(trusted=True) as site:
        assert (await site.anybody.get("/metrics")).status_code == 401


async def test_refused_attempts_are_logged_without_what_was_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "queuecraft.http")
    async with serving() as site:
        await site.anybody.get("/metrics", headers=bearer("a-guess-at-it"))
    assert "refused /metrics for 127.0.0.1" in caplog.text
    assert "a-guess-at-it" not in caplog.text


# -- the secrets themselves ----------------------------------------------------------------------


def test_secrets_are_found_in_keywords_then_the_environment_then_dotenv(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    with open(".env", "w", encoding="utf-8") as file:
        file.write("QUEUECRAFT_TOKEN=from-dotenv-0123456\nCRON_SECRET='cron-dotenv-0123456'\n")
    environ = {"QUEUECRAFT_TOKEN": "from-environ-0123456", "QUEUECRAFT_READ_TOKEN": ""}
    found = Secrets.found(environ=environ)
    assert found.token == "from-environ-0123456"
    assert found.read_token is None
    assert found.cron_secret == "cron-dotenv-0123456"
    given = Secrets.found(environ=environ, token="from-keyword-0123456")
    assert given.token == "from-keyword-0123456"


def test_secrets_are_never_shown() -> None:
    assert OPERATOR not in repr(Secrets(token=OPERATOR))
    assert OPERATOR not in str(Secrets(token=OPERATOR))


@pytest.mark.parametrize("bad", ["", "  ", " padded-0123456789 ", "späte-Tokens-123", "a\nb" * 9])
def test_a_secret_that_no_header_can_carry_is_refused_without_being_told(bad: str) -> None:
    with pytest.raises(ConfigError, match="QUEUECRAFT_TOKEN") as caught:
        Secrets(token=bad)
    assert not bad.strip() or bad not in str(caught.value)


def test_one_secret_for_two_roles_is_refused() -> None:
    with pytest.raises(ConfigError, match="are the same"):
        Secrets(token=OPERATOR, read_token=OPERATOR)


def test_a_short_secret_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    Secrets(token="hunter2")
    assert "short enough to be guessed" in caplog.text
    assert "hunter2" not in caplog.text
