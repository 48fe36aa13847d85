"""`queuecraft dlq purge`: all dead letters of a queue forgotten, for good."""

from __future__ import annotations

from queuecraft.cli.broker import Url, run
from queuecraft.cli.completion import QueueName
from queuecraft.cli.confirmation import Yes, confirm
from queuecraft.cli.dlq.choice import Exact, opened
from queuecraft.cli.letters import counted, none_of
from queuecraft.cli.output import AsJson, say, say_json


def purge(
    queue: QueueName,
    *,
    yes: Yes = False,
    exact: Exact = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Forget all dead letters of a queue, for good.

    Example: queuecraft dlq purge billing --yes
    """

    async def count() -> int:
        async with opened(queue, url, exact=exact) as (_, engine):
            return await engine.count(queue)

    async def forget() -> int:
        async with opened(queue, url, exact=exact) as (_, engine):
            return await engine.purge(queue)

    there = run(count())
    if there:
        confirm(f"forget {counted(there)} of {queue!r} for good", yes=yes)
    purged = run(forget()) if there else 0
    if as_json:
        say_json({"queue": queue, "purged": purged})
    elif there:
        say(f"Purged {counted(purged)} of {queue!r}.")
    else:
        say(none_of(queue))
