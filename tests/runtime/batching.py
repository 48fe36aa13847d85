"""What the tests of batches share: a handler of lists, and numbers to give it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.runtime.consuming import number
from tests.runtime.support import Stage

ONE_TO_FIVE = [1, 2, 3, 4, 5]


class Batches:
    """A handler of lists that writes down what it gets, and stays inside until told otherwise."""

    def __init__(self, *, closed: bool = False) -> None:
        self.begun: list[list[int]] = []
        self.ended: list[list[int]] = []
        self._open = asyncio.Event()
        if not closed:
            self._open.set()

    async def handle(self, numbers: list[int]) -> None:
        self.begun.append(numbers)
        await self._open.wait()
        self.ended.append(numbers)

    def open(self) -> None:
        self._open.set()

    @property
    def numbers(self) -> list[int]:
        return [each for batch in self.ended for each in batch]


async def publish(stage: Stage, *numbers: int, **options: Any) -> None:
    await stage.qc.publish_many(number, numbers, **options)
