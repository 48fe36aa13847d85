"""A shell for tests: a database of its own, commands run in the process or as a process."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from typer.testing import CliRunner, Result

from queuecraft import QueueCraft
from queuecraft.cli import app
from queuecraft.drivers.base import ACCEPTED, Outgoing

R = TypeVar("R")

PATIENCE = 30.0


class Shell:
    """Commands against one database file, as `QUEUECRAFT_URL` names it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "queue.db"
        self.url = f"local://{self.path}"

    def __call__(
        self, *args: str, input: str | bytes | None = None, env: Mapping[str, str] | None = None
    ) -> Result:
        """Run a command in this process, with nobody at the terminal."""
        settings = {"QUEUECRAFT_URL": self.url, "QUEUECRAFT_DEBUG": "", **(env or {})}
        return CliRunner().invoke(app, list(args), input=input, env=settings)

    def ok(self, *args: str, input: str | bytes | None = None) -> str:
        """Run a command that must succeed; what it printed."""
        result = self(*args, input=input)
        assert result.exit_code == 0, (result.exit_code, result.stdout, result.stderr)
        return result.stdout

    def json(self, *args: str, input: str | bytes | None = None) -> list[Any]:
        """Run a command that must succeed with `--json`; its lines."""
        return [json.loads(line) for line in self.ok(*args, "--json", input=input).splitlines()]

    def process(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "queuecraft"),
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Start a command as a process of its own."""
        return subprocess.Popen(
            [sys.executable, *program, *args],
            env=self.environment(env),
            cwd=self.folder,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,  # no terminal but the one it is given
        )

    def finished(self, *args: str, **options: Any) -> tuple[int, str, str]:
        """Run a command as a process; its exit code, output and complaints."""
        given = options.pop("input", None)
        if given is not None:
            options["stdin"] = subprocess.PIPE
        with self.process(*args, **options) as process:
            try:
                out, err = process.communicate(given, timeout=PATIENCE)
            except BaseException:
                process.kill()
                raise
        return process.returncode, (out or b"").decode(), err.decode()

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a command's process gets to know."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("QUEUECRAFT_")
            and name not in ("NO_COLOR", "FORCE_COLOR", "PYTHONUNBUFFERED")
        }
        return {**kept, "QUEUECRAFT_URL": self.url, **(more or {})}

    def with_broker(self, work: Callable[[QueueCraft], Awaitable[R]]) -> R:
        """Do something on the broker behind the commands' backs."""

        async def main() -> R:
            async with QueueCraft(self.url) as qc:
                return await work(qc)

        return asyncio.run(main())

    def declare(self, queue: str, *events: str) -> None:
        """A queue, its dead-letter queue and bindings."""
        self.with_broker(lambda qc: qc.admin.declare(queue, *events))

    def put(self, *messages: Outgoing) -> None:
        """Messages as they are, straight to their queues."""

        async def send(qc: QueueCraft) -> None:
            driver = qc._engine.connection.current
            assert driver is not None
            receipts = await driver.send(messages)
            assert all(receipt is ACCEPTED for receipt in receipts), receipts

        self.with_broker(send)

    def payloads(self, queue: str) -> list[Any]:
        """What is ready in a queue."""

        async def look(qc: QueueCraft) -> list[Any]:
            return [each.payload for each in await qc.admin.peek(queue, 100_000)]

        return self.with_broker(look)

    def ids(self, queue: str) -> list[str]:
        """The ids of what is ready in a queue."""

        async def look(qc: QueueCraft) -> list[str]:
            return [each.id for each in await qc.admin.peek(queue, 100_000)]

        return self.with_broker(look)


class Terminal:
    """A command on a terminal of its own, as a person sees it."""

    def __init__(
        self,
        shell: Shell,
        *args: str,
        env: Mapping[str, str] | None = None,
        stdout: int | None = None,
    ) -> None:
        self._master, slave = pty.openpty()
        self.seen = b""
        settings = {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40", **(env or {})}
        self.process = shell.process(
            *args,
            env=settings,
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
        )
        os.close(slave)

    def until(self, text: str) -> str:
        """Read until the text has appeared; everything seen so far."""
        deadline = time.monotonic() + PATIENCE
        while text.encode() not in self.seen:
            assert self._read(deadline), f"never saw {text!r}: {self.seen!r}"
        return self.seen.decode(errors="replace")

    def type(self, text: str) -> None:
        """Type on the keyboard."""
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def finish(self) -> tuple[int, str]:
        """Wait for the end; the exit code and everything seen."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        code = self.process.wait(PATIENCE)
        return code, self.seen.decode(errors="replace")

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        with suppress(OSError):
            os.close(self._master)

    def _read(self, deadline: float) -> bool:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self._master], [], [], left)[0]:
            return False
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self.seen += chunk
        return bool(chunk)
