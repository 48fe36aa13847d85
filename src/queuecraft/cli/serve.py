"""`queuecraft serve`: the dashboard, the admin API, health and metrics over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from queuecraft import __version__
from queuecraft.app import QueueCraft
from queuecraft.cli.broker import Url, craft, entered
from queuecraft.cli.output import complain
from queuecraft.cli.processes.application import ApplicationError, Reference, loaded
from queuecraft.cli.processes.life import CLEAN, FAILED, MISTAKEN
from queuecraft.cli.processes.logs import LogFormat, LogLevel, write_log
from queuecraft.cli.processes.stop import Stop, StoppedEarly
from queuecraft.http import LOCAL, MAX_BODY, missing
from queuecraft.http.secrets import Secrets
from queuecraft.model.errors import ConfigError
from queuecraft.model.masking import masked

if TYPE_CHECKING:
    from queuecraft.http.server import Server

log = logging.getLogger("queuecraft.serve")

PORT = 8642


def serve(
    application: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:ATTRIBUTE",
            help="A QueueCraft, as in shop.app:qc. Without it, the one of --url.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; beyond this machine: 0.0.0.0.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = PORT,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name it is reached by, as queue.example.com or *.example.com; may be given "
            "several times.",
        ),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write who did what, a line of JSON each."),
    ] = None,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="A field of payloads and headers that nobody is shown, as card.number or "
            "'*.number'; may be given several times.",
        ),
    ] = None,
    reports: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Reports of the pipeline to show: *.html.")
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard/--no-dashboard", help="Whether / shows the dashboard.")
    ] = True,
    url: Url = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="Lines for people, or JSON.")] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="What is worth a line.")] = None,
) -> None:
    """Answer over HTTP: the dashboard at /, the admin API below /api, /health, /metrics, /events,
    /delayed and /cron/cleanup; and deliver delayed messages when they are due. Workers are not run
    by it.

    Tokens come from QUEUECRAFT_TOKEN (may do all), QUEUECRAFT_READ_TOKEN (may look) and
    CRON_SECRET, in the environment or a .env file. Without tokens it serves this machine alone.

    Ends at SIGTERM or Ctrl-C, once the requests that run are answered.
    """
    if application is not None and url is not None:
        raise typer.BadParameter(
            "the application names its broker itself; leave --url out", param_hint="--url"
        )
    stop = Stop(log)
    stop.listen(supervised=False)
    try:
        place = Place.found(host, port)
        secrets = Secrets.found()
        trusted = not secrets.opens_anything
        if trusted and not place.loopback:
            raise ConfigError(
                f"{host} can be reached from other machines, and there is no token; set "
                "QUEUECRAFT_TOKEN and QUEUECRAFT_READ_TOKEN, for example with openssl rand -hex "
                "32, or listen on 127.0.0.1"
            )
        qc = (
            craft(url, creates=True)
            if application is None
            else loaded(Reference.parse(application))
        )
        write_log(log_format, log_level)
        names = (*LOCAL, *(allow_host or ()), host)
        server = _server(
            qc,
            secrets,
            names,
            trusted=trusted,
            audit=audit,
            mask=mask or (),
            reports=reports,
            dashboard=dashboard,
        )
        with place.listening() as listening:
            address = Place(host, listening.getsockname()[1], place.family, place.address)
            announce = partial(
                _announce, qc, address, secrets, as_json=log_format is LogFormat.json
            )
            code = asyncio.run(_life(qc, server, listening, stop, announce))
    except ApplicationError as error:
        if error.story:
            print(error.story, file=sys.stderr)
        complain(error.message)
        code = MISTAKEN
    except StoppedEarly:
        code = CLEAN
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen.

    >>> Place.found("127.0.0.1", 80).loopback, Place.found("0.0.0.0", 80).loopback
    (True, False)
    """

    host: str
    port: int
    family: socket.AddressFamily
    address: str

    @classmethod
    def found(cls, host: str, port: int) -> Place:
        """The place a person named."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except (OSError, UnicodeError):
            raise typer.BadParameter(
                "expected an address of this machine, as 127.0.0.1 or 0.0.0.0", param_hint="--host"
            ) from None
        family, *_, address = found[0]
        return cls(host, port, family, str(address[0]))

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.address.partition("%")[0]).is_loopback

    @property
    def url(self) -> str:
        """How a browser calls it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def listening(self) -> socket.socket:
        """A socket that listens there."""
        try:
            return socket.create_server((self.address, self.port), family=self.family, backlog=2048)
        except OSError as error:
            why = {
                errno.EADDRINUSE: "it is in use by another program; choose another --port",
                errno.EACCES: "it needs more rights; choose a --port above 1023",
                errno.EADDRNOTAVAIL: "this machine has no such address; choose another --host",
            }
            reason = why.get(error.errno or 0, error.strerror or str(error))
            raise ConfigError(f"cannot listen on {self.host}:{self.port}: {reason}") from error


def _server(qc: QueueCraft, secrets: Secrets, names: Sequence[str], **options: Any) -> Server:
    try:
        from queuecraft.http.server import Server
        from queuecraft.http.service import Service
    except ModuleNotFoundError as error:
        raise missing(error) from error
    service = Service(qc, secrets, hosts=names, max_body=MAX_BODY, **options)
    return Server(service, patience=qc.settings.shutdown_timeout / 2)


async def _life(
    qc: QueueCraft,
    server: Server,
    listening: socket.socket,
    stop: Stop,
    announce: Callable[[], None],
) -> int:
    stop.begin(qc.settings.shutdown_timeout)
    async with entered(qc), _delivering(qc):
        announce()
        serving = asyncio.ensure_future(server.serve_on(listening))
        asked = asyncio.ensure_future(stop.asked.wait())
        forced = asyncio.ensure_future(stop.forced.wait())
        try:
            await asyncio.wait((serving, asked), return_when=asyncio.FIRST_COMPLETED)
            server.stop()
            await asyncio.wait((serving, forced), return_when=asyncio.FIRST_COMPLETED)
            if forced.done():
                server.force()
            await serving
        finally:
            asked.cancel()
            forced.cancel()
    return CLEAN if stop.asked.is_set() and not stop.forced.is_set() else FAILED


@contextlib.asynccontextmanager
async def _delivering(qc: QueueCraft) -> AsyncGenerator[None]:
    """Deliver what is due meanwhile, unless nothing can be delayed here."""
    try:
        await qc.delayed.start()
    except ConfigError as error:
        log.info("no delayed messages: %s", error.message)
        yield
        return
    try:
        yield
    finally:
        await qc.delayed.stop()


def _announce(qc: QueueCraft, place: Place, secrets: Secrets, *, as_json: bool) -> None:
    broker = masked(qc.settings.url)
    if as_json:
        log.info("serving", extra={"queuecraft": {"broker": broker, "url": place.url}})
        return
    known = {
        "operators": secrets.token,
        "readers": secrets.read_token,
        "cron": secrets.cron_secret,
    }
    doors = ", ".join(who for who, secret in known.items() if secret is not None)
    text = f"tokens for {doors}" if doors else "no tokens"
    if not secrets.opens_anything:
        text += "; whoever is at this machine may do all but POST /cron/cleanup"
    first = Text.assemble(
        ("QueueCraft", "bold cyan"),
        f" {__version__} on ",
        (broker, "bold"),
        ", answering at ",
        (place.url, "bold green"),
    )
    console = Console(stderr=True, highlight=False)
    console.print(Text.assemble(first, "\n  ", Text(text, "dim")), soft_wrap=True)
