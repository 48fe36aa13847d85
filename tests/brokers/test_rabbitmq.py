"""The private RabbitMQ, killed, frozen and asked."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from tests.brokers.client import CLOSE, Client
from tests.brokers.management import Management, ManagementError, vhost_of
from tests.brokers.process import ProcessFailed
from tests.brokers.rabbitmq import RabbitMQ
from tests.proxy import Proxy

pytestmark = pytest.mark.faults  # every other test on RabbitMQ would notice most of it


@pytest.fixture
def management(rabbitmq: RabbitMQ, rabbitmq_url: str) -> Management:
    return rabbitmq.management


def publish(management: Management, url: str, queue: str, text: str) -> None:
    answer = management.call(
        "POST",
        f"exchanges/{vhost_of(url)}/amq.default/publish",
        {
            "properties": {"delivery_mode": 2},
            "routing_key": queue,
            "payload": text,
            "payload_encoding": "string",
        },
    )
    assert answer == {"routed": True}


def declare(management: Management, url: str, queue: str, kind: str = "classic") -> None:
    properties = {"durable": True, "arguments": {"x-queue-type": kind}}
    management.call("PUT", f"queues/{vhost_of(url)}/{queue}", properties)


def get(management: Management, url: str, queue: str) -> list[str]:
    wanted = {"count": 10, "ackmode": "ack_requeue_true", "encoding": "auto"}
    found = management.call("POST", f"queues/{vhost_of(url)}/{queue}/get", wanted)
    return [message["payload"] for message in found]


def test_a_client_connects_to_a_virtual_host_of_its_own(rabbitmq, rabbitmq_url, management):
    assert vhost_of(rabbitmq_url) in management.vhosts()
    with Client(rabbitmq_url), Client(rabbitmq.url):
        pass


def test_a_virtual_host_is_gone_after_its_use(rabbitmq):
    rabbitmq.start()
    with rabbitmq.vhost() as url, rabbitmq.vhost() as other:
        assert vhost_of(url) != vhost_of(other)
        declare(rabbitmq.management, url, "billing")
        assert rabbitmq.management.queues(other) == []
    assert not {vhost_of(url), vhost_of(other)} & {*rabbitmq.management.vhosts()}


def test_the_management_interface_tells_of_queues_and_bindings(rabbitmq_url, management):
    vhost = vhost_of(rabbitmq_url)
    declare(management, rabbitmq_url, "billing", "quorum")
    management.call("PUT", f"exchanges/{vhost}/events", {"type": "topic"})
    management.call(
        "POST", f"bindings/{vhost}/e/events/q/billing", {"routing_key": "order.*", "arguments": {}}
    )
    publish(management, rabbitmq_url, "billing", "o-1")

    assert management.queue(rabbitmq_url, "billing")["type"] == "quorum"
    assert [exchange["name"] for exchange in management.exchanges(rabbitmq_url)] == ["events"]
    (binding,) = management.bindings(rabbitmq_url)
    assert (binding["source"], binding["destination"]) == ("events", "billing")
    assert binding["routing_key"] == "order.*"
    queue = management.until_queue(rabbitmq_url, "billing", messages_ready=1)
    assert queue["name"] == "billing"
    assert [queue["name"] for queue in management.queues(rabbitmq_url)] == ["billing"]


def test_a_refusal_of_the_management_interface_says_what_it_refused(rabbitmq_url, management):
    with pytest.raises(ManagementError, match=r"queues/.*/nowhere: 404") as caught:
        management.queue(rabbitmq_url, "nowhere")
    assert caught.value.status == 404


def test_the_broker_closes_the_connections_of_one_virtual_host(rabbitmq, rabbitmq_url, management):
    with (
        rabbitmq.vhost() as elsewhere,
        Client(rabbitmq_url) as one,
        Client(rabbitmq_url) as two,
        Client(elsewhere) as another,
    ):
        assert management.close_connections(rabbitmq_url, at_least=2) == 2
        assert one.receive() == two.receive() == CLOSE
        assert management.close_connections(elsewhere) == 1
        assert another.receive() == CLOSE


def test_a_client_speaks_tls_with_or_without_a_certificate(rabbitmq, rabbitmq_url):
    context = ssl.create_default_context(cafile=rabbitmq.ca_file)
    with Client(rabbitmq.over_tls(rabbitmq_url), context), Client(rabbitmq.tls_url, context):
        pass
    context.load_cert_chain(rabbitmq.client_cert)
    with Client(rabbitmq.over_tls(rabbitmq_url), context):
        pass


def test_a_careful_client_refuses_a_stranger_and_a_wrong_name(rabbitmq, rabbitmq_url):
    stranger = ssl.create_default_context()
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        Client(rabbitmq.over_tls(rabbitmq_url), stranger)
    context = ssl.create_default_context(cafile=rabbitmq.ca_file)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        Client(rabbitmq.over_tls(rabbitmq_url, misnamed=True), context)


def test_what_was_stored_is_there_after_a_kill_and_a_start(rabbitmq, rabbitmq_url, management):
    for kind in ("classic", "quorum"):
        declare(management, rabbitmq_url, kind, kind)
        publish(management, rabbitmq_url, kind, "survives")
    before = rabbitmq.pid
    client = Client(rabbitmq_url)

    rabbitmq.kill()
    with client, pytest.raises(ConnectionResetError):
        client.receive()
    with pytest.raises(ConnectionRefusedError):
        Client(rabbitmq_url)
    assert not rabbitmq.running

    rabbitmq.start()
    assert rabbitmq.pid != before
    assert get(management, rabbitmq_url, "classic") == ["survives"]
    assert get(management, rabbitmq_url, "quorum") == ["survives"]


def test_a_broker_that_is_shut_down_tells_its_clients(rabbitmq, rabbitmq_url):
    with Client(rabbitmq_url) as client:
        rabbitmq.stop()
        assert client.receive() == CLOSE
    assert not rabbitmq.running


def test_a_test_that_follows_has_a_running_broker_again(rabbitmq, rabbitmq_url):
    with Client(rabbitmq_url):
        assert rabbitmq.running


def test_a_frozen_broker_takes_connections_and_says_nothing(rabbitmq, rabbitmq_url):
    with Client(rabbitmq_url):
        rabbitmq.freeze()
        assert rabbitmq.running
        port = int(rabbitmq_url.rpartition(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=0.2) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            with pytest.raises(TimeoutError):
                connection.recv(1)
            rabbitmq.thaw()
            connection.settimeout(20)
            assert connection.recv(1) == b"\x01"


def test_starting_thaws(rabbitmq, rabbitmq_url):
    rabbitmq.freeze()
    rabbitmq.start()
    with Client(rabbitmq_url):
        pass


def test_ctl_speaks_to_this_broker(rabbitmq, rabbitmq_url):
    assert vhost_of(rabbitmq_url) in rabbitmq.ctl("-q", "list_vhosts").split()
    with pytest.raises(ProcessFailed, match="nobody"):
        rabbitmq.ctl("-q", "delete_user", "nobody")


def test_a_client_reaches_it_through_the_proxy(rabbitmq_url):
    with Proxy.to(rabbitmq_url) as proxy, Client(proxy.url(rabbitmq_url)) as client:
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            client.receive()
        happened = proxy.cut_after(100, to="client")
        with pytest.raises(ConnectionResetError):
            Client(proxy.url(rabbitmq_url))  # in the middle of the broker's greeting
        assert happened.wait(20)


def opened(pid: int) -> set[str]:
    """What a process has open: paths, sockets by their number."""
    names: set[str] = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            names.add(os.readlink(descriptor))
    return names


def test_it_listens_on_loopback_and_nowhere_else(rabbitmq, rabbitmq_url):
    sockets = opened(rabbitmq.pid) | opened(rabbitmq._own._companion.pid)
    addresses = {
        line.split()[1].partition(":")[0]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        if line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in sockets
    }
    loopback = {"0100007F", "0200007F", "00000000000000000000000001000000"}
    assert "0100007F" in addresses
    assert addresses <= loopback


def test_it_writes_to_its_folder_and_nowhere_else(rabbitmq, rabbitmq_url):
    folder = rabbitmq._own.folder
    assert {path.name for path in folder.iterdir()} >= {"data", "rabbitmq.log", ".erlang.cookie"}
    files = {name for name in opened(rabbitmq.pid) if name.startswith("/")}
    assert any(name.startswith(f"{folder}/") for name in files)
    foreign = {name for name in files if not name.startswith((f"{folder}/", "/dev/", "/usr/"))}
    assert foreign == set()


class TestSomebodyElses:
    """A broker that the environment names; the private one plays it."""

    @pytest.fixture
    def foreign(self, rabbitmq, rabbitmq_url, monkeypatch) -> RabbitMQ:
        monkeypatch.setenv("QUEUECRAFT_TEST_RABBITMQ", rabbitmq.url)
        monkeypatch.setenv("QUEUECRAFT_TEST_RABBITMQ_MANAGEMENT", rabbitmq.management_url)
        return RabbitMQ.from_environment()

    def test_gives_a_virtual_host_and_is_left_running(self, rabbitmq, foreign):
        with foreign as broker, broker.vhost() as url, Client(url):
            assert vhost_of(url) in rabbitmq.management.vhosts()
        assert vhost_of(url) not in rabbitmq.management.vhosts()
        assert rabbitmq.running

    @pytest.mark.parametrize("deed", ["kill", "stop", "freeze", "thaw"])
    def test_is_not_ours_to_hurt(self, rabbitmq, foreign, deed):
        with pytest.raises(pytest.skip.Exception, match="QUEUECRAFT_TEST_RABBITMQ"):
            getattr(foreign, deed)()
        assert rabbitmq.running

    def test_has_its_management_interface_at_the_usual_place(self):
        broker = RabbitMQ("amqp://user:p%40ss@broker.example:5672/shop")
        assert broker.management_url == "http://user:p%40ss@broker.example:15672"
