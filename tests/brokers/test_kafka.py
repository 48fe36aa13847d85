"""The private Kafka, killed, frozen and asked."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.brokers.kafka import Kafka, Value, client
from tests.brokers.kcat import Kcat
from tests.brokers.kraft import Kraft
from tests.brokers.process import ProcessFailed
from tests.brokers.server import MISNAMED
from tests.proxy import Proxy

PATIENCE = 20.0

pytestmark = pytest.mark.faults  # every other test on Kafka would notice most of it


def prefix_of(url: str) -> str:
    (prefix,) = parse_qs(urlsplit(url).query)["prefix"]
    return prefix


def topics(url: str) -> set[str]:
    return {*AdminClient(client(url)).list_topics(timeout=PATIENCE).topics}


def groups(url: str) -> set[str]:
    admin = AdminClient(client(url))
    return {group.group_id for group in admin.list_consumer_groups().result(PATIENCE).valid}


def until(condition: Callable[[], bool]) -> bool:
    """Whether it holds in time: a broker hears of its topics after the controller has answered."""
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def create(url: str, topic: str) -> str:
    admin = AdminClient(client(url))
    admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE)
    return topic


def produce(url: str, topic: str, text: str, **settings: Value) -> None:
    failures: list[KafkaError | None] = []
    producer = Producer(client(url, **settings))
    producer.produce(topic, text.encode(), on_delivery=lambda failure, _: failures.append(failure))
    producer.flush(PATIENCE)
    assert failures == [None]


def consume(url: str, topic: str, group: str, **settings: Value) -> str:
    consumer = Consumer(client(url, group_id=group, auto_offset_reset="earliest", **settings))
    try:
        consumer.subscribe([topic])
        text = received(consumer)
        consumer.commit(asynchronous=False)
        return text
    finally:
        consumer.close()


def received(consumer: Consumer) -> str:
    message = consumer.poll(PATIENCE)
    assert message is not None, "nothing came"
    assert message.error() is None
    return (message.value() or b"").decode()


@pytest.fixture
def topic(kafka_url: str) -> str:
    return create(kafka_url, f"{prefix_of(kafka_url)}orders")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_record_comes_back_to_a_group(kafka_url, topic, protocol):
    produce(kafka_url, topic, "o-1")
    group = f"{prefix_of(kafka_url)}billing"
    assert consume(kafka_url, topic, group, group_protocol=protocol) == "o-1"
    assert group in groups(kafka_url)


def test_a_record_is_stored_once_by_a_transaction(kafka_url, topic, kcat):
    producer = Producer(client(kafka_url, transactional_id=f"{prefix_of(kafka_url)}one"))
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce(topic, b"dropped")
    producer.abort_transaction(PATIENCE)
    producer.begin_transaction()
    producer.produce(topic, b"kept")
    producer.commit_transaction(PATIENCE)
    assert read(kcat, kafka_url, topic) == ["kept"]


def read(kcat: Kcat, url: str, topic: str) -> list[str]:
    return kcat(url, "-C", "-t", topic, "-o", "beginning", "-e").splitlines()


def test_kcat_sees_what_is_there(kafka_url, topic, kcat):
    kcat(kafka_url, "-P", "-t", topic, text="o-1\no-2\n")
    assert read(kcat, kafka_url, topic) == ["o-1", "o-2"]
    with pytest.raises(ProcessFailed, match="nowhere"):
        read(kcat, kafka_url, f"{prefix_of(kafka_url)}nowhere")


def test_a_topic_is_not_made_by_mentioning_it(kafka_url):
    nowhere = f"{prefix_of(kafka_url)}nowhere"
    failures: list[KafkaError | None] = []
    producer = Producer(client(kafka_url, topic_metadata_propagation_max_ms=100))
    producer.produce(nowhere, b"", on_delivery=lambda failure, _: failures.append(failure))
    producer.flush(PATIENCE)
    assert [failure and failure.name() for failure in failures] == ["UNKNOWN_TOPIC_OR_PART"]
    assert nowhere not in topics(kafka_url)


def test_a_prefix_is_gone_after_its_use(kafka, topic):
    with kafka.prefix() as url, kafka.prefix() as other:
        assert prefix_of(url) != prefix_of(other)
        mine = create(url, f"{prefix_of(url)}orders")
        assert until(lambda: mine in topics(url))
    assert until(lambda: mine not in topics(kafka.url))
    assert topic in topics(kafka.url)


def test_a_prefix_outlives_a_broker_that_is_down(kafka, kafka_url):
    with kafka.prefix() as url:
        mine = create(url, f"{prefix_of(url)}orders")
        kafka.stop()
    kafka.start()
    assert until(lambda: mine in topics(kafka.url))


def test_a_client_speaks_tls_with_or_without_a_certificate(kafka, kafka_url, topic):
    trusting = {"ssl_ca_location": str(kafka.ca_file)}
    produce(kafka.over_tls(kafka_url), topic, "o-1", **trusting)
    certificate = str(kafka.client_cert)
    known = {"ssl_certificate_location": certificate, "ssl_key_location": certificate}
    produce(kafka.tls_url, topic, "o-2", **trusting, **known)


def refused(settings: dict[str, Value]) -> str:
    """Why a client does not get in, in its own words."""
    heard: list[KafkaError] = []
    listening: dict[str, Any] = {**settings, "error_cb": heard.append}
    admin = AdminClient(listening)
    deadline = time.monotonic() + PATIENCE
    while not heard and time.monotonic() < deadline:
        admin.poll(0.1)
    return heard[0].str() if heard else "it got in"


def test_a_careful_client_refuses_a_stranger_and_a_wrong_name(kafka, kafka_url):
    assert "verify failed" in refused(client(kafka.over_tls(kafka_url)))
    trusting = {"ssl_ca_location": str(kafka.ca_file)}
    assert "verify failed" in refused(client(kafka.over_tls(kafka_url, misnamed=True), **trusting))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_client_has_a_name_and_a_password(kafka, kafka_url, topic, mechanism):
    produce(kafka.over_sasl(kafka_url), topic, "o-1", sasl_mechanism=mechanism)
    both = kafka.over_tls(kafka.sasl_url)
    trusting = {"ssl_ca_location": str(kafka.ca_file)}
    produce(both, topic, "o-2", sasl_mechanism=mechanism, **trusting)
    wrong = client(kafka.sasl_url, sasl_mechanism=mechanism, sasl_password="wrong")
    assert "uthentication failed" in refused(wrong)


def test_what_was_stored_is_there_after_a_kill_and_a_start(kafka, kafka_url, topic, kcat):
    produce(kafka_url, topic, "survives")
    before = kafka.pid
    kafka.kill()
    assert not kafka.running
    with pytest.raises(ConnectionRefusedError):
        connect(kafka)
    kafka.start()
    assert kafka.pid != before
    assert read(kcat, kafka_url, topic) == ["survives"]


def test_a_broker_that_is_shut_down_can_be_started_again(kafka, kafka_url, topic, kcat):
    produce(kafka_url, topic, "survives")
    kafka.stop()
    assert not kafka.running
    kafka.start()
    assert read(kcat, kafka_url, topic) == ["survives"]


def connect(kafka: Kafka) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(kafka.url).port or 0), timeout=0.2)


def test_a_frozen_broker_takes_connections_and_says_nothing(kafka, kafka_url):
    question = bytes.fromhex("0000000a 0012 0000 00000007 ffff")  # its versions
    kafka.freeze()
    assert kafka.running
    with connect(kafka) as connection:
        connection.sendall(question)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        kafka.thaw()
        connection.settimeout(PATIENCE)
        assert connection.recv(8, socket.MSG_WAITALL)[4:] == question[8:12]


def test_starting_thaws(kafka, kafka_url):
    kafka.freeze()
    kafka.start()
    assert isinstance(topics(kafka_url), set)


def test_settings_are_its_own_and_nothing_of_it_is_left() -> None:
    with Kraft({"message.max.bytes": "4321", "auto.create.topics.enable": "true"}) as kraft:
        with pytest.raises(ProcessFailed, match="too large"):
            Kcat()(kraft.url, "-P", "-t", "large", text="x" * 5000)
        folder, pid = kraft.folder, kraft.pid
        assert Path(f"/proc/{pid}").exists()
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()


def test_a_client_stays_with_the_proxy_that_the_broker_sends_it_to() -> None:
    with Kraft() as kraft, Proxy.to(kraft.url) as proxy:
        create(kraft.url, "orders")
        kraft.advertise(proxy.port)
        url = proxy.url(kraft.url)
        consumer = Consumer(client(url, group_id="billing", auto_offset_reset="earliest"))
        try:
            consumer.subscribe(["orders"])
            produce(url, "orders", "o-1")
            assert received(consumer) == "o-1"
            assert proxy.cut() >= 1
            produce(url, "orders", "o-2")
            assert received(consumer) == "o-2"
            assert {broker.port for broker in consumer.list_topics().brokers.values()} == {
                proxy.port
            }
        finally:
            consumer.close()


def test_settings_that_cannot_be_are_told() -> None:
    with pytest.raises(ProcessFailed, match=r"num\.io\.threads"):
        Kraft({"num.io.threads": "none"}).__enter__()


def opened(pid: int, *, to_write: bool = False) -> set[str]:
    """What a process has open: paths, sockets by their number."""
    names: set[str] = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            writable = descriptor.lstat().st_mode & stat.S_IWUSR
            if writable or not to_write:
                names.add(os.readlink(descriptor))
    return names


def test_it_listens_on_loopback_and_nowhere_else(kafka, kafka_url):
    sockets = opened(kafka.pid)
    listening = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        if line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in sockets
    ]
    addresses = {
        socket.inet_ntoa(bytes.fromhex(line[1].partition(":")[0])[::-1]) for line in listening
    }
    assert addresses == {"127.0.0.1", MISNAMED}


def test_it_writes_to_its_folder_and_nowhere_else(kafka, kafka_url):
    folder = kafka._own.folder
    files = {name for name in opened(kafka.pid, to_write=True) if name.startswith("/")}
    assert any(name.startswith(f"{folder}/data/") for name in files)
    assert {name for name in files if not name.startswith((f"{folder}/", "/dev/"))} == set()


class TestSomebodyElses:
    """A broker that the environment names; the private one plays it."""

    @pytest.fixture
    def foreign(self, kafka: Kafka, kafka_url: str, monkeypatch: pytest.MonkeyPatch) -> Kafka:
        monkeypatch.setenv("QUEUECRAFT_TEST_KAFKA", kafka.sasl_url)
        return Kafka.from_environment()

    def test_gives_a_prefix_and_is_left_running_without_a_trace(self, kafka, foreign):
        with foreign as broker, broker.prefix() as url:
            topic = create(url, f"{prefix_of(url)}orders")
            produce(url, topic, "o-1")
            group = f"{prefix_of(url)}billing"
            consume(url, topic, group)
            assert topic in topics(kafka.url)
            assert group in groups(kafka.url)
        assert until(lambda: topic not in topics(kafka.url))
        assert group not in groups(kafka.url)
        assert kafka.running

    @pytest.mark.parametrize("deed", ["kill", "stop", "freeze", "thaw"])
    def test_is_not_ours_to_hurt(self, kafka, foreign, deed):
        with pytest.raises(pytest.skip.Exception, match="QUEUECRAFT_TEST_KAFKA"):
            getattr(foreign, deed)()
        assert kafka.running
