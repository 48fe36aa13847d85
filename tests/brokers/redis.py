"""A Redis to test against."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import hiredis
import pytest

from queuecraft.drivers.redis.client import pack
from tests.brokers.certificates import Certificates
from tests.brokers.installation import REDIS, REDIS_SERVER, ensure
from tests.brokers.port import Port
from tests.brokers.process import Process, ProcessFailed, usual_environment
from tests.brokers.room import room

VARIABLE = "QUEUECRAFT_TEST_REDIS"
PATIENCE = 20.0
MISNAMED = "127.0.0.2"  # loopback as well, but not in the certificate

_USUAL: Mapping[str, str] = {
    "appendonly": "yes",
    "appendfsync": "always",
    "save": '""',
    "protected-mode": "no",  # there is no other interface than loopback
}


class Server:
    """A server that is ours alone: on loopback, in a temporary folder, on a port of its own.

    Settings are those of its file; with `tls`, it has a second port and `certificates`. The name of
    the program says whether it is a Redis or a sentinel.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        tls: bool = False,
        sentinel: bool = False,
        more: str = "",
    ) -> None:
        self.frozen = False
        self._settings = {**({} if sentinel else _USUAL), **(settings or {})}
        self._tls = tls
        self._sentinel = sentinel
        self._more = more
        self._folder: Path | None = None
        self._ports: dict[str, Port] = {}
        self._process: Process | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """All it has: settings, certificates, data, log."""
        assert self._folder is not None, "the server was never started"
        return self._folder

    @property
    def certificates(self) -> Certificates:
        return Certificates(self.folder / "certificates")

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def url(self) -> str:
        password = self._settings.get("requirepass")
        return f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port()}/0"

    def port(self, name: str = "redis") -> int:
        """The number of `redis` or `tls`; it stays the same over a restart."""
        return self._ports[name].number

    def start(self) -> None:
        """Start it if it does not run, on the data it has; it takes connections afterwards."""
        if self.frozen:
            self.thaw()
        if self._process is None:
            ensure(REDIS)
            self._prepare()
        assert self._process is not None
        self._process.start()
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if not self._process.running or time.monotonic() > deadline:
                raise ProcessFailed(f"Redis does not answer:\n{self._process.output[-4000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Shut it down as an operator would."""
        if self.running:
            assert self._process is not None
            self.thaw()
            self._process.send(signal.SIGTERM)
            self._process.wait(PATIENCE)

    def kill(self) -> None:
        """End it as `kill -9` does."""
        if self._process is not None:
            self.frozen = False
            self._process.kill()

    def freeze(self) -> None:
        """Stop it in its tracks: connections stay open, and nothing answers."""
        assert self._process is not None
        self._process.send(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """Let it go on."""
        if self.frozen and self.running:
            assert self._process is not None
            self._process.send(signal.SIGCONT)
        self.frozen = False

    def call(self, *command: str | bytes | int) -> Any:
        """What it answers to a command."""
        return call(self.url, *command)

    def close(self) -> None:
        """End it and leave nothing behind."""
        if self._process is not None:
            self._process.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        for port in self._ports.values():
            port.close()
        self._folder = self._process = None

    def _prepare(self) -> None:
        self._ports = {name: Port() for name in ("redis", *(("tls",) if self._tls else ()))}
        self._folder = room("redis")
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
        self._process = Process(
            [program, str(file), *(["--sentinel"] if self._sentinel else [])],
            folder=self.folder,
            log=self.folder / "redis.output",
            environment=usual_environment(self.folder),
        )

    def _answers(self) -> bool:
        with suppress(OSError):
            answer = self.call("PING")
            return not isinstance(answer, hiredis.ReplyError) or answer.args[0].startswith("NOAUTH")
        return False


class Redis:
    """A private server, which a test may kill and freeze, or the one that the environment names.

    With QUEUECRAFT_TEST_REDIS=redis://:password@host:6379/0 that one is used, and left running: a
    test that wants to kill it, or to speak TLS to it, is skipped.
    """

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._server = Server(tls=True)

    @classmethod
    def from_environment(cls) -> Self:
        """The server that the environment names, else a private one."""
        return cls(os.environ.get(VARIABLE) or None)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def private(self) -> bool:
        """Whether it is ours to kill."""
        return self._url is None

    @property
    def url(self) -> str:
        """Where it is. Tests have keys of their own: `prefix()`."""
        return self._url or self._server.url

    @property
    def ca_file(self) -> Path:
        """The authority that signed its certificate, for `localhost` and 127.0.0.1."""
        return self._own.certificates.authority

    @property
    def client_cert(self) -> Path:
        """A client's certificate which it trusts, and its key, in one file."""
        return self._own.certificates.client

    @property
    def pid(self) -> int:
        return self._own.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended; a frozen server runs."""
        return self._own.running

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
            if not self.private or (self._server.running and not self._server.frozen):
                self._forget(name)

    def call(self, *command: str | bytes | int) -> Any:
        """What it answers to a command."""
        return call(self.url, *command)

    def start(self) -> None:
        """See that it runs, on the data it has: after this it is neither down nor frozen."""
        if self.private:
            self._server.start()

    def stop(self) -> None:
        """Shut it down as an operator would."""
        self._own.stop()

    def kill(self) -> None:
        """End it as `kill -9` does: connections break, and what was not on the disk is lost."""
        self._own.kill()

    def freeze(self) -> None:
        """Stop it in its tracks: connections stay open, and nothing answers."""
        self._own.freeze()

    def thaw(self) -> None:
        """Let it go on after `freeze()`."""
        self._own.thaw()

    def close(self) -> None:
        """End it and remove all it had, if it is ours."""
        self._server.close()

    def _forget(self, name: str) -> None:
        cursor = b"0"
        while True:
            cursor, keys = self.call("SCAN", cursor, "MATCH", f"{{{name}}}:*", "COUNT", 1000)
            if keys:
                self.call("UNLINK", *keys)
            if cursor == b"0":
                return

    @property
    def _own(self) -> Server:
        if not self.private:
            pytest.skip(f"needs a server of its own, and {VARIABLE} names one that is not")
        return self._server


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
