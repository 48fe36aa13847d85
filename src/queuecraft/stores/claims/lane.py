"""Many who ask for the same at once: one call for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from queuecraft.model.errors import ConnectionLost

Q = TypeVar("Q")
A = TypeVar("A")

MOST: Final = 500  # questions in one call: a server sees to nobody else meanwhile


class Lane(Generic[Q, A]):
    """Gathers what is asked in one turn of the loop, and while the last call is under way.

    >>> async def doubled(numbers):
    ...     print("asked for", numbers)
    ...     return [2 * number for number in numbers]
    >>> async def main():
    ...     lane = Lane(doubled)
    ...     return await asyncio.gather(*(lane.ask(number) for number in range(3)))
    >>> asyncio.run(main())
    asked for [0, 1, 2]
    [0, 2, 4]
    """

    def __init__(self, call: Callable[[list[Q]], Awaitable[Sequence[A]]]) -> None:
        self._call = call
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._task: asyncio.Task[None] | None = None

    def ask(self, question: Q) -> asyncio.Future[A]:
        """The answer to one question. It fails with `ConnectionLost`, whatever went wrong."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[A] = loop.create_future()
        self._waiting.append((question, future))
        if self._task is None:
            self._task = loop.create_task(self._work())
        return future

    async def idle(self) -> None:
        """Until everything is answered."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def give_up(self) -> None:
        """Whoever still waits is cancelled."""
        if self._task is not None:
            self._task.cancel()
            await self.idle()

    async def _work(self) -> None:
        batch: list[tuple[Q, asyncio.Future[A]]] = []
        try:
            while self._waiting:
                batch = self._waiting[:MOST]
                del self._waiting[:MOST]
                try:
                    answers = await self._call([question for question, _ in batch])
                except Exception as error:
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(_for_one(error))
                else:
                    for (_, future), answer in zip(batch, answers, strict=True):
                        if not future.done():
                            future.set_result(answer)
        finally:
            self._task = None
            for _, future in (*batch, *self._waiting):  # only if we were cancelled
                future.cancel()
            self._waiting.clear()


def _for_one(error: Exception) -> ConnectionLost:
    """An error of its own for each who waits: raised by many, one object would grow."""
    told = ConnectionLost(f"claims cannot be reached: {error}", operation="claim")
    told.__cause__ = error
    return told
