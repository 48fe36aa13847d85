"""A PostgreSQL to test the outbox against."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psycopg

from tests.brokers.installation import Program, Unavailable, ensure
from tests.brokers.port import Port
from tests.brokers.process import Process, ProcessFailed, usual_environment
from tests.brokers.room import room

VARIABLE = "QUEUECRAFT_TEST_POSTGRES"
PATIENCE = 30.0

# It holds nothing that is worth a wait for the disk.
_SETTINGS = (
    *("-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="),
    *("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"),
    *("-c", "shared_buffers=16MB", "-c", "max_connections=50"),
)


class _Postgres(Program):
    """Debian has its programs in a folder of each version, off the PATH."""

    def find(self) -> str | None:
        places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{self.name}"))
        return str(places[-1]) if places else shutil.which(self.name)


POSTGRES = (_Postgres("postgres", "postgresql"), _Postgres("initdb", "postgresql"))


class Postgres:
    """A private server, on loopback, in a temporary folder, on a port of its own; or the one that
    QUEUECRAFT_TEST_POSTGRES=postgresql://user:password@host/database names, which is left running.
    """

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._folder: Path | None = None
        self._port: Port | None = None
        self._process: Process | None = None

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
    def url(self) -> str:
        """Where it is. Tests have a schema of their own: `schema()`."""
        if self._url is not None:
            return self._url
        assert self._port is not None, "the server was never started"
        return f"postgresql://postgres@127.0.0.1:{self._port.number}/postgres"

    @contextmanager
    def schema(self) -> Generator[str]:
        """A URL into an empty schema, which is dropped afterwards."""
        name = f"test_{secrets.token_hex(6)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        between = "&" if "?" in self.url else "?"
        try:
            yield f"{self.url}{between}options={quote(f'-csearch_path={name}')}"
        finally:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA {name} CASCADE".encode())

    def start(self) -> None:
        """Start it, unless it runs; it takes connections afterwards."""
        if self._url is not None:
            return
        if self._process is None:
            ensure(POSTGRES)
            self._prepare()
        assert self._process is not None
        self._process.start()
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if not self._process.running or time.monotonic() > deadline:
                raise ProcessFailed(f"PostgreSQL does not answer:\n{self._process.output[-4000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Shut it down, connections and all; the data stays."""
        if self._process is not None and self._process.running:
            self._process.send(signal.SIGINT)
            self._process.wait(PATIENCE)

    def close(self) -> None:
        """End it and leave nothing behind, if it is ours."""
        self.stop()
        if self._process is not None:
            self._process.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._port is not None:
            self._port.close()
        self._folder = self._process = self._port = None

    def _prepare(self) -> None:
        self._port = Port()
        self._folder = room("postgres")
        before = _unprivileged(self._folder)
        server, initdb = (program.find() for program in POSTGRES)
        assert server is not None
        assert initdb is not None
        data = str(self._folder / "data")
        environment = usual_environment(self._folder)
        answer = subprocess.run(
            [*before, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N"],
            cwd=self._folder,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
        if answer.returncode:
            raise Unavailable(f"initdb fails: {answer.stderr.strip()[-500:]}")
        self._process = Process(
            [*before, server, "-D", data, "-p", str(self._port.number), *_SETTINGS],
            folder=self._folder,
            log=self._folder / "postgres.output",
            environment=environment,
        )

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


def _unprivileged(folder: Path) -> Sequence[str]:
    """What comes before a command, as it refuses to be run by root."""
    if os.geteuid() != 0:
        return ()
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, user.pw_uid, user.pw_gid)
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise Unavailable(
                "it cannot be run by root, and there is no setpriv; install util-linux"
            )
        return (setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
    raise Unavailable("it cannot be run by root, and there is no user to run it as")
