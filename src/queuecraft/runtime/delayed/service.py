"""What runs all the time: moving messages when they are due, cleaning up, watching the size."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from queuecraft.clock import Clock
from queuecraft.model.delayed import DelayedSettings
from queuecraft.model.errors import QueueError
from queuecraft.runtime.delayed.cleanup import Cleanup
from queuecraft.runtime.delayed.delivery import Delivery
from queuecraft.runtime.delayed.monitor import Monitor
from queuecraft.runtime.delayed.place import Place
from queuecraft.runtime.facts import Facts
from queuecraft.stores.base import NEVER, DelayedStore, Which

R = TypeVar("R")

AT_ONCE: Final = 500  # messages moved in one step
POLL: Final = 1.0  # seconds between looks for what other processes have added
SAMPLE: Final = 10.0  # seconds between looks at the size
PAUSE: Final = 1.0  # seconds before trying again, when something is in the way


class Service:
    """Two tasks. However many processes run one, each message is moved by one of them."""

    def __init__(
        self,
        settings: DelayedSettings,
        place: Place,
        delivery: Delivery,
        cleanup: Cleanup,
        monitor: Monitor,
        clock: Clock,
        facts: Facts,
    ) -> None:
        self._settings = settings
        self._place = place
        self._delivery = delivery
        self._cleanup = cleanup
        self._monitor = monitor
        self._clock = clock
        self._facts = facts
        self._wake = asyncio.Event()
        self._next_at = 0.0
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._clean_at = NEVER
        self._in_trouble: set[str] = set()

    @property
    def is_running(self) -> bool:
        """Whether it has been started, and not stopped since."""
        return bool(self._tasks)

    def start(self) -> None:
        """Begin; does nothing if it runs already."""
        if not self._tasks:
            self._clean_at = NEVER
            loop = asyncio.get_running_loop()
            self._tasks = (loop.create_task(self._moving()), loop.create_task(self._tending()))

    async def wait(self) -> None:
        """Until it is stopped."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self, timeout: float) -> None:
        """End, once what is being moved has arrived; after `timeout` seconds in any case."""
        tasks, self._tasks = self._tasks, ()
        if not tasks:
            return
        async with self._delivery.halted(timeout):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def added(self, due: float) -> None:
        """A message was added that is due then."""
        if due < self._next_at:
            self._wake.set()

    # -- moving --------------------------------------------------------------------------------

    async def _moving(self) -> None:
        while True:
            self._wake.clear()
            self._next_at = self._clock.now() + POLL
            next_at = await self._try("moving delayed messages", self._move)
            now = self._clock.now()
            self._next_at = min(now + PAUSE if next_at is None else next_at, now + POLL)
            if self._next_at > now and not self._wake.is_set():
                timer = self._clock.call_later(self._next_at - now, self._wake.set)
                try:
                    await self._wake.wait()
                finally:
                    timer.cancel()

    async def _move(self, store: DelayedStore) -> float:
        """Everything that is due; when the next is."""
        while True:
            moved = await self._delivery.deliver(store, Which(self._clock.now(), AT_ONCE))
            census = await store.census(self._clock.now())
            if moved:
                await self._monitor.see(store, census.size)
            if census.next_at > self._clock.now():
                return census.next_at
            await asyncio.sleep(0)

    # -- tending -------------------------------------------------------------------------------

    async def _tending(self) -> None:
        began = self._clock.now()
        while True:
            await self._try(
                "looking after delayed messages", lambda store: self._tend(store, began)
            )
            left = self._clean_at - self._clock.now()
            await self._clock.sleep(min(SAMPLE, left) if left > 0 else PAUSE)

    async def _tend(self, store: DelayedStore, began: float) -> None:
        stats = await self._monitor.sample(store)
        last = stats.cleanup.last_run_at  # perhaps by another process
        interval = self._settings.cleanup_interval
        self._clean_at = (began if last is None else last.timestamp()) + interval
        if self._clean_at <= self._clock.now():
            self._clean_at = self._clock.now() + interval
            await self._cleanup.run(store)

    async def _try(self, what: str, work: Callable[[DelayedStore], Awaitable[R]]) -> R | None:
        """Do it; what goes wrong is said once, until it goes well again."""
        try:
            async with self._place.store(patient=True) as store:
                result = await work(store)
        except Exception as error:
            level = logging.DEBUG if what in self._in_trouble else logging.ERROR
            self._in_trouble.add(what)
            known = isinstance(error, QueueError)
            text = "%s failed, and is tried again: %s"
            self._facts.log.log(level, text, what, error, exc_info=None if known else error)
            return None
        self._in_trouble.discard(what)
        return result
