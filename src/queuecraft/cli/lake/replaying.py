"""A replay under way: the bar, and how it ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from queuecraft.cli.exits import ExitCode
from queuecraft.cli.output import complain, on_terminal, say, say_json
from queuecraft.observers.log import printable

if TYPE_CHECKING:
    from queuecraft.pipeline.replay.execution import Progress as State
    from queuecraft.pipeline.replay.plan import Plan

SHOWN = 10  # refusals told one by one


@contextmanager
def bar(plan: Plan) -> Generator[Callable[[State], None]]:
    """Draw how far it has come, where a person looks on; call it with the state."""
    if not on_terminal(sys.stderr):
        yield lambda state: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task("replay", total=plan.messages, told="")
        since, first = time.monotonic(), -1

        def draw(state: State) -> None:
            nonlocal first
            first = state.seen if first < 0 else first
            told = [f"{(state.seen - first) / max(time.monotonic() - since, 0.001):,.0f}/s"]
            if state.failure_rate:
                told.append(f"{state.failure_rate:.0%} failed")
            if state.waiting is not None:
                told.append(f"waiting for {printable(state.waiting)}")
            bar.update(task, completed=state.seen, told=", ".join(told))

        yield draw


def tell_end(ended: tuple[State, bool], again: str, *, as_json: bool) -> None:
    """Say how it ended, whether somebody ended it, and how to go on; the exit code says it too."""
    state, interrupted = ended
    if as_json:
        say_json({"result": {**asdict(state), "done": state.done, "interrupted": interrupted}})
    else:
        for message_id, why in state.refusals[:SHOWN]:
            complain(f"{message_id}: {why}", label="refused")
        counts = [f"{state.sent:,} sent"]
        for count, what in (
            (state.refused, "refused"),
            (state.expired, "expired and left out"),
            (state.failed, "dead letters in the targets meanwhile"),
        ):
            if count:
                counts.append(f"{count:,} {what}")
        told = ", ".join(counts)
        if state.paused is not None:
            say(f"Paused: {state.paused}.", "yellow")
            say(f"So far {told}. To go on: {again}; --force goes on though messages fail.")
        elif interrupted:
            say(f"Interrupted: {told}. To go on: {again}", "yellow")
        else:
            say(f"Done: {told}.")
            if state.refused:
                say(f"To try what was refused again: {again}")
    if interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if state.paused is not None:
        raise typer.Exit(ExitCode.PAUSED)
    if state.refused:
        raise typer.Exit(ExitCode.NO)
