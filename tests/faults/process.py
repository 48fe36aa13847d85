"""A child program: started, killed, frozen, and what it has said of its troubles."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.faults.child import Options
from tests.faults.nursery import Nursery, Order


class Process:
    """One child. Signals reach it and no other, even if its process id were used again."""

    def __init__(
        self,
        nursery: Nursery,
        program: str,
        options: Options,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.program = program
        self.options = options
        self._nursery = nursery
        folder = Path(options.folder)
        self._output = folder / f"{program}-{len(list(folder.glob('*.output')))}.output"
        self._output.touch()
        argument = msgspec.json.encode(options).decode()
        self.born = time.monotonic_ns()
        """What its page says from then on is its own: another may have had its process id."""
        self._child = nursery.bear(Order(program, argument, str(self._output), environment or {}))
        self.pid = self._child.pid
        self._descriptor = os.pidfd_open(self.pid)

    @property
    def output(self) -> str:
        """Everything it has printed."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    @property
    def status(self) -> int | None:
        """How it ended: None while it lives, the number of a signal below zero."""
        return self._nursery.status(self._child)

    def send(self, number: signal.Signals) -> None:
        signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """End it as `kill -9` does; it is gone when this returns."""
        with contextlib.suppress(ProcessLookupError):  # it may be gone by its own hand
            self.send(signal.SIGKILL)
        self._nursery.wait(self._child)

    def close(self) -> None:
        """End it, if it has not ended."""
        if self._descriptor >= 0:
            if self.status is None:
                self.kill()
            os.close(self._descriptor)
            self._descriptor = -1

    def __repr__(self) -> str:
        return f"<{self.program} {self.pid}, status {self.status}>"
