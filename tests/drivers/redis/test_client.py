"""The client, against a server that says what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.redis.address import Address
from queuecraft.drivers.redis.client import Client, RedisError, Script
from queuecraft.drivers.redis.login import log_in
from queuecraft.model.credentials import Credentials


class Peer:
    """The other side of one connection at a time."""

    def __init__(self) -> None:
        self.port = 0
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter
        self.arrived = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.arrived.set()

    async def heard(self) -> list[bytes]:
        """The next command."""
        count = int((await self.reader.readuntil(b"\r\n"))[1:])
        words: list[bytes] = []
        for _ in range(count):
            size = int((await self.reader.readuntil(b"\r\n"))[1:])
            words.append((await self.reader.readexactly(size + 2))[:-2])
        return words

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def close(self) -> None:
        if self.arrived.is_set():
            self.writer.close()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.start()
    yield peer
    await peer.close()


@pytest.fixture
async def connect(peer: Peer) -> AsyncIterator[Callable[..., object]]:
    opened: list[Client] = []

    async def connected(**options: Any) -> Client:
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(
            lambda: Client(**options),
            "127.0.0.1",
            peer.port,
        )
        await peer.arrived.wait()
        opened.append(client)
        return client

    yield connected
    for client in opened:
        client.abort(ConnectionLost("the test is over"))
        await client.close()


async def test_commands_of_one_turn_are_written_together(peer: Peer, connect) -> None:
    client = await connect()
    asking = [asyncio.ensure_future(client.call("GET", n)) for n in range(3)]
    assert [await peer.heard() for _ in asking] == [[b"GET", str(n).encode()] for n in range(3)]
    peer.say(b"$1\r\na\r\n:7\r\n$-1\r\n")
    assert await asyncio.gather(*asking) == [b"a", 7, None]


async def test_a_reply_may_come_in_any_pieces(peer: Peer, connect) -> None:
    client = await connect()
    asking = asyncio.ensure_future(client.call("LRANGE", "x", 0, -1))
    await peer.heard()
    for byte in b"*2\r\n$5\r\nhello\r\n*1\r\n:1\r\n":
        peer.say(bytes([byte]))
        await asyncio.sleep(0)
    assert await asking == [b"hello", [1]]


async def test_an_error_is_raised_from_a_call_and_a_value_among_calls(peer: Peer, connect) -> None:
    client = await connect()
    asking = asyncio.ensure_future(client.call("GET", "x"))
    peer.say(b"-WRONGTYPE Operation\r\n")
    with pytest.raises(RedisError, match="WRONGTYPE Operation") as caught:
        await asking
    assert caught.value.code == "WRONGTYPE"
    both = asyncio.ensure_future(client.calls([("GET", "x"), ("GET", "y")]))
    await asyncio.sleep(0)
    peer.say(b"-ERR no\r\n+OK\r\n")
    error, fine = await both
    assert isinstance(error, RedisError)
    assert fine == b"OK"
    assert await client.calls([]) == []


async def test_a_script_is_sent_whole_only_when_it_is_unknown(peer: Peer, connect) -> None:
    client = await connect()
    script = Script("return 1")
    asking = asyncio.ensure_future(client.eval(script, ["k"], ["a", 1]))
    digest = script.digest.encode()
    assert await peer.heard() == [b"EVALSHA", digest, b"1", b"k", b"a", b"1"]
    peer.say(b"-NOSCRIPT No matching script.\r\n")
    assert await peer.heard() == [b"EVAL", b"return 1", b"1", b"k", b"a", b"1"]
    peer.say(b":1\r\n")
    assert await asking == 1


async def test_what_cannot_be_sent_takes_no_place_among_the_answers(peer: Peer, connect) -> None:
    client = await connect()
    for odd in ("\ud800", object()):
        with pytest.raises((UnicodeEncodeError, TypeError)):
            await client.call("ECHO", odd)
        with pytest.raises((UnicodeEncodeError, TypeError)):
            await client.calls([("ECHO", "fine"), ("ECHO", odd)])
    asking = asyncio.ensure_future(client.call("ECHO", "sound"))
    assert await peer.heard() == [b"ECHO", b"sound"]
    peer.say(b"+sound\r\n")
    assert await asking == b"sound"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b":1\r\n+unasked\r\n", "what nobody had asked"),
        (b"HTTP/1.1 400 Bad Request\r\n", "speaks HTTP"),
        (b"what is this\r\n", "no reply of a Redis"),
    ],
)
async def test_nonsense_ends_the_connection(peer: Peer, connect, said: bytes, why: str) -> None:
    client = await connect()
    over = asyncio.get_running_loop().create_future()
    client.on_lost = over.set_result
    asking = asyncio.ensure_future(client.call("PING"))
    await peer.heard()
    peer.say(said)
    assert why in (await over).message
    await asyncio.wait([asking])
    assert (asking.exception() is None) == said.startswith(b":")
    with pytest.raises(ConnectionLost, match=why):
        await client.call("PING")


async def test_everyone_who_waits_learns_that_the_connection_is_lost(peer: Peer, connect) -> None:
    client = await connect()
    told: list[ConnectionLost] = []
    client.on_lost = told.append
    asking = [
        asyncio.ensure_future(client.call("GET", "x")),
        asyncio.ensure_future(client.calls([("GET", "y"), ("GET", "z")])),
    ]
    await peer.heard()
    peer.writer.close()
    for each in asking:
        with pytest.raises(ConnectionLost, match="cut"):
            await each
    assert len(told) == 1


async def test_a_quiet_server_is_asked_for_a_sign_of_life(peer: Peer, connect) -> None:
    client = await connect()
    over = asyncio.get_running_loop().create_future()
    client.on_lost = over.set_result
    client.beat(0.05)
    for _ in range(3):
        assert await peer.heard() == [b"PING"]
        peer.say(b"+PONG\r\n")
    assert await peer.heard() == [b"PING"]
    assert "nothing heard" in (await over).message


async def test_a_writer_waits_while_the_server_does_not_read(peer: Peer, connect) -> None:
    client = await connect()
    client.pause_writing()
    asking = asyncio.ensure_future(client.call("ECHO", "x"))
    more = asyncio.ensure_future(client.calls([("ECHO", "y")]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not client._waiting
    client.resume_writing()
    await peer.heard()
    await peer.heard()
    peer.say(b"+x\r\n+y\r\n")
    assert await asking == b"x"
    assert await more == [b"y"]


async def test_pushes_are_no_answers(peer: Peer, connect) -> None:
    pushes: list[list[bytes]] = []
    client = await connect(on_push=pushes.append)
    asking = asyncio.ensure_future(client.call("GET", "x"))
    await peer.heard()
    peer.say(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nx\r\n+1\r\n")
    assert await asking == b"1"
    assert pushes == [[b"invalidate", [b"x"]]]


# -- getting in ------------------------------------------------------------------------------------


async def test_who_logs_in_says_who_and_where(peer: Peer) -> None:
    address = Address("127.0.0.1", peer.port, database=3)
    entering = asyncio.ensure_future(
        log_in(address, Credentials("ada", "s3cret"), timeout=5, heartbeat=30, name="me")
    )
    await peer.arrived.wait()
    assert await peer.heard() == [b"AUTH", b"ada", b"s3cret"]
    assert await peer.heard() == [b"SELECT", b"3"]
    assert await peer.heard() == [b"CLIENT", b"SETNAME", b"me"]
    assert await peer.heard() == [b"PING"]
    peer.say(b"+OK\r\n+OK\r\n-ERR unknown command\r\n+PONG\r\n")
    assert await peer.heard() == [b"ROLE"]
    assert await peer.heard() == [b"EXISTS", b"{qc}:queues"]
    peer.say(b"-NOPERM no\r\n:0\r\n")
    client = await entering
    await client.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"-LOADING Redis is loading\r\n", "LOADING"),
        (b"-NOAUTH Authentication required.\r\n", "wants a password"),
        (b"-ERR max number of clients reached\r\n", "max number of clients"),
    ],
)
async def test_a_server_that_lets_nobody_in_is_not_waited_for(
    peer: Peer, answer: bytes, said: str
) -> None:
    address = Address("127.0.0.1", peer.port)
    entering = asyncio.ensure_future(log_in(address, None, timeout=5, heartbeat=30))
    await peer.arrived.wait()
    await peer.heard()
    await peer.heard()
    peer.say(b"+OK\r\n" + answer)
    with pytest.raises(ConnectionLost, match=f"127.0.0.1:{peer.port}: .*{said}"):
        await entering


async def test_a_server_that_is_still_loading_is_not_written_to(peer: Peer) -> None:
    address = Address("127.0.0.1", peer.port)
    entering = asyncio.ensure_future(log_in(address, None, timeout=5, heartbeat=30))
    await peer.arrived.wait()
    for _ in range(2):
        await peer.heard()
    peer.say(b"+OK\r\n+PONG\r\n")
    for _ in range(2):
        await peer.heard()
    peer.say(b"*1\r\n$6\r\nmaster\r\n-LOADING Redis is loading\r\n")
    with pytest.raises(ConnectionLost, match="LOADING"):
        await entering


async def test_a_cluster_may_send_us_on(peer: Peer) -> None:
    other = Peer()
    await other.start()
    address = Address("127.0.0.1", peer.port)
    entering = asyncio.ensure_future(log_in(address, None, timeout=5, heartbeat=30))
    for each, last in ((peer, b"-MOVED 7 127.0.0.1:%d\r\n" % other.port), (other, b":0\r\n")):
        await each.arrived.wait()
        for _ in range(2):
            await each.heard()
        each.say(b"+OK\r\n+PONG\r\n")
        for _ in range(2):
            await each.heard()
        each.say(b"*1\r\n$6\r\nmaster\r\n" + last)
    client = await entering
    await client.close()
    await other.close()
