"""Names of queues for the shell to complete, from the broker itself."""

from __future__ import annotations

import asyncio
import re
import threading
from contextlib import suppress
from typing import Annotated, TypeAlias

import typer

from queuecraft.cli.broker import connected

PATIENCE = 1.5  # seconds a person at the Tab key is kept waiting

# Shells evaluate what completions print. A name with anything else in it has to be typed.
_SAFE = re.compile(r"[\w.@%+,/:=-]+", re.ASCII)


def queue_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The queues whose names begin so; none where the broker does not answer."""
    names: list[str] = []

    def ask() -> None:
        with suppress(Exception):
            names.extend(asyncio.run(_names(ctx.params.get("url"))))

    # A thread, because a broker that does not answer may take its time to be let go of as well.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return [each for each in names if each.startswith(incomplete) and _SAFE.fullmatch(each)]


async def _names(url: str | None) -> list[str]:
    async with connected(url) as qc:
        return [info.name for info in await qc.admin.queues()]


QueueName: TypeAlias = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=queue_names)
]
