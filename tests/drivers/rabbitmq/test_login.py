"""Getting in, or being told why not in words that help, and never with the password in them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.rabbitmq.channel import Channel
from queuecraft.drivers.rabbitmq.wire import Wire
from queuecraft.model.credentials import Credentials
from tests.brokers.certificates import Certificates
from tests.drivers.rabbitmq.broker import turn
from tests.drivers.rabbitmq.peer import Part, Peer, enter, playing


async def refusal(part: Part, **how: object) -> str:
    """What is said to somebody who does not get in."""
    async with playing(part) as port:
        with pytest.raises(ConnectionLost) as caught:
            await enter(port, **how)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    error: BaseException | None = caught.value
    while error is not None:  # as a traceback shows it
        assert "s3cret" not in f"{error!r} {error}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert str(caught.value).startswith(f"127.0.0.1:{port}: ")
    return str(caught.value)


# -- who is welcome --------------------------------------------------------------------------------


async def test_a_welcome_client_says_who_it_is_and_can_ask() -> None:
    introduced: list[commands.Connection.StartOk] = []

    async def part(peer: Peer) -> None:
        introduced.append(await peer.let_in())
        await peer.hear(commands.Channel.Open)
        peer.say(1, commands.Channel.OpenOk())
        await peer.hear(commands.Connection.Close)
        peer.say(0, commands.Connection.CloseOk())

    async with playing(part) as port:
        wire = await enter(port)
        await Channel(wire).open()
        await wire.close()
    (start,) = introduced
    assert (start.mechanism, start.response) == ("PLAIN", "\0ada\0s3cret")
    told: Any = start.client_properties
    assert told["connection_name"] == "a test"
    assert told["capabilities"]["authentication_failure_close"] is True


@pytest.mark.parametrize("encrypted", [False, True])
def test_it_makes_no_difference_whose_loop_it_is(
    certificates: Certificates, encrypted: bool
) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def part(peer: Peer) -> None:
        await peer.let_in()
        await peer.hear(commands.Connection.Close)
        peer.say(0, commands.Connection.CloseOk())

    async def visit() -> None:
        there = server_side(certificates) if encrypted else None
        here = client_side(certificates.authority) if encrypted else None
        async with asyncio.timeout(10), playing(part, there) as port:
            wire = await enter(port, context=here)
            await wire.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(visit())


@pytest.mark.parametrize(
    ("proposed", "agreed"),
    [
        ((2047, 131_072), (2047, 131_072)),
        ((0, 0), (2047, 131_072)),
        ((65_535, 10**6), (2047, 131_072)),
        ((10, 8192), (10, 8192)),
        ((1, 8), (1, 4096)),
    ],
)
async def test_the_smaller_of_two_limits_is_agreed_on(
    proposed: tuple[int, int], agreed: tuple[int, int]
) -> None:
    tuned: list[commands.Connection.TuneOk] = []

    async def part(peer: Peer) -> None:
        await peer.hear_greeting()
        peer.say(0, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"))
        await peer.hear(commands.Connection.StartOk)
        peer.say(0, commands.Connection.Tune(*proposed, 0))
        tuned.append(await peer.hear(commands.Connection.TuneOk))
        await peer.hear(commands.Connection.Open)
        peer.say(0, commands.Connection.OpenOk())
        await peer.hear_end()

    async with playing(part) as port:
        wire = await enter(port)
        assert (wire.channel_max, wire.frame_max) == agreed
        wire.abort(ConnectionLost("enough"))
        await wire.close()
    assert (tuned[0].channel_max, tuned[0].frame_max, tuned[0].heartbeat) == (*agreed, 60)


@pytest.mark.parametrize(("theirs", "agreed"), [(0, 60), (5, 5), (600, 60)])
async def test_the_shorter_of_two_heartbeats_is_agreed_on(theirs: int, agreed: int) -> None:
    beats: list[float] = []

    async def part(peer: Peer) -> None:
        await peer.let_in(heartbeat=theirs)
        await peer.hear_end()

    async with playing(part) as port:
        wire = await enter(port)
        beats.append(wire._beat)
        wire.abort(ConnectionLost("enough"))
        await wire.close()
    assert beats == [agreed]


async def test_a_client_without_a_name_is_not_called_none() -> None:
    introduced: list[commands.Connection.StartOk] = []

    async def part(peer: Peer) -> None:
        introduced.append(await peer.let_in())
        peer.cut()

    async with playing(part) as port:
        wire = await enter(port, credentials=Credentials(None, "s3cret"))
        await wire.close()
    assert introduced[0].response == "\0\0s3cret"


# -- who is not ------------------------------------------------------------------------------------


async def test_a_wrong_password_is_told_from_a_broken_connection() -> None:
    async def part(peer: Peer) -> None:
        await peer.hear_greeting()
        peer.say(0, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"))
        await peer.hear(commands.Connection.StartOk)
        peer.say(0, commands.Connection.Close(403, "ACCESS_REFUSED - s3cret", 0, 0))

    assert "the user name or the password is wrong" in await refusal(part)


@pytest.mark.parametrize(
    "reason", ["vhost nix not found", "connection limit (1) is reached in vhost nix"]
)
async def test_a_virtual_host_that_cannot_be_entered_is_named_with_the_brokers_reason(
    reason: str,
) -> None:
    async def part(peer: Peer) -> None:
        await peer.hear_greeting()
        peer.say(0, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"))
        await peer.hear(commands.Connection.StartOk)
        peer.say(0, commands.Connection.Tune(0, 0, 0))
        await peer.hear(commands.Connection.TuneOk)
        opening = await peer.hear(commands.Connection.Open)
        assert opening.virtual_host == "nix"
        peer.say(0, commands.Connection.Close(530, f"NOT_ALLOWED - {reason}", 10, 40))

    text = await refusal(part, virtual_host="nix")
    assert "there is no virtual host 'nix', or user 'ada' may not use it" in text
    assert reason in text


async def test_another_reason_is_told_as_it_is() -> None:
    async def part(peer: Peer) -> None:
        await peer.hear_greeting()
        peer.say(0, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"))
        await peer.hear(commands.Connection.StartOk)
        peer.say(0, commands.Connection.Close(501, "FRAME_ERROR", 0, 0))

    assert "FRAME_ERROR (501)" in await refusal(part)


async def test_a_port_where_nobody_listens_is_named() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port: int = reserved.getsockname()[1]
        with pytest.raises(ConnectionLost, match=rf"^127\.0\.0\.1:{port}: .*[Cc]onnect"):
            await enter(port)


@pytest.mark.parametrize("host", ["a..b", "x" * 64, ".", "rabbit.invalid"])
async def test_a_host_that_cannot_be_is_a_connection_that_cannot_be_had(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if host.endswith(".invalid"):  # no name server is asked
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ConnectionLost) as caught:
        await enter(5672, host=host)
    assert str(caught.value).startswith(f"{host}:5672: ")


# -- who is no broker ------------------------------------------------------------------------------

HINT = "is this its port for AMQP, and does it want TLS (amqps://)?"
STRANGERS = {
    "HTTP": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server speaks HTTP, not AMQP"),
    "another AMQP": (b"AMQP\x00\x01\x00\x00", "speaks another version of AMQP, not 0-9-1"),
    "the same AMQP": (b"AMQP\x00\x00\x09\x01", "speaks another version of AMQP, not 0-9-1"),
    "Redis": (b"-ERR unknown command 'AMQP'\r\n", "what is no AMQP"),
    "SSH": (b"SSH-2.0-OpenSSH_9.2\r\n", "what is no AMQP"),
    "a TLS alert": (b"\x15\x03\x03\x00\x02\x02\x28", "the connection was cut"),
    "nothing": (b"", "the connection was cut"),
}


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("step", [1, 1000])
async def test_a_server_that_is_no_broker_is_told_as_such_with_a_hint(
    stranger: str, step: int
) -> None:
    data, told = STRANGERS[stranger]

    async def part(peer: Peer) -> None:
        await peer.hear_greeting()
        for at in range(0, len(data), step):
            peer.send(data[at : at + step])
            await turn()
        peer.cut()

    text = await refusal(part)
    assert told in text
    assert HINT in text


async def test_a_broker_that_asks_for_more_than_a_password_is_not_understood() -> None:
    async def part(peer: Peer) -> None:
        await peer.hear_greeting()
        peer.say(0, commands.Connection.Start(0, 9, {}, "CRAM-MD5", "en_US"))
        await peer.hear(commands.Connection.StartOk)
        peer.say(0, commands.Connection.Secure("challenge"))

    assert "the broker answered Connection.Secure" in await refusal(part)


async def test_a_server_that_says_nothing_is_given_up_by_who_waits_and_the_socket_is_closed() -> (
    None
):
    left = asyncio.Event()
    greeted = asyncio.Event()

    async def part(peer: Peer) -> None:
        await peer.hear_greeting()
        greeted.set()
        await peer.hear_end()
        left.set()

    async with playing(part) as port:
        entering = asyncio.create_task(enter(port))
        await greeted.wait()
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        await left.wait()


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls") / "certificates")


def server_side(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server)
    return context


def client_side(authority: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority)


async def let_in_and_listen(peer: Peer) -> None:
    await peer.let_in()
    await peer.hear_end()


async def test_a_broker_with_a_certificate_we_trust_lets_us_in(certificates: Certificates) -> None:
    async with playing(let_in_and_listen, server_side(certificates)) as port:
        wire = await enter(port, context=client_side(certificates.authority))
        assert isinstance(wire, Wire)
        wire.abort(ConnectionLost("enough"))
        await wire.close()


@pytest.mark.parametrize(
    ("mechanisms", "said"),
    [("PLAIN EXTERNAL", ("EXTERNAL", "")), ("PLAIN AMQPLAIN", ("PLAIN", "\0ada\0"))],
)
async def test_without_a_password_the_certificate_speaks_for_us_if_the_broker_listens(
    certificates: Certificates, mechanisms: str, said: tuple[str, str]
) -> None:
    introduced: list[commands.Connection.StartOk] = []

    async def part(peer: Peer) -> None:
        introduced.append(await peer.let_in(mechanisms=mechanisms))
        await peer.hear_end()

    async with playing(part, server_side(certificates)) as port:
        wire = await enter(
            port,
            credentials=Credentials("ada", ""),
            context=client_side(certificates.authority),
        )
        wire.abort(ConnectionLost("enough"))
        await wire.close()
    assert (introduced[0].mechanism, introduced[0].response) == said


async def quiet(peer: Peer) -> None:
    await peer.hear_end()


async def talks_plainly(peer: Peer) -> None:
    peer.send(b"AMQP\x00\x00\x09\x01")
    peer.cut()


@pytest.mark.parametrize(
    ("part", "trusts", "encrypted"),
    [
        pytest.param(quiet, lambda known: None, True, id="a certificate nobody vouches for"),
        pytest.param(talks_plainly, lambda known: known, False, id="a port without TLS"),
    ],
)
async def test_a_tls_failure_is_told_as_such_with_a_hint(
    certificates: Certificates,
    part: Part,
    trusts: Callable[[Path], Path | None],
    encrypted: bool,
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)  # the server's side of it
    context = server_side(certificates) if encrypted else None
    async with playing(part, context) as port:
        with pytest.raises(ConnectionLost) as caught:
            await enter(port, context=client_side(trusts(certificates.authority)))
    assert "TLS failed" in str(caught.value)
    assert "is this its port for TLS, and the cafile in the URL" in str(caught.value)


async def test_a_plain_client_at_a_port_for_tls_gets_the_hint(certificates: Certificates) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with playing(quiet, server_side(certificates)) as port:
        with pytest.raises(ConnectionLost) as caught:
            await enter(port)
    assert HINT in str(caught.value)


async def test_a_name_is_checked_against_the_certificate(certificates: Certificates) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with playing(quiet, server_side(certificates), host="127.0.0.2") as port:
        with pytest.raises(ConnectionLost, match=r"certificate is not valid for '127\.0\.0\.2'"):
            await enter(port, host="127.0.0.2", context=client_side(certificates.authority))
