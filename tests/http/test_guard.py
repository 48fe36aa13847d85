"""The door of the service: hosts, origins, sizes, and what every answer carries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import httpx
import pytest

from queuecraft.http.guard import Hosts
from tests.http.site import OPERATOR, Site, bearer, problem, serving
from tests.runtime.support import eventually

CAREFUL = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


async def raw(site: Site, request: bytes) -> bytes:
    """What comes back for bytes that no client would send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(site.url).port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("localhost", True),
        ("LOCALHOST:8642", True),
        ("localhost.", True),
        ("127.0.0.1:1", True),
        ("10.1.2.3", True),
        ("[::1]:8642", True),
        ("a.shop.example", True),
        ("shop.example", False),
        ("evil-shop.example", False),
        ("evil.test", False),
        ("localhost.evil.test", False),
        ("localhost@evil.test", False),
        ("127.0.0.1.evil.test", False),
        ("evil.test#localhost", False),
        ("[::1", False),
        ("", False),
        (":80", False),
    ],
)
def test_only_its_own_names_and_numbers_are_answered_to(host: str, served: bool) -> None:
    assert Hosts(["localhost", "*.shop.example"]).serve(host) is served


def test_a_star_answers_to_every_name() -> None:
    assert Hosts(["*"]).serve("anything.test")


async def test_a_stranger_s_name_for_this_machine_gets_no_answer() -> None:
    async with serving() as site:
        answer = await site.operator.get("/health", headers={"Host": "evil.test"})
        assert (answer.status_code, problem(answer)["type"]) == (400, "UnknownHost")
    async with serving(hosts=["queue.example"]) as site:
        headers = {"Host": "queue.example"}
        assert (await site.anybody.get("/health", headers=headers)).status_code == 200
        headers = {"Host": "localhost"}
        assert (await site.anybody.get("/health", headers=headers)).status_code == 400


async def test_a_request_without_a_host_gets_no_answer() -> None:
    async with serving() as site:
        assert b" 400 " in (await raw(site, b"GET /health HTTP/1.0\r\n\r\n")).splitlines()[0]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.test"},
        {"Origin": "null"},
        {"Origin": "http://[broken"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "its own, by another scheme"},
    ],
)
async def test_a_page_of_somebody_else_changes_nothing(headers: dict[str, str]) -> None:
    async with serving() as site:
        if "own" in headers.get("Origin", ""):
            headers = {**headers, "Origin": site.url}
        for method, path in (("POST", "/delayed"), ("DELETE", "/delayed/m-1")):
            answer = await site.operator.request(method, path, headers=headers)
            assert (answer.status_code, problem(answer)["type"]) == (403, "ForeignOrigin")


async def test_a_page_of_its_own_may() -> None:
    async with serving() as site:
        answer = await site.operator.delete("/delayed/m-1", headers={"Origin": site.url})
        assert answer.status_code == 404


async def test_nobody_else_s_page_may_read_either() -> None:
    async with serving() as site:
        answer = await site.anybody.options(
            "/delayed",
            headers={"Origin": "https://evil.test", "Access-Control-Request-Method": "POST"},
        )
        assert answer.status_code == 405
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_body_too_large_is_413_whether_it_says_so_or_not() -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    headers = {"Content-Type": "application/json"}
    async with serving(max_body=1000) as site:
        for content in (b"x" * 1001, b"x" * 3_000_000, chunks()):
            answer = await site.operator.post("/delayed", content=content, headers=headers)
            assert (answer.status_code, problem(answer)["type"]) == (413, "TooLarge")
        fits = json.dumps({"event": "a", "payload": "x" * 900, "delay": 60})
        answer = await site.operator.post("/delayed", content=fits, headers=headers)
        assert answer.status_code == 201


async def test_who_is_refused_with_a_large_body_still_sees_why() -> None:
    async with serving() as site:
        answer = await site.anybody.post("/delayed", content=b"x" * 1_000_000)
        assert (answer.status_code, problem(answer)["type"]) == (401, "Unauthorized")


HALF = (
    "POST /delayed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    f"Authorization: Bearer {OPERATOR}\r\nContent-Length: 100\r\n\r\n{{"
).encode()


async def test_a_body_that_does_not_come_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("queuecraft.http.guard.SLOWEST", 0.05)
    async with serving() as site:
        answer = await raw(site, HALF)
        assert answer.split()[1] == b"408"
        assert b'"type":"TooSlow"' in answer


async def test_a_client_that_hangs_up_half_way_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as site:
        _, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(site.url).port)
        writer.write(HALF)
        await writer.drain()
        await eventually(lambda: site.server.server_state.tasks)
        writer.transport.abort()
        await eventually(lambda: not site.server.server_state.tasks)
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


@pytest.mark.parametrize("length", ["99999999999999999999999999", "²", "-1"])
async def test_a_length_that_makes_no_sense_is_refused(length: str) -> None:
    request = (
        "POST /delayed HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Authorization: Bearer {OPERATOR}\r\nContent-Length: {length}\r\n\r\n"
    )
    async with serving() as site:
        answer = await raw(site, request.encode("latin-1"))
        assert answer.split()[1] in (b"400", b"413")


async def test_nothing_is_smuggled_behind_a_request_of_two_lengths() -> None:
    request = (
        "POST /delayed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    async with serving() as site:
        answer = await raw(site, request.encode())
        assert answer.count(b"HTTP/1.1 ") == 1
        assert answer.split()[1] == b"400"


async def test_every_answer_carries_the_headers_that_keep_browsers_careful() -> None:
    async with serving() as site:
        for path in ("/health", "/metrics", "/nowhere", "/delayed?limit=x"):
            answer = await site.reader.get(path)
            assert CAREFUL.items() <= dict(answer.headers).items(), path
            assert "server" not in answer.headers


async def test_pages_and_methods_there_are_not_are_told_in_the_same_shape() -> None:
    async with serving(dashboard=False) as site:
        for path in ("/", "/docs", "/redoc", "/health/", "//health", "/delayed/", "/../etc"):
            answer = await site.operator.get(path)
            assert answer.status_code in (404, 405), path
            assert problem(answer)["type"] in ("NotFound", "MethodNotAllowed")
        answer = await site.operator.put("/delayed")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
        assert problem(answer)["hint"] == "it has GET, POST"


async def test_a_mistake_of_ours_is_logged_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("queuecraft.runtime.delayed.Delayed.list", broken)
    async with serving() as site:
        answer = await site.anybody.get("/delayed", headers=bearer(OPERATOR))
        assert (answer.status_code, problem(answer)["type"]) == (500, "InternalError")
        assert "secret detail" not in answer.text
        assert CAREFUL.items() <= dict(answer.headers).items()
    causes = [each.exc_info[1] for each in caplog.records if each.exc_info]
    assert list(map(repr, causes)) == ["ZeroDivisionError('secret detail')"]
