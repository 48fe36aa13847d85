"""A publisher and a worker in the process of the test, at work while another process dies."""

from __future__ import annotations

import asyncio
import os
from itertools import count
from types import TracebackType
from typing import Self

from queuecraft import QueueCraft
from tests.faults.job import TEMPERS, Hands, Job, worker_of
from tests.faults.scene import Scene

BACKLOG = 16  # jobs kept waiting, so that there is work for whoever joins


class Survivors:
    """They publish and handle until the scene is finished."""

    def __init__(self, scene: Scene, *, idle: bool = False) -> None:
        self._scene = scene
        self._idle = idle
        self._qc = QueueCraft(scene.broker.url)
        hands = Hands(scene.folder, scene.page)
        self._worker = worker_of(self._qc, hands, arguments=scene.broker.arguments)
        self._numbers = count()
        self._resting = False
        self._publishing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._qc.open()
        await self._publish()
        if not self._idle:
            await self.work()
        self._publishing = asyncio.create_task(self._keep_publishing())
        return self

    async def work(self) -> None:
        """Handle jobs from now on."""
        await self._worker.start()

    async def rest(self) -> None:
        """Publish no more."""
        self._resting = True
        if self._publishing is not None:
            await self._publishing

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.rest()
        await self._qc.shutdown()

    async def _keep_publishing(self) -> None:
        while not self._resting:
            info = await self._scene.queue()
            if (info.ready or 0) < BACKLOG:
                await self._publish()
            await asyncio.sleep(0.01)

    async def _publish(self) -> None:
        jobs = [self._next() for _ in range(BACKLOG)]
        await self._scene.publish(*jobs, by=self._qc)

    def _next(self) -> Job:
        number = next(self._numbers)
        return Job(f"{os.getpid()}-{number}", TEMPERS[number % len(TEMPERS)])
