"""`queuecraft dlq delete`: some dead letters forgotten, for good."""

from __future__ import annotations

from collections.abc import Callable

import typer

from queuecraft.cli.broker import Url, run
from queuecraft.cli.completion import QueueName
from queuecraft.cli.confirmation import Yes, confirm
from queuecraft.cli.dlq.choice import Choice, Exact, choosing, opened
from queuecraft.cli.letters import counted
from queuecraft.cli.output import AsJson
from queuecraft.cli.redrives import AtMost, DryRun, carry_out
from queuecraft.runtime.dead_letters import Filter, Redrive


@choosing
def delete(
    queue: QueueName,
    *,
    choice: Choice,
    limit: AtMost = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    exact: Exact = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Forget some dead letters of a queue, for good; the rest stays where it is.

    Example: queuecraft dlq delete billing --group 4f0c1e5b77aa
    """
    if not choice and limit is None:
        raise typer.BadParameter(
            "say which, as with --group, --id or --error; queuecraft dlq purge forgets them all",
            param_hint="--group",
        )

    async def count() -> tuple[Filter | None, int]:
        async with opened(queue, url, exact=exact) as (_, engine):
            where = await choice.among(engine, queue)
            plan = await engine.delete(queue, where=where, limit=limit, dry_run=True)
            return where, plan.moved

    where, there = run(count())
    if there and not dry_run:
        confirm(f"forget {counted(there)} of {queue!r} for good", yes=yes)

    async def work(note: Callable[[Redrive], object]) -> Redrive:
        async with opened(queue, url, exact=exact) as (_, engine):
            return await engine.delete(
                queue, where=where, limit=limit, dry_run=dry_run, on_progress=note
            )

    carry_out(
        f"deleting of {queue}",
        work,
        dry_run=dry_run,
        as_json=as_json,
        filtered=bool(choice),
        verb="delete",
    )
