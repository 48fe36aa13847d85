"""The proxy that stands for a bad network. Both ends of each connection are in the test's hands."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.brokers.port import Port
from tests.proxy import Proxy

PATIENCE = 20.0


class Place:
    """A server, the proxy before it, and connections between."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        port = stack.enter_context(Port()).number
        self.server = stack.enter_context(socket.create_server(("127.0.0.1", port)))
        self.server.settimeout(PATIENCE)
        self.proxy = stack.enter_context(Proxy(*self.server.getsockname()))

    def client(self) -> socket.socket:
        address = ("127.0.0.1", self.proxy.port)
        return self._stack.enter_context(socket.create_connection(address, timeout=PATIENCE))

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """Both ends of a new connection: the client's, the server's."""
        client = self.client()
        server, _ = self.server.accept()
        server.settimeout(PATIENCE)
        return client, self._stack.enter_context(server)


@pytest.fixture
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack)


def received(end: socket.socket, size: int) -> bytes:
    """So many bytes."""
    data = b""
    while len(data) < size and (more := end.recv(size - len(data))):
        data += more
    return data


def last_words(end: socket.socket) -> tuple[bytes, str]:
    """All that still arrives, and how it ended."""
    data = b""
    try:
        while more := end.recv(65536):
            data += more
    except ConnectionResetError:
        return data, "reset"
    return data, "end"


def test_it_forwards_both_ways(place):
    client, server = place.connect()
    client.sendall(b"question")
    assert received(server, 8) == b"question"
    server.sendall(b"answer")
    assert received(client, 6) == b"answer"
    assert place.proxy.connections == place.proxy.accepted == 1
    assert place.proxy.passed(to="server") == 8
    assert place.proxy.passed(to="client") == 6


def test_more_than_it_can_hold_arrives_whole_and_in_order(place):
    client, server = place.connect()
    data = b"".join(struct.pack("!I", number) for number in range(4_000_000))
    sender = threading.Thread(target=client.sendall, args=(data,))
    sender.start()
    arrived = received(server, len(data))
    sender.join()
    assert arrived == data


def test_the_end_of_one_direction_leaves_the_other_open(place):
    client, server = place.connect()
    client.sendall(b"that is all")
    client.shutdown(socket.SHUT_WR)
    assert last_words(server) == (b"that is all", "end")
    server.sendall(b"noted")
    server.close()
    assert last_words(client) == (b"noted", "end")


def test_a_reset_is_passed_on(place):
    client, server = place.connect()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.close()
    assert last_words(client) == (b"", "reset")


def test_a_server_that_is_down_breaks_the_connection(place):
    place.server.close()
    with pytest.raises(ConnectionResetError):  # maybe before the client knows it is connected
        place.client().recv(1)


def test_a_cut_resets_all_connections_and_lets_new_ones_through(place):
    ends = [*place.connect(), *place.connect()]
    assert place.proxy.cut() == 2
    assert [last_words(end) for end in ends] == [(b"", "reset")] * 4
    assert place.proxy.connections == 0

    client, server = place.connect()
    client.sendall(b"again")
    assert received(server, 5) == b"again"


def test_a_cut_in_order_is_no_reset(place):
    ends = place.connect()
    place.proxy.cut(reset=False)
    assert [last_words(end) for end in ends] == [(b"", "end")] * 2


def test_a_cut_takes_those_who_have_only_just_connected(place):
    clients = [place.client() for _ in range(20)]
    assert place.proxy.cut() == 20
    assert {last_words(client) for client in clients} == {(b"", "reset")}


@pytest.mark.parametrize("size", [0, 1, 7, 19, 20])
@pytest.mark.parametrize("reset", [True, False])
def test_a_reply_is_cut_in_its_middle(place, size, reset):
    client, server = place.connect()
    happened = place.proxy.cut_after(size, to="client", reset=reset)
    server.sendall(b"twenty bytes of text")
    assert happened.wait(PATIENCE)
    assert last_words(client) == (b"twenty bytes of text"[:size], "reset" if reset else "end")


def test_a_request_is_cut_in_its_middle(place):
    client, server = place.connect()
    server.sendall(b"welcome, and not counted")
    assert received(client, 24) == b"welcome, and not counted"
    happened = place.proxy.cut_after(3, to="server")
    client.sendall(b"request")
    assert happened.wait(PATIENCE)
    assert last_words(server) == (b"req", "reset")


def test_a_long_reply_is_cut_to_the_byte(place):
    client, server = place.connect()
    happened = place.proxy.cut_after(1_000_001, to="client")
    sender = threading.Thread(target=_send_until_broken, args=(server, b"x" * 5_000_000))
    sender.start()
    assert last_words(client) == (b"x" * 1_000_001, "reset")
    assert happened.wait(PATIENCE)
    sender.join()


def _send_until_broken(end: socket.socket, data: bytes) -> None:
    with suppress(ConnectionError):
        end.sendall(data)


def test_the_bytes_until_a_cut_are_counted_over_all_connections(place):
    (one, one_server), (other, other_server) = place.connect(), place.connect()
    happened = place.proxy.cut_after(10, to="client")
    one_server.sendall(b"sixsix")
    assert received(one, 6) == b"sixsix"
    other_server.sendall(b"sixsix")
    assert happened.wait(PATIENCE)
    assert last_words(other) == (b"sixs", "reset")
    assert last_words(one) == (b"", "reset")


def test_it_is_cut_only_once(place):
    client, server = place.connect()
    happened = place.proxy.cut_after(1, to="client")
    server.sendall(b"first")
    assert happened.wait(PATIENCE)
    client, server = place.connect()
    server.sendall(b"second")
    assert received(client, 6) == b"second"


def test_a_cut_that_was_ordered_is_called_off_by_restoring(place):
    client, server = place.connect()
    happened = place.proxy.cut_after(1, to="client")
    place.proxy.restore()
    server.sendall(b"all of it")
    assert received(client, 9) == b"all of it"
    assert not happened.is_set()


def test_a_black_hole_swallows_and_a_harmed_connection_does_not_come_back(place):
    client, server = place.connect()
    place.proxy.black_hole()
    client.sendall(b"lost")
    client.shutdown(socket.SHUT_WR)
    server.sendall(b"lost, too")
    _until(lambda: all(link.damaged for link in place.proxy._links))
    place.proxy.restore()
    assert last_words(server) == (b"", "reset")
    assert last_words(client) == (b"", "reset")
    assert place.proxy.passed(to="server") == place.proxy.passed(to="client") == 0


def test_a_black_hole_swallows_resets(place):
    client, server = place.connect()
    place.proxy.black_hole()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.close()
    _until(lambda: all(link.damaged for link in place.proxy._links))
    client.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.recv(1)


def test_a_black_hole_takes_new_connections_and_tells_the_server_nothing(place):
    place.proxy.black_hole()
    client = place.client()
    client.sendall(b"anybody?")
    _until(lambda: place.proxy.connections == 1)
    place.server.settimeout(0)
    with pytest.raises(BlockingIOError):
        place.server.accept()
    place.proxy.restore()
    assert last_words(client) == (b"", "reset")


def test_a_connection_that_was_silent_in_a_black_hole_goes_on(place):
    client, server = place.connect()
    place.proxy.black_hole()
    place.proxy.restore()
    client.sendall(b"still here")
    assert received(server, 10) == b"still here"


def test_refusing_turns_new_connections_away_and_keeps_the_old(place):
    client, server = place.connect()
    port = place.proxy.port
    place.proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        place.client()
    client.sendall(b"still here")
    assert received(server, 10) == b"still here"

    place.proxy.restore()
    assert place.proxy.port == port
    client, server = place.connect()
    client.sendall(b"welcome back")
    assert received(server, 12) == b"welcome back"


def test_a_delay_holds_back_until_it_is_restored(place):
    client, server = place.connect()
    place.proxy.delay(3600)
    client.sendall(b"late")
    client.shutdown(socket.SHUT_WR)
    server.settimeout(0.05)
    with pytest.raises(TimeoutError):
        server.recv(1)
    server.settimeout(PATIENCE)
    place.proxy.restore()
    assert last_words(server) == (b"late", "end")


def test_a_delay_is_never_early_and_many_small_writes_share_it(place):
    client, server = place.connect()
    place.proxy.delay(0.2, to="server")
    begin = time.monotonic()
    for number in range(100):
        client.sendall(bytes([number]))
    assert received(server, 1) == b"\0"
    assert time.monotonic() - begin >= 0.2
    assert received(server, 99) == bytes(range(1, 100))
    # One after the other they would have taken 20 seconds, and the test its patience.
    assert time.monotonic() - begin < PATIENCE


def test_a_delay_one_way_leaves_the_other_alone(place):
    client, server = place.connect()
    place.proxy.delay(3600, to="client")
    client.sendall(b"at once")
    assert received(server, 7) == b"at once"


def test_a_throttled_connection_gives_no_more_than_it_may(place):
    client, server = place.connect()
    place.proxy.throttle(10_000, to="server")
    begin = time.monotonic()
    client.sendall(b"x" * 2_000)
    assert received(server, 2_000) == b"x" * 2_000
    assert time.monotonic() - begin >= 0.2


def test_a_throttled_connection_hurries_when_it_is_restored(place):
    client, server = place.connect()
    place.proxy.throttle(0.001)
    client.sendall(b"x" * 100_000)
    place.proxy.restore()
    assert received(server, 100_000) == b"x" * 100_000


def test_a_delayed_and_throttled_connection_can_be_cut(place):
    client, server = place.connect()
    place.proxy.delay(3600, to="server")
    place.proxy.throttle(0.001, to="client")
    client.sendall(b"never seen")
    server.sendall(b"never seen")
    assert place.proxy.cut() == 1
    assert last_words(server) == last_words(client) == (b"", "reset")


async def test_it_works_while_the_loop_is_blocked(place):
    client, server = place.connect()
    client.sendall(b"blocking, in a coroutine")
    assert received(server, 24) == b"blocking, in a coroutine"


def test_it_leaves_neither_thread_nor_listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with Proxy(*server.getsockname()) as proxy:
            port, thread = proxy.port, proxy._thread
            client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            proxy.cut_after(0, to="server")
            client.sendall(b"x")
        assert last_words(client) == (b"", "reset")
        client.close()
        assert not thread.is_alive()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_a_url_leads_by_way_of_the_proxy():
    with Proxy.to("amqp://user:p%40ss@127.0.0.1:5672/shop?heartbeat=5") as proxy:
        url = proxy.url("amqp://user:p%40ss@127.0.0.1:5672/shop?heartbeat=5")
        assert url == f"amqp://user:p%40ss@127.0.0.1:{proxy.port}/shop?heartbeat=5"


def test_a_url_without_a_port_is_refused():
    with pytest.raises(ValueError, match="host and port"):
        Proxy.to("amqp://localhost")


def _until(condition) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)
