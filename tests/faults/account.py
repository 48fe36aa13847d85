"""Whether what all processes wrote down adds up: nothing lost, nothing too often, nothing left."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from queuecraft.drivers.base import QueueInfo
from tests.faults import page
from tests.faults.job import ENDS, LAST_ATTEMPT
from tests.faults.page import Line

LOSSES: Final = ("killing", "died", "freezing", "cut")


@dataclass(frozen=True)
class Run:
    """One call of a handler; `end` is the last moment its process was surely at it."""

    id: str
    pid: int
    attempt: int
    start: int
    end: int


class Account:
    """The lines of one test.

    What a death may cost is written down with it: a worker, what it held; a publisher, what it was
    publishing. The sum of that is the number of duplicates there may be.
    """

    def __init__(self, lines: Sequence[Line], *, atomic_moves: bool = True) -> None:
        self.lines = lines
        self._atomic_moves = atomic_moves

    @classmethod
    def of(cls, folder: Path, *, atomic_moves: bool = True) -> Account:
        return cls(page.read(folder), atomic_moves=atomic_moves)

    # -- what was seen -------------------------------------------------------------------------

    def ids(self, what: page.What) -> set[str]:
        return {line.id for line in self.lines if line.what == what}

    def count(self, what: page.What) -> int:
        return sum(line.what == what for line in self.lines)

    def by(self, pid: int, *what: page.What) -> list[Line]:
        """What one process did."""
        return [line for line in self.lines if line.pid == pid and line.what in what]

    @property
    def deaths(self) -> list[Line]:
        return [line for line in self.lines if line.what in ("killing", "died")]

    @property
    def losses(self) -> list[Line]:
        """Whenever a process has lost what it held, or did not learn what became of a publish."""
        return [line for line in self.lines if line.what in LOSSES]

    @property
    def duplicates(self) -> list[Line]:
        """Runs of a message that was handled before, or of an attempt that was made before."""
        return [line for line, again, _ in self._attempts() if again]

    @property
    def copies(self) -> int:
        """How many messages there were too many, at least. Where a retry is sent before its message
        is acked, each may be there twice, and a copy that fails has duplicates of all its runs."""
        redriven, anew = self._redriven, self._begun_anew
        runs = Counter(
            (line.id, line.at > redriven, line.attempt)
            for line in self.lines
            if line.what == "started" and line not in anew
        )
        copies: Counter[str] = Counter()
        for (id, _, _), count in runs.items():
            copies[id] = max(copies[id], count - 1)
        return copies.total()

    def summary(self) -> str:
        return (
            f"{self.count('published')} published, {len(self.ids('handled'))} handled in "
            f"{self.count('started')} runs, {self.count('failed')} failures, "
            f"{self.count('dead')} dead letters, {len(self.deaths)} deaths, "
            f"{self.count('cut')} cuts, {len(self.duplicates)} duplicates"
        )

    @property
    def _begun_anew(self) -> list[Line]:
        """Runs of an attempt that has failed in a worker which was stopped before its retry: where
        order is kept, a retry waits in its worker, and who comes after it knows of no failures."""
        stopping: set[int] = set()
        failed: dict[tuple[str, int], int] = {}
        anew: list[Line] = []
        for line in self.lines:
            if line.what == "stopping":
                stopping.add(line.victim)
            elif line.what == "failed":
                failed[line.id, line.attempt] = line.pid
            elif line.what == "started" and failed.get((line.id, line.attempt)) in stopping:
                anew.append(line)
        return anew

    @property
    def _redriven(self) -> int:
        """When dead letters were sent back."""
        return max((line.at for line in self.lines if line.what == "redriving"), default=0)

    # -- whether it adds up --------------------------------------------------------------------

    def check(self, queues: Iterable[QueueInfo], note: str = "") -> None:
        """Assert that it does, naming what does not."""
        wrong = [
            *self._lost(),
            *self._out_of_nowhere(),
            *self._too_often(),
            *self._wrong_attempts(),
            *self._wrong_redeliveries(),
            *self._unexplained(),
            *self._owned_twice(),
            *_left_over(queues),
        ]
        if wrong:
            head = f"the account does not add up ({self.summary()}{note})"
            raise AssertionError("\n- ".join([head, *wrong]))

    def _lost(self) -> Iterator[str]:
        redriven = self._redriven
        kept = {line.id for line in self.lines if line.what == "dead" and line.at > redriven}
        if lost := self.ids("published") - self.ids("handled") - kept:
            yield f"published, never handled: {_some(lost)}"

    def _out_of_nowhere(self) -> Iterator[str]:
        if strange := self.ids("started") - self.ids("publishing"):
            yield f"handled, never published: {_some(strange)}"
        refused = {
            line.id for line in self.lines if line.what == "refused" and line.reason == "rejected"
        }
        if taken := refused & self.ids("started"):
            yield f"said to be rejected, handled all the same: {_some(taken)}"

    def _too_often(self) -> Iterator[str]:
        allowed = sum(line.allowed for line in self.losses)
        found = self.duplicates
        count = len(found) if self._atomic_moves else self.copies
        if count > allowed:
            which = _some(f"{line.id} attempt {line.attempt}" for line in found)
            yield f"{count} duplicates, at most {allowed} allowed: {which}"

    def _wrong_attempts(self) -> Iterator[str]:
        for line, _, failed in self._attempts():
            if line.attempt < 1 or (line.attempt > 1 and line.attempt - 1 not in failed):
                before = f"after failures {sorted(failed)}" if failed else "and never failed before"
                yield f"{line.id}: attempt {line.attempt} {before}"

    def _attempts(self) -> Iterator[tuple[Line, bool, set[int]]]:
        """Each run, whether it is a duplicate, and the attempts that had failed before it."""
        made: dict[str, set[int]] = defaultdict(set)
        failed: dict[str, set[int]] = defaultdict(set)
        handled: set[str] = set()
        redriven = 0
        ended: dict[str, int] = {}
        anew = self._begun_anew
        for line in self.lines:
            if line.what == "redriving":
                redriven = line.at
            elif line.what == "handled":
                handled.add(line.id)
            elif line.what == "failed":
                failed[line.id].add(line.attempt)
                if line.attempt == LAST_ATTEMPT:
                    ended[line.id] = line.at
            elif line.what == "started":
                if line.attempt == 1 and 0 < ended.get(line.id, 0) < redriven:
                    made[line.id].clear()
                    failed[line.id].clear()
                    del ended[line.id]
                made_before = line.attempt in made[line.id] and line not in anew
                again = line.id in handled or made_before
                yield line, again, set(failed[line.id])
                made[line.id].add(line.attempt)

    def _wrong_redeliveries(self) -> Iterator[str]:
        """A message comes again because its worker is gone or cut off, and for no other reason."""
        losses = self.count("died")  # noticed some time after they have happened
        if not self._atomic_moves:
            losses = len(self.losses)  # a broker may notice long before, and tell others
        for line in self.lines:
            if self._atomic_moves and line.what in LOSSES and line.what != "died":
                losses += 1
            elif line.what == "started" and line.redeliveries > losses:
                yield f"{line.id}: {line.redeliveries} redeliveries after {losses} losses"

    def _unexplained(self) -> Iterator[str]:
        tempers = {line.id: line.temper for line in self.lines if line.what == "publishing"}
        failed = {
            line.id for line in self.lines if line.what == "failed" and line.attempt == LAST_ATTEMPT
        }
        for line in self.lines:
            if line.what != "dead":
                continue
            expected = ENDS.get(tempers.get(line.id, ""))
            if expected != line.reason:
                yield f"unexplained dead letter {line.id}: {line.reason}, expected {expected}"
            elif line.reason == "handler-error" and (
                line.id not in failed or line.attempt != LAST_ATTEMPT
            ):
                yield f"dead letter {line.id} with {line.attempt} failures of {LAST_ATTEMPT}"

    def _owned_twice(self) -> Iterator[str]:
        if self.losses and not self._atomic_moves:
            return  # there may be two of it
        by_id: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs():
            by_id[run.id].append(run)
        for id, runs in by_id.items():
            until = owner = 0
            for run in sorted(runs, key=lambda each: each.start):
                if run.start < until:
                    yield f"{id}: taken by process {run.pid} while process {owner} was at it"
                if run.end > until:
                    until, owner = run.end, run.pid

    def runs(self) -> list[Run]:
        """Every call of a handler, from when to when."""
        ends: dict[tuple[int, str, int], list[int]] = defaultdict(list)
        last: dict[int, int] = {}
        lost: dict[int, list[int]] = defaultdict(list)
        for line in self.lines:
            last[line.pid] = line.at
            if line.what in ("killing", "freezing", "cut"):
                lost[line.victim or line.pid].append(line.at)
            elif line.what in ("handled", "failed", "left"):
                ends[line.pid, line.id, line.attempt].append(line.at)
        runs: list[Run] = []
        for line in self.lines:
            if line.what == "started":
                its = ends[line.pid, line.id, line.attempt]
                until = [at for at in (*its, *lost[line.pid]) if at > line.at]
                end = min(until, default=last[line.pid])
                runs.append(Run(line.id, line.pid, line.attempt, line.at, end))
        return runs


def _left_over(queues: Iterable[QueueInfo]) -> Iterator[str]:
    for queue in queues:
        counts = {
            "ready": queue.ready,
            "in flight": queue.in_flight,
            "delayed": queue.delayed,
            "dead": queue.dead,
        }
        for what, count in counts.items():
            if count:
                yield f"left in {queue.name}: {count} {what}"


def _some(items: Iterable[str], limit: int = 10) -> str:
    listed = sorted(items)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more
