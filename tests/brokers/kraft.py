"""A Kafka that is ours alone: on loopback, in a temporary folder, on ports of its own."""

from __future__ import annotations

import shutil
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress

from tests.brokers.certificates import Certificates
from tests.brokers.distribution import CREDENTIALS, Distribution
from tests.brokers.process import Process
from tests.brokers.server import MISNAMED, Server

_LISTENERS: Mapping[str, str] = {
    "plain": "PLAINTEXT",
    "tls": "SSL",
    "misnamed": "SSL",
    "sasl": "SASL_PLAINTEXT",
    "sasl_tls": "SASL_SSL",
    "internal": "PLAINTEXT",
    "controller": "PLAINTEXT",
}
_LOGIN = "org.apache.kafka.common.security"

_USUAL: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INTERNAL",
    "auto.create.topics.enable": "false",
    # There is no second broker to hold another copy.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # After a kill, it has to wait until it believes itself dead before it may come back.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    # Groups form at once, and notice at once; a member may ask for less patience than usual.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "num.network.threads": "1",  # for each listener
    "num.io.threads": "2",
    "background.threads": "2",
    "file.delete.delay.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "16777216",
}


class Kraft(Server):
    """Broker and controller in one Java. Settings are those of its file."""

    name = "Kafka"
    patience = 50.0  # it takes two seconds, after a kill four; a busy machine may need some more

    def __init__(self, settings: Mapping[str, str] | None = None, *, lasting: bool = False) -> None:
        super().__init__()
        self._lasting = lasting
        self._settings = settings or {}
        self._advertised: int | None = None

    @property
    def url(self) -> str:
        return f"kafka://127.0.0.1:{self.port()}"

    def port(self, name: str = "plain") -> int:
        """The number of `plain`, `tls`, `sasl` or `sasl_tls`; it stays the same over a restart."""
        return super().port(name)

    def advertise(self, port: int) -> None:
        """Start it anew, and have it send clients of `url` to another port: a proxy's.

        A client of Kafka asks where the broker is, and goes there, wherever it has asked.
        """
        self.stop()
        self._advertised = port
        self._configure()
        self.start()

    def _prepare(self) -> Process:
        distribution = Distribution.get()
        self._move_in(*_LISTENERS)
        Certificates.make(self.folder / "certificates")
        shutil.copytree(distribution.data, self.folder / "data")
        self._configure()
        options = (
            f"-XX:SharedArchiveFile={distribution.classes}",
            f"-Djava.io.tmpdir={self.folder}",  # for what it unpacks from the jars
        )
        command = distribution.command(
            "kafka.Kafka", "server.properties", options=options, lasting=self._lasting
        )
        return self._program(*command)

    def _answers(self) -> bool:
        return _coordinates(self.port())

    def _configure(self) -> None:
        settings = {**_USUAL, **self._network(), **self._security(), **self._settings}
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.folder / "server.properties").write_text("".join(lines), encoding="utf-8")

    def _network(self) -> dict[str, str]:
        ports = {name: self.port(name) for name in _LISTENERS}
        told = {**ports, "plain": self._advertised or ports["plain"]}
        del told["controller"]
        return {
            "log.dirs": str(self.folder / "data"),
            "controller.quorum.voters": f"1@127.0.0.1:{ports['controller']}",
            "listeners": _places(ports),
            "advertised.listeners": _places(told),
            "listener.security.protocol.map": ",".join(
                f"{name.upper()}:{protocol}" for name, protocol in _LISTENERS.items()
            ),
        }

    def _security(self) -> dict[str, str]:
        user, password = CREDENTIALS
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.authority),
            "listener.name.tls.ssl.client.auth": "requested",
            "listener.name.sasl_tls.ssl.client.auth": "requested",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        }
        for listener in ("sasl", "sasl_tls"):
            logins = {
                "plain": f'{_LOGIN}.plain.PlainLoginModule required user_{user}="{password}";',
                # These users are in the data.
                "scram-sha-256": f"{_LOGIN}.scram.ScramLoginModule required;",
            }
            settings |= {
                f"listener.name.{listener}.{mechanism}.sasl.jaas.config": login
                for mechanism, login in logins.items()
            }
        return settings


def _places(ports: Mapping[str, int]) -> str:
    return ",".join(
        f"{name.upper()}://{MISNAMED if name == 'misnamed' else '127.0.0.1'}:{port}"
        for name, port in ports.items()
    )


def _coordinates(port: int) -> bool:
    """Whether a broker answers, and takes members of groups.

    It knows its topics before that. The topic it keeps groups in is made when it is first asked,
    and a client that does so waits for seconds before it asks again.
    """
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        # "Who coordinates the group ''?", its version, a number to know the answer by, no name.
        connection.sendall(struct.pack(">ihhihh", 12, 10, 0, 1, -1, 0))
        return connection.recv(10, socket.MSG_WAITALL)[8:] == b"\0\0"  # no error
    return False
