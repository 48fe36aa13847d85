"""Whether all is well on the broker, for a person or a probe."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

import typer

from queuecraft.admin.private import is_private
from queuecraft.cli.broker import Url, connected, run
from queuecraft.cli.duration import seconds, spoken
from queuecraft.cli.exits import ExitCode, sentence
from queuecraft.cli.output import AsJson, note, say, say_json, show
from queuecraft.drivers.base import QueueInfo
from queuecraft.drivers.partial import lacking
from queuecraft.model.errors import ConnectionLost


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From when on a queue is in trouble.

    >>> Limits(dead=0).problems(QueueInfo(name="billing", ready=2, dead=1, consumers=0))
    ['1 dead letter', '2 ready and nobody consumes']
    >>> Limits().problems(QueueInfo(name="billing", ready=2, consumers=1), paused=True)
    ['2 ready, and it is paused']
    """

    dead: int = 0
    age: float = 300.0

    def problems(self, info: QueueInfo, *, paused: bool = False) -> list[str]:
        """What is wrong with a queue; what the broker does not tell is no trouble."""
        if info.name.endswith(".dlq") or is_private(info.name):
            return []  # told of the queue it belongs to; and of ours nothing is to be done
        found: list[str] = []
        if info.dead is not None and info.dead > self.dead:
            found.append(f"{info.dead:,} dead letter{'' if info.dead == 1 else 's'}")
        if info.ready and paused:
            found.append(f"{info.ready:,} ready, and it is paused")
        elif info.ready and info.consumers == 0:
            found.append(f"{info.ready:,} ready and nobody consumes")
        elif info.ready and info.oldest_age is not None and info.oldest_age > self.age:
            found.append(f"the oldest waits for {spoken(info.oldest_age)}")
        return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found."""

    reached: bool
    error: str | None = None
    queues: int = 0
    trouble: dict[str, list[str]] = field(default_factory=dict)
    unjudged: str | None = None
    """Why there may be queues that nobody has looked at."""

    @property
    def code(self) -> ExitCode:
        """How the command ends."""
        if not self.reached:
            return ExitCode.UNREACHABLE
        return ExitCode.NO if self.trouble else ExitCode.DONE


def health(
    *,
    max_dead: Annotated[
        int, typer.Option(min=0, metavar="COUNT", help="Dead letters a queue may have.")
    ] = 0,
    max_age: Annotated[
        float,
        typer.Option(parser=seconds, metavar="TIME", help="How long a message may wait, as 5m."),
    ] = 300.0,
    connection_only: Annotated[
        bool, typer.Option("--connection-only", help="Do not look at the queues.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(parser=seconds, metavar="TIME", help="How long to wait for an answer.")
    ] = 10.0,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Say whether the broker answers and no queue is in trouble: dead letters, messages nobody
    consumes, messages that wait too long or in a paused queue.

    Exit code 0: healthy. 1: a queue is in trouble. 2: the settings are wrong, or what they name is
    no queue. 3: the broker does not answer.
    """
    limits = None if connection_only else Limits(dead=max_dead, age=max_age)
    verdict = run(_judge(url, limits, timeout))
    healthy = verdict.code is ExitCode.DONE
    if as_json:
        say_json(
            {
                "status": "healthy" if healthy else "unhealthy",
                "connected": verdict.reached,
                "error": verdict.error,
                "queues": verdict.queues,
                "trouble": [
                    {"queue": name, "problems": found} for name, found in verdict.trouble.items()
                ],
                "unjudged": verdict.unjudged,
            }
        )
    elif not verdict.reached:
        say(f"unhealthy: {verdict.error}", "bold red")
    elif healthy:
        say("healthy", "bold green")
    else:
        say("unhealthy", "bold red")
        rows = [(name, "; ".join(found)) for name, found in verdict.trouble.items()]
        show(("queue", "problem"), rows)
    if verdict.unjudged is not None and not as_json:
        note(f"queues that are not known here were not judged: {verdict.unjudged}")
    raise typer.Exit(verdict.code)


async def _judge(url: str | None, limits: Limits | None, timeout: float) -> Verdict:
    try:
        async with asyncio.timeout(timeout), connected(url) as qc:
            infos = [] if limits is None else await qc.admin.queues()
            paused = {} if limits is None else await qc.admin.pauses()
    except ConnectionLost as error:
        return Verdict(False, sentence(error))
    except TimeoutError:
        return Verdict(False, f"the broker did not answer within {timeout:g} s")
    trouble: dict[str, list[str]] = {}
    for info in infos if limits else ():
        if limits and (found := limits.problems(info, paused=info.name in paused)):
            trouble[info.name] = found
    return Verdict(
        True,
        queues=len(infos),
        trouble=trouble,
        unjudged=lacking(infos),
    )
