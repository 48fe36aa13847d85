"""A queue that was made for a moment, and is removed also where that is not easy."""

from __future__ import annotations

import asyncio

from queuecraft.admin import UnknownQueue
from queuecraft.app import QueueCraft
from queuecraft.model.errors import QueueError
from queuecraft.runtime.worker import Worker

PATIENCE = 5.0  # seconds for a broker that may be away


async def removed(
    qc: QueueCraft, worker: Worker, queue: str, *, within: float | None = None
) -> bool:
    """Whether nothing is left of a queue and its worker; a broker that has gone is not waited for
    until it is back."""
    within = PATIENCE if within is None else within
    try:
        async with asyncio.timeout(within):
            await worker.stop(timeout=within / 2)
            await qc.admin.delete(queue)
    except UnknownQueue:
        return True
    except (QueueError, TimeoutError):
        return False
    return True


def advice(queue: str) -> str:
    """What to do about one that may be left."""
    return f"when the broker is back: queuecraft delete {queue} --yes"
