"""Which dead letters are meant: of which queue, and by which options."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Annotated, Any, TypeAlias

import typer

from queuecraft.admin import UnknownQueue
from queuecraft.app import QueueCraft
from queuecraft.cli.broker import connected
from queuecraft.cli.duration import seconds
from queuecraft.cli.letters import found
from queuecraft.cli.queue_rows import with_letters
from queuecraft.runtime.dead_letters import DeadLetters, Filter

Exact: TypeAlias = Annotated[
    bool,
    typer.Option("--exact", help="QUEUE is the dead-letter queue itself, whatever it is called."),
]
Error: TypeAlias = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Found in the error's type or text.")
]
EventPattern: TypeAlias = Annotated[
    str | None, typer.Option("--event", metavar="PATTERN", help="Only these events, as 'order.*'.")
]
Reason: TypeAlias = Annotated[
    str | None, typer.Option("--reason", metavar="REASON", help="As handler-error or expired.")
]
Group: TypeAlias = Annotated[
    str | None,
    typer.Option("--group", metavar="FINGERPRINT", help="Only this group of like failures."),
]
Ids: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--id", metavar="ID", help="Only this message, or the start of its id; repeatable."
    ),
]
OlderThan: TypeAlias = Annotated[
    float | None,
    typer.Option("--older-than", parser=seconds, metavar="TIME", help="Failed longer ago, as 2h."),
]
NewerThan: TypeAlias = Annotated[
    float | None,
    typer.Option("--newer-than", parser=seconds, metavar="TIME", help="Failed since then, as 10m."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the options say; false if they say nothing. An id may be the start of one.

    >>> bool(Choice(error="Timeout")), bool(Choice(error=None, id=[]))
    (True, False)
    """

    error: Error = None
    event: EventPattern = None
    reason: Reason = None
    group: Group = None
    id: Ids = None
    older_than: OlderThan = None
    newer_than: NewerThan = None

    def __bool__(self) -> bool:
        return bool(self.id) or replace(self, id=None) != Choice()

    async def among(self, engine: DeadLetters, queue: str) -> Filter | None:
        """The dead letters of a queue that are meant, by whole ids, which must be there; None for
        all of them."""
        if not self:
            return None
        ids = None
        if self.id:
            every = await engine.list(queue, limit=max(1, await engine.count(queue)))
            ids = found(self.id, {each.id for each in every}, queue)
        return Filter(
            error=self.error,
            event=self.event,
            reason=self.reason,
            fingerprint=self.group,
            ids=ids,
            older_than=self.older_than,
            newer_than=self.newer_than,
        )


def choosing(command: Callable[..., None]) -> Callable[..., None]:
    """The command with all options of a choice in the place of its parameter `choice`."""
    options = inspect.signature(Choice, eval_str=True).parameters
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def chosen(*arguments: Any, **given: Any) -> None:
        choice = Choice(**{name: given.pop(name) for name in options})
        command(*arguments, choice=choice, **given)

    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        parameters += options.values() if name == "choice" else [parameter]
    vars(chosen)["__signature__"] = signature.replace(parameters=parameters)
    return chosen


@asynccontextmanager
async def opened(
    queue: str, url: str | None, *, exact: bool
) -> AsyncGenerator[tuple[QueueCraft, DeadLetters]]:
    """The broker, and the engine for the dead letters of a queue, which must exist."""
    async with connected(url) as qc:
        yield qc, await _engine(qc, queue, exact=exact)


async def _engine(qc: QueueCraft, queue: str, *, exact: bool) -> DeadLetters:
    if exact:
        await qc.admin.inspect(queue)
        return qc.admin.dead_letters_by_name
    names = [info.name for info in await qc.admin.queues(*with_letters([queue]))]
    if queue in names and not queue.endswith(".dlq") and f"{queue}.dlq" not in names:
        raise UnknownQueue(
            f"queue {queue!r} has no dead-letter queue {queue + '.dlq'!r}; if its dead letters "
            "are elsewhere, name that queue with --exact",
            queue=queue,
        )
    if queue not in names and f"{queue}.dlq" not in names:
        await qc.admin.inspect(queue)  # which says what may have been meant
    return qc.admin.dead_letters
