"""Looks at a broker, made by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from queuecraft.admin.overview import CircuitRow, Overview, QueueRow, WorkerRow
from queuecraft.model.presence import Presence, WorkerPresence

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def process(id: str = "a", at: float = 0.0, *workers: WorkerPresence, **about: Any) -> Presence:
    told: dict[str, Any] = {"host": "web-1", "pid": 7, "started_at": 0.0, "state": "connected"}
    told = {**told, **about}
    return Presence(id=id, at=at, workers=workers, **told)


def worker(queue: str = "billing", **about: Any) -> WorkerPresence:
    return WorkerPresence(queue=queue, **about)


def overview(*queues: QueueRow, **about: Any) -> Overview:
    told: dict[str, Any] = {"at": NOON, "status": "healthy", "queues": queues, "workers": ()}
    return Overview(**{**told, **about})


def row(queue: str = "billing", **about: Any) -> WorkerRow:
    told: dict[str, Any] = {"process": "a", "host": "web-1", "pid": 7, "state": "running"}
    told = {**told, "started_at": NOON, "seen_at": NOON, **about}
    return WorkerRow(queue=queue, **told)


def circuit(name: str = "bank", state: str = "open", process: str = "a") -> CircuitRow:
    return CircuitRow(process=process, host="web-1", name=name, state=state)


def letters(ready: int, name: str = "billing.dlq") -> QueueRow:
    return QueueRow(name=name, ready=ready, holds_dead_letters=True)
