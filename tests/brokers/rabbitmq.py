"""A RabbitMQ to test against."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from typing import Self
from urllib.parse import urlsplit

from tests.brokers.broker import Broker
from tests.brokers.management import Management, quoted
from tests.brokers.node import Node
from tests.brokers.server import MISNAMED

VARIABLE = "QUEUECRAFT_TEST_RABBITMQ"
MANAGEMENT_VARIABLE = "QUEUECRAFT_TEST_RABBITMQ_MANAGEMENT"


class RabbitMQ(Broker[Node]):
    """A private broker, or the one of QUEUECRAFT_TEST_RABBITMQ=amqp://user:password@host:5672.

    The management interface of that one is expected on port 15672, or where
    QUEUECRAFT_TEST_RABBITMQ_MANAGEMENT says. To stop it takes six seconds. To kill it may take one,
    until RabbitMQ has saved the names of new quorum queues, which it would forget otherwise, with
    all they hold. A `lasting` one may use as much memory as in production, for those who measure:
    thousands of queues would make a private one refuse to take messages.
    """

    variable = VARIABLE

    def __init__(
        self, url: str | None = None, management_url: str | None = None, *, lasting: bool = False
    ) -> None:
        super().__init__(Node(lasting=lasting), url)
        self._management_url = management_url

    @classmethod
    def from_environment(cls, *, lasting: bool = False) -> Self:
        """The broker that the environment names, else a private one."""
        return cls(cls.named(), os.environ.get(MANAGEMENT_VARIABLE) or None, lasting=lasting)

    @property
    def url(self) -> str:
        """Into the virtual host that every broker has, `/`. Tests have their own: `vhost()`."""
        return self._url or f"amqp://guest:guest@127.0.0.1:{self._server.port('amqp')}/%2F"

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
        return f"http://guest:guest@127.0.0.1:{self._server.port('management')}"

    @property
    def management(self) -> Management:
        """What the broker says of its queues, bindings and connections."""
        return Management(self.management_url)

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
            if self._there:
                self.management.delete_vhost(place)

    def ctl(self, *arguments: str) -> str:
        """What `rabbitmqctl` answers. `management` is faster where it can do the same.

        `ctl("set_vm_memory_high_watermark", "0.0001")` blocks all publishers, until `"0.4"`.
        """
        return self._own.ctl(*arguments)

    @property
    def _there(self) -> bool:
        return not self.private or self._server.ready
