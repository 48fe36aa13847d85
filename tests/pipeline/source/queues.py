"""What is in queues, and putting it there, from tests that are not asynchronous themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from queuecraft import QueueCraft
from queuecraft.admin import PeekedMessage


def declared(url: str, queue: str, *patterns: str) -> None:
    async def main() -> None:
        async with QueueCraft(url) as qc:
            await qc.admin.declare(queue, *patterns)

    asyncio.run(main())


def published(url: str, event: str, payloads: Iterable[Any], **options: Any) -> list[str]:
    async def main() -> list[str]:
        async with QueueCraft(url) as qc:
            return [await qc.publish(event, payload, **options) for payload in payloads]

    return asyncio.run(main())


def waiting(url: str, queue: str, limit: int = 1000) -> Sequence[PeekedMessage]:
    async def main() -> Sequence[PeekedMessage]:
        async with QueueCraft(url) as qc:
            return await qc.admin.peek(queue, limit)

    return asyncio.run(main())


def handled(url: str, queue: str, count: int) -> None:
    """So many messages are worked on, and gone."""

    async def main() -> None:
        left, done = count, asyncio.Event()
        async with QueueCraft(url) as qc:
            worker = qc.worker(queue, concurrency=1)

            def handle(payload: Any) -> None:
                nonlocal left
                left -= 1
                if not left:
                    done.set()

            worker.on("#", handle)
            await worker.start()
            await done.wait()

    asyncio.run(main())
