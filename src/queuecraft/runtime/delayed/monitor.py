"""Keeping an eye on how many delayed messages wait: history, status, and alerts once each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from queuecraft.clock import Clock
from queuecraft.model.delayed import DelayedSettings
from queuecraft.runtime.delayed.growth import History, is_abnormal, rates
from queuecraft.runtime.delayed.message import moment
from queuecraft.runtime.delayed.stats import CleanupStats, DelayedStats, Status
from queuecraft.runtime.facts import DelayedAlert, DelayedRecovered, Facts
from queuecraft.stores.base import Census, DelayedStore, Notes

KEPT: Final = 240  # minutes of history
RELIEF: Final = 0.95  # an alert is over at this share of where it began: not each time it wavers
MINUTE: Final = "minute."
ORDER: Final[tuple[Status, ...]] = ("healthy", "warning", "critical")
ABNORMAL: Final = "abnormal"


class Monitor:
    """One for each process. What it has seen is kept in the store, so that every process tells the
    same, and of several that notice something only the first raises the alarm."""

    def __init__(self, settings: DelayedSettings, clock: Clock, facts: Facts) -> None:
        self._settings = settings
        self._now = clock.now
        self._facts = facts
        self._level: Status | None = None  # not known yet: others may have raised the alarm

    def status(self, size: int) -> Status:
        """How full it is, in a word."""
        if size >= self._settings.limit:
            return "critical"
        return "warning" if size >= self._settings.warning_size else "healthy"

    async def see(self, store: DelayedStore, size: int) -> None:
        """So many wait; told of each time it is known, and cheap unless a bound is crossed."""
        # By its limit: a process with another one has nothing to say about this alarm.
        alarm = f"alarm.size.{self._settings.limit}"
        if self._level is None:
            self._level = _level((await store.notes()).get(alarm))
        level = self._alarm(size)
        if level == self._level:
            return
        self._level = level
        before = _level(await store.exchange(alarm, level))
        if ORDER.index(level) > ORDER.index(before):
            self._alert("size", "critical" if level == "critical" else "warning", size, None)
        elif level == "healthy" != before:
            self._recover("size", size)

    async def sample(self, store: DelayedStore) -> DelayedStats:
        """Look, and write it down; the state of things."""
        now = self._now()
        minute = int(now // 60)
        census = await store.census(now - self._settings.grace)
        notes = await store.notes()
        old = [name for name in notes if name.startswith(MINUTE) and _minute(name) <= minute - KEPT]
        current = f"{MINUTE}{minute}"
        if old or notes.get(current) != str(census.size):
            await store.note(Notes(put={current: str(census.size)}, remove=old))
        await self.see(store, census.size)
        history = _history({**notes, current: str(census.size)}, minute)
        stats = self._stats(census, history, rates(history, now % 60 / 60), notes)
        await self._watch_growth(store, stats, notes.get("alarm.growth", ""))
        return stats

    # -- inside --------------------------------------------------------------------------------

    def _alarm(self, size: int) -> Status:
        """As the status, but what was reached is left only with some relief."""
        status = self.status(size)
        for level, bound in (
            ("critical", self._settings.limit),
            ("warning", self._settings.warning_size),
        ):
            if status == level or (self._level == level and size >= RELIEF * bound):
                return "critical" if level == "critical" else "warning"
        return "healthy"

    def _stats(
        self, census: Census, history: History, growth: Sequence[float], notes: Mapping[str, str]
    ) -> DelayedStats:
        settings = self._settings
        return DelayedStats(
            size=census.size,
            max_size=census.max_size,
            average_size=sum(size for _, size in history) / len(history),
            limit=settings.limit,
            status=self.status(census.size),
            oldest_due=None if census.oldest_due is None else moment(census.oldest_due),
            overdue=census.overdue,
            growth_per_minute=growth[-1] if growth else 0.0,
            abnormal_growth=is_abnormal(
                growth, floor=settings.growth_floor, deviations=settings.growth_deviations
            ),
            history=tuple((moment(60.0 * minute), size) for minute, size in history),
            cleanup=_cleanup(notes),
        )

    async def _watch_growth(self, store: DelayedStore, stats: DelayedStats, known: str) -> None:
        now = ABNORMAL if stats.abnormal_growth else ""
        if now == known or await store.exchange("alarm.growth", now) == now:
            return
        if now:
            self._alert("growth", "warning", stats.size, stats.growth_per_minute)
        else:
            self._recover("growth", stats.size)

    def _alert(
        self,
        about: Literal["size", "growth"],
        status: Literal["warning", "critical"],
        size: int,
        growth: float | None,
    ) -> None:
        self._facts.emit(
            DelayedAlert(
                about=about,
                status=status,
                size=size,
                limit=self._settings.limit,
                growth_per_minute=growth,
            )
        )

    def _recover(self, about: Literal["size", "growth"], size: int) -> None:
        self._facts.emit(DelayedRecovered(about=about, size=size, limit=self._settings.limit))


def _level(text: str | None) -> Status:
    for level in ORDER:
        if level == text:
            return level
    return "healthy"


def _minute(name: str) -> int:
    try:
        return int(name.removeprefix(MINUTE))
    except ValueError:  # nothing of ours
        return -1


def _history(notes: Mapping[str, str], now: int) -> History:
    known = {
        minute: int(size)
        for name, size in notes.items()
        if name.startswith(MINUTE)
        and size.isdecimal()
        and now - KEPT < (minute := _minute(name)) <= now
    }
    return sorted(known.items())


def _cleanup(notes: Mapping[str, str]) -> CleanupStats:
    def number(name: str) -> float | None:
        try:
            return float(notes[f"cleanup.{name}"])
        except (KeyError, ValueError):
            return None

    last = number("last_run_at")
    return CleanupStats(
        runs=int(number("runs") or 0),
        failures=int(number("failures") or 0),
        cleaned_total=int(number("cleaned_total") or 0),
        cleaned_last=int(number("cleaned_last") or 0),
        last_run_at=None if last is None else moment(last),
        last_duration=number("last_duration"),
        last_error=notes.get("cleanup.last_error") or None,
    )
