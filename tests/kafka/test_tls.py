"""TLS, a name and a password: who is trusted, who gets in, and what is said otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuecraft import ConfigError, ConnectionLost, Credentials, QueueCraft
from queuecraft.drivers.kafka import drivers
from queuecraft.drivers.target import Target
from queuecraft.model.settings import Settings
from queuecraft.testing import Ledger
from tests.brokers.certificates import Certificates
from tests.brokers.kafka import Kafka
from tests.kafka.place import Order, order_placed, running, until

pytestmark = pytest.mark.faults  # for the time it takes

SECRET = "wr0ng-s3cret"


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of an authority that the broker does not know, nor it them."""
    return Certificates.make(tmp_path_factory.mktemp("strangers") / "certificates")


@pytest.fixture
def trusting(kafka: Kafka, url: str) -> str:
    """TLS and a password, to a broker that is trusted."""
    return f"{kafka.over_tls(kafka.over_sasl(url))}&cafile={kafka.ca_file}"


async def refused(url: str) -> str:
    with pytest.raises(ConnectionLost) as caught:
        async with QueueCraft(url):
            raise AssertionError("should not have got in")
    assert SECRET not in repr(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_events_are_published_and_handled_over_tls_by_one_who_is_known(
    trusting: str, mechanism: str
) -> None:
    seen = Ledger()
    qc = QueueCraft(f"{trusting}&sasl={mechanism}")
    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with qc, running(billing):
        await qc.publish(order_placed, Order("o-1"))
        await qc.publish(order_placed, Order("x" * 300_000))  # more than a record of TLS
        await seen.wait_for(timeout=20, billing=2)
        await until(lambda: qc.admin.inspect("billing"), lambda info: not info.ready)


async def test_a_client_may_show_a_certificate_and_not_that_of_a_stranger(
    kafka: Kafka, url: str, strangers: Certificates
) -> None:
    tls = f"{kafka.over_tls(url)}&cafile={kafka.ca_file}"
    async with QueueCraft(f"{tls}&certfile={kafka.client_cert}") as qc:
        assert await qc.admin.queues() == []
    assert "certificate" in await refused(f"{tls}&certfile={strangers.client}")


async def test_a_broker_of_another_authority_or_by_another_name_is_not_trusted(
    kafka: Kafka, url: str, strangers: Certificates
) -> None:
    tls, misnamed = kafka.over_tls(url), kafka.over_tls(url, misnamed=True)
    for wrong in (
        tls,
        f"{tls}&cafile={strangers.authority}",
        f"{misnamed}&cafile={kafka.ca_file}",
    ):
        told = await refused(wrong)
        assert "certificate verify failed" in told
        assert "check cafile= in the URL, that the certificate names this host" in told
    async with QueueCraft(f"{misnamed}&verify=no") as qc:
        assert await qc.admin.queues() == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_wrong_password_is_told_at_once_and_not_shown(
    trusting: str, mechanism: str
) -> None:
    wrong = trusting.replace("guest:guest", f"guest:{SECRET}")
    told = await refused(f"{wrong}&sasl={mechanism}")
    assert "uthentication failed" in told
    assert "check user and password, and sasl= in the URL" in told


async def test_a_mechanism_that_the_broker_does_not_speak_is_told(trusting: str) -> None:
    assert "PLAIN,SCRAM-SHA-256" in await refused(f"{trusting}&sasl=scram-sha-512")


async def test_a_port_that_wants_what_was_not_given_is_explained(kafka: Kafka, url: str) -> None:
    plain_to_tls = kafka.over_tls(url).replace("kafkas://", "kafka://")
    nobody_to_sasl = kafka.over_sasl(url).replace("guest:guest@", "")
    for wrong in (plain_to_tls, nobody_to_sasl):
        assert "wants TLS (kafkas://) or a user and password" in await refused(wrong)
    tls_to_plain = f"{url.replace('kafka://', 'kafkas://')}&verify=no"
    assert "that the port is one for TLS" in await refused(tls_to_plain)
    assert "user and password" in await refused(url.replace("//", f"//guest:{SECRET}@"))


async def test_what_cannot_work_is_a_mistake_of_the_configuration(
    kafka: Kafka, url: str, tmp_path: Path
) -> None:
    for wrong, said in (
        (f"{kafka.over_tls(url)}&cafile={tmp_path / 'missing.pem'}", r"missing\.pem"),
        (kafka.over_sasl(url).replace("guest:guest@", "guest@"), "both a user and a password"),
    ):
        with pytest.raises(ConfigError, match=said):
            async with QueueCraft(wrong):
                raise AssertionError("should not have been tried")


async def test_credentials_are_asked_for_at_each_connect(trusting: str) -> None:
    passwords = iter([SECRET, "guest", "guest"])
    asked: list[str] = []

    def vault() -> Credentials:
        asked.append(next(passwords))
        return Credentials("guest", asked[-1])

    bare = trusting.replace("guest:guest@", "")
    (driver,) = drivers(Target(bare, settings=Settings(credentials=vault)))
    try:
        with pytest.raises(ConnectionLost, match="uthentication failed") as caught:
            await driver.open()
        assert SECRET not in repr(caught.value)
        await driver.open()
        await driver.open()
        assert list(await driver.inspect()) == []
    finally:
        await driver.close()
    assert asked == [SECRET, "guest", "guest"]


async def test_a_broker_that_is_not_there_is_told_by_its_address(kafka: Kafka, url: str) -> None:
    port = "127.0.0.1:9"
    told = await refused(f"kafka://guest:{SECRET}@{port}?prefix=x.")
    assert port in told
    assert "refused" in told
