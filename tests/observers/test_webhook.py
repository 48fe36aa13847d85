"""Alerts by webhook: with counts alone, to no forbidden place, and never in the way."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from queuecraft import ConfigError, QueueCraft
from queuecraft.model.delayed import DelayedSettings
from queuecraft.observers import webhook
from queuecraft.observers.webhook import Webhook, is_forbidden
from tests.brokers.certificates import Certificates

SECRET = "/services/T000/s3cret?token=s3cret"


class Receiver:
    """A server that notes what it is sent and answers as it is told."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.answer = b"HTTP/1.1 204 No Content\r\n\r\n"
        self.silent = False
        self.heard = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.requests.append(head + await reader.readexactly(size))
            self.heard.set()
            if self.silent:
                await reader.read()  # until the other side gives up
            writer.write(self.answer)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{SECRET}"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(each.partition(b"\r\n\r\n")[2]) for each in self.requests]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    yield receiver
    server.close()


def hook(url: str) -> Webhook:
    return Webhook(url, logging.getLogger("queuecraft"))


async def test_an_alert_is_posted_with_counts_alone(receiver: Receiver) -> None:
    settings = DelayedSettings(limit=5, webhook=receiver.url)
    async with QueueCraft(delayed=settings) as qc:
        for n in range(5):
            await qc.delayed.add("order.placed", {"card": "4711"}, delay=60, message_id=f"m-{n}")
    assert receiver.bodies == [
        {
            "alert": "delayed-size",
            "status": status,
            "size": size,
            "limit": 5,
            "growth_per_minute": None,
        }
        for status, size in (("warning", 4), ("critical", 5))
    ]
    head = receiver.requests[0].partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert head[0] == f"POST {SECRET} HTTP/1.1".encode()
    assert f"Host: 127.0.0.1:{receiver.port}".encode() in head


async def test_a_receiver_that_never_answers_holds_nobody_up(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT", 0.2)
    receiver.silent = True
    async with QueueCraft(delayed=DelayedSettings(limit=1, webhook=receiver.url)) as qc:
        await qc.delayed.add("order.placed", {}, delay=60)
        await receiver.heard.wait()
        assert (await qc.delayed.stats()).size == 1
    assert "no answer within 0.2 s" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n", "302; redirects are"),
        (b"HTTP/1.1 500 Oh\r\n\r\n", "it answered 500"),
        (b"SSH-2.0-OpenSSH\r\n", "does not speak HTTP"),
        (b"", "does not speak HTTP"),
        (b"x" * 100_000, "ValueError"),
    ],
)
async def test_any_other_answer_is_logged_and_nothing_is_followed(
    receiver: Receiver, answer: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer = answer
    assert not await hook(receiver.url).post({"size": 1})
    assert why in caplog.text
    assert len(receiver.requests) == 1
    assert "s3cret" not in caplog.text


async def test_a_receiver_that_is_not_there_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert not await hook("http://127.0.0.1:1/s3cret").post({})
    assert "was not told: ConnectionRefusedError" in caplog.text
    assert "s3cret" not in caplog.text


async def test_a_host_that_nobody_knows_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def resolve(*_: Any, **__: Any) -> Any:
        raise socket.gaierror("s3cret.example is unknown")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    assert not await hook("http://s3cret.example/").post({})
    assert "was not told: gaierror" in caplog.text
    assert "s3cret" not in caplog.text


async def test_over_tls_the_certificate_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = Certificates.make(tmp_path / "certificates")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server)
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        assert not await hook(f"https://127.0.0.1:{port}/").post({"size": 1})
        assert "SSLCertVerificationError" in caplog.text
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
        assert await hook(f"https://127.0.0.1:{port}/").post({"size": 1})
        assert receiver.bodies == [{"size": 1}]
    finally:
        server.close()


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.0.1",
        "fe80::1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "0.0.0.0",
        "::",
        "224.0.0.1",
    ],
)
def test_link_local_and_metadata_addresses_are_forbidden(address: str) -> None:
    assert is_forbidden(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "203.0.113.9", "::1", "2001:db8::1"])
def test_other_addresses_are_not(address: str) -> None:
    assert not is_forbidden(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest", "http://[fe80::1]/", "http://2852039166/"]
)
async def test_nothing_is_sent_to_a_forbidden_address(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def connect(*_: Any, **__: Any) -> Any:
        raise AssertionError("connected")

    monkeypatch.setattr(asyncio, "open_connection", connect)
    assert not await hook(url).post({})
    assert "an address where alerts are never sent" in caplog.text


async def test_a_name_that_leads_to_a_forbidden_address_is_seen_through(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()

    async def resolve(*_: Any, **__: Any) -> Any:
        addresses = ("127.0.0.1", "169.254.169.254")  # one of them is enough
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 80)) for each in addresses]

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    assert not await hook("http://innocent.example/").post({})
    assert "never sent" in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://host/", "host/path", "http://", "http://user:pw@host/", "http://h:99999/", "", 5),
        *("http://h/a b", "http://h/\r\nX: y", "http://h/#part", "javascript:alert(1)"),
    ],
)
def test_a_url_that_will_not_do_is_refused_without_showing_it(url: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        DelayedSettings(webhook=url)
    assert str(caught.value).startswith("delayed.webhook: expected an http:// or https:// URL")


def test_a_webhook_is_never_shown() -> None:
    settings = DelayedSettings(webhook="https://hooks.example/s3cret", store="redis://:s3cret@h")
    assert "s3cret" not in repr(settings)
