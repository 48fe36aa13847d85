"""`queuecraft dlq redrive`: dead letters back to the queue that failed them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from queuecraft.cli.broker import Url
from queuecraft.cli.completion import QueueName, queue_names
from queuecraft.cli.dlq.choice import Choice, Exact, choosing, opened
from queuecraft.cli.duration import seconds
from queuecraft.cli.output import AsJson
from queuecraft.cli.redrives import AtMost, DryRun, Rate, carry_out
from queuecraft.runtime.dead_letters import Redrive


@choosing
def redrive(
    queue: QueueName,
    *,
    choice: Choice,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE",
            help="There, not to the queue that failed it.",
            autocompletion=queue_names,
        ),
    ] = None,
    limit: AtMost = None,
    rate: Rate = None,
    canary: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="COUNT", help="So many first; the rest only if none of them dies again."
        ),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(parser=seconds, metavar="TIME", help="Wait so long for the canary, at most."),
    ] = 30.0,
    dry_run: DryRun = False,
    exact: Exact = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters back to the queue that failed them. Ctrl-C stops it, and loses nothing.

    Example: queuecraft dlq redrive billing --error Timeout --canary 5 --rate 50
    """

    async def work(note: Callable[[Redrive], object]) -> Redrive:
        async with opened(queue, url, exact=exact) as (qc, engine):
            if to is not None:
                await qc.admin.inspect(to)
            return await engine.redrive(
                queue,
                where=await choice.among(engine, queue),
                limit=limit,
                rate=rate,
                canary=canary,
                patience=patience,
                dry_run=dry_run,
                to=to,
                on_progress=note,
            )

    carry_out(
        f"redriving {queue}",
        work,
        dry_run=dry_run,
        as_json=as_json,
        filtered=bool(choice),
        verb="redrive",
    )
