"""A Redis to test against."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import hiredis

from queuecraft.drivers.redis.client import pack
from tests.brokers.broker import Broker
from tests.brokers.certificates import Certificates
from tests.brokers.installation import REDIS, REDIS_SERVER, ensure
from tests.brokers.process import Process
from tests.brokers.server import MISNAMED, Server

VARIABLE = "QUEUECRAFT_TEST_REDIS"

_USUAL: Mapping[str, str] = {
    "appendonly": "yes",
    "appendfsync": "always",
    "save": '""',
    "protected-mode": "no",  # there is no other interface than loopback
}


class RedisServer(Server):
    """A server that is ours alone.

    Settings are those of its file; with `tls`, it has a second port and `certificates`. The name of
    the program says whether it is a Redis or a sentinel.
    """

    name = "Redis"
    patience = 20.0

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        tls: bool = False,
        sentinel: bool = False,
        more: str = "",
    ) -> None:
        super().__init__()
        self._settings = {**({} if sentinel else _USUAL), **(settings or {})}
        self._tls = tls
        self._sentinel = sentinel
        self._more = more

    @property
    def url(self) -> str:
        password = self._settings.get("requirepass")
        return f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port()}/0"

    def port(self, name: str = "redis") -> int:
        """The number of `redis` or `tls`; it stays the same over a restart."""
        return super().port(name)

    def call(self, *command: str | bytes | int) -> Any:
        """What it answers to a command."""
        return call(self.url, *command)

    def _prepare(self) -> Process:
        ensure(REDIS)
        self._move_in("redis", *(("tls",) if self._tls else ()))
        settings = {
            "bind": f"127.0.0.1 {MISNAMED}",
            "port": str(self.port()),
            "dir": str(self.folder),
            **self._settings,
        }
        if self._tls:
            certificates = Certificates.make(self.folder / "certificates")
            settings |= {
                "tls-port": str(self.port("tls")),
                "tls-cert-file": str(certificates.server),
                "tls-key-file": str(certificates.server),
                "tls-ca-cert-file": str(certificates.authority),
                "tls-auth-clients": "optional",
            }
        lines = [f"{name} {value}" for name, value in settings.items()]
        file = self.folder / "redis.conf"
        file.write_text("\n".join([*lines, self._more, ""]), encoding="utf-8")
        program = REDIS_SERVER.find()
        assert program is not None
        return self._program(program, str(file), *(["--sentinel"] if self._sentinel else []))

    def _answers(self) -> bool:
        with suppress(OSError):
            answer = self.call("PING")
            return not isinstance(answer, hiredis.ReplyError) or answer.args[0].startswith("NOAUTH")
        return False


class Redis(Broker[RedisServer]):
    """A private server, or the one of QUEUECRAFT_TEST_REDIS=redis://:password@host:6379/0."""

    variable = VARIABLE

    def __init__(self, url: str | None = None) -> None:
        super().__init__(RedisServer(tls=True), url)

    @classmethod
    def from_environment(cls) -> Self:
        """The server that the environment names, else a private one."""
        return cls(cls.named())

    @property
    def url(self) -> str:
        """Where it is. Tests have keys of their own: `prefix()`."""
        return self._url or self._server.url

    def over_tls(self, url: str, *, misnamed: bool = False) -> str:
        """The same place over TLS; `misnamed`: by an address that is not in its certificate."""
        parts = urlsplit(url)
        place = f"{MISNAMED if misnamed else '127.0.0.1'}:{self._own.port('tls')}"
        return parts._replace(scheme="rediss", netloc=place).geturl()

    @contextmanager
    def prefix(self) -> Generator[str]:
        """A URL with a prefix of its own, to which `&mode=` may be added; its keys are deleted
        afterwards."""
        name = f"test-{secrets.token_hex(6)}"
        try:
            yield f"{self.url}?prefix={name}"
        finally:
            if self._there:
                self._forget(name)

    def call(self, *command: str | bytes | int) -> Any:
        """What it answers to a command."""
        return call(self.url, *command)

    def _forget(self, name: str) -> None:
        cursor = b"0"
        while True:
            cursor, keys = self.call("SCAN", cursor, "MATCH", f"{{{name}}}:*", "COUNT", 1000)
            if keys:
                self.call("UNLINK", *keys)
            if cursor == b"0":
                return


def call(url: str, *command: str | bytes | int, timeout: float = 5.0) -> Any:
    """What a server answers to a command, on a connection of its own."""
    parts = urlsplit(url)
    database = parts.path.strip("/") or "0"
    first = [["SELECT", database]] if database != "0" else []
    if parts.password is not None:
        first.insert(0, ["AUTH", parts.username or "default", unquote(parts.password)])
    packed = [pack(tuple(each)) for each in (*first, command)]
    reader = hiredis.Reader()
    with socket.create_connection(
        (parts.hostname or "127.0.0.1", parts.port or 6379), timeout=timeout
    ) as connection:
        connection.sendall(b"".join(packed))
        answers: list[Any] = []
        while len(answers) < len(packed):
            data = connection.recv(65_536)
            if not data:
                raise ConnectionResetError("the server has closed the connection")
            reader.feed(data)
            while (answer := reader.gets()) is not False:
                answers.append(answer)
    return answers[-1]
