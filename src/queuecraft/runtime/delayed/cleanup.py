"""Taking overdue messages out: in batches, counted, and by the policy that is set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from queuecraft.clock import Clock
from queuecraft.codec.headers import trim
from queuecraft.model.delayed import CleanupPolicy, DelayedSettings
from queuecraft.model.errors import QueueError
from queuecraft.runtime.delayed.delivery import Delivery
from queuecraft.runtime.delayed.monitor import Monitor
from queuecraft.runtime.delayed.stats import CleanupResult
from queuecraft.runtime.facts import DelayedCleaned, Facts
from queuecraft.stores.base import START, DelayedStore, Moved, Notes, Which

LONGEST = 500  # bytes of an error that are kept

Deed: TypeAlias = Callable[[DelayedStore, Which], Awaitable[Sequence[Moved]]]
Progress: TypeAlias = Callable[[int], object]
"""Told how many have been cleaned up so far."""


class Cleanup:
    """One at a time in a process; several processes at once share the work."""

    def __init__(
        self,
        settings: DelayedSettings,
        delivery: Delivery,
        monitor: Monitor,
        clock: Clock,
        facts: Facts,
    ) -> None:
        self._settings = settings
        self._monitor = monitor
        self._clock = clock
        self._facts = facts
        self._one = asyncio.Lock()
        self._unwritten = 0  # failures that the store could not be told of
        deeds: dict[CleanupPolicy, Deed] = {
            "deliver": delivery.deliver,
            "dead_letter": delivery.bury,
            "drop": delivery.drop,
        }
        self._deeds: Mapping[CleanupPolicy, Deed] = MappingProxyType(deeds)

    async def run(self, store: DelayedStore, on_progress: Progress | None = None) -> CleanupResult:
        """Clean up once; what became of it is written down and told, however it ends."""
        async with self._one:
            run = _Run(self._clock.now(), self._clock.monotonic())
            try:
                await self._clean(store, run, on_progress)
                await self._write(store, run, "")
                size = (await store.census(run.at)).size
                await self._monitor.see(store, size)
            except Exception as error:
                await self._note_failure(store, run, error)
                self._tell(run, None, error)
                raise
            self._tell(run, size, None)
            return CleanupResult(
                cleaned=run.cleaned,
                seconds=run.seconds,
                size=size,
                policy=self._settings.policy,
                refused=run.refused,
            )

    def failed(self, error: Exception) -> None:
        """A cleanup could not even begin; that is written down with the next."""
        self._unwritten += 1
        self._tell(_Run(self._clock.now(), self._clock.monotonic()), None, error)

    # -- inside --------------------------------------------------------------------------------

    async def _clean(self, store: DelayedStore, run: _Run, on_progress: Progress | None) -> None:
        settings = self._settings
        deed = self._deeds[settings.policy]
        # To deliver is what the mover does as well: there is no need to leave it any time.
        due_by = run.at if settings.policy == "deliver" else run.at - settings.grace
        after = START
        while True:
            now = self._clock.now()
            moved = await deed(store, Which(now, settings.batch, due_by, after))
            done = sum(each.error is None for each in moved)
            run.cleaned += done
            run.refused += len(moved) - done
            run.seconds = self._clock.monotonic() - run.since
            if not moved:  # fewer than a batch may just be large
                return
            if on_progress is not None:
                on_progress(run.cleaned)
            after = max(each.waiting.cursor for each in moved)  # what was refused is not met again
            await asyncio.sleep(0)

    async def _write(self, store: DelayedStore, run: _Run, error: str) -> None:
        failures, self._unwritten = self._unwritten + bool(error), 0
        try:
            await store.note(
                Notes(
                    put={
                        "cleanup.cleaned_last": str(run.cleaned),
                        "cleanup.last_run_at": repr(run.at),
                        "cleanup.last_duration": repr(run.seconds),
                        "cleanup.last_error": error,
                    },
                    add={
                        "cleanup.runs": 1 + failures - bool(error),
                        "cleanup.failures": failures,
                        "cleanup.cleaned_total": run.cleaned,
                    },
                )
            )
        except BaseException:
            self._unwritten = failures - bool(error)
            raise

    async def _note_failure(self, store: DelayedStore, run: _Run, error: Exception) -> None:
        try:
            await self._write(store, run, _text(error))
        except QueueError:  # it failed because the store is away, most likely
            self._unwritten += 1

    def _tell(self, run: _Run, size: int | None, error: Exception | None) -> None:
        self._facts.emit(
            DelayedCleaned(
                cleaned=run.cleaned,
                refused=run.refused,
                seconds=run.seconds,
                size=size,
                policy=self._settings.policy,
                error=None if error is None else _text(error),
            )
        )


@dataclass(slots=True)
class _Run:
    """One cleanup under way."""

    at: float
    since: float
    seconds: float = 0.0
    cleaned: int = 0
    refused: int = 0


def _text(error: Exception) -> str:
    return trim(str(error) or repr(error), LONGEST)
