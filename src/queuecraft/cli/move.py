"""Moving messages from one queue to another."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

import typer

from queuecraft.admin import PeekedMessage
from queuecraft.cli.broker import Url, connected
from queuecraft.cli.completion import queue_names
from queuecraft.cli.duration import seconds
from queuecraft.cli.output import AsJson
from queuecraft.cli.redrives import AtMost, DryRun, Rate, carry_out
from queuecraft.model.routing import topic_matches
from queuecraft.runtime.redrive import Redrive


def move(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="The queue.", autocompletion=queue_names)
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="Another queue.", autocompletion=queue_names)
    ],
    *,
    event: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only these events, as 'order.*'.")
    ] = None,
    id: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="Only this message.")
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option(parser=seconds, metavar="TIME", help="Only what was published before, as 2h."),
    ] = None,
    limit: AtMost = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Move what is ready in one queue to another, in order and unchanged.

    Example: queuecraft move billing parked --event 'order.*' --limit 100
    """
    where = _choice(event, id, older_than)

    async def work(note: Callable[[Redrive], object]) -> Redrive:
        async with connected(url) as qc:
            return await qc.admin.move(
                source,
                target,
                limit=limit,
                where=where,
                rate=rate,
                dry_run=dry_run,
                on_progress=note,
            )

    carry_out(
        f"{source} → {target}",
        work,
        dry_run=dry_run,
        as_json=as_json,
        filtered=where is not None,
    )


def _choice(
    event: str | None, ids: list[str] | None, older_than: float | None
) -> Callable[[PeekedMessage], bool] | None:
    if event is None and not ids and older_than is None:
        return None
    before = None if older_than is None else datetime.now(UTC).timestamp() - older_than

    def meant(message: PeekedMessage) -> bool:
        if event is not None and not topic_matches(event, message.routing_key):
            return False
        if ids and message.id not in ids:
            return False
        published = message.published_at
        return before is None or (published is not None and published.timestamp() < before)

    return meant
