"""What the management interface tells and does, and life without it."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_hex
from urllib.parse import quote, urlsplit

import pytest

from queuecraft import (
    ConfigError,
    Credentials,
    Exchange,
    Queue,
    QueueCraft,
    QueueError,
    UnsupportedFeature,
)
from queuecraft.drivers.base import Binding, Outgoing, QueueInfo
from queuecraft.drivers.rabbitmq import (
    RabbitDriver,
    consuming,
    inspection,
    management,
    remembered,
)
from queuecraft.drivers.rabbitmq.address import addresses
from queuecraft.drivers.rabbitmq.inspection import Inspection
from queuecraft.drivers.rabbitmq.management import Management, QueueState, Unanswered
from queuecraft.model.address import userinfo
from queuecraft.model.queue import DeadLetterTarget
from tests.brokers.certificates import Certificates
from tests.brokers.management import quoted, vhost_of
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.place import interface, opened, until

EVENTS = Exchange("events")
BILLING = Queue(
    "billing",
    bindings=(Binding(EVENTS, "order.*"),),
    dead_letters=DeadLetterTarget("events.dlx", "billing.dlq", "billing.dlq"),
)


@pytest.fixture
async def driver(rabbitmq: RabbitMQ, rabbitmq_url: str) -> AsyncIterator[RabbitDriver]:
    """A driver that is told where the interface is."""
    async with opened(f"{rabbitmq_url}?management={interface(rabbitmq)}") as driver:
        yield driver


async def info(driver: RabbitDriver, name: str) -> QueueInfo:
    (found,) = await driver.inspect([name])
    return found


# -- with it ---------------------------------------------------------------------------------------


async def test_all_queues_are_listed_whoever_made_them(
    driver: RabbitDriver, rabbitmq_url: str
) -> None:
    async with opened(rabbitmq_url) as other:
        await other.declare(BILLING)
        await other.declare(Queue("mine", durable=False, exclusive=True))
        await other.send([Outgoing(b"", f"m-{n}", "events", "order.placed") for n in range(3)])
        await other.send([Outgoing(b"", "dead", "events.dlx", "billing.dlq")])
        await other.send([Outgoing(b"", "late", "events", "order.paid", due_at=time.time() + 60)])
        found = {each.name: each for each in await driver.inspect()}
        assert set(found) == {"billing", "billing.dlq", "mine", "qc.undelivered.dlq"}
        assert (found["billing"].ready, found["billing"].dead) == (3, 1)
        assert (found["billing.dlq"].ready, found["billing.dlq"].dead) == (1, None)
        assert found["mine"].ready is None  # nobody but its own connection may ask
        assert found["billing"].oldest_age is None
        assert found["billing"].delayed is None


async def test_what_is_held_and_how_fast_it_goes_is_told(driver: RabbitDriver) -> None:
    await driver.declare(BILLING)
    await driver.send([Outgoing(b"", f"m-{n}", "events", "order.placed") for n in range(5)])
    subscription = await driver.subscribe(BILLING, prefetch=2)
    await subscription.receive(2, 5)
    told = await until(lambda: info(driver, "billing"), lambda each: each.in_flight == 2)
    assert (told.ready, told.consumers) == (3, 1)
    told = await until(lambda: info(driver, "billing"), lambda each: each.rates)
    assert told.rates is not None
    assert set(told.rates) <= {"in", "out"}
    assert all(rate >= 0 for rate in told.rates.values())


async def test_what_does_not_exist_is_left_out(driver: RabbitDriver) -> None:
    await driver.declare(BILLING)
    found = await driver.inspect(["missing", "billing", "also/missing"])
    assert [each.name for each in found] == ["billing"]


async def test_of_very_many_queues_the_interface_alone_tells(
    driver: RabbitDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "FRESH", 1)
    await driver.declare(BILLING)
    await driver.send([Outgoing(b"", f"m-{n}", "events", "order.placed") for n in range(3)])
    await driver.send([Outgoing(b"", "dead", "events.dlx", "billing.dlq")])

    async def told() -> list[tuple[str, int | None, int | None]]:
        return [(each.name, each.ready, each.dead) for each in await driver.inspect()]

    await until(told, lambda it: it == [("billing", 3, 1), ("billing.dlq", 1, None)])
    found = await driver.inspect(["billing", "missing"])
    assert [each.name for each in found] == ["billing"]


async def test_of_many_queues_a_list_is_good_for_a_while_and_what_is_made_here_is_in_it_at_once(
    driver: RabbitDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "FEW", 1)
    monkeypatch.setattr(remembered, "A_SECOND", 0.1)
    await driver.declare(BILLING)
    assert [each.name for each in await driver.inspect()] == ["billing", "billing.dlq"]
    asked = Counter[str]()
    listed = Management.queues

    async def counting(management: Management) -> list[QueueState]:
        asked["queues"] += 1
        return await listed(management)

    monkeypatch.setattr(Management, "queues", counting)
    await driver.send([Outgoing(b"", "dead", "events.dlx", "billing.dlq")])
    await driver.declare(Queue("audit"))
    found = {each.name: (each.ready, each.dead) for each in await driver.inspect()}
    assert found == {"billing": (0, 1), "billing.dlq": (1, None), "audit": (0, None)}
    await driver.delete("audit")
    assert [each.name for each in await driver.inspect()] == ["billing", "billing.dlq"]
    assert asked["queues"] == 0


@pytest.mark.faults  # for seconds, it is about time
async def test_all_of_a_long_queue_is_peeked_at_however_long_it_takes(
    driver: RabbitDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "GLANCE", 0.3)
    await driver.declare(Queue("billing"))
    await driver.send([Outgoing(b"x" * 2000, f"m-{n}", queue="billing") for n in range(10_000)])
    assert len(await driver.peek("billing", 10_000)) == 10_000


async def test_the_topology_is_that_of_the_broker(driver: RabbitDriver, rabbitmq_url: str) -> None:
    reports = Exchange("reports", "headers", durable=False)
    wanted = Binding(reports, "#", {"x-match": "any", "format": "pdf"})
    async with opened(rabbitmq_url) as other:
        await other.declare(BILLING)
        await other.declare(Queue("odd/ name é", bindings=(wanted,)))
        await other.send([Outgoing(b"", "late", "events", "order.paid", due_at=time.time() + 60)])
        subscription = await other.subscribe(BILLING, prefetch=7)
        told = await until(driver.topology, lambda each: each.consumers)
        await subscription.close()
    assert {each.name: each.type for each in told.exchanges} == {
        "events": "topic",
        "events.dlx": "topic",
        "reports": "headers",
    }
    assert set(told.queues) == {"billing", "billing.dlq", "odd/ name é", "qc.undelivered.dlq"}
    assert {(each.exchange.name, each.pattern, queue) for each, queue in told.bindings} == {
        ("events", "order.*", "billing"),
        ("events.dlx", "billing.dlq", "billing.dlq"),
        ("reports", "#", "odd/ name é"),
    }
    (binding,) = (each for each, queue in told.bindings if queue.startswith("odd"))
    assert binding == wanted
    assert [(each.queue, each.prefetch) for each in told.consumers] == [("billing", 7)]
    assert told.dead_letters == (("billing", "billing.dlq"),)


async def test_dead_letters_are_found_wherever_their_exchange_gives_them(
    driver: RabbitDriver, rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    await driver.declare(Queue("hospital", bindings=(Binding(Exchange("ward", "fanout"), "#"),)))
    await driver.declare(Queue("morgue", bindings=(Binding(Exchange("graves"), "dead.#"),)))
    aims = {
        "by-fanout": {"x-dead-letter-exchange": "ward"},
        "by-topic": {"x-dead-letter-exchange": "graves", "x-dead-letter-routing-key": "dead.x"},
        "by-name": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "morgue"},
        "by-its-own-key": {"x-dead-letter-exchange": "graves"},
        "to-nowhere": {"x-dead-letter-exchange": "missing", "x-dead-letter-routing-key": "x"},
        "by-policy": {},
    }
    for name, arguments in aims.items():
        await driver.declare(Queue(name, arguments=arguments))
    rabbitmq.management.call(
        "PUT",
        f"policies/{quoted(vhost_of(rabbitmq_url))}/dead",
        {
            "pattern": "^by-policy$",
            "definition": {"dead-letter-exchange": "graves", "dead-letter-routing-key": "dead.y"},
            "apply-to": "queues",
        },
    )
    await driver.send([Outgoing(b"", "one", queue="hospital")])
    await driver.send([Outgoing(b"", f"m-{n}", queue="morgue") for n in range(2)])
    # A policy takes a moment; what is not certain is None.
    expected: dict[str, int | None] = dict.fromkeys(aims, 2)
    expected |= {"by-fanout": 1, "by-its-own-key": None, "to-nowhere": None}

    async def dead() -> dict[str, int | None]:
        return {each.name: each.dead for each in await driver.inspect(list(aims))}

    await until(dead, lambda told: told == expected)


async def test_virtual_hosts_are_listed_and_made(
    driver: RabbitDriver, rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    name = f"shop/eu é {token_hex(4)}"
    url = urlsplit(rabbitmq_url)._replace(path="/" + quote(name, safe="")).geturl()
    assert name not in await driver.virtual_hosts()
    try:
        async with QueueCraft(f"{rabbitmq_url}?management={interface(rabbitmq)}") as qc:
            await qc.admin.make_virtual_host(name)
            assert name in await qc.admin.virtual_hosts()
        await driver.make_virtual_host(name)
        assert {name, vhost_of(rabbitmq_url)} <= set(await driver.virtual_hosts())
        async with opened(url) as inside:
            await inside.declare(BILLING)
            assert (await info(inside, "billing")).ready == 0
    finally:
        rabbitmq.management.delete_vhost(url)
    with pytest.raises(QueueError, match="needs a name"):
        await driver.make_virtual_host("")


async def test_a_user_without_the_tag_is_told_and_does_without_it(
    rabbitmq: RabbitMQ, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"plain-{token_hex(4)}"
    rabbitmq.management.call("PUT", f"users/{name}", {"password": "s3cret", "tags": ""})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    vhost = quoted(vhost_of(rabbitmq_url))
    rabbitmq.management.call("PUT", f"permissions/{vhost}/{name}", everything)
    parts = urlsplit(rabbitmq_url)
    url = f"amqp://{name}:s3cret@{parts.hostname}:{parts.port}{parts.path}"
    try:
        async with opened(f"{url}?management={interface(rabbitmq)}") as driver:
            await driver.declare(BILLING)
            with caplog.at_level(logging.WARNING, "queuecraft"):
                assert (await info(driver, "billing")).ready == 0
                assert [each.name for each in await driver.inspect()] == ["billing", "billing.dlq"]
            with pytest.raises(Unanswered, match="give the user the tag 'management'"):
                await driver.virtual_hosts()
    finally:
        rabbitmq.management.call("DELETE", f"users/{name}")
    assert len(caplog.records) == 1
    assert "the tag 'management'" in caplog.text
    assert "s3cret" not in caplog.text


async def test_the_same_over_https(
    rabbitmq_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    certificates = Certificates.make(tmp_path_factory.mktemp("https") / "certificates")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    with serving(lambda path: (200, json.dumps([{"name": "/"}]).encode()), context) as url:
        trusting = ssl.create_default_context(cafile=str(certificates.authority))
        assert await at(url, context=trusting).virtual_hosts() == ["/"]
        with pytest.raises(Unanswered, match="CERTIFICATE_VERIFY_FAILED"):
            await at(url, context=ssl.create_default_context()).virtual_hosts()


# -- without it ------------------------------------------------------------------------------------


async def test_without_it_what_was_declared_here_is_known_and_the_rest_is_open(
    rabbitmq_url: str,
) -> None:
    async with opened(f"{rabbitmq_url}?management=no") as driver, opened(rabbitmq_url) as other:
        await other.declare(Queue("theirs"))
        await driver.declare(BILLING)
        await driver.send([Outgoing(b"", "m-1", "events", "order.placed")])
        assert list(await driver.inspect()) == [
            QueueInfo(name="billing", ready=1, dead=0, consumers=0),
            QueueInfo(name="billing.dlq", ready=0, consumers=0),
        ]
        assert [each.name for each in await driver.inspect(["theirs", "nobodys"])] == ["theirs"]
        assert "theirs" not in (await driver.topology()).queues
        with pytest.raises(UnsupportedFeature, match=r"\?management=http://host:15672"):
            await driver.virtual_hosts()
        with pytest.raises(UnsupportedFeature):
            await driver.make_virtual_host("shop")


async def test_an_interface_that_is_down_is_warned_of_once_and_amqp_has_to_do(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"{rabbitmq_url}?management=http://127.0.0.1:1"
    async with QueueCraft(url) as qc:
        with caplog.at_level(logging.WARNING, "queuecraft"):
            await qc.admin.declare("billing", "order.*")
            assert (await qc.admin.inspect("billing")).ready == 0
            assert [each.name for each in await qc.admin.queues()] == ["billing", "billing.dlq"]
        assert qc.connection_state == "connected"
    assert len(caplog.records) == 1
    assert "http://127.0.0.1:1" in caplog.text


async def test_an_interface_nobody_named_is_used_only_if_it_is_that_of_this_broker(
    driver: RabbitDriver, rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    await driver.declare(BILLING)
    asked: list[str] = []

    def another(path: str) -> tuple[int, bytes]:
        """A RabbitMQ as well, with a virtual host and queues of the same names."""
        asked.append(path)
        if "/amq.gen" not in path:
            return 200, json.dumps([{"name": "billing", "messages_ready": 99}]).encode()
        return 404, b'{"error":"Object Not Found"}'

    def looking(url: str) -> Inspection:
        assert driver._consuming is not None
        username, password = userinfo(rabbitmq_url)
        who = Credentials(username, password or "")
        place = Management(url, virtual_host=vhost_of(rabbitmq_url), credentials=who)
        return Inspection(driver._consuming, place, given=False, queues={}, exchanges={})

    with serving(another) as url:
        elsewhere = looking(url)
        assert await elsewhere.queues(None) == []
        assert await elsewhere.queues(None) == []
    assert len(asked) == 1
    found = await looking(interface(rabbitmq)).queues(None)
    assert [each.name for each in found] == ["billing", "billing.dlq"]
    marks = [each["name"] for each in rabbitmq.management.queues(rabbitmq_url)]
    assert not [each for each in marks if each.startswith("amq.gen")]


# -- where it is looked for ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("amqp://rabbit", "http://rabbit:15672"),
        ("amqp://[::1]", "http://[::1]:15672"),
        ("amqps://rabbit", "https://rabbit:15671"),
        ("amqp://rabbit:5673", None),
        ("amqps://rabbit:5672", None),
        ("amqp://rabbit?management=no", None),
        ("amqps://rabbit?management=http://127.0.0.1:9", "http://127.0.0.1:9"),
        ("amqp://rabbit:5673?management=https://mq.example/api-x", "https://mq.example/api-x"),
    ],
)
def test_it_is_looked_for_where_the_url_says_or_where_it_usually_is(
    url: str, place: str | None
) -> None:
    assert addresses(url)[0].interface == place


@pytest.mark.parametrize(
    "place",
    [
        *("", "yes", "rabbit:15672", "ftp://rabbit", "http://", "http://rabbit:0"),
        *("http://ada:s3cret%40rabbit", "http://ada%3As3cret%40rabbit:15672", "http://[::1"),
        *(
            "http://rabbit?s3cret",
            "http://rabbit%23s3cret",
            "http://rabbit/%0d%0ax",
            "http://a%20b",
        ),
    ],
)
def test_a_place_that_cannot_be_is_refused_and_not_shown(place: str) -> None:
    with pytest.raises(ConfigError, match="management= does not say where") as caught:
        addresses(f"amqp://host?management={place}")
    assert "s3cret" not in str(caught.value)


# -- what may come back ----------------------------------------------------------------------------


@contextmanager
def serving(
    answer: Callable[[str], tuple[int, bytes]], context: ssl.SSLContext | None = None
) -> Generator[str]:
    """An HTTP server that answers each path as it is told."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self.path)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", body.decode())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that does not trust us hangs up."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            scheme = "http" if context is None else "https"
            yield f"{scheme}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def at(url: str, virtual_host: str = "/", context: ssl.SSLContext | None = None) -> Management:
    who = Credentials("ada", "s3cret")
    return Management(url, virtual_host=virtual_host, credentials=who, context=context)


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"{}", b"[1]", b'[{"name": 5}]', b'[{"name": "x"', b"\xff", b"[" * 99]
)
async def test_an_answer_that_makes_no_sense_is_an_error(body: bytes) -> None:
    told = "no RabbitMQ, or one that is unknown"
    with serving(lambda path: (200, body)) as url, pytest.raises(Unanswered, match=told):
        await at(url).queues()


async def test_numbers_that_are_not_there_are_none_and_empty_tables_may_be_lists() -> None:
    told = {"name": "q", "arguments": [], "effective_policy_definition": [], "message_stats": []}
    with serving(lambda path: (200, json.dumps([told]).encode())) as url:
        (state,) = await at(url).queues()
    assert isinstance(state, QueueState)
    assert (state.messages_ready, state.rates, state.dead_letters) == (None, None, None)


@pytest.mark.parametrize(("status", "told"), [(500, "500"), (403, "403"), (401, "the tag")])
async def test_a_refusal_is_told_without_the_password(status: int, told: str) -> None:
    with (
        serving(lambda path: (status, b"s3cret")) as url,
        pytest.raises(Unanswered, match=told) as caught,
    ):
        await at(url).queues()
    assert url in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_a_redirect_is_not_followed() -> None:
    asked: list[str] = []

    def elsewhere(path: str) -> tuple[int, bytes]:
        asked.append(path)
        return 200, b"[]"

    with (
        serving(elsewhere) as trap,
        serving(lambda path: (301, trap.encode())) as url,
        pytest.raises(Unanswered, match="it answered 301"),
    ):
        await at(url).queues()
    assert asked == []


async def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management, "LARGEST", 1000)
    long = b"[" + b" " * 2000 + b"]"
    told = "more than 1000 bytes"
    with serving(lambda path: (200, long)) as url, pytest.raises(Unanswered, match=told):
        await at(url).queues()


async def test_one_that_never_answers_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management, "TIMEOUT", 0.2)
    over = threading.Event()

    def drip(path: str) -> tuple[int, bytes]:
        over.wait(20)
        return 200, b"[]"

    with serving(drip) as url:
        try:
            with pytest.raises(Unanswered, match=r"within 0\.2 s|timed out"):
                await at(url).queues()
        finally:
            over.set()


async def test_one_that_drips_costs_a_bounded_time_and_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(management, "TIMEOUT", 0.3)
    hung_up = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        try:
            while not reader.at_eof():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        except OSError:
            pass
        hung_up.set()
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unanswered, match=r"within 0\.3 s"):
            await at(f"http://127.0.0.1:{port}").queues()
        async with asyncio.timeout(5):
            await hung_up.wait()
