"""The health port against clients of every kind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

import pytest

from queuecraft.cli.processes import health_port
from queuecraft.cli.processes.health_port import HealthPort
from queuecraft.cli.run import Address


async def ask(port: HealthPort, request: bytes, *, finish: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
    try:
        writer.write(request)
        if finish:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


def answer(raw: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in headers), body


@pytest.mark.parametrize(("well", "status"), [(True, 200), (False, 503)])
async def test_it_answers_with_one_word(well: bool, status: int) -> None:
    async with HealthPort("127.0.0.1", 0, lambda: well) as port:
        code, headers, body = answer(await ask(port, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert code == status
    assert json.loads(body) == {"status": "healthy" if well else "unhealthy"}
    assert headers["Content-Type"] == "application/json"
    assert int(headers["Content-Length"]) == len(body)
    assert headers["Connection"] == "close"


async def test_a_process_that_is_not_well_is_alive() -> None:
    async with HealthPort("127.0.0.1", 0, lambda: False) as port:
        code, _, body = answer(await ask(port, b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert (code, json.loads(body)) == (200, {"status": "alive"})


async def test_head_gets_the_headers_alone() -> None:
    async with HealthPort("127.0.0.1", 0, lambda: True) as port:
        code, headers, body = answer(await ask(port, b"HEAD /health HTTP/1.1\r\n\r\n"))
    assert (code, body) == (200, b"")
    assert headers["Content-Length"] == "21"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /healthy HTTP/1.1\r\n\r\n", 404),
        (b"GET /health?verbose=1 HTTP/1.1\r\n\r\n", 200),
        (b"GET /health HTTP/1.0\r\n\r\n", 200),
        (b"POST /health HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", 400),
        (b"GET /health\r\n\r\n", 400),
        (b"GET /health HTTP/2.0\r\n\r\n", 400),
        (b"\r\n", 400),
        (b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"GET /health HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", 431),
        (b"G" * 20_000, 431),
    ],
)
async def test_anything_else_gets_nothing(request_: bytes, status: int) -> None:
    async with HealthPort("127.0.0.1", 0, lambda: True) as port:
        code, _, body = answer(await ask(port, request_))
    assert code == status
    assert status == 200 or body == b""


async def test_a_client_that_goes_away_is_no_trouble() -> None:
    async with HealthPort("127.0.0.1", 0, lambda: True) as port:
        await ask(port, b"", finish=True)
        await ask(port, b"GET /hea", finish=True)
        _, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.transport.abort()
        assert answer(await ask(port, b"GET /health HTTP/1.1\r\n\r\n"))[0] == 200


async def test_a_slow_client_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_port, "PATIENCE", 0.05)
    async with HealthPort("127.0.0.1", 0, lambda: True) as port:
        assert await ask(port, b"GET /health HTTP/1.1\r\n") == b""


async def test_a_client_that_never_hangs_up_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_port, "LINGER", 0.05)
    async with HealthPort("127.0.0.1", 0, lambda: True) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.write(b"GET /health HTTP/1.1\r\n\r\n")
        assert answer(await reader.read())[0] == 200
        await port.at_rest()
        writer.close()


async def test_a_crowd_is_turned_away_at_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_port, "AT_ONCE", 2)
    async with HealthPort("127.0.0.1", 0, lambda: True) as port:
        waiting = [await asyncio.open_connection("127.0.0.1", port.number) for _ in range(2)]
        with contextlib.suppress(ConnectionError):
            assert await ask(port, b"GET /health HTTP/1.1\r\n\r\n") == b""
        for _, writer in waiting:
            writer.close()
        await port.at_rest()
        assert answer(await ask(port, b"GET /health HTTP/1.1\r\n\r\n"))[0] == 200


async def test_closing_it_hangs_up_on_those_who_wait() -> None:
    async with HealthPort("127.0.0.1", 0, lambda: True) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        await asyncio.sleep(0)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()


async def test_a_port_that_cannot_be_had_is_named() -> None:
    async with HealthPort("127.0.0.1", 0, lambda: True) as port:
        with pytest.raises(OSError, match=f"127.0.0.1:{port.number} is in use"):
            await HealthPort("127.0.0.1", port.number, lambda: True).open()
    with pytest.raises(OSError, match=r"192\.0\.2\.1:0 cannot be opened"):
        await HealthPort("192.0.2.1", 0, lambda: True).open()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_address_of_ipv6_is_written_in_brackets() -> None:
    assert HealthPort("::1", 80, lambda: True).url == "http://[::1]:80/health"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("8080", "127.0.0.1", 8080),
        ("0.0.0.0:8080", "0.0.0.0", 8080),
        ("[::1]:0", "::1", 0),
        ("localhost:65535", "localhost", 65535),
    ],
)
def test_an_address_is_a_port_or_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == Address(host, port)
