"""What a `kafka://` URL may say, and what is said about one that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuecraft.drivers.kafka.address import address_of
from queuecraft.model.credentials import Credentials
from queuecraft.model.errors import ConfigError
from tests.brokers.certificates import Certificates


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("kafka://one", "one:9092"),
        ("kafka://one,two:9093", "one:9092,two:9093"),
        ("kafka://ada:secret@one/", "one:9092"),
        ("KAFKA://[::1]:9094", "[::1]:9094"),
    ],
)
def test_all_hosts_are_one_cluster(url: str, servers: str) -> None:
    assert address_of(url).servers == servers


def test_options_say_how_topics_are_made_and_groups_behave() -> None:
    address = address_of(
        "kafka://one?prefix=shop.&partitions=12&replication=3&sasl=scram-sha-256"
        "&group_protocol=consumer&session_timeout=6&drain_timeout=0.5&refresh=1"
    )
    assert (address.prefix, address.partitions, address.replication) == ("shop.", 12, 3)
    assert (address.mechanism, address.group_protocol) == ("SCRAM-SHA-256", "consumer")
    assert (address.session_timeout, address.drain_timeout, address.refresh) == (6.0, 0.5, 1.0)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("kafka://one/orders", "has no path"),
        ("kafka://one?partitions=0", "partitions='0'"),
        ("kafka://one?partitions=many", "partitions='many'"),
        ("kafka://one?replication=-1", "replication='-1'"),
        ("kafka://one?sasl=gssapi", "expected one of 'PLAIN'"),
        ("kafka://one?group_protocol=new", "expected one of 'classic', 'consumer'"),
        ("kafka://one?refresh=nan", "expected seconds"),
        ("kafka://one?refresh=0", "expected seconds"),
        ("kafka://one?acks=0", "no option 'acks'"),
        ("kafka://one?cafile=/x", "kafkas://"),
    ],
)
def test_what_cannot_be_is_told(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        address_of(url)


def test_who_one_is_and_tls_are_told_to_every_client(tmp_path: Path) -> None:
    files = Certificates.make(tmp_path / "certificates")
    plain, secure = address_of("kafka://one"), address_of(f"kafkas://one?cafile={files.authority}")
    ada = Credentials("ada", "secret")
    assert plain.client(None, 5)["security.protocol"] == "PLAINTEXT"
    assert plain.client(ada, 5)["security.protocol"] == "SASL_PLAINTEXT"
    assert secure.client(None, 5)["security.protocol"] == "SSL"
    told = secure.client(ada, 5)
    assert told["security.protocol"] == "SASL_SSL"
    assert (told["sasl.username"], told["sasl.password"]) == ("ada", "secret")
    assert told["ssl.ca.location"] == str(files.authority)
    assert told["enable.ssl.certificate.verification"] is True
