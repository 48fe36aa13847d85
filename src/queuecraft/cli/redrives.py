"""Many messages on their way from queue to queue: the bar, the report, and an end at any time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal, TypeAlias

import typer

from queuecraft.cli.broker import run
from queuecraft.cli.exits import ExitCode
from queuecraft.cli.output import complain, say, say_json
from queuecraft.cli.output import note as tell
from queuecraft.cli.progress import progress
from queuecraft.model.errors import QueueError
from queuecraft.runtime.redrive import Redrive

SHOWN = 10  # errors told one by one
DONE = {"move": "moved", "redrive": "moved", "delete": "deleted"}

AtMost: TypeAlias = Annotated[
    int | None, typer.Option("--limit", min=1, metavar="COUNT", help="At most so many.")
]
Rate: TypeAlias = Annotated[
    float | None, typer.Option("--rate", metavar="COUNT", help="At most so many a second.")
]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Only count.")]

Work: TypeAlias = Callable[[Callable[[Redrive], object]], Coroutine[Any, Any, Redrive]]
"""Moves messages, calling what it is given with how far it has come."""


def carry_out(
    what: str,
    work: Work,
    *,
    dry_run: bool,
    as_json: bool,
    filtered: bool,
    verb: Literal["move", "redrive", "delete"] = "move",
) -> None:
    """Do the work under a bar and tell how it ended, also when Ctrl-C or an outage ends it. With
    a filter, none chosen is a no."""
    state = Redrive(total=0, dry_run=dry_run)
    interrupted = False
    with progress(what) as draw:

        def note(now: Redrive) -> None:
            nonlocal state
            if now.waiting and not state.waiting:
                tell(f"{now.moved:,} sent ahead; waiting for what becomes of them", as_json=as_json)
            state = now
            draw(now.seen, now.total)

        try:
            state = run(work(note))
        except KeyboardInterrupt:
            interrupted = True
        except QueueError:
            if state.seen:
                _report(state, verb, interrupted=True, as_json=as_json)
            raise
    _report(state, verb, interrupted=interrupted, as_json=as_json)
    if interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if state.refused or state.stopped or (filtered and not state.moved):
        raise typer.Exit(ExitCode.NO)


def _report(state: Redrive, verb: str, *, interrupted: bool, as_json: bool) -> None:
    if as_json:
        say_json(
            {
                "total": state.total,
                DONE[verb]: state.moved,
                "kept": state.kept,
                "refused": state.refused,
                "dry_run": state.dry_run,
                "interrupted": interrupted,
                "errors": list(state.errors),
                "stopped": state.stopped,
            }
        )
        return
    for error in state.errors[:SHOWN]:
        complain(error, label="refused")
    if state.refused > SHOWN:
        complain(f"{state.refused - SHOWN:,} more", label="refused")
    if state.dry_run and state.stopped is not None:
        tell(state.stopped)
    counts = f"{state.moved:,} {DONE[verb]}, {state.kept:,} not chosen, {state.refused:,} refused"
    if interrupted:
        say(f"Interrupted: {counts}; the rest is where it was.", "yellow")
    elif state.stopped is not None and not state.dry_run:
        say(f"Stopped: {state.stopped}.", "yellow")
        say(f"{state.moved:,} {DONE[verb]}; the rest is where it was.")
    elif state.kept and state.kept == state.seen:
        say(f"No message was chosen; {state.kept:,} stay where they are.", "yellow")
    elif state.dry_run:
        would = "would be deleted" if verb == "delete" else "would move"
        say(f"Dry run: {state.moved:,} {would}, {state.kept:,} not chosen, nothing was changed.")
    else:
        say(f"Done: {counts}.")
