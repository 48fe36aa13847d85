"""What the broker itself takes: no client, but bytes that were made beforehand.

The frames are just those that ours sends. A hundred messages are unconfirmed at a time; for as many
as an answer confirms, so many more are written. What is above this, no client reaches; how far
below it one stays is what the client costs, in a process of its own beside a busy broker.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter, time
from urllib.parse import unquote, urlsplit

import msgspec
from pamqp import commands, frame
from pamqp.header import ProtocolHeader

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, orders
from benchmarks.rabbitmq.broker import place, verify_depth
from benchmarks.rabbitmq.ours import make_queue
from benchmarks.rabbitmq.stretch import EVENT, IN_FLIGHT, QUEUE
from queuecraft.drivers.base import Outgoing
from queuecraft.drivers.rabbitmq import frames
from queuecraft.drivers.rabbitmq.envelope import parcel

CHANNEL = 1
MOST = 131_072  # bytes of a frame
encode = msgspec.json.Encoder().encode


class Wire:
    """A socket that speaks as much AMQP as it takes to publish."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._read = b""

    def ask(self, command: frame.FrameTypes, channel: int = CHANNEL) -> None:
        """Send a method, and wait for what answers it."""
        self._connection.sendall(frame.marshal(command, channel))
        self.answer()

    def answer(self) -> frame.FrameTypes:
        """The next method that comes."""
        while True:
            if len(self._read) >= 7:
                size = 8 + int.from_bytes(self._read[3:7])
                if len(self._read) >= size:
                    _, _, found = frame.unmarshal(self._read[:size])
                    self._read = self._read[size:]
                    if isinstance(found, commands.Channel.Close | commands.Connection.Close):
                        raise ConnectionError(found.reply_text)
                    return found
            data = self._connection.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker has closed the connection")
            self._read += data

    def write(self, data: bytes) -> None:
        self._connection.sendall(data)


@contextmanager
def opened(url: str) -> Generator[Wire]:
    """A channel that confirms what is published on it."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port or 5672)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire = Wire(connection)
        wire.write(ProtocolHeader().marshal())
        wire.answer()
        user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
        wire.ask(commands.Connection.StartOk({}, "PLAIN", f"\0{user}\0{password}", "en_US"), 0)
        wire.write(frame.marshal(commands.Connection.TuneOk(CHANNEL, MOST, 0), 0))
        wire.ask(commands.Connection.Open(unquote(parts.path[1:]) or "/"), 0)
        wire.ask(commands.Channel.Open())
        wire.ask(commands.Confirm.Select())
        yield wire


def packed(order: Order, exchange: str, routing_key: str) -> bytes:
    """A message, as it goes over the wire."""
    message = Outgoing(
        encode(order), os.urandom(16).hex(), exchange, routing_key, time(), "application/json"
    )
    *_, properties, body = parcel(message, exchange, routing_key)
    publish = frames.publish(CHANNEL, exchange, routing_key)
    return b"".join([publish, *frames.content(CHANNEL, properties, body, MOST)])


def publish_all(wire: Wire, messages: Sequence[bytes]) -> None:
    sent = 0
    open_tags: set[int] = set()
    while sent < len(messages) or open_tags:
        until = min(len(messages), sent + IN_FLIGHT - len(open_tags))
        if sent < until:
            wire.write(b"".join(messages[sent:until]))
            open_tags.update(range(sent + 1, until + 1))
            sent = until
        answer = wire.answer()
        if not isinstance(answer, commands.Basic.Ack):
            raise ConnectionError(f"{answer.name} where a confirmation was expected")
        tag = answer.delivery_tag
        confirmed = {each for each in open_tags if each <= tag} if answer.multiple else {tag}
        open_tags -= confirmed


def publish(messages: int, *, exchange: str, routing_key: str) -> Measurement:
    ready = [packed(order, exchange, routing_key) for order in orders(Order, messages)]
    with place() as url:
        asyncio.run(make_queue(url))
        with opened(url) as wire:
            started = perf_counter()
            publish_all(wire, ready)
            seconds = perf_counter() - started
        asyncio.run(verify_depth(url, QUEUE, messages))
    return Measurement(messages, seconds)


CASES = tuple(
    Case(name=name, group="rabbitmq", contender="the broker", run=run)
    for name, run in (
        ("publish, 100 in flight", partial(publish, exchange="", routing_key=QUEUE)),
        (
            "publish by topic, 100 in flight",
            partial(publish, exchange="events", routing_key=EVENT),
        ),
    )
)
