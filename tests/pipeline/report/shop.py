"""An hour of a shop, as the tables of a lake tell it: small enough to reckon by hand."""

from __future__ import annotations

from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import (
    DEAD_LETTERS,
    DRIFT,
    EVENTS,
    GROWTH,
    LIFECYCLE,
    QUARANTINE,
    THROUGHPUT,
)
from tests.pipeline.report.written import at, life, minute, write


def shop(lake: Lake) -> None:
    """Billing fails at ten past nine, mail is fine."""
    write(
        lake,
        THROUGHPUT,
        [
            minute(0, None, published=30, bytes=300),
            minute(0, "billing", delivered=20, succeeded=20, bytes=200, latency_p99=0.2),
            minute(0, "mail", delivered=10, succeeded=10, latency_p99=0.1),
            minute(10, None, published=5),
            minute(
                10, "billing", delivered=10, succeeded=4, retried=3, dead_lettered=2, dropped=1,
                latency_p99=9.0,
            ),
            minute(59, "mail", "user.left", delivered=2, succeeded=1, expired=1, latency_p99=0.3),
        ],
    )  # fmt: skip
    lives = [
        life(f"b-{n}", "billing", settled=0.5, wait=n / 10, duration=n / 100, latency=float(n))
        for n in range(1, 101)
    ]
    write(lake, LIFECYCLE, [*lives, life("m-1", "mail", 59.5, wait=2.0, duration=3.0, latency=5.0)])
    write(lake, LIFECYCLE, [life("lost", None)])
    write(
        lake,
        GROWTH,
        [
            {"minute": at(0), "queue": "billing", "arrived": 30, "left": 20, "backlog": 10,
             "usual": None, "score": None, "anomaly": False},
            {"minute": at(10), "queue": "billing", "arrived": 50, "left": 10, "backlog": 50,
             "usual": 1.0, "score": 12.5, "anomaly": True},
            {"minute": at(30), "queue": "billing", "arrived": 0, "left": 45, "backlog": 5,
             "usual": 0.0, "score": -9.0, "anomaly": False},
            {"minute": at(0), "queue": "mail", "arrived": 10, "left": 10, "backlog": 0,
             "usual": 0.0, "score": 0.0, "anomaly": False},
        ],
    )  # fmt: skip
    letter = {"queue": "billing", "event": "order.placed", "reason": "handler-error"}
    write(
        lake,
        DEAD_LETTERS,
        [
            {**letter, "fingerprint": "aaaa", "error_type": "shop.NoMoney", "error": "0 left",
             "count": 1, "first_seen": at(10), "last_seen": at(10), "message_ids": ["b-1"]},
            {**letter, "fingerprint": "bbbb", "error_type": "KeyError", "error": "'id'",
             "count": 7, "first_seen": at(-600), "last_seen": at(10.5),
             "message_ids": ["b-3", "b-2"]},
        ],
    )  # fmt: skip
    dead = {**letter, "kind": "delivered", "outcome": "dead-lettered", "attempt": 3}
    write(
        lake,
        EVENTS,
        [
            {**dead, "message_id": "old", "at": at(-600), "fingerprint": "bbbb"},
            {**dead, "message_id": "b-2", "at": at(10.2), "fingerprint": "bbbb"},
            {**dead, "message_id": "b-3", "at": at(10.5), "fingerprint": "bbbb",
             "error_type": "KeyError", "error": "'id'"},
            {**dead, "message_id": "b-3", "at": at(10.4), "fingerprint": None,
             "outcome": "retried", "attempt": 2},
        ],
    )  # fmt: skip
    field = {"event": "order.placed", "count": 4, "share": 0.5, "first_seen": at(0)}
    write(
        lake,
        DRIFT,
        [
            {**field, "field": "$", "type": "object", "last_seen": at(59), "change": ""},
            {**field, "field": "total", "type": "number", "last_seen": at(59), "change": ""},
            {**field, "field": "total", "type": "string", "last_seen": at(59), "change": "type"},
            {**field, "field": "tax", "type": "number", "last_seen": at(5), "change": "gone"},
        ],
    )
    write(
        lake,
        QUARANTINE,
        [
            {"at": at(1), "problem": "unknown version", "segment": "date=2030-01-07/a.parquet"},
            {"at": None, "problem": "torn", "segment": "date=2030-01-07/b.parquet"},
            {"at": at(2), "problem": "torn", "segment": "date=2030-01-07/c.parquet"},
        ],
    )
