"""`queuecraft demo`: the story told live on a terminal, in plain lines elsewhere."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from queuecraft import QueueCraft
from queuecraft.cli.demo import shop
from queuecraft.cli.demo.scene import Scene
from queuecraft.cli.demo.story import Story, Sum
from queuecraft.cli.exits import ExitCode
from queuecraft.cli.output import on_terminal
from queuecraft.runtime.signals import Signals

LOOK = 0.25  # seconds between two looks at the queues
SAY = 2.0  # seconds between two lines where nobody watches


def demo(
    *,
    orders: Annotated[int, typer.Option(min=10, help="How many orders come in.")] = 240,
    seconds: Annotated[float, typer.Option(min=0.1, help="Over how long a time.")] = 18.0,
    serve: Annotated[bool, typer.Option("--serve", help="Go on until Ctrl-C.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the database.")] = False,
) -> None:
    """Watch a small shop on the embedded queue: orders, failures, retries, a redrive.

    A bank goes down, its orders become dead letters; it comes back, and they are sent home. In
    the end every order is counted: exit code 1 if one was lost.
    """
    console = Console(highlight=False)
    with _folder(keep=keep) as folder:
        url = f"local://{quote(str(folder / 'shop.db'))}"
        told = asyncio.run(_tell(console, url, None if serve else orders, orders / seconds))
    if told is None:
        console.print("The shop is closed." if serve else "Stopped before the story was over.")
        raise typer.Exit(ExitCode.DONE if serve else ExitCode.INTERRUPTED)
    story, sums = told
    _sum_up(console, story, sums)
    if not all(each.right for each in sums):
        console.print("[bold red]Something was lost. Please report this.[/]")
        raise typer.Exit(ExitCode.NO)
    _point_on(console, url if keep else None)


@contextmanager
def _folder(*, keep: bool) -> Generator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="queuecraft-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


async def _tell(
    console: Console, url: str, total: int | None, rate: float
) -> tuple[Story, list[Sum]] | None:
    """The whole story and its sums; None if somebody put an end to it."""
    silent = logging.getLogger("queuecraft.demo")
    silent.setLevel(logging.CRITICAL)  # what fails is part of the story, and shown by it
    qc = QueueCraft(url, logger=silent, shutdown_timeout=5)
    small_shop = shop.Shop(qc)
    signals = Signals(silent)
    with signals.listening():
        async with qc:
            for worker in qc.workers:
                await worker.start()
            story = Story(small_shop, total, rate)
            show = _show_live if on_terminal() else _show_plainly
            telling = asyncio.ensure_future(story.tell())
            showing = asyncio.ensure_future(show(console, story, url))
            asked = asyncio.ensure_future(signals.asked.wait())
            tasks = (telling, showing, asked)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in (telling, showing):
                error = None if task.cancelled() else task.exception()
                if error is not None and not isinstance(error, TimeoutError):
                    raise error
            if telling.cancelled():
                return None
            return story, story.sums(await story.left())


async def _show_live(console: Console, story: Story, url: str) -> None:
    scene = Scene(story, url)
    with Live(scene, console=console, screen=True, auto_refresh=False) as live:
        while True:
            scene.update(await story.shop.qc.admin.queues())
            live.refresh()
            await asyncio.sleep(LOOK)


async def _show_plainly(console: Console, story: Story, url: str) -> None:
    console.print(f"QueueCraft: a small shop on {url}", soft_wrap=True)
    if story.total is None:
        console.print(f"look from another shell: queuecraft queues --url {url}", soft_wrap=True)
    told, said = "", 0.0
    while True:
        if told != story.chapter:
            told = story.chapter
            console.print(f"{story.seconds:5.1f} s  {told}", soft_wrap=True)
        if story.seconds >= said + SAY:
            said = story.seconds
            console.print(f"{said:5.1f} s  {_progress(story)}", soft_wrap=True)
        await asyncio.sleep(LOOK)


def _progress(story: Story) -> str:
    done = story.shop
    return (
        f"  placed {len(story.placed)}, charged {len(done.bank.charged)}, "
        f"packed {len(done.warehouse.packed)}, mails {len(done.post_office.sent)}, "
        f"retries {story.retried}, dead {story.dead_lettered}, sent back {story.redriven}"
    )


def _sum_up(console: Console, story: Story, sums: list[Sum]) -> None:
    console.print(
        f"\n[bold]{len(story.placed)} orders in {story.seconds:.0f} s[/]: "
        f"{sum(story.handled.values())} messages handled, {story.retried} tried again, "
        f"{story.dead_lettered} kept as dead letters, {story.redriven} sent back",
        soft_wrap=True,
    )
    table = Table.grid(padding=(0, 2))
    for each in sums:
        sign = Text("✓", "green") if each.right else Text("✗", "bold red")
        expected = "" if each.right else f"expected {each.expected:,.2f}".removesuffix(".00")
        table.add_row(sign, each.what, f"{each.found:,.2f}".removesuffix(".00"), expected)
    console.print(table)


def _point_on(console: Console, url: str | None) -> None:
    queuecraft = _command()
    console.print("\n[bold green]Nothing was lost.[/] What to try next:")
    lines = [
        (f"{queuecraft} demo --serve", "goes on, to be watched from another shell"),
        (f"{queuecraft} demo --keep", "keeps the database, to look into"),
    ]
    if url is not None:
        lines = [
            (f"{queuecraft} queues --url {url}", ""),
            (f"{queuecraft} topology --url {url}", ""),
            (f"QUEUECRAFT_URL={url} {queuecraft} run queuecraft.cli.demo.shop:open_shop", ""),
        ]
    for command, what in (*lines, (_short(Path(shop.__file__)), "the shop itself, to copy from")):
        console.print(Text.assemble("  ", (command, "cyan"), f"  {what}".rstrip()), soft_wrap=True)


def _command() -> str:
    """How this program is called in the shell it was called from."""
    if shutil.which("queuecraft"):
        return "queuecraft"
    beside = Path(sys.executable).with_name("queuecraft")
    return _short(beside) if beside.exists() else f"{_short(Path(sys.executable))} -m queuecraft"


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
