"""Workers that are alive, by what their processes say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from time import time
from typing import Annotated

import typer

from queuecraft.app import QueueCraft
from queuecraft.cli.broker import Url, connected, run
from queuecraft.cli.duration import seconds, spoken
from queuecraft.cli.output import AsJson, Cell, on_terminal, say, say_json, show
from queuecraft.model.errors import UnsupportedFeature
from queuecraft.model.presence import Presence, WorkerPresence, quantile

COLUMNS = (
    *("host", "pid", "queue", "state", "at once", "in flight", "handled", "failed"),
    *("p95 s", "seen", "why"),
)


def workers(
    *,
    wait: Annotated[
        float | None,
        typer.Option(
            parser=seconds,
            metavar="TIME",
            help="How long to listen, on RabbitMQ, which keeps no signs of life; "
            "without it, a little longer than the setting presence.",
        ),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the workers that are alive, in all processes: what each has done, and why it stands
    still if it does.

    Example: queuecraft workers
    """

    async def look() -> list[Presence]:
        async with connected(url) as qc:
            return await _seen(qc, wait)

    found = run(look())
    if as_json:
        for process in found:
            for worker in process.workers:
                say_json(_fields(process, worker))
    elif not found and on_terminal():
        say("No worker has given a sign of life.", "dim")
    else:
        show(COLUMNS, _rows(found))


async def _seen(qc: QueueCraft, wait: float | None) -> list[Presence]:
    listen = qc.settings.presence + 0.5 if wait is None else wait
    found = await qc.admin.workers(listen=listen)
    if found is None:
        raise UnsupportedFeature("this broker has no place for signs of life, or you may not look")
    return found


def _rows(found: Sequence[Presence]) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for process in found:
        for worker in process.workers:
            age = _age(process)
            why = worker.paused or process.blocked
            rows.append(
                (
                    *(process.host, process.pid, worker.queue, _state(process, worker)),
                    *(worker.concurrency, worker.in_flight, worker.settled, worker.failed),
                    _p95(worker),
                    f"{spoken(age)} ago" if on_terminal() and age is not None else age,
                    why,
                )
            )
    return rows


def _fields(process: Presence, worker: WorkerPresence) -> dict[str, object]:
    p95 = quantile(worker.durations, 0.95)
    return {
        "process": process.id,
        "host": process.host,
        "pid": process.pid,
        "version": process.version,
        "started_at": _moment(process.started_at),
        "seen_at": _moment(process.at),
        "queue": worker.queue,
        "state": _state(process, worker),
        "paused": worker.paused,
        "blocked": process.blocked,
        "last_error": process.last_error,
        "concurrency": worker.concurrency,
        "in_flight": worker.in_flight,
        "received": worker.received,
        "succeeded": worker.succeeded,
        "failed": worker.failed,
        "retried": worker.retried,
        "postponed": worker.postponed,
        "dead_lettered": worker.dead_lettered,
        "expired": worker.expired,
        "dropped": worker.dropped,
        "p95": None if p95 == float("inf") else p95,
        "circuits": dict(process.circuits),
    }


def _age(process: Presence) -> float | None:
    return None if _moment(process.at) is None else max(0.0, time() - process.at)


def _moment(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # anybody may have put up the note
        return None


def _state(process: Presence, worker: WorkerPresence) -> str:
    if process.state != "connected":
        return process.state
    return "running" if worker.paused is None else "paused"


def _p95(worker: WorkerPresence) -> str | None:
    told = quantile(worker.durations, 0.95)
    return None if told is None else f"{told:.3g}"
