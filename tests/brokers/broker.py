"""A broker to test against: a private one, or the one that the environment names."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar

import pytest

from tests.brokers.server import Server

S = TypeVar("S", bound=Server)


class Broker(ABC, Generic[S]):
    """A private broker, which a test may kill and freeze, or one that is used and left running:
    then a test that wants to kill it, or to speak TLS to it, is skipped."""

    variable: ClassVar[str]
    """Where the environment names one."""

    def __init__(self, server: S, url: str | None) -> None:
        self._server = server
        self._url = url

    @classmethod
    @abstractmethod
    def from_environment(cls) -> Self:
        """The broker that the environment names, else a private one."""

    @classmethod
    def named(cls) -> str | None:
        """The URL that the environment names."""
        return os.environ.get(cls.variable) or None

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
    def private(self) -> bool:
        """Whether it is ours to kill."""
        return self._url is None

    @property
    def ca_file(self) -> Path:
        """The authority that signed its certificate, for `localhost` and 127.0.0.1."""
        return self._own.certificates.authority

    @property
    def client_cert(self) -> Path:
        """A client's certificate which it trusts, and its key, in one file.

        Not required: a client without one is let in, a client with a stranger's is not.
        """
        return self._own.certificates.client

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._own.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended; a frozen broker runs."""
        return self._own.running

    def start(self) -> None:
        """See that it runs, on the data it has: after this it is neither down nor frozen."""
        if self.private:
            self._server.start()

    def stop(self) -> None:
        """Shut it down as an operator would."""
        self._own.stop()

    def kill(self) -> None:
        """End it as `kill -9` does: connections break, and what was not on the disk is lost."""
        self._own.kill()

    def freeze(self) -> None:
        """Stop it in its tracks: connections stay open, and nothing answers."""
        self._own.freeze()

    def thaw(self) -> None:
        """Let it go on after `freeze()`."""
        self._own.thaw()

    def close(self) -> None:
        """End it and remove all it had, if it is ours."""
        self._server.close()

    @property
    def _there(self) -> bool:
        """Whether it can be asked something now."""
        return not self.private or (self._server.running and not self._server.frozen)

    @property
    def _own(self) -> S:
        if not self.private:
            pytest.skip(f"needs a broker of its own, and {self.variable} names one that is not")
        return self._server
