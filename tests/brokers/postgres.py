"""A PostgreSQL to test the outbox against."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psycopg

from tests.brokers.broker import Broker
from tests.brokers.installation import Program, Unavailable, ensure
from tests.brokers.process import Process, usual_environment
from tests.brokers.server import Server

VARIABLE = "QUEUECRAFT_TEST_POSTGRES"

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


class PostgresServer(Server):
    """A server that is ours alone."""

    name = "PostgreSQL"
    patience = 30.0
    farewell = signal.SIGINT  # which does not wait for its clients

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port('postgres')}/postgres"

    def close(self) -> None:
        """End it in order, as it has processes of its own, and leave nothing behind."""
        self.stop()
        super().close()

    def _prepare(self) -> Process:
        ensure(POSTGRES)
        self._move_in("postgres")
        before = _unprivileged(self.folder)
        server, initdb = (program.find() for program in POSTGRES)
        assert server is not None
        assert initdb is not None
        data = str(self.folder / "data")
        environment = usual_environment(self.folder)
        answer = subprocess.run(
            [*before, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N"],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=self.patience,
            check=False,
        )
        if answer.returncode:
            raise Unavailable(f"initdb fails: {answer.stderr.strip()[-500:]}")
        return self._program(
            *before, server, "-D", data, "-p", str(self.port("postgres")), *_SETTINGS
        )

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


class Postgres(Broker[PostgresServer]):
    """A private server, or QUEUECRAFT_TEST_POSTGRES=postgresql://user:password@host/database."""

    variable = VARIABLE

    def __init__(self, url: str | None = None) -> None:
        super().__init__(PostgresServer(), url)

    @classmethod
    def from_environment(cls) -> Self:
        """The server that the environment names, else a private one."""
        return cls(cls.named())

    @property
    def url(self) -> str:
        """Where it is. Tests have a schema of their own: `schema()`."""
        return self._url or self._server.url

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
