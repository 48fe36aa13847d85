"""A RabbitMQ to test against."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pytest

from tests.brokers.management import Management, quoted
from tests.brokers.node import MISNAMED, Node

VARIABLE = "QUEUECRAFT_TEST_RABBITMQ"
MANAGEMENT_VARIABLE = "QUEUECRAFT_TEST_RABBITMQ_MANAGEMENT"


class RabbitMQ:
    """A private broker, which a test may kill and freeze, or the one that the environment names.

    With QUEUECRAFT_TEST_RABBITMQ=amqp://user:password@host:5672 that one is used, and left running:
    a test that wants to kill it, or to speak TLS to it, is skipped. Its management interface is
    expected on port 15672, or where QUEUECRAFT_TEST_RABBITMQ_MANAGEMENT says.
    """

    def __init__(self, url: str | None = None, management_url: str | None = None) -> None:
        self._url = url
        self._management_url = management_url
        self._node = Node()

    @classmethod
    def from_environment(cls) -> Self:
        """The broker that the environment names, else a private one."""
        return cls(os.environ.get(VARIABLE) or None, os.environ.get(MANAGEMENT_VARIABLE) or None)

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
    def url(self) -> str:
        """Into the virtual host that every broker has, `/`. Tests have their own: `vhost()`."""
        return self._url or f"amqp://guest:guest@127.0.0.1:{self._node.port('amqp')}/%2F"

    @property
    def tls_url(self) -> str:
        """The same over TLS; trust `ca_file`."""
        return self.over_tls(self.url)

    @property
    def management_url(self) -> str:
        """Where its management interface is."""
        if self._management_url:
            return self._management_url
        if self._url:
            parts = urlsplit(self._url)
            credentials, at, _ = parts.netloc.rpartition("@")
            return f"http://{credentials}{at}{parts.hostname}:15672"
        return f"http://guest:guest@127.0.0.1:{self._node.port('management')}"

    @property
    def management(self) -> Management:
        """What the broker says of its queues, bindings and connections."""
        return Management(self.management_url)

    @property
    def ca_file(self) -> Path:
        """The authority that signed the broker's certificate, for `localhost` and 127.0.0.1."""
        return self._own.certificates.authority

    @property
    def client_cert(self) -> Path:
        """A client's certificate which the broker trusts, and its key, in one file.

        Not required: a client without one is let in, a client with a stranger's is not.
        """
        return self._own.certificates.client

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        return self._own.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended; a frozen broker runs."""
        return self._own.running

    def over_tls(self, url: str, *, misnamed: bool = False) -> str:
        """The same place over TLS; `misnamed`: by an address that is not in its certificate."""
        host = MISNAMED if misnamed else "127.0.0.1"
        parts = urlsplit(url)
        credentials, at, _ = parts.netloc.rpartition("@")
        place = f"{credentials}{at}{host}:{self._own.port('amqps')}"
        return parts._replace(scheme="amqps", netloc=place).geturl()

    @contextmanager
    def vhost(self) -> Generator[str]:
        """A URL into a virtual host made for the occasion, and deleted after it.

        One left behind by a broker that is down by then goes with its folder.
        """
        url = urlsplit(self.url)._replace(path="/" + quoted(f"test-{secrets.token_hex(6)}"))
        place = url.geturl()
        self.management.create_vhost(place)
        try:
            yield place
        finally:
            if not self.private or self._node.ready:
                self.management.delete_vhost(place)

    def start(self) -> None:
        """See that it runs, on the data it has: after this it is neither down nor frozen."""
        if self.private:
            self._node.start()

    def stop(self) -> None:
        """Shut it down as an operator would: it closes its connections with a reason.

        RabbitMQ takes six seconds over it.
        """
        self._own.stop()

    def kill(self) -> None:
        """End it as `kill -9` does: connections break, and what was not on the disk is lost.

        It waits up to a second for RabbitMQ to save the names of new quorum queues, which it
        would forget otherwise, with all they hold.
        """
        self._own.kill()

    def freeze(self) -> None:
        """Stop it in its tracks: connections stay open, and nothing answers."""
        self._own.freeze()

    def thaw(self) -> None:
        """Let it go on after `freeze()`."""
        self._own.thaw()

    def ctl(self, *arguments: str) -> str:
        """What `rabbitmqctl` answers. `management` is faster where it can do the same.

        `ctl("set_vm_memory_high_watermark", "0.0001")` blocks all publishers, until `"0.4"`.
        """
        return self._own.ctl(*arguments)

    def close(self) -> None:
        """End it and remove all it had, if it is ours."""
        self._node.close()

    @property
    def _own(self) -> Node:
        if not self.private:
            pytest.skip(f"needs a broker of its own, and {VARIABLE} names one that is not")
        return self._node
