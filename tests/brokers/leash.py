"""Runs a program that ends when whoever started it is gone, for whatever reason.

    python leash.py LOG FOLDER PROGRAM [ARGUMENT …]

Prints the program's process id. Each byte read is a signal to send, answered with a byte when it
has had its effect. At the end of input, which a crash of the other side brings about as surely as
a close, the program is killed and the folder removed. The leash ends when the program does.

Needs nothing but the standard library, so that it starts at once.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import NoReturn


class _Gone(Exception):
    """Nobody is there any more who wants the program."""


def main(log: str, folder: str, *command: str) -> int:
    """Run the command; its exit status, or 128 and the signal that ended it."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 2)
    starter = os.getppid()
    signal.signal(signal.SIGTERM, _let_go)
    program = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )
    try:
        os.write(1, b"%d\n" % program.pid)
        _obey(program.pid, starter)
        _kill(program)
    except (_Gone, BrokenPipeError):
        _kill(program)
        _remove(folder)
    status = program.returncode
    return status if status >= 0 else 128 - status


def _obey(pid: int, starter: int) -> None:
    """Pass signals on until the program ends, which makes its descriptor readable."""
    ended = os.pidfd_open(pid)
    while True:
        # Input ends when all copies of its other end are closed, and a process that was forked
        # from the starter may hold one: the second question settles it.
        readable, _, _ = select.select([0, ended], [], [], 1.0)
        if ended in readable:
            return
        if os.getppid() != starter:
            raise _Gone
        if 0 in readable:
            numbers = os.read(0, 64)
            if not numbers:
                raise _Gone
            for number in numbers:
                os.killpg(pid, number)
                if number == signal.SIGSTOP:
                    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
                os.write(1, b".")


def _kill(program: subprocess.Popen[bytes]) -> None:
    """End the program and what is left of its group."""
    # Before it is reaped: until then nobody else can have its id.
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    program.wait()


def _remove(folder: str) -> None:
    # Children of the program that have just lost it may still be writing.
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
        time.sleep(0.1)


def _let_go(*_: object) -> NoReturn:
    raise _Gone


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
