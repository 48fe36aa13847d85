"""What an `amqp://` URL may say, and what is said about one that cannot be."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.drivers.encryption import Encryption
from queuecraft.drivers.rabbitmq.address import Address, addresses
from queuecraft.model.errors import ConfigError
from tests.brokers.certificates import Certificates


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("amqp://rabbit", [("rabbit", 5672)]),
        ("amqps://rabbit", [("rabbit", 5671)]),
        ("AMQPS://rabbit", [("rabbit", 5671)]),
        ("amqp://rabbit:1/shop", [("rabbit", 1)]),
        ("amqp://one,two:5673,[::1],[fe80::2]:5674/", [
            ("one", 5672), ("two", 5673), ("::1", 5672), ("fe80::2", 5674),
        ]),
        ("amqp://ada:p%40ss%2Fw,rd@one,two", [("one", 5672), ("two", 5672)]),
        ("amqp://127.0.0.1:65535?declare=skip", [("127.0.0.1", 65535)]),
    ],
)  # fmt: skip
def test_hosts_are_tried_in_the_order_they_are_written(
    url: str, places: list[tuple[str, int]]
) -> None:
    assert [(each.host, each.port) for each in addresses(url)] == places


@pytest.mark.parametrize(
    ("path", "virtual_host"),
    [
        ("", "/"),
        ("/", "/"),
        ("/%2F", "/"),
        ("/%2f", "/"),
        ("/shop", "shop"),
        ("/%2Fshop", "/shop"),
        ("/sh%20op%3F", "sh op?"),
        ("/a/b", "a/b"),
        ("?declare=check", "/"),
        ("/shop?declare=check", "shop"),
    ],
)
def test_the_virtual_host_is_what_the_path_says(path: str, virtual_host: str) -> None:
    assert [each.virtual_host for each in addresses(f"amqp://one,two{path}")] == [virtual_host] * 2


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_virtual_host_can_be_written(name: str) -> None:
    assert addresses(f"amqp://rabbit/{quote(name, safe='')}")[0].virtual_host == name


def test_options_are_the_same_for_each_host() -> None:
    one, two = addresses("amqps://one,two/?declare=check&cafile=/etc/ca%20x.pem&verify=no")
    assert one == Address(
        "one",
        5671,
        encryption=Encryption({"cafile": "/etc/ca x.pem"}, verified=False),
        declaring="check",
    )
    assert (two.host, two.declaring, two.encryption) == ("two", "check", one.encryption)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("amqp://", "names no host"),
        ("amqp:///shop", "names no host"),
        ("amqp://ada:s3cret@", "names no host"),
        ("amqp://one,,two", "a host or port that cannot be"),
        ("amqp://one:", "a host or port that cannot be"),
        ("amqp://one:0", "a host or port that cannot be"),
        ("amqp://one:65536", "a host or port that cannot be"),
        ("amqp://one:port", "a host or port that cannot be"),
        ("amqp://::1", "a host or port that cannot be"),
        ("amqp://ada:s3cret/x@host", "not percent-encoded"),
        ("amqp://ada:s3cret?x@host", "not percent-encoded"),
        ("amqp://ada:s3cret#x@host", "not percent-encoded"),
        ("amqp://ho st", "percent-encode"),
        ("amqp://host?heartbeat=5", "no option 'heartbeat'; known: cafile, certfile, declare"),
        ("amqp://host?declare=maybe", "declare='maybe': expected 'assert', 'check' or 'skip'"),
        ("amqp://host?declare=", "declare=''"),
        ("amqps://host?verify=maybe", "verify='maybe': expected 'yes' or 'no'"),
        ("amqp://host?verify=no", "begin the URL with amqps://"),
        ("amqp://host?cafile=/ca.pem", "begin the URL with amqps://"),
        ("amqps://host?cafile=", "cafile= names no file"),
        ("amqps://host?certfile=", "certfile= names no file"),
        ("amqps://host?keyfile=/key.pem", "give both"),
    ],
)
def test_a_mistake_is_named_and_no_secret_is_shown(url: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        addresses(url)
    assert told in str(caught.value)
    assert "s3cret" not in str(caught.value)


# -- certificates ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls") / "certificates")


def test_without_tls_there_is_no_context() -> None:
    assert addresses("amqp://rabbit")[0].context() is None


def test_a_certificate_is_verified_unless_told_not_to() -> None:
    context = addresses("amqps://rabbit")[0].context()
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    context = addresses("amqps://rabbit?verify=no")[0].context()
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)


def test_only_the_given_authority_is_trusted(certificates: Certificates) -> None:
    context = addresses(f"amqps://rabbit?cafile={certificates.authority}")[0].context()
    assert context is not None
    assert [each["subject"] for each in context.get_ca_certs()] == [
        ((("commonName", "QueueCraft tests"),),)
    ]


def test_a_client_certificate_may_bring_its_key_or_have_it_beside(
    certificates: Certificates,
) -> None:
    key = certificates.folder / "client.key"
    for query in (
        f"certfile={certificates.client}",
        f"certfile={certificates.client}&keyfile={key}",
    ):
        assert addresses(f"amqps://rabbit?{query}")[0].context() is not None


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    for query in (
        f"cafile={tmp_path / 'no.pem'}",
        f"certfile={tmp_path / 'no.pem'}",
        f"cafile={tmp_path / 'missing.pem'}",
    ):
        with pytest.raises(ConfigError, match=r"the certificates cannot be used \(.*\.pem'\)"):
            addresses(f"amqps://rabbit?{query}")[0].context()


def test_a_key_that_wants_a_password_is_an_error(
    certificates: Certificates, tmp_path: Path
) -> None:
    locked = tmp_path / "locked.key"
    subprocess.run(
        [
            *("openssl", "ec", "-in", certificates.folder / "client.key"),
            *("-aes256", "-passout", "pass:s3cret", "-out", locked),
        ],
        check=True,
        capture_output=True,
    )
    address = addresses(f"amqps://rabbit?certfile={certificates.client}&keyfile={locked}")[0]
    with pytest.raises(ConfigError, match="the certificates cannot be used"):
        address.context()
