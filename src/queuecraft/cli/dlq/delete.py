"""`queuecraft dlq delete`: some dead letters forgotten, for good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import typer

from queuecraft.cli.broker import Url, run
from queuecraft.cli.completion import QueueName
from queuecraft.cli.confirmation import Yes, confirm
from queuecraft.cli.dlq.choice import Choice, Exact, choosing, opened
from queuecraft.cli.letters import counted
from queuecraft.cli.output import AsJson
from queuecraft.cli.redrives import AtMost, DryRun, carry_out
from queuecraft.runtime.dead_letters import DeadMessage, Filter, Redrive
from queuecraft.runtime.dead_message import Death


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
    """Forget some dead letters of a queue, for good; the rest stays where it is, and so does what
    dies while you are asked.

    Example: queuecraft dlq delete billing --group 4f0c1e5b77aa
    """
    if not choice and limit is None:
        raise typer.BadParameter(
            "say which, as with --group, --id or --error; queuecraft dlq purge forgets them all",
            param_hint="--group",
        )

    chosen: set[Death] = set()

    def choose(letter: DeadMessage) -> None:
        chosen.add(letter.death)

    async def count() -> tuple[Filter | None, Redrive]:
        async with opened(queue, url, exact=exact) as (_, engine):
            where = await choice.among(engine, queue)
            return where, await engine.delete(
                queue, where=where, limit=limit, dry_run=True, on_chosen=choose
            )

    where, plan = run(count())
    # Only what was counted: others die while one is asked, and what is meant by age may change.
    where = replace(where or Filter(), deaths=frozenset(chosen), older_than=None, newer_than=None)
    if plan.moved and not dry_run:
        confirm(f"forget {counted(plan.moved)} of {queue!r} for good", yes=yes)

    async def work(note: Callable[[Redrive], object]) -> Redrive:
        if dry_run or not plan.moved:
            return replace(plan, dry_run=dry_run)
        async with opened(queue, url, exact=exact) as (_, engine):
            done = await engine.delete(queue, where=where, limit=plan.moved, on_progress=note)
            return replace(done, stopped=done.stopped or plan.stopped)

    carry_out(
        f"deleting of {queue}",
        work,
        dry_run=dry_run,
        as_json=as_json,
        filtered=bool(choice),
        verb="delete",
    )
