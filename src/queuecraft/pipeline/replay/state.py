"""The replays of a lake, and how far each has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.replay.ledger import Ledger, ledgers
from queuecraft.pipeline.replay.plan import Plan

State: TypeAlias = Literal["planned", "running", "paused", "interrupted", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One replay: what was asked, and what of it is done."""

    plan: Plan
    state: State
    sent: int = 0
    refused: int = 0
    expired: int = 0
    failed: int = 0
    reason: str | None = None
    """Why it is paused."""


def replays(lake: Lake) -> list[Replay]:
    """Those that are planned, oldest first.

    >>> replays(Lake.at("no-such-lake"))
    []
    """
    return [replay_of(ledger) for ledger in ledgers(lake)]


def replay_of(ledger: Ledger) -> Replay:
    """The replay in a folder."""
    plan, done, paused = ledger.plan(), ledger.done(), ledger.paused()
    state: State
    if ledger.running:
        state = "running"
    elif paused is not None:
        state = "paused"
    elif len(done) >= len(plan.chunks):
        state = "done"
    else:
        state = "interrupted" if done else "planned"
    return Replay(
        plan=plan,
        state=state,
        sent=sum(each.sent for each in done.values()),
        refused=sum(each.refused for each in done.values()),
        expired=sum(each.expired for each in done.values()),
        failed=sum(each.failed for each in done.values()),
        reason=paused.reason if state == "paused" and paused is not None else None,
    )
