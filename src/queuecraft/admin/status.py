"""Whether all is well, and if not, why: a word, and a sentence for each reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isinf

from queuecraft.admin.growth import growth, held
from queuecraft.admin.overview import CircuitRow, QueueRow, Word, WorkerRow

NAMED = 3  # names in a sentence; the rest is counted
RATIO = 0.05  # of the deliveries may fail
RECENT = 300.0  # seconds for which new dead letters are worth a warning
PATIENCE = 60.0  # seconds a queue may grow


@dataclass(frozen=True, slots=True)
class Trends:
    """What needs more than one look to be seen; times are of a clock that never goes back."""

    grown: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    """Dead-letter queues: when each last grew, and by how much in the last minutes."""
    stuck: Mapping[str, float] = field(default_factory=dict)
    """Queues that are never done at their pace, and since when."""

    def after(self, before: Sequence[QueueRow], now: Sequence[QueueRow], time: float) -> Trends:
        """The trends with one more look."""
        grown = {name: (at, more) for name, (at, more) in self.grown.items() if time - at <= RECENT}
        stuck: dict[str, float] = {}
        for row in now:
            if row.drain is not None and isinf(row.drain):
                stuck[row.name] = self.stuck.get(row.name, time)
            if row.holds_dead_letters and not held(row):
                grown.pop(row.name, None)  # somebody has seen to it
        for name, more in growth(before, now).items():
            grown[name] = (time, more + grown.get(name, (0.0, 0))[1])
        return Trends(grown, stuck)


def judged(
    queues: Iterable[QueueRow],
    workers: Iterable[WorkerRow],
    circuits: Iterable[CircuitRow],
    trends: Trends,
    failing: Mapping[str, float],
    *,
    died: Mapping[str, float] | None = None,
    blocked: str | None,
    time: float,
) -> tuple[Word, tuple[str, ...]]:
    """The word, and why it is not a better one. `failing` are the shares of what fails,
    `died` says how many seconds ago a message died last in each dead-letter queue.

    >>> ill = QueueRow(name="billing", ready=3, consumers=0)
    >>> judged([ill], [], [], Trends(), {}, blocked=None, time=0.0)
    ('critical', ("'billing' has messages waiting, and nobody consumes it.",))
    """
    workers = list(workers)
    served = {row.queue for row in workers if row.state != "silent"}
    work = [row for row in queues if not row.holds_dead_letters]
    abandoned = [
        row.name
        for row in work
        if row.ready and row.consumers == 0 and row.paused is None and row.name not in served
    ]
    critical = [f"The broker takes no messages: {blocked}."] if blocked else []
    if abandoned:
        critical.append(
            _sentence(
                abandoned,
                "has messages waiting, and nobody consumes it.",
                "have messages waiting, and nobody consumes them",
            )
        )
    warnings = [
        *_of_workers(workers),
        *_of_circuits(circuits),
        *_of_failures(failing),
    ]
    if trends.grown:
        more = sum(count for _, count in trends.grown.values())
        letters = "1 new dead letter" if more == 1 else f"{more:,} new dead letters"
        newest = sorted(trends.grown, key=lambda name: -trends.grown[name][0])
        warnings.append(f"{letters} in the last minutes, in {_named(newest)}.")
    # Who has only begun to look has seen nothing grow.
    lately = {name: ago for name, ago in (died or {}).items() if ago <= RECENT}
    if unseen := sorted(lately.keys() - trends.grown.keys(), key=lambda name: lately[name]):
        warnings.append(f"Messages died in the last minutes, in {_named(unseen)}.")
    paused = [row.name for row in work if row.paused is not None and row.ready]
    if paused:
        warnings.append(
            _sentence(
                paused,
                "is paused, and has messages waiting.",
                "are paused, and have messages waiting",
            )
        )
    known = {*abandoned, *paused}
    growing = [
        row.name
        for row in work
        if row.name not in known and time - trends.stuck.get(row.name, time) > PATIENCE
    ]
    if growing:
        warnings.append(
            _sentence(
                growing,
                "has had a backlog for over a minute that is not getting smaller.",
                "have had backlogs for over a minute that are not getting smaller",
            )
        )
    word: Word = "critical" if critical else "warning" if warnings else "healthy"
    return word, (*critical, *warnings)


def _of_workers(workers: Iterable[WorkerRow]) -> Iterable[str]:
    workers = list(workers)
    silent = {row.process: row for row in workers if row.state == "silent"}
    if len(silent) == 1:
        (row,) = silent.values()
        yield f"Process {row.pid} on {row.host} has given no sign of life lately."
    elif silent:
        hosts = sorted({row.host for row in silent.values()})
        yield f"{len(silent):,} processes have given no sign of life lately, on {_listed(hosts)}."
    away = {row.process for row in workers if row.state == "reconnecting"}
    if away:
        what = "1 process has" if len(away) == 1 else f"{len(away):,} processes have"
        yield f"{what} lost the broker, and try to reconnect."


def _of_circuits(circuits: Iterable[CircuitRow]) -> Iterable[str]:
    names = sorted({row.name for row in circuits if row.state == "open"})
    if len(names) == 1:
        yield f"The circuit {names[0]!r} is open."
    elif names:
        yield f"{len(names):,} circuits are open: {_named(names)}."


def _of_failures(failing: Mapping[str, float]) -> Iterable[str]:
    high = sorted((name for name in failing if failing[name] > RATIO), key=lambda n: -failing[n])
    if len(high) == 1:
        yield f"{failing[high[0]]:.0%} of what {high[0]!r} handles fails."
    elif high:
        least = min(failing[name] for name in high)
        yield f"At least {least:.0%} of what they handle fails in {_named(high)}."


def _sentence(names: Sequence[str], one: str, many: str) -> str:
    if len(names) == 1:
        return f"{names[0]!r} {one}"
    return f"{len(names):,} queues {many}: {_named(names)}."


def _named(names: Sequence[str]) -> str:
    return _listed([repr(name) for name in names])


def _listed(names: Sequence[str]) -> str:
    if len(names) <= NAMED:
        return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED:,} more"
