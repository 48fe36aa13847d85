"""The outbox: relay what waits in a database, see and settle what was refused."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Literal, TypeAlias, TypeVar

import typer

from queuecraft.app import QueueCraft
from queuecraft.cli.broker import Url, craft, run
from queuecraft.cli.command import Command, Group
from queuecraft.cli.confirmation import Yes, confirm
from queuecraft.cli.duration import seconds, spoken
from queuecraft.cli.exits import UnknownMessage
from queuecraft.cli.output import AsJson, say, say_json, show
from queuecraft.cli.processes.logs import LogFormat, LogLevel, write_log
from queuecraft.cli.processes.stop import Stop, StoppedEarly
from queuecraft.clock import Clock
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.outbox import Outbox
from queuecraft.outbox.database import Database, MissingFile
from queuecraft.outbox.executor import Executor
from queuecraft.outbox.relay import first_line
from queuecraft.outbox.table import NAME, OutboxTable

R = TypeVar("R")

log = logging.getLogger("queuecraft.outbox")

app = typer.Typer(
    no_args_is_help=True,
    cls=Group,
    help="The outbox in your database: create, relay, status, list, put-back, discard.",
)

Place: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar="QUEUECRAFT_OUTBOX",
        metavar="URL",
        help="As sqlite:///shop.db or postgresql://host/shop.",
        show_default=False,
    ),
]
Name: TypeAlias = Annotated[str, typer.Option("--table", metavar="NAME", help="Its table.")]
Ids: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="ID...", help="Without any, all of them.")
]


@app.command(cls=Command)
def relay(
    *,
    database: Place = None,
    table: Name = NAME,
    once: Annotated[bool, typer.Option("--once", help="End when nothing waits any more.")] = False,
    poll: Annotated[
        float, typer.Option(parser=seconds, metavar="TIME", help="Between two looks, as 200ms.")
    ] = 0.5,
    url: Url = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="Lines for people, or JSON.")] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="What is worth a line.")] = None,
) -> None:
    """Publish what waits in an outbox, in order, until SIGTERM or Ctrl-C. Several may run: one is
    at work, the others stand by. A broker that is away is waited for.

    Example: queuecraft outbox relay --database postgresql://shop@db/shop --url amqp://rabbit
    """
    place = _named(database)
    stop = Stop(log)
    stop.listen(supervised=False)
    with contextlib.suppress(StoppedEarly):
        qc = craft(url, creates=True)
        outbox = Outbox(qc.settings, table=table)
        write_log(log_format, log_level)
        asyncio.run(_relay(qc, outbox, place, stop, once=once, poll=poll))


async def _relay(
    qc: QueueCraft, outbox: Outbox, database: str, stop: Stop, *, once: bool, poll: float
) -> None:
    stop.begin(qc.settings.shutdown_timeout)
    relaying = asyncio.create_task(outbox.relay(qc, database, once=once, poll=poll))
    asked = asyncio.create_task(stop.asked.wait())
    try:
        await asyncio.wait((relaying, asked), return_when=asyncio.FIRST_COMPLETED)
        relaying.cancel()
        await asyncio.wait((relaying,))
        if not relaying.cancelled():
            relaying.result()
    finally:
        asked.cancel()
        await qc.shutdown()


@app.command(cls=Command)
def create(*, database: Place = None, table: Name = NAME) -> None:
    """Make the tables of an outbox, if they are not there. A project with migrations has ddl
    instead."""
    kept = OutboxTable(table)

    def make(on: Executor) -> None:
        for statement in kept.ddl(on.dialect):
            on.run(statement, {})

    _work(_named(database), make)
    say(f"The outbox {table} is there.")


@app.command(cls=Command)
def ddl(
    dialect: Annotated[
        Literal["sqlite", "postgresql"], typer.Argument(metavar="sqlite|postgresql")
    ],
    table: Name = NAME,
) -> None:
    """Print the SQL that makes the tables of an outbox, for a migration."""
    typer.echo(Outbox(table=table).ddl(dialect), nl=False)


@app.command(cls=Command)
def status(*, database: Place = None, table: Name = NAME, as_json: AsJson = False) -> None:
    """How many messages wait, since when, and how many were refused."""
    kept = OutboxTable(table)
    waiting, oldest, refused = _work(
        _named(database), lambda on: (*kept.waiting(on), kept.count_refused(on))
    )
    age = None if oldest is None else max(0.0, Clock().now() - oldest)
    if as_json:
        say_json({"waiting": waiting, "oldest_age": age, "refused": refused})
        return
    since = "" if age is None else f", the oldest for {spoken(age)}"
    say(f"{waiting} waiting{since}; {refused} refused")


@app.command("list", cls=Command)
def list_refused(
    *,
    limit: Annotated[int, typer.Option(min=1, metavar="COUNT", help="At most so many.")] = 100,
    database: Place = None,
    table: Name = NAME,
    as_json: AsJson = False,
) -> None:
    """List the messages that the broker has refused, oldest first, with the reason."""
    found = _work(_named(database), lambda on: OutboxTable(table).refused(on, limit))
    if as_json:
        for each in found:
            say_json(asdict(each))
        return
    rows = [(each.id, each.target, each.key, each.failed_at, each.error) for each in found]
    show(("id", "for", "key", "refused at", "error"), rows)


@app.command("put-back", cls=Command)
def put_back(
    ids: Ids = None, *, database: Place = None, table: Name = NAME, as_json: AsJson = False
) -> None:
    """Let refused messages be tried again, once what was wrong is mended."""
    count = _work(_named(database), lambda on: OutboxTable(table).put_back(on, ids or None))
    _tell(count, ids, "put_back", "will be tried again", as_json=as_json)


@app.command(cls=Command)
def discard(
    ids: Ids = None,
    *,
    database: Place = None,
    table: Name = NAME,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete refused messages for good."""
    place = _named(database)
    confirm(f"delete {len(ids) if ids else 'all'} refused messages of {table}", yes=yes)
    count = _work(place, lambda on: OutboxTable(table).discard(on, ids or None))
    _tell(count, ids, "discarded", "discarded", as_json=as_json)


# -- inside ----------------------------------------------------------------------------------------


def _named(database: str | None) -> str:
    if not database:
        raise ConfigError(
            "name the database of the outbox: --database sqlite:///shop.db, or set "
            "QUEUECRAFT_OUTBOX, which other users of the machine cannot see"
        )
    return database


def _work(place: str, work: Callable[[Executor], R]) -> R:
    async def do() -> R:
        database = Database.of(place)
        try:
            return await database.run(work)
        except QueueError:
            raise
        except MissingFile as error:
            raise ConfigError(str(error), operation="outbox") from None
        except Exception as error:
            said = first_line(error)
            if "no such table" in said or "does not exist" in said:  # SQLite, and PostgreSQL
                raise ConfigError(
                    f"the outbox has no tables there ({said}); make them: queuecraft outbox create",
                    operation="outbox",
                ) from error
            raise QueueError(f"the database failed: {said}") from error
        finally:
            await database.close()

    return run(do())


def _tell(count: int, ids: list[str] | None, name: str, done: str, *, as_json: bool) -> None:
    if ids and not count:
        raise UnknownMessage("no refused message has such an id; queuecraft outbox list shows them")
    if as_json:
        say_json({name: count})
    else:
        say(f"{count} {'message' if count == 1 else 'messages'} {done}.")
