"""`queuecraft run`: workers from the shell, in one process or several."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from queuecraft.cli.output import complain
from queuecraft.cli.processes.application import Application, ApplicationError, Reference
from queuecraft.cli.processes.banner import Banner
from queuecraft.cli.processes.files import Files, source_of
from queuecraft.cli.processes.health_port import HealthPort
from queuecraft.cli.processes.life import CLEAN, MISTAKEN, Life
from queuecraft.cli.processes.line import Hello
from queuecraft.cli.processes.logs import LogFormat, LogLevel, write_log
from queuecraft.cli.processes.stop import Stop, StoppedEarly
from queuecraft.cli.processes.supervisor import Supervisor

log = logging.getLogger("queuecraft.run")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the health port listens.

    >>> Address.parse("8080"), Address.parse("[::]:8080")
    (Address(host='127.0.0.1', port=8080), Address(host='::', port=8080))
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`PORT`, or `HOST:PORT`."""
        host, _, port = text.rpartition(":")
        if not port.isdecimal() or not port.isascii() or int(port) > 65535:
            raise typer.BadParameter(
                "expected a port from 0 to 65535, or HOST:PORT", param_hint="--health-port"
            )
        return cls(host.strip("[]") or "127.0.0.1", int(port))


def run(
    application: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:ATTRIBUTE",
            help="A QueueCraft, or a function that returns one, as in shop.app:qc.",
        ),
    ],
    processes: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="Processes side by side.")
    ] = 1,
    worker: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run this worker alone; may be given several times."),
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Restart when code changes.")] = False,
    reload_dir: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True, file_okay=False, metavar="FOLDER", help="Watch this directory too."
        ),
    ] = None,
    health_port: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Answer GET /health there, on 127.0.0.1."),
    ] = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            help="Lines for people, or JSON. Default: as the application logs, if it does."
        ),
    ] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="What is worth a line.")] = None,
    supervised: Annotated[int | None, typer.Option(hidden=True)] = None,
    number: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the workers of an application until SIGTERM or Ctrl-C; what runs is finished first.

    A second signal stops at once. With several processes SIGHUP restarts them one by one.
    Ends with 0 after a clean stop, 1 when forced or failed, 2 for a mistake in what it was
    given, 3 when the broker cannot be reached and is not to be waited for.
    """
    address = None if health_port is None else Address.parse(health_port)
    if reload_dir and not reload:
        raise typer.BadParameter("--reload-dir needs --reload", param_hint="--reload-dir")
    task = Task(application, worker or [], processes, log_format, log_level)
    banner = Banner(processes=processes, reload=reload)
    try:
        if supervised is not None:
            code = _be_child(task, supervised, number)
        elif processes == 1 and not reload:
            code = _work_alone(task, banner, address)
        else:
            code = _supervise(task, banner, address, (reload_dir or []) if reload else None)
    except ApplicationError as error:
        task.explain(error, number)
        code = MISTAKEN
    except StoppedEarly:
        code = CLEAN
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class Task:
    """What every process of a run is told."""

    application: str
    workers: Sequence[str]
    processes: int
    log_format: LogFormat | None
    log_level: LogLevel | None

    def load(self, number: int | None = None) -> Application:
        """Import the application; from then on there is a log, its own or ours."""
        found = Application.load(self.application, self.workers, self.processes)
        self.open_log(number)
        return found

    def open_log(self, number: int | None = None) -> None:
        """Write the log as asked for."""
        write_log(self.log_format, self.log_level, process=number)

    def command(self) -> list[str]:
        """The command line of a child."""
        options = [f"--processes={self.processes}", *(f"--worker={each}" for each in self.workers)]
        if self.log_format is not None:
            options.append(f"--log-format={self.log_format.value}")
        if self.log_level is not None:
            options.append(f"--log-level={self.log_level.value}")
        # With -P nothing in the working directory can stand in for a module of ours.
        return [sys.executable, "-P", "-m", "queuecraft", "run", self.application, *options]

    def announce(self, banner: Banner, hello: Hello) -> None:
        """The first lines, in the form of the log."""
        if self.log_format is LogFormat.json:
            fields = {"broker": hello.broker, "workers": hello.workers, "health": banner.health}
            log.info("running", extra={"queuecraft": {**fields, "processes": self.processes}})
        else:
            banner.show(hello)

    def explain(self, error: ApplicationError, number: int | None) -> None:
        """Why it cannot be run, and where that is."""
        if self.log_format is LogFormat.json:
            self.open_log(number)
            fields = {"stack": error.story} if error.story else {}
            log.error("%s", error.message, extra={"queuecraft": fields})
            return
        if error.story:
            print(error.story, file=sys.stderr)
        complain(error.message)


def _be_child(task: Task, fd: int, number: int | None) -> int:
    stop = Stop(log)
    stop.listen(supervised=True)
    _print_line_by_line()
    life = Life(task.load(number), stop, log)
    return _in_fast_loop(life.live_supervised(fd))


def _work_alone(task: Task, banner: Banner, address: Address | None) -> int:
    stop = Stop(log)
    stop.listen(supervised=False)
    _print_line_by_line()
    life = Life(task.load(), stop, log)

    async def work() -> int:
        async with _health_port(address, lambda: life.healthy) as url:
            task.announce(replace(banner, health=url), life.hello)
            return await life.live()

    return _in_fast_loop(work())


def _print_line_by_line() -> None:
    """What handlers print is seen then, also in a container or through a pipe."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def _supervise(
    task: Task, banner: Banner, address: Address | None, watched: Sequence[Path] | None
) -> int:
    reference = Reference.parse(task.application)  # the rest is for the children to find out
    task.open_log()
    files = None if watched is None else Files((source_of(reference.module), *watched))

    async def supervise() -> int:
        supervisor = Supervisor(task.command(), task.processes, log, files=files)
        async with _health_port(address, lambda: supervisor.healthy) as url:
            shown = replace(banner, health=url)
            return await supervisor.run(announce=partial(task.announce, shown))

    return asyncio.run(supervise())


@asynccontextmanager
async def _health_port(
    address: Address | None, healthy: Callable[[], bool]
) -> AsyncGenerator[str | None]:
    if address is None:
        yield None
        return
    try:
        port = HealthPort(address.host, address.port, healthy)
        await port.open()
    except OSError as error:
        log.error("%s", error.strerror)
        raise typer.Exit(MISTAKEN) from error
    try:
        yield port.url
    finally:
        await port.close()


def _in_fast_loop(work: Coroutine[Any, Any, int]) -> int:
    """Run it with uvloop, where that is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if find_spec("uvloop") is not None:
        factory = import_module("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)
