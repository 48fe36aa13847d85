"""What was not tested is told at the end of a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.brokers.fixtures import NOT_TESTED, PEER_MISSING, pytest_terminal_summary


def test_whatever_a_missing_broker_or_peer_has_skipped_is_told_at_the_end() -> None:
    reasons = (f"{PEER_MISSING}Celery", f"{NOT_TESTED}Redis", "slow", f"{PEER_MISSING}Celery")
    skipped = [SimpleNamespace(longrepr=("test_it.py", 1, f"Skipped: {each}")) for each in reasons]
    told: list[str] = []
    terminal: Any = SimpleNamespace(
        getreports={"skipped": skipped}.__getitem__,
        write_line=lambda text, **markup: told.append(text),
    )

    pytest_terminal_summary(terminal)

    assert told == [
        "PEER MISSING: Celery (2 tests were skipped)",
        "NOT TESTED, Redis (1 tests were skipped)",
    ]
