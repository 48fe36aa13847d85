"""What a `kafka://` URL says: hosts, encryption, who one is, and how topics are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from queuecraft.drivers.encryption import Encryption
from queuecraft.drivers.location import Location
from queuecraft.model.credentials import Credentials
from queuecraft.model.errors import ConfigError

PORT: Final = 9092
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS: Final = ("classic", "consumer")
_OPTIONS: Final = (
    "prefix",
    "partitions",
    "replication",
    "sasl",
    "group_protocol",
    "session_timeout",
    "drain_timeout",
    "refresh",
    "statistics",
)


@dataclass(frozen=True, slots=True)
class Address:
    """A cluster, and how it is used."""

    servers: str
    encryption: Encryption | None = None
    mechanism: str = MECHANISMS[0]
    prefix: str = ""
    partitions: int = 4
    """Of each topic we make: how many processes can share a queue."""
    replication: int = -1
    """On how many brokers a topic is kept; -1 is what the cluster has as its default."""
    group_protocol: str = PROTOCOLS[0]
    session_timeout: float = 10.0
    """Seconds after which a process that has died is missed."""
    drain_timeout: float = 5.0
    """Seconds that handlers have to finish when a partition goes to another process."""
    refresh: float = 2.0
    """Seconds after which new topics are noticed."""
    statistics: float | None = None
    """Seconds after which librdkafka tells anew what it measures; None if it need not."""

    def client(self, credentials: Credentials | None, timeout: float) -> dict[str, Any]:
        """The settings that every client of librdkafka needs."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "client.id": "queuecraft",
            "socket.keepalive.enable": True,
            "socket.timeout.ms": max(1000, round(1000 * timeout)),
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "log_level": 2,  # what goes wrong is told by errors; it would write to the terminal
        }
        secure = self.encryption is not None
        if self.encryption is not None:
            self.encryption.context()  # tells what is wrong with the files better
            names = {
                "cafile": "ssl.ca.location",
                "certfile": "ssl.certificate.location",
                "keyfile": "ssl.key.location",
            }
            files = self.encryption.files
            settings |= {names[name]: path for name, path in files.items()}
            if "certfile" in files and "keyfile" not in files:
                settings["ssl.key.location"] = files["certfile"]
            settings["enable.ssl.certificate.verification"] = self.encryption.verified
            if not self.encryption.verified:
                settings["ssl.endpoint.identification.algorithm"] = "none"
        if credentials is not None:
            if not (credentials.username and credentials.password):
                raise ConfigError(
                    "Kafka wants both a user and a password; give them as user:password@ in the "
                    "URL, or as credentials="
                )
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": credentials.username,
                "sasl.password": credentials.password,
            }
        kind = ("SASL_SSL" if secure else "SASL_PLAINTEXT") if credentials else "SSL"
        settings["security.protocol"] = kind if secure or credentials else "PLAINTEXT"
        return settings

    def member(self) -> dict[str, Any]:
        """The settings that a member of a group needs besides."""
        # A topic that was missing when it was asked for would be missed for five minutes more.
        looking = {"topic.metadata.refresh.interval.ms": round(1000 * self.refresh)}
        if self.group_protocol == "consumer":
            # The broker decides when a member is missed, and librdkafka refuses to be told. Its own
            # choice counts partitions, whatever topic they are of: all of a busy one may stay with
            # one process. By ranges, everybody has a share of each; with one partition to a topic,
            # everything would go to the first.
            assignor = "range" if self.partitions > 1 else "uniform"
            return {**looking, "group.protocol": "consumer", "group.remote.assignor": assignor}
        timeout = round(1000 * self.session_timeout)
        return {
            **looking,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": timeout,
            "heartbeat.interval.ms": min(3000, timeout // 3),
        }


def address_of(url: str) -> Address:
    """What a URL says.

    >>> address_of("kafka://one,two:9093/?prefix=shop.").servers
    'one:9092,two:9093'
    """
    there = Location.of(url, _OPTIONS, secure="kafkas", example="kafka:9092")
    if there.path:
        raise ConfigError(f"a kafka:// URL has no path; it says {there.path!r}: leave it out")
    options = there.options
    return Address(
        servers=",".join(f"{_bracketed(host)}:{port or PORT}" for host, port in there.hosts),
        encryption=there.encryption,
        mechanism=_one_of("sasl", options.get("sasl", MECHANISMS[0]).upper(), MECHANISMS),
        prefix=options.get("prefix", ""),
        partitions=_number("partitions", options.get("partitions", "4")),
        replication=_number("replication", options["replication"])
        if "replication" in options
        else -1,
        group_protocol=_one_of(
            "group_protocol", options.get("group_protocol", PROTOCOLS[0]), PROTOCOLS
        ),
        session_timeout=_seconds("session_timeout", options.get("session_timeout", "10")),
        drain_timeout=_seconds("drain_timeout", options.get("drain_timeout", "5")),
        refresh=_seconds("refresh", options.get("refresh", "2")),
        statistics=_seconds("statistics", options["statistics"])
        if "statistics" in options
        else None,
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 6 and int(text)):
        raise ConfigError(f"{name}={text!r}: expected a number from 1, such as {name}=3")
    return int(text)


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 3600:
        raise ConfigError(f"{name}={text!r}: expected seconds, such as {name}=5")
    return value


def _one_of(name: str, text: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise ConfigError(f"{name}={text!r}: expected one of {', '.join(map(repr, known))}")
    return text
