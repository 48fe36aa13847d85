"""`queuecraft demo`: the story told live on a terminal, in plain lines elsewhere."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
from collections.abc import Coroutine, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from queuecraft import Journal, QueueCraft
from queuecraft.cli.demo import shop
from queuecraft.cli.demo.dashboard import dashboard
from queuecraft.cli.demo.report import journal_at, make_report
from queuecraft.cli.demo.scene import Scene
from queuecraft.cli.demo.story import Story, Sum
from queuecraft.cli.exits import ExitCode
from queuecraft.cli.output import on_terminal
from queuecraft.model.errors import ConfigError
from queuecraft.runtime.signals import Signals

LOOK = 0.25  # seconds between two looks at the queues
SAY = 2.0  # seconds between two lines where nobody watches
PAGE = Path("queuecraft-demo.html")


def demo(
    *,
    orders: Annotated[
        int, typer.Option(min=10, metavar="COUNT", help="How many orders come in.")
    ] = 240,
    seconds: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Over how long a time.")
    ] = 18.0,
    serve: Annotated[
        bool, typer.Option("--serve", help="Go on until Ctrl-C, with the dashboard.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the database and the lake.")] = False,
    report: Annotated[
        Path, typer.Option("--report", metavar="FILE", help="The page of the report.")
    ] = PAGE,
    no_report: Annotated[bool, typer.Option("--no-report", help="End without a report.")] = False,
) -> None:
    """Watch a small shop on the embedded queue: orders, failures, retries, a redrive, a report.

    A bank goes down, its orders become dead letters; it comes back, and they are sent home. In
    the end every order is counted: exit code 1 if one was lost. Then Spark makes a page of it all,
    unless it goes on until Ctrl-C.
    """
    console = Console(highlight=False)
    reporting = not (serve or no_report)
    if reporting and not report.absolute().parent.is_dir():
        raise ConfigError(f"the folder {str(report.parent)!r} does not exist; make it first")
    with _folder(keep=keep) as folder:
        url = f"local://{quote(str(folder / 'shop.db'))}"
        lake = folder / "lake" if reporting else None
        journal = None if lake is None else journal_at(lake)
        total = None if serve else orders
        story, sums = asyncio.run(_tell(console, url, total, orders / seconds, journal))
        _sum_up(console, story, sums)
        if sums is None:
            console.print("Stopped before the story was over.")
            raise typer.Exit(ExitCode.INTERRUPTED)
        if not all(each.right for each in sums):
            console.print("[bold red]Something was lost. Please report this.[/]")
            raise typer.Exit(ExitCode.NO)
        closed = " The shop is closed." if serve else ""
        console.print(f"\n[bold green]Nothing was lost.[/]{closed}")
        if lake is not None and not make_report(console, lake, report):
            lake = None
    if not serve:
        console.print("\nWhat to try next:")
        _point_on(console, *((url, lake) if keep else (None, None)))


@contextmanager
def _folder(*, keep: bool) -> Generator[Path]:
    # Short, so that a command with its name in it fits a line.
    folder = Path(tempfile.mkdtemp(prefix="qc-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


async def _tell(
    console: Console, url: str, total: int | None, rate: float, journal: Journal | None
) -> tuple[Story, list[Sum] | None]:
    """The whole story and its sums; no sums if somebody put an end to it."""
    silent = logging.getLogger("queuecraft.demo")
    silent.setLevel(logging.CRITICAL)  # what fails is part of the story, and shown by it
    qc = QueueCraft(url, logger=silent, shutdown_timeout=5, journal=journal)
    small_shop = shop.Shop(qc)
    signals = Signals(silent)
    with signals.listening():
        async with qc:
            for worker in qc.workers:
                await worker.start()
            story = Story(small_shop, total, rate)
            show = _show_live if on_terminal() else _show_plainly
            async with AsyncExitStack() as beside:
                hints: dict[str, str] = {}
                if total is None:
                    address = await beside.enter_async_context(dashboard(url, silent))
                    hints = {"dashboard": address, "from another shell": _watch_command(url)}
                showing = asyncio.ensure_future(show(console, story, url, hints))
                try:
                    over = await _first(story.tell(), signals.asked.wait(), showing)
                    if not over and total is None:
                        over = await _first(story.close(), signals.forced.wait(), showing)
                finally:
                    showing.cancel()
                    await asyncio.wait([showing])
            return story, story.sums(await story.left()) if over else None


async def _first(
    telling: Coroutine[Any, Any, None],
    asked: Coroutine[Any, Any, bool],
    showing: asyncio.Future[None],
) -> bool:
    """Whether the story came to its end before somebody asked to stop; in both cases nothing of
    it goes on. Orders that do not come home in time are an end as well: the sums tell."""
    told, stopped = asyncio.ensure_future(telling), asyncio.ensure_future(asked)
    await asyncio.wait((told, stopped, showing), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    stopped.cancel()
    await asyncio.wait((told, stopped))
    for each in (told, showing):
        error = each.exception() if each.done() and not each.cancelled() else None
        if error is not None and not isinstance(error, TimeoutError):
            raise error
    return not told.cancelled()


async def _show_live(console: Console, story: Story, url: str, hints: Mapping[str, str]) -> None:
    scene = Scene(story, url, hints)
    with Live(scene, console=console, screen=True, auto_refresh=False) as live:
        while True:
            scene.update(await story.shop.qc.admin.queues())
            live.refresh()
            await asyncio.sleep(LOOK)


async def _show_plainly(console: Console, story: Story, url: str, hints: Mapping[str, str]) -> None:
    console.print(f"QueueCraft: a small shop on {url}", soft_wrap=True)
    for label, hint in hints.items():
        console.print(f"{label}: {hint}", soft_wrap=True)
    told, said = "", 0.0
    while True:
        if told != story.chapter:
            told = story.chapter
            console.print(f"{story.seconds:5.1f} s  {told}", soft_wrap=True)
        if story.seconds >= said + SAY:
            said = story.seconds
            console.print(f"{said:5.1f} s  {_progress(story)}", soft_wrap=True)
        await asyncio.sleep(LOOK)


def _watch_command(url: str) -> str:
    return f"{_command()} queues --watch 1 --url {url}"


def _progress(story: Story) -> str:
    done = story.shop
    return (
        f"  placed {len(story.placed)}, charged {len(done.bank.charged)}, "
        f"packed {len(done.warehouse.packed)}, mails {len(done.post_office.sent)}, "
        f"retries {story.retried}, dead {story.dead_lettered}, sent back {story.redriven}"
    )


def _sum_up(console: Console, story: Story, sums: list[Sum] | None) -> None:
    console.print(
        f"\n[bold]{len(story.placed)} orders in {story.seconds:.0f} s[/]: "
        f"{sum(story.handled.values())} messages handled, {story.retried} tried again, "
        f"{story.dead_lettered} kept as dead letters, {story.redriven} sent back",
        soft_wrap=not on_terminal(),  # in a pipe a line stays a line
    )
    for each in sums or ():
        sign = Text("✓", "green") if each.right else Text("✗", "bold red")
        found = f"{each.found:,.2f}".removesuffix(".00")
        expected = "" if each.right else f"  expected {each.expected:,.2f}".removesuffix(".00")
        console.print(sign + Text(f" {each.what:<24}{found:>9}{expected}"), soft_wrap=True)


def _point_on(console: Console, url: str | None, lake: Path | None) -> None:
    queuecraft = _command()
    lines = [
        (f"{queuecraft} demo --serve", "goes on, with the dashboard to look at"),
        (f"{queuecraft} demo --keep", "keeps the database and the lake, to look into"),
        (_short(Path(shop.__file__)), "the shop itself, to copy from"),
    ]
    if url is not None:
        lines = [
            (f"{queuecraft} queues --url {url}", ""),
            (f"{queuecraft} topology --url {url}", ""),
            *([(f"{queuecraft} lake triage {lake}", "")] if lake is not None else []),
            (f"QUEUECRAFT_URL={url} {queuecraft} run queuecraft.cli.demo.shop:open_shop", ""),
            (_short(Path(shop.__file__)), ""),
        ]
    width = max(len(command) for command, _ in lines)
    for command, what in lines:
        told = Text.assemble("  ", (f"{command:<{width}}" if what else command, "cyan"))
        console.print(told + Text(f"  {what}" if what else ""), soft_wrap=True)


def _command() -> str:
    """How this program is called in the shell it was called from."""
    if shutil.which("queuecraft"):
        return "queuecraft"
    beside = Path(sys.executable).with_name("queuecraft")
    return _short(beside) if beside.exists() else f"{_short(Path(sys.executable))} -m queuecraft"


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
