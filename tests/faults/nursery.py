"""Where child processes come from: a process that has imported everything already, and forks.

Starting Python and importing the product takes longer than most children live.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import select
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from queuecraft import failpoints
from tests.faults import operator, ordered, publisher, worker

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "operator": operator.begin,
    "ordered": ordered.begin,
    "publisher": publisher.begin,
    "worker": worker.begin,
}


def environment() -> dict[str, str]:
    """That of a child which is to import these tests, with no settings but the usual ones."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    usual = {k: v for k, v in os.environ.items() if not k.startswith("QUEUECRAFT_")}
    return {**usual, "PYTHONPATH": os.pathsep.join(path)}


class Order(msgspec.Struct):
    """A child that is wanted."""

    program: str
    argument: str
    output: str  # the file that gets what it prints
    environment: Mapping[str, str]


class News(msgspec.Struct):
    """A child was born, or has ended: its status is as of `subprocess`."""

    pid: int
    status: int | None = None


class Child(NamedTuple):
    """One of all that were ever born; a process id alone may have been another's before."""

    pid: int
    birth: int


class Nursery:
    """The process, seen from the test."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.nursery"],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._births: Counter[int] = Counter()  # by process id: the numbers come round again
        self._ended: dict[Child, int] = {}
        self._heard = b""

    def bear(self, order: Order) -> Child:
        """A new child."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()
        while (born := self._hear()) is None:
            pass
        return born

    def status(self, child: Child) -> int | None:
        """How a child has ended; None while it lives."""
        assert self._process.stdout is not None
        while child not in self._ended and select.select([self._process.stdout], [], [], 0)[0]:
            self._hear()
        return self._ended.get(child)

    def wait(self, child: Child) -> int:
        """The same, once it has ended."""
        while child not in self._ended:
            self._hear()
        return self._ended[child]

    def close(self) -> None:
        """End the process, and with it all its children."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _hear(self) -> Child | None:
        assert self._process.stdout is not None
        data = os.read(self._process.stdout.fileno(), 65536)
        assert data, "the nursery has ended; it has printed why"
        *lines, self._heard = (self._heard + data).split(b"\n")
        born = None
        for line in lines:
            news = msgspec.json.decode(line, type=News)
            if news.status is None:
                self._births[news.pid] += 1
            child = Child(news.pid, self._births[news.pid])
            if news.status is None:
                born = child
            else:
                self._ended[child] = news.status
        return born


# -- in the process itself -------------------------------------------------------------------------


def main() -> None:
    """Fork children as they are ordered and tell how they end, until nobody orders any more."""
    gc.freeze()
    living: dict[int, int] = {}  # process ids by a descriptor that is readable at their end
    orders = b""
    while True:
        readable, _, _ = select.select([0, *living], [], [])
        for descriptor in readable:
            if descriptor:
                os.close(descriptor)
                pid, status = os.waitpid(living.pop(descriptor), 0)
                _tell(News(pid, os.waitstatus_to_exitcode(status)))
                continue
            data = os.read(0, 65536)
            if not data:
                for pid in living.values():
                    os.kill(pid, signal.SIGKILL)
                return
            *lines, orders = (orders + data).split(b"\n")
            for line in lines:
                pid = os.fork()
                if not pid:
                    _be(msgspec.json.decode(line, type=Order), [*living])
                living[os.pidfd_open(pid)] = pid
                _tell(News(pid))


def _be(order: Order, inherited: list[int]) -> NoReturn:
    """The life of a child."""
    status = 1
    try:
        for descriptor in inherited:
            os.close(descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(order.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(order.environment)
        importlib.reload(failpoints)  # as if it had been imported only now
        random.seed()
        PROGRAMS[order.program](order.argument)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _tell(news: News) -> None:
    os.write(1, msgspec.json.encode(news) + b"\n")


if __name__ == "__main__":
    main()
