"""Ports that are free, and stay ours."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.brokers import port as module
from tests.brokers.port import Port

ROOT = Path(__file__).parents[2]


def test_a_server_can_listen_on_it():
    with Port() as port, socket.create_server(("127.0.0.1", port.number)) as server:
        assert server.getsockname()[1] == port.number


def test_no_two_are_the_same():
    with ExitStack() as stack:
        numbers = [stack.enter_context(Port()).number for _ in range(200)]
    assert len(set(numbers)) == 200


def test_no_client_is_ever_given_it_by_the_kernel():
    with Port() as port:
        assert port.number not in module.ephemeral()


def test_one_on_which_somebody_listens_is_passed_over(monkeypatch):
    with Port() as taken, Port() as free:
        numbers = [taken.number, free.number]
    monkeypatch.setattr(module, "_candidates", lambda: numbers)
    with socket.create_server(("127.0.0.1", numbers[0])), Port() as port:
        assert port.number == numbers[1]


def test_one_that_another_process_was_given_is_passed_over(monkeypatch):
    program = (
        "import sys; from tests.brokers.port import Port; port = Port();"
        "print(port.number, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        monkeypatch.setattr(module, "_candidates", lambda: [theirs])
        with pytest.raises(OSError, match="no TCP port"):
            Port()
        other.stdin.close()
