"""Taking the messages of a queue into a lake."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Annotated

import typer

from queuecraft.cli.broker import Url, connected, run
from queuecraft.cli.completion import queue_names
from queuecraft.cli.duration import seconds as length
from queuecraft.cli.exits import ExitCode
from queuecraft.cli.output import AsJson, say, say_json
from queuecraft.cli.progress import progress
from queuecraft.model.errors import QueueError
from queuecraft.pipeline.arrow import require_arrow
from queuecraft.pipeline.capture import MOST, ROWS, SECONDS, Captured
from queuecraft.pipeline.capture import capture as take
from queuecraft.pipeline.lake import Lake
from queuecraft.runtime.signals import Signals


def capture(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of the lake.")],
    *,
    queue: Annotated[
        str,
        typer.Option(
            "--queue", metavar="QUEUE", help="A queue made for it.", autocompletion=queue_names
        ),
    ],
    once: Annotated[bool, typer.Option("--once", help="End when the queue is empty.")] = False,
    rows: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="COUNT", help="Most messages in one file.")
    ] = ROWS,
    seconds: Annotated[
        float,
        typer.Option(
            parser=length, metavar="TIME", help="How long a message waits for its file to fill."
        ),
    ] = SECONDS,
    force: Annotated[
        bool, typer.Option("--force", help="Also from a queue of workers or of dead letters.")
    ] = False,
    replayed: Annotated[
        bool, typer.Option("--replayed", help="Also messages that this lake replayed unchanged.")
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Take the messages of a queue into a lake. Each is acknowledged once it is on the disk there:
    whatever dies, none is lost. Goes on until Ctrl-C, which ends it in order.

    Make a queue for it, so that no worker misses anything: queuecraft declare tap 'order.*'
    --no-dead-letters

    Example: queuecraft lake capture ./lake --queue tap --once
    """
    require_arrow()
    state = Captured()
    interrupted = False

    async def work() -> None:
        nonlocal interrupted
        signals = Signals(logging.getLogger("queuecraft"))
        async with connected(url) as qc:
            with progress(f"{queue} → {path}") as draw, signals.listening():

                def note(now: Captured) -> None:
                    nonlocal state
                    state = now
                    draw(now.rows, None)

                taking = asyncio.ensure_future(
                    take(
                        qc,
                        queue,
                        Lake.at(path),
                        rows=rows,
                        seconds=seconds,
                        once=once,
                        force=force,
                        replayed=replayed,
                        stop=signals.asked,
                        progress=note,
                    )
                )
                hurrying = asyncio.ensure_future(signals.forced.wait())
                await asyncio.wait((taking, hurrying), return_when=asyncio.FIRST_COMPLETED)
                hurrying.cancel()
                taking.cancel()  # asked twice: what is not in a file goes back to the queue
                await asyncio.wait((taking, hurrying))
                # Without --once, being asked to stop is how it ends.
                interrupted = taking.cancelled() or (once and signals.asked.is_set())
                if not taking.cancelled():
                    taking.result()

    try:
        run(work())
    except (QueueError, OSError):
        if state.rows:
            _tell(state, path, interrupted=True, as_json=as_json)
        raise
    _tell(state, path, interrupted=interrupted, as_json=as_json)
    if interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _tell(state: Captured, path: Path, *, interrupted: bool, as_json: bool) -> None:
    if as_json:
        say_json(
            {
                "rows": state.rows,
                "segments": state.segments,
                "size": state.size,
                "replayed": state.replayed,
                "interrupted": interrupted,
            }
        )
        return
    messages = f"{state.rows:,} message{'' if state.rows == 1 else 's'}"
    files = f"{state.segments:,} file{'' if state.segments == 1 else 's'}"
    if interrupted:
        say(f"Interrupted: {messages} in {files} in {path}; the rest is where it was.", "yellow")
    else:
        say(f"Captured {messages} in {files} in {path}.")
    if state.replayed:
        say(f"{state.replayed:,} of a replay left out: the lake has them (--replayed keeps them).")
