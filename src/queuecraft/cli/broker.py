"""The broker a command talks to: from `--url`, or from the environment and its files."""

from __future__ import annotations

import asyncio
import signal
import threading
import warnings
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

from queuecraft.app import QueueCraft
from queuecraft.cli.output import note
from queuecraft.cli.unreachable import unreachable
from queuecraft.config.options import Options
from queuecraft.drivers.local import path_of
from queuecraft.model.errors import ConfigError, ConnectionLost

R = TypeVar("R")

Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The broker, as amqp://… or local:///data/queue.db. "
        "Without it, QUEUECRAFT_URL and the other settings of the environment.",
        show_default=False,
    ),
]


def run(work: Coroutine[Any, Any, R]) -> R:
    """Do the work of a command; Ctrl-C and SIGTERM cancel it, so that what it holds is let go."""
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)  # signals are not for us
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        return asyncio.run(work)
    finally:
        signal.signal(signal.SIGTERM, before)


def craft(url: str | None, *, creates: bool = False) -> QueueCraft:
    """A QueueCraft, not yet connected; `creates` says whether the command may make a database."""
    given: Options = {} if url is None else {"url": url}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        qc = QueueCraft.from_environment(**given)
    if threading.current_thread() is threading.main_thread():  # the shell asks in another
        for each in told:
            note(str(each.message))
    check_place(qc.settings.url, creates=creates)
    return qc


@asynccontextmanager
async def connected(url: str | None, *, creates: bool = False) -> AsyncGenerator[QueueCraft]:
    """A QueueCraft that is connected while the block runs."""
    async with entered(craft(url, creates=creates)) as qc:
        yield qc


@asynccontextmanager
async def entered(qc: QueueCraft) -> AsyncGenerator[QueueCraft]:
    """The same for one that is there already. A broker that cannot be used is named."""
    url = qc.settings.url
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(qc)
        except ConnectionLost as error:
            if _is_local(url):
                raise
            raise unreachable(url, error) from error
        yield qc


def check_place(url: str, *, creates: bool) -> None:
    """Refuse what a command could only find empty: a queue in memory, a file not there yet."""
    if not _is_local(url):
        return
    path = path_of(url)
    if path is None:
        raise ConfigError(
            "local:// is a queue in the memory of this very command, so it is always empty; name "
            "the broker your app uses: --url local:///data/queue.db, or set QUEUECRAFT_URL"
        )
    path = path.absolute()  # so that a person sees where it was looked for
    if not path.parent.is_dir():
        raise ConfigError(
            f"the folder {str(path.parent)!r} does not exist; make it first, or give another path",
            broker="local",
        )
    if not creates and not path.exists():
        raise ConnectionLost(
            f"there is no database {str(path)!r} yet; the first worker or publish makes it, or "
            "your app uses another path",
            broker="local",
        )


def _is_local(url: str) -> bool:
    return url.partition("://")[0].lower() == "local"
