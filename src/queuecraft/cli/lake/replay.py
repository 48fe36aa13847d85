"""Sending messages of a lake again."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from queuecraft.cli.broker import Url, check_place
from queuecraft.cli.cluster import Master, Remote, session, waiting
from queuecraft.cli.completion import queue_names
from queuecraft.cli.confirmation import Yes, confirm
from queuecraft.cli.exits import ExitCode
from queuecraft.cli.lake.replaying import bar, tell_end
from queuecraft.cli.lake.replays import plan_fields, tell_plan
from queuecraft.cli.moment import moment
from queuecraft.cli.output import AsJson, note, say, say_json
from queuecraft.cli.pairs import pairs
from queuecraft.cli.report import NoIngest, opened
from queuecraft.model import address
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.model.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from queuecraft.pipeline.lake import Lake
    from queuecraft.pipeline.replay.execution import Progress as State
    from queuecraft.pipeline.replay.plan import Plan
    from queuecraft.pipeline.replay.question import Question

SECONDS = 10  # of messages in a chunk, where a rate makes them slow


class Source(StrEnum):
    """Where messages are taken from."""

    ARCHIVE = "archive"
    DEAD_LETTERS = "dead-letters"


def replay(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of the lake.")],
    *,
    source: Annotated[
        Source | None,
        typer.Option(
            "--from", help="Which messages. Without it, dead letters if a group is given, else all."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="QUEUE",
            help="This queue alone. Without it, where they came from.",
            autocompletion=queue_names,
        ),
    ] = None,
    to_event: Annotated[
        str | None, typer.Option("--to-event", metavar="EVENT", help="Out again, as this event.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(parser=moment, metavar="MOMENT", help="Published from then on, as 2h (ago)."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(parser=moment, metavar="MOMENT", help="Only what was published before."),
    ] = None,
    event: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only these events, as 'order.*'.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Only what this queue got; it goes there.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only of this key.")] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "--fingerprint",
            metavar="FINGERPRINT",
            help="Only this group of like failures.",
        ),
    ] = None,
    id: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="Only this one; repeatable.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Only where this is true, by the columns.")
    ] = None,
    replayed: Annotated[
        bool, typer.Option("--replayed", help="Also what a replay has left in the archive.")
    ] = False,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="Also what the lake keeps apart as odd.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=SQL", help="Change a column; repeatable."),
    ] = None,
    transform: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Change them by a function of yours."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="COUNT", help="At most so many a second.")
    ] = None,
    chunk: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="Messages between two looks.")
    ] = None,
    canary: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="Messages before the first look.")
    ] = None,
    max_failure_rate: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Pause when more than this fail.")
    ] = 0.1,
    max_backlog: Annotated[
        int | None,
        typer.Option(min=1, metavar="COUNT", help="Wait while more are in a target queue."),
    ] = None,
    expired: Annotated[
        bool, typer.Option("--expired", help="Also what has run out of time, without an end.")
    ] = False,
    connection: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The broker, as QUEUECRAFT_CONNECTION_NAME_URL has it."),
    ] = None,
    url: Url = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only plan.")] = False,
    resume: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on with this plan, where it stopped.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Go on though messages fail.")] = False,
    yes: Yes = False,
    no_ingest: NoIngest = False,
    master: Master = None,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """Send messages of a lake again: from the archive, or dead letters. Plans first and shows the
    plan, then sends chunk by chunk, looks at the targets in between, and pauses when messages fail.
    Interrupted, it goes on where it stopped.

    Examples: queuecraft lake replay ./lake --event 'order.*' --since 2h --to billing --dry-run, and
    queuecraft lake replay ./lake --from dead-letters --group 4f0c1e5b --rate 100
    """
    from queuecraft.pipeline.lake import Lake
    from queuecraft.pipeline.replay.question import CANARY, CHUNK, Question

    if not path.is_dir():
        raise ConfigError(f"there is no lake at {str(path)!r}; is the path right?")
    if rate is not None and not rate > 0:
        raise typer.BadParameter(f"{rate:g}: expected more than 0", param_hint="--rate")
    usual = CHUNK if rate is None else max(CANARY, min(CHUNK, int(rate * SECONDS)))
    question = Question(
        source=(source or (Source.ARCHIVE if group is None else Source.DEAD_LETTERS)).value,
        since=since,
        until=until,
        event=event,
        queue=queue,
        key=key,
        fingerprint=group,
        ids=tuple(id or ()),
        where=where,
        replayed=replayed,
        quarantined=quarantined,
        to=to,
        to_event=to_event,
        set=pairs("--set", set_),
        transform=transform,
        chunk=chunk or usual,
        canary=canary or CANARY,
    )
    lake = Lake.at(path)
    broker = Broker.found(connection, url, master, remote)
    with _interruptible():
        if resume is not None:
            plan = _planned(lake, resume, question, usual, dry_run=dry_run)
            spark = session(master, remote)
        else:
            if to is not None and not dry_run:
                _check_queue(broker, to)  # a slip of the pen is told before the long work
            spark = _spark(path, master, remote, ingest_first=not no_ingest)
            plan = _plan(spark, lake, question)
        _show(plan, as_json=as_json)
        if not plan.messages:
            raise typer.Exit(ExitCode.NO)
        again = _command(path, plan.id, connection, url, expired=expired)
        if dry_run:
            if not as_json:
                say(f"Nothing was sent. To send it: {again}")
            return
        confirm(f"send {plan.messages:,} messages", yes=yes)
        with bar(plan) as draw:
            limits = Limits(rate, max_failure_rate, max_backlog, expired=expired, force=force)
            try:
                ended = _execute(spark, lake, plan, broker, limits, draw)
            except ConfigError:  # to go on like this is of no use
                raise
            except QueueError:
                note(f"to go on: {again}", as_json=as_json)
                raise
        tell_end(ended, again, as_json=as_json)


@dataclass(frozen=True, slots=True)
class Limits:
    """How it may go about it."""

    rate: float | None
    max_failure_rate: float
    max_backlog: int | None
    expired: bool
    force: bool


@dataclass(frozen=True, slots=True)
class Broker:
    """Where it goes: a connection, or a URL instead."""

    connection: str
    url: str | None = field(repr=False)
    settings: Settings

    @classmethod
    def found(
        cls, connection: str | None, url: str | None, master: str | None, remote: str | None
    ) -> Broker:
        """The one a person named."""
        from queuecraft.pipeline.connections import DEFAULT, connection_settings

        if connection is not None and url is not None:
            raise ConfigError("the broker has a name or a URL; say --connection or --url, not both")
        local = remote is None and (master is None or master.startswith("local"))
        if url is not None and not local:
            raise ConfigError(
                "--url stays on this machine, and the executors are elsewhere; set "
                "QUEUECRAFT_CONNECTION_SHOP_URL there and here, and say --connection shop"
            )
        name = connection or DEFAULT
        settings = connection_settings(name, local=local, url=url)
        check_place(settings.url, creates=False)
        return cls(name, url, settings)


@contextmanager
def _interruptible() -> Generator[None]:
    """SIGTERM is Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _planned(lake: Lake, replay_id: str, asked: Question, usual: int, *, dry_run: bool) -> Plan:
    from queuecraft.pipeline.replay.ledger import Ledger
    from queuecraft.pipeline.replay.question import Question

    if dry_run or asked != Question(chunk=usual):
        raise ConfigError(
            "--resume goes on with a plan as it is; which messages, where to and in which chunks "
            "is said when it is planned"
        )
    return Ledger.of(lake, replay_id).plan()


def _command(
    path: Path, replay_id: str, connection: str | None, url: str | None, *, expired: bool
) -> str:
    """What goes on with a replay, at the same broker; a password is left to the person."""
    words = ["queuecraft", "lake", "replay", str(path), "--resume", replay_id]
    if connection is not None:
        words += ["--connection", connection]
    if url is not None:
        words += ["--url", address.signed(address.bare(url), address.userinfo(url)[0], None)]
    if expired:
        words.append("--expired")
    return shlex.join(words)


def _check_queue(broker: Broker, queue: str) -> None:
    from queuecraft.pipeline.replay.target import Target

    Target(broker.settings, [queue]).check()


def _spark(
    path: Path, master: str | None, remote: str | None, *, ingest_first: bool
) -> SparkSession:
    if ingest_first:
        return opened(path, master, remote, ingest_first=True)[0]
    return session(master, remote)


def _plan(spark: SparkSession, lake: Lake, question: Question) -> Plan:
    from queuecraft.pipeline.replay.planning import plan

    # A function of the user's may lie beside the command, as a module that `run` names does.
    sys.path.insert(0, os.getcwd())
    try:
        with waiting("planning"):
            return plan(spark, lake, question)
    finally:
        sys.path.remove(os.getcwd())


def _show(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        say_json({"plan": plan_fields(plan)})
    elif plan.messages:
        tell_plan(plan)
    else:
        say(f"No message is meant: {plan.question}.", "yellow")


def _execute(
    spark: SparkSession,
    lake: Lake,
    plan: Plan,
    broker: Broker,
    limits: Limits,
    draw: Callable[[State], None],
) -> tuple[State, bool]:
    """How it ended, and whether somebody ended it."""
    from queuecraft.pipeline.replay.execution import execute, progress_of

    state = progress_of(lake, plan.id)
    draw(state)

    def show(now: State) -> None:
        nonlocal state
        if now.unattended and now.unattended != state.unattended:
            names = ", ".join(map(repr, now.unattended))
            note(f"nobody consumes {names}: messages wait there, and whether they fail is not seen")
        state = now
        draw(now)

    try:
        state = execute(
            spark,
            lake,
            plan.id,
            connection=broker.connection,
            url=broker.url,
            rate=limits.rate,
            max_failure_rate=limits.max_failure_rate,
            max_backlog=limits.max_backlog,
            expired=limits.expired,
            force=limits.force,
            on_progress=show,
        )
    except KeyboardInterrupt:
        return state, True
    return state, False
