"""Getting in, and what is said to those who do not."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

import pytest

from queuecraft import ConnectionLost, Credentials, Queue, QueueCraft
from queuecraft.facts import Reconnected
from queuecraft.testing import Ledger
from tests.brokers.management import quoted, vhost_of
from tests.brokers.port import Port
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.place import Order, order_placed, running, until

T = TypeVar("T")

PASSWORD = "p@ss/w:rd?#%&ü"


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port of this machine that nobody listens on."""
    port = Port()
    yield port.number
    port.close()


def placed(url: str, *, user: str = "guest", password: str = "guest", hosts: str = "") -> str:
    """The same virtual host, by another user or through other hosts."""
    parts = urlsplit(url)
    host = hosts or f"{parts.hostname}:{parts.port}"
    who = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return f"amqp://{who}@{host}{parts.path}"


@pytest.fixture
def user(rabbitmq: RabbitMQ, rabbitmq_url: str) -> Iterator[str]:
    """Somebody with a password that has to be percent-encoded, who may do everything here."""
    name = f"ada@{secrets.token_hex(4)}/é"
    change_password(rabbitmq, name, PASSWORD)
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    path = f"permissions/{quoted(vhost_of(rabbitmq_url))}/{quoted(name)}"
    rabbitmq.management.call("PUT", path, everything)
    yield name
    rabbitmq.management.call("DELETE", f"users/{quoted(name)}")


def change_password(rabbitmq: RabbitMQ, user: str, password: str) -> None:
    rabbitmq.management.call("PUT", f"users/{quoted(user)}", {"password": password, "tags": ""})


async def test_a_broker_that_is_down_is_said_at_once(dead_port: int) -> None:
    with pytest.raises(ConnectionLost) as caught:
        async with QueueCraft(f"amqp://guest:s3cret@127.0.0.1:{dead_port}"):
            raise AssertionError("nobody is there")
    assert f"127.0.0.1:{dead_port}" in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_a_wrong_password_is_said_without_showing_it(rabbitmq_url: str) -> None:
    with pytest.raises(ConnectionLost, match="the user name or the password is wrong") as caught:
        async with QueueCraft(placed(rabbitmq_url, password="s3cret")):
            raise AssertionError("not let in")
    assert "s3cret" not in str(caught.value)


async def test_a_virtual_host_that_is_not_there_is_named(rabbitmq_url: str) -> None:
    elsewhere = urlsplit(rabbitmq_url)._replace(path="/no%2Fwhere").geturl()
    with pytest.raises(ConnectionLost, match="there is no virtual host 'no/where'"):
        async with QueueCraft(elsewhere):
            raise AssertionError("there is none")


async def test_names_and_passwords_may_hold_anything(rabbitmq_url: str, user: str) -> None:
    async with QueueCraft(placed(rabbitmq_url, user=user, password=PASSWORD)) as qc:
        await qc.admin.declare("billing", "order.*")
        await qc.publish(order_placed, Order("o-1"))
    parts = urlsplit(rabbitmq_url)
    fields = QueueCraft(
        type="rabbitmq",
        host=str(parts.hostname),
        port=parts.port or 0,
        username=user,
        password=PASSWORD,
        vhost=vhost_of(rabbitmq_url),
    )
    async with fields as qc:
        assert (await qc.admin.inspect("billing")).ready == 1


async def test_a_virtual_host_may_be_called_anything(rabbitmq: RabbitMQ) -> None:
    name = f"shop/eu {secrets.token_hex(4)} é?"
    url = urlsplit(rabbitmq.url)._replace(path="/" + quoted(name)).geturl()
    rabbitmq.management.create_vhost(url)
    try:
        async with QueueCraft(url) as qc:
            await qc.admin.declare("billing", "order.*")
            await qc.publish(order_placed, Order("o-1"))
            assert (await qc.admin.inspect("billing")).ready == 1
    finally:
        rabbitmq.management.delete_vhost(url)


async def test_the_next_host_is_tried_when_one_is_dead(rabbitmq_url: str, dead_port: int) -> None:
    parts = urlsplit(rabbitmq_url)
    hosts = f"127.0.0.1:{dead_port},{parts.hostname}:{parts.port}"
    seen = Ledger()
    qc = QueueCraft(placed(rabbitmq_url, hosts=hosts))
    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with qc, running(billing):
        await qc.publish(order_placed, Order("o-1"))
        await seen.wait_for(billing=1)


@pytest.mark.parametrize("form", ["file", "callable"])
async def test_a_password_that_was_changed_is_read_again_at_the_next_connect(
    rabbitmq: RabbitMQ, rabbitmq_url: str, user: str, tmp_path: Path, form: str
) -> None:
    secret = tmp_path / "secret.json"

    def write(password: str) -> None:
        secret.write_text(json.dumps({"password": password}))
        change_password(rabbitmq, user, password)

    write(PASSWORD)

    def asked() -> Credentials:
        return Credentials(user, json.loads(secret.read_text())["password"])

    source = secret if form == "file" else asked
    parts = urlsplit(rabbitmq_url)
    who = f"{quote(user, safe='')}@" if form == "file" else ""
    url = f"amqp://{who}{parts.hostname}:{parts.port}{parts.path}"
    seen = Ledger()
    again: list[Reconnected] = []
    qc = QueueCraft(url, credentials=source, reconnect_delay=0.05)
    qc.observe(Reconnected, again.append)
    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with qc, running(billing):
        await qc.publish(order_placed, Order("o-1"))
        await seen.wait_for(billing=1)
        write("another one")
        rabbitmq.management.close_connections(rabbitmq_url, at_least=2)
        await until(_value(lambda: again), len)
        await qc.publish(order_placed, Order("o-2"))
        await until(_value(seen.payloads), lambda orders: Order("o-2") in orders)
    handled = dict.fromkeys(each.id for each in seen.payloads("billing"))
    assert list(handled) == ["o-1", "o-2"]  # the first perhaps twice: its ack may be lost


async def test_a_queue_that_is_gone_for_good_is_not_made_again_by_a_reconnect(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    seen = Ledger()
    again: list[Reconnected] = []
    qc = QueueCraft(rabbitmq_url, reconnect_delay=0.05)
    qc.observe(Reconnected, again.append)
    passing = Queue("passing", auto_delete=True)
    billing, visitor, _ = (
        qc.worker(queue).on(order_placed, seen.recording("all"))
        for queue in ("billing", passing, "scratch")
    )
    async with qc:
        async with running(billing, visitor):
            await qc.publish(order_placed, Order("o-1"))
            await seen.wait_for(all=2)
        await qc.admin.delete("scratch")
        rabbitmq.management.close_connections(rabbitmq_url, at_least=2)
        await qc.publish(order_placed, Order("o-2"))
        assert len(again) == 1
        made = {each["name"] for each in rabbitmq.management.queues(rabbitmq_url)}
        assert "billing" in made
        assert not made & {"passing", "scratch"}
        assert not {info.name for info in await qc.admin.queues()} & {"passing", "scratch"}
        assert (await qc.admin.inspect("billing")).ready == 1


def _value(of: Callable[[], T]) -> Callable[[], Awaitable[T]]:
    async def ask() -> T:
        return of()

    return ask
