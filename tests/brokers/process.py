"""A program that runs in the background for the tests, and never outlives them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LEASH = Path(__file__).with_name("leash.py")


class ProcessFailed(Exception):
    """A program did not start, or ended when it should not; the message has what it said last."""


class Process:
    """A program of ours: killed, frozen and started again as a test likes.

    It has a session of its own, so a Ctrl-C at the terminal does not reach it. It is killed, and
    its folder removed, by `close()` or when the process that started it is gone.
    """

    def __init__(
        self, command: Sequence[str], *, folder: Path, log: Path, environment: Mapping[str, str]
    ) -> None:
        self.pid = 0
        self._command = command
        self._folder = folder
        self.log = log
        self._environment = environment
        self._leash: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended; a frozen program runs."""
        return self._leash is not None and self._leash.poll() is None

    @property
    def output(self) -> str:
        """Everything it has printed."""
        try:
            return self.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.running:
            return
        self._let_go()
        self._leash = subprocess.Popen(
            [sys.executable, "-I", "-S", LEASH, self.log, self._folder, *self._command],
            cwd=self._folder,
            env=dict(self._environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._leash.stdout is not None
        if not (line := self._leash.stdout.readline()):
            self.wait()
            raise ProcessFailed(f"{self._command[0]} cannot be started:\n{self.output[-2000:]}")
        self.pid = int(line)

    def send(self, number: signal.Signals) -> None:
        """Send a signal. When this returns a SIGSTOP has stopped it; others may take their time."""
        if not self.running:
            raise ProcessFailed(f"{self._command[0]} does not run; start() it first")
        assert self._leash is not None
        assert self._leash.stdin is not None
        assert self._leash.stdout is not None
        try:
            self._leash.stdin.write(bytes([number]))
        except BrokenPipeError:
            return  # it has just ended
        self._leash.stdout.read(1)

    def kill(self) -> None:
        """End it as `kill -9` does; it is gone when this returns, and its folder stays."""
        if self.running:
            self.send(signal.SIGKILL)
            self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """How it ended, once it has: its exit status, or 128 and the signal's number."""
        assert self._leash is not None
        status = self._leash.wait(timeout)
        self._let_go()
        return status

    def close(self) -> None:
        """End it and remove its folder."""
        if self._leash is not None:
            assert self._leash.stdin is not None
            self._leash.stdin.close()
            self._leash.wait()
            self._let_go()

    def _let_go(self) -> None:
        if self._leash is not None:
            for end in (self._leash.stdin, self._leash.stdout):
                assert end is not None
                end.close()
            self._leash = None


def usual_environment(home: Path) -> dict[str, str]:
    """For a program that shall know nothing of who runs it: no settings, a home of its own."""
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    path = os.pathsep.join(filter(None, [os.environ.get("PATH"), system]))
    return {"HOME": str(home), "LANG": "C.UTF-8", "PATH": path, "TMPDIR": str(home)}
