"""A server that is ours alone: on loopback, in a temporary folder, on ports of its own."""

from __future__ import annotations

import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self

from tests.brokers.certificates import Certificates
from tests.brokers.port import Port
from tests.brokers.process import Process, ProcessFailed, usual_environment
from tests.brokers.room import room

MISNAMED = "127.0.0.2"  # loopback as well, but not in the certificate


class Server(ABC):
    """Killed, frozen and started again as a test likes. Nothing of it is left after `close()`."""

    name: ClassVar[str]
    patience: ClassVar[float]
    """Seconds for a start, or for an end."""
    farewell: ClassVar[signal.Signals] = signal.SIGTERM
    """What an operator sends to shut it down."""

    def __init__(self) -> None:
        self.frozen = False
        self._folder: Path | None = None
        self._ports: dict[str, Port] = {}
        self._process: Process | None = None
        self._companion: Process | None = None
        """What it cannot do without, if there is something."""

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
        """Its own, its clients', and who has signed them; for those servers that have some."""
        return Certificates(self.folder / "certificates")

    @property
    def pid(self) -> int:
        """Its process id, or 0."""
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended; a frozen server runs."""
        return self._process is not None and self._process.running

    @property
    def log(self) -> Path:
        """Where it writes what it has to say."""
        assert self._process is not None, "the server was never started"
        return self._process.log

    def port(self, name: str) -> int:
        """The number of one of its ports; it stays the same over a restart."""
        return self._ports[name].number

    def start(self) -> None:
        """Start it if it does not run, on the data it has; it answers afterwards."""
        self.thaw()
        if self._process is None:
            self._process = self._prepare()
        self._launch(self._process)
        self._until(self._answers, self._process)

    def stop(self) -> None:
        """Shut it down as an operator would."""
        if self._process is not None and self.running:
            self.thaw()
            self._process.send(self.farewell)
            self._process.wait(self.patience)

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
        if self.frozen and self._process is not None and self.running:
            self._process.send(signal.SIGCONT)
        self.frozen = False

    def close(self) -> None:
        """End it and leave nothing behind."""
        for process in (self._process, self._companion):
            if process is not None:
                process.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        for port in self._ports.values():
            port.close()
        self._folder = self._process = self._companion = None

    @abstractmethod
    def _prepare(self) -> Process:
        """Everything it needs before its first start; it begins with `_move_in`."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it can be asked something."""

    def _launch(self, process: Process) -> None:
        process.start()

    def _move_in(self, *ports: str) -> None:
        self._ports = {name: Port() for name in ports}
        self._folder = room(self.name.lower())

    def _program(self, *command: str, environment: dict[str, str] | None = None) -> Process:
        """A program that runs in its folder, and writes what it says there."""
        return Process(
            command,
            folder=self.folder,
            log=self.folder / f"{Path(command[0]).name}.output",
            environment=environment or usual_environment(self.folder),
        )

    def _said(self, process: Process) -> str:
        return process.output[-4000:]

    def _until(self, condition: Callable[[], bool], process: Process) -> None:
        deadline = time.monotonic() + self.patience
        while not condition():
            if not process.running or time.monotonic() > deadline:
                what = "does not answer" if process.running else "ended"
                raise ProcessFailed(f"{self.name} {what}:\n{self._said(process)}")
            time.sleep(0.02)
