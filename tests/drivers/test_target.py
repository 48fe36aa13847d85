"""A driver asks its target for credentials each time it connects, and gets those of the moment."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from queuecraft import ConfigError, ConnectionLost, Credentials, QueueCraft
from queuecraft.drivers.registry import Drivers
from queuecraft.drivers.target import Target
from queuecraft.facts import Reconnected, Reconnecting
from queuecraft.model.credentials import Source
from queuecraft.model.settings import Settings
from queuecraft.testing import FakeClock, FaultyDriver


def target(url: str, source: Source | None = None) -> Target:
    return Target(url, FakeClock(), Settings(url=url, credentials=source))


# -- where they come from --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("amqp://host", None),
        ("local://", None),
        ("amqp://ada:a%2Fb@one,two", Credentials("ada", "a/b")),
        ("redis://:s3cret@host", Credentials(None, "s3cret")),
        ("amqp://ada@host", Credentials("ada", "")),
    ],
)
async def test_a_url_may_hold_them(url: str, found: Credentials | None) -> None:
    assert await target(url).credentials() == found


async def test_a_callable_goes_before_the_url() -> None:
    fresh = Credentials("bob", "new")
    assert await target("amqp://ada:old@host", lambda: fresh).credentials() == fresh


async def test_a_coroutine_function_will_do() -> None:
    async def ask() -> Credentials:
        await asyncio.sleep(0)
        return Credentials("bob", "new")

    class Vault:
        async def __call__(self) -> Credentials:
            return await ask()

    for source in (ask, lambda: ask(), Vault()):
        assert await target("amqp://host", source).credentials() == Credentials("bob", "new")


async def test_a_plain_function_that_waits_does_not_stop_the_loop() -> None:
    gate = threading.Event()

    def ask() -> Credentials:
        assert gate.wait(30)
        return Credentials("bob", "new")

    asking = asyncio.create_task(target("amqp://host", ask).credentials())
    await asyncio.sleep(0)
    gate.set()  # which could not happen if the loop were waiting too
    assert await asking == Credentials("bob", "new")


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("broker.json", '{"username": "bob", "password": "a:b"}', Credentials("bob", "a:b")),
        ("broker.json", '{"password": "new", "engine": "mq"}', Credentials("ada", "new")),
        ("broker.toml", 'username = "bob"\npassword = "a:b"', Credentials("bob", "a:b")),
        ("broker", '{"username": "bob", "password": "new"}', Credentials("bob", "new")),
        ("broker", 'password = "new"\n', Credentials("ada", "new")),
        ("broker", "bob:new\n", Credentials("bob", "new")),
        ("broker", "bob:a:b\r\n", Credentials("bob", "a:b")),
        ("broker", "new\n", Credentials("ada", "new")),
        ("broker", "\ufeffnew", Credentials("ada", "new")),
        ("broker", " spaces count \n", Credentials("ada", " spaces count ")),
        ("broker", ":new", Credentials("ada", "new")),
        ("broker", "{curly", Credentials("ada", "{curly")),
    ],
)
async def test_a_file_may_have_several_forms(
    tmp_path: Path, name: str, text: str, found: Credentials
) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8", newline="")
    assert await target("amqp://ada:old@host", file).credentials() == found
    assert await target("amqp://ada:old@host", str(file)).credentials() == found


# -- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("broker", None, "cannot be read: No such file"),
        ("broker", b"", "holds no password"),
        ("broker", b"bob:", "holds no password"),
        ("broker", b"s3cret\ns3cret\n", "holds no password"),
        ("broker", b"s3cret\xff", "not UTF-8"),
        ("broker", b"s3cret" * 20_000, "more than 65536 bytes"),
        ("broker.json", b'{"password": "s3cret"', "not what its name ends with"),
        ("broker.json", b'["s3cret"]', "not what its name ends with"),
        ("broker.json", b'{"password": 5, "was": "s3cret"}', "holds no password"),
        ("broker.json", b'{"username": ["s3cret"], "password": "s3cret"}', "username that is no t"),
        ("broker.json", b"[" * 60_000, "not what its name ends with"),
        ("broker.toml", b"password = s3cret", "not what its name ends with"),
        ("nul\0", None, "it cannot be a path"),
    ],
)
async def test_a_file_that_will_not_do_is_named_without_what_it_holds(
    tmp_path: Path, name: str, data: bytes | None, said: str
) -> None:
    file = tmp_path / name
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(ConnectionLost, match=said) as caught:
        await target("amqp://host", file).credentials()
    assert "s3cret" not in str(caught.value)
    assert "broker" in str(caught.value) or "nul" in str(caught.value)


async def test_a_folder_or_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConnectionLost, match="no regular file"):
            await target("amqp://host", path).credentials()


def _raising() -> Credentials:
    raise ValueError("invalid token: s3cret")


async def _raising_late() -> Credentials:
    return _raising()


@pytest.mark.parametrize("source", [_raising, _raising_late])
async def test_a_callable_that_fails_is_named_without_its_message(source: Source) -> None:
    with pytest.raises(
        ConnectionLost, match=r"_raising.* raised ValueError \(test_target.py:\d+\)"
    ) as e:
        await target("amqp://host", source).credentials()
    assert "s3cret" not in str(e.value)
    assert e.value.__cause__ is None
    assert e.value.__suppress_context__


@pytest.mark.parametrize("answer", [None, ("ada", "s3cret"), "s3cret", {"password": "s3cret"}])
async def test_an_answer_of_another_kind_is_refused_and_not_shown(answer: Any) -> None:
    with pytest.raises(ConnectionLost, match="expected Credentials") as caught:
        await target("amqp://host", lambda: answer).credentials()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(("name", "password"), [(5, "s3cret"), (None, b"s3cret"), ("ada", None)])
def test_credentials_are_texts(name: Any, password: Any) -> None:
    with pytest.raises(ConfigError, match="expected str") as caught:
        Credentials(name, password)
    assert "s3cret" not in str(caught.value)


def test_no_picture_shows_a_password() -> None:
    one = target("amqp://ada:s3cret@host", lambda: Credentials("ada", "s3cret"))
    assert "s3cret" not in f"{one!r} {one} {one.settings!r} {Credentials('ada', 's3cret')!r}"


# -- rotation --------------------------------------------------------------------------------------


@dataclass
class Broker:
    """Lets in who knows its password."""

    password: str
    logins: list[Credentials | None] = field(default_factory=list)


class GuardedDriver(FaultyDriver):
    def __init__(self, target: Target, broker: Broker) -> None:
        super().__init__()
        self.target = target
        self.broker = broker

    async def open(self) -> None:
        credentials = await self.target.credentials()
        self.broker.logins.append(credentials)
        if credentials is None or credentials.password != self.broker.password:
            raise ConnectionLost("access refused")
        await super().open()


@dataclass
class Site:
    """A QueueCraft before a guarded broker."""

    broker: Broker
    qc: QueueCraft
    driver: GuardedDriver

    @classmethod
    def of(cls, broker: Broker, url: str, **options: Any) -> Site:
        made: list[GuardedDriver] = []

        def factory(target: Target) -> list[GuardedDriver]:
            made.append(GuardedDriver(target, broker))
            return made

        drivers = Drivers()
        drivers.add("guarded", factory)
        qc = QueueCraft(url, drivers=drivers, reconnect_delay=0.001, **options)
        return cls(broker, qc, made[0])

    async def break_and_wait(self) -> None:
        back = asyncio.Event()
        stop = self.qc.observe(Reconnected, lambda _: back.set())
        await self.driver.drop()
        noticing = asyncio.create_task(self.qc.publish("order.placed", {}, unroutable="drop"))
        await back.wait()
        await noticing
        stop()


def _write_line(file: Path, password: str) -> None:
    file.write_text(f"ada:{password}\n")


def _write_json(file: Path, password: str) -> None:
    file.write_text(json.dumps({"username": "ada", "password": password}))


@pytest.mark.parametrize("write", [_write_line, _write_json])
async def test_a_changed_file_is_read_at_the_next_connect(
    tmp_path: Path, write: Callable[[Path, str], None]
) -> None:
    file = tmp_path / "broker"
    write(file, "first")
    site = Site.of(Broker("first"), "guarded://host", credentials=file)
    async with site.qc:
        site.broker.password = "second"
        write(file, "second")
        await site.break_and_wait()
    assert site.broker.logins == [Credentials("ada", "first"), Credentials("ada", "second")]


async def test_a_callable_is_asked_at_each_connect() -> None:
    passwords = iter(["first", "second", "third"])

    async def ask() -> Credentials:
        return Credentials("ada", next(passwords))

    site = Site.of(Broker("first"), "guarded://ada:stale@host", credentials=ask)
    async with site.qc:
        for password in ("second", "third"):
            site.broker.password = password
            await site.break_and_wait()
    assert [each.password for each in site.broker.logins if each] == ["first", "second", "third"]


async def test_a_file_that_is_gone_for_a_while_is_waited_for_and_nothing_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "broker.json"
    _write_json(file, "s3cret-1")
    site = Site.of(Broker("s3cret-1"), "guarded://host", credentials=file)
    errors: list[str] = []

    def mend(fact: Reconnecting) -> None:
        errors.append(fact.error)
        _write_json(file, "s3cret-2")

    with caplog.at_level(logging.DEBUG):
        async with site.qc:
            site.broker.password = "s3cret-2"
            file.unlink()
            site.qc.observe(Reconnecting, mend)
            await site.break_and_wait()
            assert site.qc.connection_state == "connected"
    assert "cannot be read: No such file" in errors[0]
    assert "s3cret" not in "".join(errors) + caplog.text


async def test_a_first_connect_without_credentials_fails_with_the_reason(tmp_path: Path) -> None:
    site = Site.of(Broker("s3cret"), "guarded://host", credentials=tmp_path / "none")
    with pytest.raises(ConnectionLost, match=r"no credentials: file '.*none' cannot be read"):
        await site.qc.open()
    await site.qc.shutdown()
    assert site.broker.logins == []
