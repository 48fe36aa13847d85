"""Getting in: from an address to a connection that can be used."""

from __future__ import annotations

import asyncio
import ssl as tls
from typing import Final

from pamqp import commands

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.rabbitmq.wire import CHANNEL_MAX, FRAME_MAX, Closed, Wire
from queuecraft.model.credentials import Credentials

GREETING: Final = b"AMQP\x00\x00\x09\x01"
REFUSED = 403  # a wrong name or password
NOT_ALLOWED = 530  # a virtual host that is not there, not for this user, or full
FRAME_MIN: Final = 4096  # bytes: what AMQP promises


async def log_in(
    host: str,
    port: int,
    *,
    virtual_host: str,
    credentials: Credentials,
    heartbeat: float,
    ssl: tls.SSLContext | None,
    name: str,
) -> Wire:
    """A connection, ready for channels."""
    loop = asyncio.get_running_loop()
    try:
        _, wire = await loop.create_connection(Wire, host, port, ssl=ssl)
    except tls.SSLError as error:
        raise ConnectionLost(
            f"{host}:{port}: TLS failed: {error}; is this its port for TLS, and the cafile in the "
            "URL that of its certificate?",
            broker="rabbitmq",
        ) from error
    except (OSError, ValueError) as error:  # a name that cannot be one is a ValueError
        raise ConnectionLost(f"{host}:{port}: {error}", broker="rabbitmq") from error
    try:
        await _introduce(wire, credentials, heartbeat, ssl is not None, name)
        await _enter(wire, virtual_host, credentials.username)
    except BaseException as error:
        wire.abort(ConnectionLost("not let in", broker="rabbitmq"))
        if isinstance(error, ConnectionLost):
            error.message = f"{host}:{port}: {error.message}"
        raise
    return wire


async def _introduce(
    wire: Wire, credentials: Credentials, heartbeat: float, encrypted: bool, name: str
) -> None:
    wire.write(GREETING)
    try:
        start = await wire.ask(None, commands.Connection.Start)
    except ConnectionLost as error:
        hint = "is this its port for AMQP, and does it want TLS (amqps://)?"
        if encrypted:  # with TLS 1.3 a client hears only now that its certificate is refused
            hint = "does it want a certificate of yours (certfile= in the URL), and trust it?"
        raise ConnectionLost(f"{error.message}; {hint}", broker="rabbitmq") from None
    assert isinstance(start, commands.Connection.Start)
    by_certificate = encrypted and not credentials.password
    known = (start.mechanisms or "").split()
    mechanism = "EXTERNAL" if by_certificate and "EXTERNAL" in known else "PLAIN"
    user = credentials.username or ""
    secret = "" if mechanism == "EXTERNAL" else f"\0{user}\0{credentials.password}"
    answer = commands.Connection.StartOk(
        client_properties={
            "product": "QueueCraft",
            "connection_name": name,
            "capabilities": {
                "publisher_confirms": True,
                "consumer_cancel_notify": True,
                "connection.blocked": True,
                "basic.nack": True,
                "authentication_failure_close": True,
            },
        },
        mechanism=mechanism,
        response=secret,
    )
    try:
        tune = await wire.ask(answer, commands.Connection.Tune)
    except Closed as error:
        if error.code != REFUSED:
            raise
        # Not told who: where a password with a colon was read from a file, it is half of that.
        raise ConnectionLost(
            "the user name or the password is wrong, or the user may not log in from here",
            broker="rabbitmq",
        ) from None
    assert isinstance(tune, commands.Connection.Tune)
    wire.frame_max = max(FRAME_MIN, min(tune.frame_max or FRAME_MAX, FRAME_MAX))
    wire.channel_max = min(tune.channel_max or CHANNEL_MAX, CHANNEL_MAX)
    # The shorter of two. A broker that asks for none is beaten to all the same: how else would
    # either know that the other is gone?
    seconds = min(heartbeat, tune.heartbeat) if tune.heartbeat else heartbeat
    wire.write_command(
        commands.Connection.TuneOk(wire.channel_max, wire.frame_max, max(1, round(seconds)))
    )
    wire.beat(max(1, round(seconds)))


async def _enter(wire: Wire, virtual_host: str, user: str | None) -> None:
    try:
        await wire.ask(commands.Connection.Open(virtual_host), commands.Connection.OpenOk)
    except Closed as error:
        if error.code != NOT_ALLOWED:
            raise
        raise ConnectionLost(
            f"there is no virtual host {virtual_host!r}, or user {user!r} may not use it; "
            + error.message,
            broker="rabbitmq",
        ) from None
