"""As little AMQP as it takes to be counted as a connection."""

from __future__ import annotations

import socket
import ssl
import struct
from urllib.parse import unquote, urlsplit

from tests.brokers.management import vhost_of

PATIENCE = 20.0
START_OK, TUNE_OK, OPEN, OPEN_OK, CLOSE = (10, 11), (10, 31), (10, 40), (10, 41), (10, 50)


class Client:
    """A connection that is open once it is made, and then only listens."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._socket = socket.create_connection((parts.hostname, parts.port or 0), PATIENCE)
        try:
            if context is not None:
                plain = self._socket
                self._socket = context.wrap_socket(plain, server_hostname=parts.hostname)
            self._open(unquote(parts.username or ""), unquote(parts.password or ""), vhost_of(url))
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def receive(self) -> tuple[int, int]:
        """Class and number of the next method that arrives."""
        while True:
            kind, _, size = struct.unpack("!BHI", self._exactly(7))
            body = self._exactly(size + 1)
            if kind == 1:
                return struct.unpack_from("!HH", body)

    def _open(self, user: str, password: str, vhost: str) -> None:
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self.receive()
        response = f"\0{user}\0{password}".encode()
        mechanism, locale = _short(b"PLAIN"), _short(b"en_US")
        table = struct.pack("!I", 0)
        sized = struct.pack("!I", len(response)) + response
        self._send(START_OK, table + mechanism + sized + locale)
        self.receive()
        self._send(TUNE_OK, struct.pack("!HIH", 10, 131072, 0))
        self._send(OPEN, _short(vhost.encode()) + _short(b"") + b"\0")
        answer = self.receive()
        if answer != OPEN_OK:
            raise ConnectionError(f"the broker answered {answer}")

    def _send(self, method: tuple[int, int], arguments: bytes) -> None:
        body = struct.pack("!HH", *method) + arguments
        self._socket.sendall(struct.pack("!BHI", 1, 0, len(body)) + body + b"\xce")

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (more := self._socket.recv(size - len(data))):
                raise ConnectionResetError("the broker closed the connection")
            data += more
        return data


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text
