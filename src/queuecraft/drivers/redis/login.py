"""Getting in: from an address to a connection that can be used."""

from __future__ import annotations

import asyncio
import ssl as tls
from collections.abc import Callable, Sequence
from typing import Any, Final

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.redis.address import Address
from queuecraft.drivers.redis.client import Argument, Client, RedisError
from queuecraft.model.credentials import Credentials
from queuecraft.model.errors import ConfigError

MOVES: Final = 3  # times a cluster may send us elsewhere
_GIVE: Final = "give the right one in the URL, as redis://:password@host, or by `credentials`"


async def log_in(
    address: Address,
    credentials: Credentials | None,
    *,
    timeout: float,
    heartbeat: float,
    name: str = "queuecraft",
    on_push: Callable[[Sequence[Any]], None] | None = None,
) -> Client:
    """A connection that can be written to: to the host of the address, or to the master that its
    sentinels name. With `on_push`, the server may speak unasked.

    Raises `ConnectionLost` when there is none to be had within `timeout` seconds.
    """
    try:
        async with asyncio.timeout(timeout):
            if address.sentinels:
                address = await _master(address, credentials)
            for _ in range(MOVES):
                client = await _enter(address, credentials, name, pushes=on_push)
                try:
                    elsewhere = await _is_writable(client, address)
                except BaseException:
                    client.abort(ConnectionLost("not let in", broker="redis"))
                    raise
                if elsewhere is None:
                    client.beat(heartbeat)
                    return client
                client.abort(ConnectionLost("sent elsewhere", broker="redis"))
                address = elsewhere
    except TimeoutError:
        hint = "; is this its port for TLS?" if address.encryption else ""
        raise _refused(address, f"no answer within {timeout:g} s{hint}") from None
    raise _refused(address, f"the cluster sent us on {MOVES} times")


async def _enter(
    address: Address,
    credentials: Credentials | None,
    name: str,
    *,
    pushes: Callable[[Sequence[Any]], None] | None = None,
    sentinel: bool = False,
) -> Client:
    """Connect and say who one is."""
    client = await _connect(address, pushes)
    first: list[tuple[Argument, ...]] = []
    if credentials is not None:
        first.append(_auth(credentials))
    if pushes is not None:
        first.append(("HELLO", "3"))
    if address.database and not sentinel:
        first.append(("SELECT", address.database))
    first.append(("CLIENT", "SETNAME", name))
    first.append(("PING",))
    try:
        replies = await client.calls(first)
        for command, reply in zip(first, replies, strict=True):
            # A name is a courtesy; some servers and some users may not give one.
            if isinstance(reply, RedisError) and command[0] != "CLIENT":
                raise _entry(reply, address, credentials, str(command[0]))
    except BaseException as error:
        client.abort(ConnectionLost("not let in", broker="redis"))
        if isinstance(error, ConnectionLost) and not error.message.startswith(_where(address)):
            hint = (
                "; does it want a certificate of yours (certfile= in the URL), and trust it?"
                if address.encryption
                else "; is this its port, and does it want TLS (rediss://)?"
            )
            raise _refused(address, error.message + hint) from None
        raise
    return client


async def _connect(
    address: Address, on_push: Callable[[Sequence[Any]], None] | None = None
) -> Client:
    context = address.context()
    loop = asyncio.get_running_loop()
    try:
        _, client = await loop.create_connection(
            lambda: Client(on_push), address.host, address.port, ssl=context
        )
    except tls.SSLError as error:
        raise _refused(
            address,
            f"TLS failed: {error}; is this its port for TLS, and the cafile in the URL that of "
            "its certificate?",
        ) from error
    except (OSError, ValueError) as error:  # a name that cannot be one is a ValueError
        raise _refused(address, str(error)) from error
    return client


async def _is_writable(client: Client, address: Address) -> Address | None:
    """Where to go instead, if the keys are not here. A replica is no place for a queue."""
    role, keys = await client.calls([("ROLE",), ("EXISTS", "{" + address.prefix + "}:queues")])
    if isinstance(keys, RedisError) and keys.code == "MOVED":
        host, _, port = keys.message.split()[-1].rpartition(":")
        return address.at(host or address.host, int(port))
    if isinstance(keys, RedisError) and keys.code in ("LOADING", "MASTERDOWN", "CLUSTERDOWN"):
        raise _refused(address, keys.message)
    # Who may not ask for the role finds out at the first publish.
    if not isinstance(role, RedisError) and role and role[0] in (b"slave", "slave"):
        master = f"{_text(role[1])}:{role[2]}"
        raise _refused(
            address,
            f"it is a replica of {master}, and nothing can be written to it; name the master in "
            "the URL, or let Sentinel tell: ?sentinel=name",
        )
    return None


# -- Sentinel --------------------------------------------------------------------------------------


async def _master(address: Address, credentials: Credentials | None) -> Address:
    """Ask the sentinels in turn; the first that knows is believed."""
    failures: list[str] = []
    for host, port in address.sentinels:
        place = address.at(host, port)
        try:
            answer = await _ask_sentinel(place, credentials)
        except ConnectionLost as error:
            failures.append(error.message)
            continue
        if answer is None:
            failures.append(f"{_where(place)} knows no master {address.master!r}")
            continue
        return address.at(_text(answer[0]), int(answer[1]))
    told = ", ".join(failures)
    raise ConnectionLost(
        f"no sentinel says where the master {address.master!r} is: {told}", broker="redis"
    )


async def _ask_sentinel(place: Address, credentials: Credentials | None) -> list[bytes] | None:
    client = await _connect(place)
    question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", place.master)
    try:
        (answer,) = await client.calls([question])
        if isinstance(answer, RedisError) and answer.code == "NOAUTH" and credentials is not None:
            # One that wants a password is given the one for Redis.
            _, answer = await client.calls([_auth(credentials), question])
    finally:
        client.abort(ConnectionLost("asked", broker="redis"))
    if isinstance(answer, RedisError):
        raise _refused(place, f"{answer.message}; is it a sentinel?")
    known: list[bytes] | None = answer
    return known


# -- refusals --------------------------------------------------------------------------------------


def _auth(credentials: Credentials) -> tuple[Argument, ...]:
    if credentials.username is None:
        return ("AUTH", credentials.password)
    return ("AUTH", credentials.username, credentials.password)


def _entry(
    error: RedisError, address: Address, credentials: Credentials | None, command: str
) -> ConnectionLost | ConfigError:
    user = None if credentials is None else credentials.username
    if error.code == "NOAUTH":
        return _refused(address, f"the server wants a password, and none was given; {_GIVE}")
    if command == "AUTH":
        if "without any password" in error.message:
            text = "a password was given, and the server has none; leave it out, or set one there"
        else:
            who = "the password is wrong" if user is None else f"user {user!r} or the password"
            text = who if user is None else f"{who} is wrong, or the user is disabled"
            text = f"{text}; {_GIVE}"
        return _refused(address, text)
    if command == "SELECT":
        return ConfigError(f"database {address.database}: {error.message}", broker="redis")
    if command == "HELLO":
        return ConfigError(
            f"{_where(address)}: {error.message}; QueueCraft needs Redis 6.2 or newer",
            broker="redis",
        )
    return _refused(address, error.message)


def _refused(address: Address, text: str) -> ConnectionLost:
    return ConnectionLost(f"{_where(address)}: {text}", broker="redis")


def _where(address: Address) -> str:
    return f"{address.host}:{address.port}"


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")
