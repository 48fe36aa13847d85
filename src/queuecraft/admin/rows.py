"""Queues and workers as rows: what a look found, and how fast it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from queuecraft.admin.overview import CircuitRow, QueueRow, WorkerRow
from queuecraft.admin.rates import Pace, Who, arrivals, by_queue, drain, p95
from queuecraft.admin.sample import Sample
from queuecraft.model.presence import Presence, WorkerPresence


def queue_rows(
    before: Sample | None,
    now: Sample,
    paces: Mapping[Who, Pace],
    durations: Mapping[Who, Sequence[int]],
    holds_dead_letters: Callable[[str], bool],
) -> tuple[QueueRow, ...]:
    """A row for each queue, by name."""
    seconds = 0.0 if before is None else now.time - before.time
    done = by_queue(paces)
    steps: dict[str, list[Sequence[int]]] = {}
    for (_, queue), counts in durations.items():
        steps.setdefault(queue, []).append(counts)
    paused = _paused(now)
    rows: list[QueueRow] = []
    for name, info in sorted(now.queues.items()):
        old = None if before is None else before.queues.get(name)
        pace = done.get(name)
        if pace is not None:
            handled: float | None = pace.settled
            arriving = arrivals(old, info, seconds, handled)
        else:
            told = info.rates or {}
            arriving, handled = told.get("in"), told.get("out")
        dead = info.dead
        if dead is None and (letters := now.queues.get(f"{name}.dlq")) is not None:
            dead = letters.ready
        holds = holds_dead_letters(name)
        rows.append(
            QueueRow(
                name=name,
                ready=info.ready,
                in_flight=info.in_flight,
                delayed=info.delayed,
                dead=dead,
                consumers=info.consumers,
                oldest_age=info.oldest_age,
                in_per_second=arriving,
                handled_per_second=handled,
                failed_per_second=None if pace is None else pace.failed,
                p95=p95(steps.get(name, ())),
                drain=None if holds else drain(old, info, seconds, arriving, handled),
                paused=paused.get(name),
                holds_dead_letters=holds,
            )
        )
    return tuple(rows)


def worker_rows(
    now: Sample, paces: Mapping[Who, Pace], durations: Mapping[Who, Sequence[int]]
) -> tuple[WorkerRow, ...] | None:
    """A row for each worker, by queue; None where there are no signs of life."""
    if now.presences is None:
        return None
    rows: list[WorkerRow] = []
    for process in now.presences:
        silent = now.silent(process)
        for worker in process.workers:
            who = (process.id, worker.queue)
            pace = None if silent else paces.get(who)
            rows.append(
                WorkerRow(
                    process=process.id,
                    host=process.host,
                    pid=process.pid,
                    queue=worker.queue,
                    state=_state(process, worker, silent=silent),
                    started_at=_moment(process.started_at),
                    seen_at=_moment(process.at),
                    version=process.version,
                    concurrency=worker.concurrency,
                    in_flight=worker.in_flight,
                    handled=worker.settled,
                    failed=worker.failed,
                    handled_per_second=None if pace is None else pace.settled,
                    p95=p95([durations[who]] if who in durations else ()),
                    paused=worker.paused,
                    blocked=process.blocked,
                    last_error=process.last_error,
                )
            )
    return tuple(sorted(rows, key=lambda row: (row.queue, row.host, row.pid, row.process)))


def circuit_rows(now: Sample) -> tuple[CircuitRow, ...]:
    """The circuit breakers of all processes, those that are not closed first."""
    rows = [
        CircuitRow(process=each.id, host=each.host, name=name, state=state)
        for each in now.presences or ()
        for name, state in each.circuits.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.state == "closed", row.name, row.host)))


def _paused(now: Sample) -> dict[str, str]:
    """Queues that nobody works on: by what was said for all, or because all workers stand still."""
    reasons: dict[str, list[str | None]] = {}
    for process in now.presences or ():
        for worker in process.workers:
            reasons.setdefault(worker.queue, []).append(worker.paused)
    found = {queue: each[0] for queue, each in reasons.items() if all(each) and each[0]}
    return {**found, **now.pauses}


def _state(
    process: Presence, worker: WorkerPresence, *, silent: bool
) -> Literal["running", "paused", "reconnecting", "silent"]:
    if silent:
        return "silent"
    if process.state != "connected":
        return "reconnecting"
    return "running" if worker.paused is None else "paused"


def _moment(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # a note may say anything
        return datetime.fromtimestamp(0, UTC)
