"""One look at the broker for everybody who asks: the overview that all pages answer from."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from queuecraft.admin.overview import Overview
from queuecraft.app import QueueCraft
from queuecraft.facts import Shutdown
from queuecraft.http.past import Past
from queuecraft.http.refusal import Refusal

log = logging.getLogger("queuecraft.http")

OFTEN = 2.0  # seconds between two looks, while somebody asks
SOONEST = 1.0  # though somebody has changed something
SELDOM = 15.0  # while nobody does, so that there is a past when somebody comes
ASKED = 15.0  # seconds after which somebody who asked has gone
PATIENCE = 10.0  # seconds for the first look
WAITED = 1.0  # for a fresh one, after a pause


class Lookout:
    """Looks at the broker every few seconds, however many ask. It begins with the first who asks,
    or when the service starts."""

    def __init__(self, qc: QueueCraft) -> None:
        self.past = Past()
        self.last: Overview | None = None
        self._qc = qc
        self._task: asyncio.Task[None] | None = None
        self._asked = float("-inf")
        self._hurry = asyncio.Event()
        self._seen = asyncio.Condition()
        self._number = 0
        self._seen_at = float("-inf")
        self._listeners: list[Callable[[], object]] = []
        # Mounted in somebody's app, this is all that tells of the end.
        qc.observe(Shutdown, lambda _: self.stop())

    def start(self) -> None:
        """Begin to look."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._look())

    def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Look no more, and wait for the end."""
        self.stop()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def overview(self) -> Overview:
        """What was seen last. The first who asks waits for it, and one who comes after a pause,
        when it is old, for a fresh one, if it does not take long."""
        patience = PATIENCE if self.last is None else WAITED if self._is_stale() else 0.0
        self.ask()
        if patience:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._next()
        if self.last is None:
            raise Refusal(
                503,
                "NoAnswer",
                "the broker has not been seen yet",
                "try again in a moment",
                {"Retry-After": "2"},
            )
        return self.last

    def ask(self) -> None:
        """Somebody is looking: look more often for a while."""
        if self._age() > ASKED:
            self._hurry.set()
        self._asked = asyncio.get_running_loop().time()
        self.start()

    def hurry(self) -> None:
        """Something was changed: look again at once."""
        self._hurry.set()

    def listen(self, hear: Callable[[], object]) -> None:
        """Be told of every look from now on."""
        self._listeners.append(hear)

    def tell(self) -> None:
        """Tell everybody that there is something new."""
        for hear in self._listeners:
            hear()

    def _age(self) -> float:
        return asyncio.get_running_loop().time() - self._asked

    def _is_stale(self) -> bool:
        """Nobody has asked for a while. While somebody does, it is as fresh as it can be."""
        seen = asyncio.get_running_loop().time() - self._seen_at
        return self._age() > ASKED and seen > OFTEN

    async def _next(self) -> None:
        number = self._number
        async with self._seen:
            await self._seen.wait_for(lambda: self._number > number)

    async def _look(self) -> None:
        async with self._qc.admin.watch() as watch:
            while True:
                began = asyncio.get_running_loop().time()
                self._hurry.clear()
                try:
                    self.last = await watch.look()
                except Exception as error:  # a look that fails must not be the last
                    log.exception("could not look at the broker: %s", type(error).__name__)
                else:
                    self.past.note(self.last)
                    self._number += 1
                    self._seen_at = asyncio.get_running_loop().time()
                    async with self._seen:
                        self._seen.notify_all()
                    self.tell()
                pause = OFTEN if self._age() <= ASKED else SELDOM
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._hurry.wait()
                # Two looks within a second are one.
                await asyncio.sleep(began + SOONEST - asyncio.get_running_loop().time())
