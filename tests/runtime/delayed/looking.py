"""What is where, for tests of delayed messages."""

from __future__ import annotations

from typing import Any, TypeVar

from queuecraft import QueueCraft
from queuecraft.facts import Fact

F = TypeVar("F", bound=Fact)


async def ready(qc: QueueCraft, queue: str = "billing") -> list[Any]:
    """The payloads that are ready in a queue, in order."""
    return [each.payload for each in await qc.admin.peek(queue, 10_000)]


async def ids(qc: QueueCraft, queue: str = "billing") -> list[str]:
    """The ids of what is ready in a queue, in order."""
    return [each.id for each in await qc.admin.peek(queue, 10_000)]


async def waiting(qc: QueueCraft) -> list[str]:
    """The ids of what waits, the next due first."""
    return [each.id for each in await qc.delayed.list(10_000)]


def noted(qc: QueueCraft, kind: type[F]) -> list[F]:
    """A list that is added to with each fact of this kind."""
    found: list[F] = []
    qc.observe(kind, found.append)
    return found
