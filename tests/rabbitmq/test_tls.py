"""Over TLS: who is trusted, who is not, and what is said then."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from queuecraft import ConfigError, ConnectionLost, QueueCraft
from queuecraft.testing import Ledger
from tests.brokers.certificates import Certificates
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.place import Order, order_placed, running


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of an authority that the broker does not know, nor it them."""
    return Certificates.make(tmp_path_factory.mktemp("strangers") / "certificates")


def url_with(url: str, **options: str | Path) -> str:
    told = "&".join(f"{name}={quote(str(value))}" for name, value in options.items())
    return f"{url}?{told}" if told else url


async def refused(url: str) -> str:
    with pytest.raises(ConnectionLost) as caught:
        async with QueueCraft(url):
            raise AssertionError("should not have been trusted")
    assert "guest:guest" not in str(caught.value)
    return str(caught.value)


async def works(url: str) -> None:
    seen = Ledger()
    qc = QueueCraft(url)
    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with qc, running(billing):
        await qc.publish(order_placed, Order("o-1", 1e9))
        await qc.publish(order_placed, Order("x" * 300_000))  # more than a record, and a frame
        await seen.wait_for(billing=2)


async def test_a_broker_of_the_given_authority_is_trusted(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    await works(url_with(rabbitmq.over_tls(rabbitmq_url), cafile=rabbitmq.ca_file))


async def test_a_broker_of_another_authority_is_not(
    rabbitmq: RabbitMQ, rabbitmq_url: str, strangers: Certificates
) -> None:
    tls = rabbitmq.over_tls(rabbitmq_url)
    for url in (tls, url_with(tls, cafile=strangers.authority)):
        told = await refused(url)
        assert "CERTIFICATE_VERIFY_FAILED" in told
        assert "cafile" in told


async def test_a_broker_by_another_name_than_its_certificate_is_not_trusted(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    misnamed = rabbitmq.over_tls(rabbitmq_url, misnamed=True)
    told = await refused(url_with(misnamed, cafile=rabbitmq.ca_file))
    assert "127.0.0.2" in told
    assert "not valid for" in told


async def test_without_verification_anyone_is_trusted(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    await works(url_with(rabbitmq.over_tls(rabbitmq_url, misnamed=True), verify="no"))


async def test_a_client_may_show_a_certificate(rabbitmq: RabbitMQ, rabbitmq_url: str) -> None:
    tls = rabbitmq.over_tls(rabbitmq_url)
    await works(url_with(tls, cafile=rabbitmq.ca_file, certfile=rabbitmq.client_cert))


@pytest.mark.parametrize("user", ["", "guest@"])
async def test_a_client_without_a_password_is_whom_its_certificate_names(
    rabbitmq: RabbitMQ, rabbitmq_url: str, user: str
) -> None:
    tls = rabbitmq.over_tls(rabbitmq_url).replace("guest:guest@", user)
    url = url_with(tls, cafile=rabbitmq.ca_file, certfile=rabbitmq.client_cert)
    await works(url)
    async with QueueCraft(url):
        users = rabbitmq.ctl("list_connections", "user", "auth_mechanism")
    assert ["guest", "EXTERNAL"] in [line.split() for line in users.splitlines()]


async def test_a_client_with_a_certificate_of_a_stranger_is_told_so(
    rabbitmq: RabbitMQ, rabbitmq_url: str, strangers: Certificates
) -> None:
    tls = rabbitmq.over_tls(rabbitmq_url)
    told = await refused(url_with(tls, cafile=rabbitmq.ca_file, certfile=strangers.client))
    assert "certificate" in told.lower()


async def test_tls_to_a_port_without_it_and_the_other_way_round(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    tls = rabbitmq.over_tls(rabbitmq_url)
    assert "port for TLS" in await refused(rabbitmq_url.replace("amqp://", "amqps://"))
    assert "amqps://" in await refused(tls.replace("amqps://", "amqp://"))


async def test_certificates_that_are_missing_are_a_mistake_of_the_configuration(
    rabbitmq: RabbitMQ, rabbitmq_url: str, tmp_path: Path
) -> None:
    url = url_with(rabbitmq.over_tls(rabbitmq_url), cafile=tmp_path / "missing.pem")
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        async with QueueCraft(url):
            raise AssertionError("there is no such file")
