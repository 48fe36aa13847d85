"""What became of the messages of one cell, counted from what all its processes wrote down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from queuecraft.drivers.base import QueueInfo
from tests.faults.account import Account
from tests.faults.job import ENDS
from tests.faults.page import Line

SECOND = 1_000_000_000


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a cell. Lists are of ids, so that a loss can be looked into."""

    acknowledged: int
    """Messages whose publish returned: the broker has answered for them."""
    handled: int
    """Messages whose handler returned, at least once."""
    lost: Sequence[str]
    """Acknowledged, and neither handled nor kept as a dead letter."""
    twice: int
    """Messages whose handler returned more than once."""
    begun_again: int
    """Runs that were begun although the same attempt was begun before."""
    dead: int
    """Messages that became dead letters."""
    unexplained: Sequence[str]
    """Dead letters that nothing in the load asked for."""
    out_of_nowhere: Sequence[str]
    """Handled, though never published, or though the publisher was told: rejected."""
    recovered: float | None
    """Seconds from the end of the fault until a message was handled."""
    caught_up: float | None
    """Seconds from the end of the fault until all was handled that had been acknowledged by then;
    not counting messages that were meant to fail."""


def count(lines: Sequence[Line], *, end: int, new_only: bool = False) -> Tally:
    """Count them; `end` is when the fault was over, `new_only` asks for the recovery of messages
    that were published after it."""
    account = Account(lines)
    acknowledged, handled = account.ids("published"), account.ids("handled")
    redriven = max((line.at for line in lines if line.what == "redriving"), default=0)
    # What was sent back has to be handled then: being dead before does not excuse it.
    kept = {line.id for line in lines if line.what == "dead" and line.at > redriven}
    runs = Counter(line.id for line in lines if line.what == "handled")
    tempers = {line.id: line.temper for line in lines if line.what == "publishing"}
    rejected = {line.id for line in lines if line.what == "refused" and line.reason == "rejected"}
    strange = handled - account.ids("publishing") | handled & rejected
    return Tally(
        acknowledged=len(acknowledged),
        handled=len(handled),
        lost=sorted(acknowledged - handled - kept),
        twice=sum(times > 1 for times in runs.values()),
        begun_again=len(account.duplicates),
        dead=len(account.ids("dead")),
        unexplained=sorted(
            {
                f"{line.id} ({line.reason})"
                for line in lines
                if line.what == "dead" and ENDS.get(tempers.get(line.id, "")) != line.reason
            }
        ),
        out_of_nowhere=sorted(strange),
        recovered=_recovered(lines, end, new_only),
        caught_up=_caught_up(lines, end, tempers),
    )


def left_over(queues: Iterable[QueueInfo]) -> list[str]:
    """What is still in queues, in words."""
    found: list[str] = []
    for queue in queues:
        counts = {
            "ready": queue.ready,
            "in flight": queue.in_flight,
            "delayed": queue.delayed,
            "dead": queue.dead,
        }
        found += [f"{number} {what} in {queue.name}" for what, number in counts.items() if number]
    return found


def _recovered(lines: Sequence[Line], end: int, new_only: bool) -> float | None:
    new = {line.id for line in lines if line.what == "publishing" and line.at > end}
    for line in lines:
        if line.what == "handled" and line.at > end and (not new_only or line.id in new):
            return (line.at - end) / SECOND
    return None


def _caught_up(lines: Sequence[Line], end: int, tempers: dict[str, str]) -> float | None:
    owed = {line.id for line in lines if line.what == "published" and line.at <= end}
    owed = {id for id in owed if tempers.get(id) not in ENDS}
    last = end
    for line in lines:
        if line.what == "handled" and line.id in owed:
            owed.remove(line.id)
            last = max(last, line.at)
    return None if owed else (last - end) / SECOND
