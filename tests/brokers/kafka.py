"""A Kafka to test against."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Self
from urllib.parse import unquote, urlsplit

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tests.brokers.broker import Broker
from tests.brokers.distribution import CREDENTIALS
from tests.brokers.kraft import Kraft
from tests.brokers.server import MISNAMED

VARIABLE = "QUEUECRAFT_TEST_KAFKA"
PATIENCE = 20.0

Value = str | int | float | bool
"""Of a setting of librdkafka."""


class Kafka(Broker[Kraft]):
    """A private broker, or the one of QUEUECRAFT_TEST_KAFKA=kafka://user:password@host:9092.

    A private one is there soon, and slow; a `lasting` one is as it would be in production, for
    those who measure. Killed, it is two seconds late at the next start, and has all that it had
    confirmed, as the machine's own memory of it has not ended.
    """

    variable = VARIABLE

    def __init__(self, url: str | None = None, *, lasting: bool = False) -> None:
        super().__init__(Kraft(lasting=lasting), url)

    @classmethod
    def from_environment(cls, *, lasting: bool = False) -> Self:
        """The broker that the environment names, else a private one."""
        return cls(cls.named(), lasting=lasting)

    @property
    def url(self) -> str:
        """Where it is. Tests have topics and groups of their own: `prefix()`."""
        return self._url or self._server.url

    @property
    def tls_url(self) -> str:
        """The same over TLS; trust `ca_file`."""
        return self.over_tls(self.url)

    @property
    def sasl_url(self) -> str:
        """The same with a name and a password, by PLAIN or SCRAM-SHA-256."""
        return self.over_sasl(self.url)

    def over_tls(self, url: str, *, misnamed: bool = False) -> str:
        """The same place over TLS; `misnamed`: by an address that is not in its certificate."""
        parts = urlsplit(url)
        credentials, at, _ = parts.netloc.rpartition("@")
        if misnamed:
            place = f"{MISNAMED}:{self._own.port('misnamed')}"
        else:
            place = f"127.0.0.1:{self._own.port('sasl_tls' if credentials else 'tls')}"
        return parts._replace(scheme="kafkas", netloc=f"{credentials}{at}{place}").geturl()

    def over_sasl(self, url: str) -> str:
        """The same place with a name and a password; `over_tls()` of it has both."""
        place = f"{':'.join(CREDENTIALS)}@127.0.0.1:{self._own.port('sasl')}"
        return urlsplit(url)._replace(netloc=place).geturl()

    @contextmanager
    def prefix(self) -> Generator[str]:
        """A URL with a prefix of its own, for topics and for groups, which are deleted afterwards.

        Our own broker is thrown away with them, but slow to start while it has many: those left
        behind when it is down by then do no harm.
        """
        name = f"test-{secrets.token_hex(6)}."
        try:
            yield f"{self.url}{'&' if '?' in self.url else '?'}prefix={name}"
        finally:
            if self._there:
                _forget(self.url, name)


def client(url: str, **more: Value) -> dict[str, Value]:
    """What librdkafka wants to know to reach a broker, and more, with `_` for `.`."""
    parts = urlsplit(url)
    credentials, _, place = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    tls = parts.scheme == "kafkas"
    settings: dict[str, Value] = {
        "bootstrap.servers": place,
        "security.protocol": ("sasl_" if user else "") + ("ssl" if tls else "plaintext"),
    }
    if user:
        settings["sasl.mechanism"] = "PLAIN"
        settings |= {"sasl.username": unquote(user), "sasl.password": unquote(password)}
    return settings | {name.replace("_", "."): value for name, value in more.items()}


def _forget(url: str, prefix: str) -> None:
    admin = AdminClient(client(url))
    topics = [
        name for name in admin.list_topics(timeout=PATIENCE).topics if name.startswith(prefix)
    ]
    if topics:
        for deleted in admin.delete_topics(topics).values():
            try:
                deleted.result(PATIENCE)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise  # one that is told of may be gone already
    listed = admin.list_consumer_groups().result(PATIENCE).valid
    groups = [group.group_id for group in listed if group.group_id.startswith(prefix)]
    if groups:
        for deleted in admin.delete_consumer_groups(groups).values():
            # One whose member was killed still waits for it; Kafka forgets it in time.
            with suppress(KafkaException):
                deleted.result(PATIENCE)
