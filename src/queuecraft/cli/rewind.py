"""Setting a queue back, so that it has again what it had before."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from queuecraft.cli.broker import Url, connected, run
from queuecraft.cli.completion import QueueName
from queuecraft.cli.confirmation import Yes, confirm
from queuecraft.cli.moment import moment
from queuecraft.cli.output import AsJson, say, say_json, show, stamp
from queuecraft.drivers.base import Rewound


def rewind(
    queue: QueueName,
    *,
    to: Annotated[
        datetime,
        typer.Option(
            parser=moment, metavar="TIME", help="Since when: 2h ago, or 2030-01-01T09:00Z."
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Let a queue have again what it was given since a moment; on Kafka, with its workers stopped.

    Example: queuecraft rewind billing --to 2h --dry-run
    """

    async def work(*, dry: bool) -> list[Rewound]:
        async with connected(url) as qc:
            return await qc.admin.rewind(queue, to, dry_run=dry)

    found = run(work(dry=True))
    if not dry_run and found:
        deed = f"handle {_messages(_sum(found))} of {queue!r} again, from {stamp(to)} on"
        confirm(deed, yes=yes)
        found = run(work(dry=False))
    if as_json:
        say_json(
            {
                "queue": queue,
                "to": to,
                "dry_run": dry_run,
                "messages": _sum(found),
                "places": {each.place: each.messages for each in found},
            }
        )
        return
    if found:
        show(("partition", "messages"), [(each.place, each.messages) for each in found])
    would = "would come" if dry_run else "come"
    say(f"{_messages(_sum(found))} of {queue!r} {would} again, from {stamp(to)} on.")


def _sum(found: list[Rewound]) -> int:
    return sum(each.messages for each in found)


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"
