"""A bar for long work, on standard error, where a person looks on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from queuecraft.cli.output import on_terminal


@contextmanager
def progress(what: str, total: int | None = None) -> Generator[Callable[[int, int | None], None]]:
    """Draw a bar while the block runs; call it with how much is done, and of how much."""
    if not on_terminal(sys.stderr):
        yield lambda done, of: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # Standard output is left alone: it may lead elsewhere, and then is no place for the bar.
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task(what, total=total)

        def draw(done: int, of: int | None) -> None:
            bar.update(task, completed=done, total=of)

        yield draw
