"""A TCP port on this machine that is free, and stays ours."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path
from typing import Self

LOWEST = 10_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Port:
    """A port for a server to listen on, whether or not one does just now.

    >>> with Port() as one, Port() as another:
    ...     assert one.number != another.number
    """

    def __init__(self) -> None:
        for number in _candidates():
            claim = _claim(number)
            if claim is None:
                continue
            if _is_free(number):
                self.number = number
                self._claim = claim
                return
            claim.close()
        raise OSError(f"no TCP port from {LOWEST} on seems to be free; end some servers")

    def close(self) -> None:
        """Leave the port to others."""
        self._claim.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ephemeral() -> range:
    """The ports the kernel gives to clients.

    A server that is down loses such a port to any client; and a client that connects to it again
    and again is, once in a while, given that very port and connected to itself.
    """
    try:
        low, high = map(int, _EPHEMERAL.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return range(0)
    return range(low, high + 1)


def _candidates() -> list[int]:
    clients = ephemeral()
    below = range(LOWEST, min(clients.start, 65_536)) if clients else range(LOWEST, 65_536)
    above = range(max(clients.stop, LOWEST), 65_536) if clients else range(0)
    numbers = [*below, *above]
    if len(numbers) < 1000:  # somebody gave nearly all of them to clients
        numbers = [*range(LOWEST, 65_536)]
    return random.SystemRandom().sample(numbers, 500)


def _claim(number: int) -> socket.socket | None:
    """What tells other tests, in this process or another, that the port is taken.

    A name in the abstract namespace reaches as far as the port does, leaves no file behind,
    and is gone with the process that holds it.
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0queuecraft-test-port-{number}")
    except OSError as error:
        claim.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return claim


def _is_free(number: int) -> bool:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((host, number))
        except OSError as error:
            # A machine without IPv6 has nobody there to take it.
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                return False
    return True
