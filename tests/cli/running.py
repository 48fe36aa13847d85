"""What the tests of `queuecraft run` share: an application in a folder, run as a person would."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

PATIENCE = 30.0

# It gives itself work as soon as it runs; its handler waits until there is a file named gate.
APP = """
import asyncio, os, time
from pathlib import Path
from queuecraft import Event, QueueCraft
from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.facts import WorkerStarted
from dataclasses import replace

class Shared(MemoryDriver):
    # Passes for a broker that several processes may share, though each has its own.
    traits = replace(MemoryDriver.traits, durable=True)

number = Event("number", int)
qc = QueueCraft(drivers=[Shared()], shutdown_timeout=10)
billing = qc.worker("billing")

@billing.on(number)
async def handle(n: int) -> None:
    print("inside", os.getpid(), flush=True)
    while not Path("gate").exists():
        await asyncio.sleep(0.01)
    print("handled", os.getpid(), flush=True)

async def begin(fact: WorkerStarted) -> None:
    await qc.publish(number, 1)

qc.observe(WorkerStarted, begin)
"""


class Running:
    """A command in a process group of its own, and what it has printed so far."""

    def __init__(self, *arguments: str, folder: Path, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "queuecraft", *arguments],
            cwd=folder,
            env={**_environment(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._more = threading.Condition()
        self._closed = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def output(self) -> str:
        with self._more:
            return "".join(self._lines)

    def until(self, pattern: str, times: int = 1) -> list[str]:
        """Wait until the pattern was printed so many times; what its group matched each time."""
        deadline = time.monotonic() + PATIENCE
        with self._more:
            while len(found := re.findall(pattern, "".join(self._lines))) < times:
                left = deadline - time.monotonic()
                if self._closed or (not self._more.wait(left) and left <= 0):
                    text = "".join(self._lines)
                    raise AssertionError(f"{pattern!r} not {times} times in:\n{text}")
        return found

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def send_to_group(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def ends(self) -> int:
        """Its exit code, once it and everything it has started are gone."""
        try:
            code = self.process.wait(PATIENCE)
            self._reader.join(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end:\n{self.output}") from None
        assert not self._reader.is_alive(), f"a child is left behind:\n{self.output}"
        return code

    def health(self) -> tuple[int, str]:
        """What the health port answers."""
        (url,) = set(self.until(r"(http://\S+/health)"))
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)["status"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)["status"]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more:
                self._lines.append(line)
                self._more.notify_all()
        with self._more:
            self._closed = True
            self._more.notify_all()


class Terminal:
    """A terminal, what is drawn on it, and a program that has it."""

    def __init__(self, *arguments: str, folder: Path) -> None:
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(self.master, (30, 110))
        self.before = termios.tcgetattr(self.master)
        self.drawn = ""
        self._closed = False
        self._more = threading.Condition()
        # Opening a terminal makes it the one that Ctrl-C in it is heard by.
        take = (
            "import os, sys; os.open(os.ttyname(0), os.O_RDWR); os.execv(sys.argv[1], sys.argv[1:])"
        )
        command = [sys.executable, "-P", "-m", "queuecraft", *arguments]
        self.process = subprocess.Popen(
            [sys.executable, "-c", take, *command],
            cwd=folder,
            env={**_environment(), "TERM": "xterm-256color", "TMPDIR": str(folder)},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def until(self, text: str) -> None:
        with self._more:
            seen = self._more.wait_for(lambda: text in self.drawn, PATIENCE)
        assert seen, f"{text!r} is not in {self.drawn[-3000:]!r}"

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    def ends(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def hang_up(self) -> None:
        """Close the window."""
        if not self._closed:
            self._closed = True
            self._reader.join()  # a terminal that is being read from stays open
            os.close(self.master)

    def _read(self) -> None:
        while not self._closed:
            try:
                if not select.select([self.master], [], [], 0.05)[0]:
                    continue
                data = os.read(self.master, 65536)
            except OSError:  # nobody has the other end any more
                return
            with self._more:
                self.drawn += data.decode(errors="replace")
                self._more.notify_all()


@contextmanager
def terminal(*arguments: str, folder: Path) -> Generator[Terminal]:
    shown = Terminal(*arguments, folder=folder)
    try:
        yield shown
    finally:
        shown.process.kill()
        shown.process.wait()
        shown.hang_up()


def _environment() -> dict[str, str]:
    settings = {k: v for k, v in os.environ.items() if not k.startswith("QUEUECRAFT_")}
    # Code that changes twice in a second must not be taken from a cache.
    return {**settings, "PYTHONDONTWRITEBYTECODE": "1"}


def application(folder: Path, code: str = APP, name: str = "shop") -> Path:
    """An application in a file."""
    file = folder / f"{name}.py"
    file.write_text(code, encoding="utf-8")
    return file


def eventually(condition: Callable[[], object]) -> None:
    """Return once the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {PATIENCE:g} s"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether there is no such process, or only what its parent has not asked for yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"
