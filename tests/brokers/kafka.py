"""A Kafka to test against."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tests.brokers.distribution import CREDENTIALS
from tests.brokers.kraft import MISNAMED, Kraft

VARIABLE = "QUEUECRAFT_TEST_KAFKA"
PATIENCE = 20.0

Value = str | int | float | bool
"""Of a setting of librdkafka."""


class Kafka:
    """A private broker, which a test may kill and freeze, or the one that the environment names.

    With QUEUECRAFT_TEST_KAFKA=kafka://user:password@host:9092 that one is used, and left running:
    a test that wants to kill it, or to speak TLS to it, is skipped. A private one is there soon,
    and slow; a `lasting` one is as it would be in production, for those who measure.
    """

    def __init__(self, url: str | None = None, *, lasting: bool = False) -> None:
        self._url = url
        self._kraft = Kraft(lasting=lasting)

    @classmethod
    def from_environment(cls, *, lasting: bool = False) -> Self:
        """The broker that the environment names, else a private one."""
        return cls(os.environ.get(VARIABLE) or None, lasting=lasting)

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
        """Where it is. Tests have topics and groups of their own: `prefix()`."""
        return self._url or self._kraft.url

    @property
    def tls_url(self) -> str:
        """The same over TLS; trust `ca_file`."""
        return self.over_tls(self.url)

    @property
    def sasl_url(self) -> str:
        """The same with a name and a password, by PLAIN or SCRAM-SHA-256."""
        return self.over_sasl(self.url)

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
            if not self.private or (self._kraft.running and not self._kraft.frozen):
                _forget(self.url, name)

    def start(self) -> None:
        """See that it runs, on the data it has: after this it is neither down nor frozen."""
        if self.private:
            self._kraft.start()

    def stop(self) -> None:
        """Shut it down as an operator would."""
        self._own.stop()

    def kill(self) -> None:
        """End it as `kill -9` does: connections break. It is two seconds late at the next start.

        What it had confirmed is there again, as the machine's own memory of it has not ended.
        """
        self._own.kill()

    def freeze(self) -> None:
        """Stop it in its tracks: connections stay open, and nothing answers."""
        self._own.freeze()

    def thaw(self) -> None:
        """Let it go on after `freeze()`."""
        self._own.thaw()

    def close(self) -> None:
        """End it and remove all it had, if it is ours."""
        self._kraft.close()

    @property
    def _own(self) -> Kraft:
        if not self.private:
            pytest.skip(f"needs a broker of its own, and {VARIABLE} names one that is not")
        return self._kraft


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
