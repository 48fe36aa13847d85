"""What a lake has sent again as it was: it need not be archived once more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from queuecraft.codec.headers import DEATH, ORIGINAL_QUEUE, REPLAY_ID
from queuecraft.drivers.base import Delivery
from queuecraft.model.errors import QueueError
from queuecraft.pipeline.horizon import horizon
from queuecraft.pipeline.lake import Lake

if TYPE_CHECKING:
    from queuecraft.pipeline.replay.contents import Content, Contents
    from queuecraft.pipeline.replay.ledger import Ledger
    from queuecraft.pipeline.replay.plan import Plan

REPLAYS: Final = 100  # that are remembered, known or not
PLANS: Final = 4  # whose contents are held: 16 bytes a message


class Replayed:
    """The replays of one lake, as far as they changed nothing."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._unchanged = lru_cache(REPLAYS)(partial(_unchanged, lake))
        self._contents = lru_cache(PLANS)(_contents)

    def without(self, batch: Sequence[Delivery]) -> Sequence[Delivery]:
        """All but what this lake has sent again as it was. Anyone may write the header, or keep it
        when he changes the message: what is not in the plan, just so, is not in the lake. Nor may
        be what was published before the horizon, which moves while a capture goes on. Why a message
        became a dead letter is in no plan: that is kept."""
        before = horizon(self._lake)
        replayed: dict[Ledger, list[Delivery]] = {}
        for each in batch:
            replay_id = each.sent.headers.get(REPLAY_ID)
            told = isinstance(replay_id, str) and not _is_dead_letter(each)
            ledger = self._unchanged(replay_id, before) if told else None
            if ledger is not None:
                replayed.setdefault(ledger, []).append(each)
        here: set[Delivery] = set()
        for ledger, deliveries in replayed.items():
            try:
                known = self._contents(ledger)
            except QueueError:  # rather twice than never, and perhaps it can be read the next time
                continue
            here.update(each for each in deliveries if _content(each) in known)
        return [each for each in batch if each not in here]


def _unchanged(lake: Lake, replay_id: str, before: datetime | None) -> Ledger | None:
    """A replay that this lake has planned, and whose messages it has just as they are sent: none of
    them can have expired since."""
    from queuecraft.pipeline.replay.ledger import Ledger

    try:
        ledger = Ledger.of(lake, replay_id)
        plan = ledger.plan()
        gone = before is not None and not _all_since(plan, before)
    except (QueueError, OSError, TypeError):  # none of ours, or damaged: rather twice than never
        return None
    return None if gone or plan.changed else ledger


def _all_since(plan: Plan, before: datetime) -> bool:
    """Whether the lake has kept all of its messages, by the times they were published. A time that
    cannot be is not the one they are kept by, and says nothing."""
    times = [time for line in plan.lines for time in (line.first, line.last)]
    return (
        not plan.question.quarantined
        and bool(times)
        and all(time is not None and before <= time <= plan.planned_at for time in times)
    )


def _is_dead_letter(delivery: Delivery) -> bool:
    headers = delivery.sent.headers
    return ORIGINAL_QUEUE in headers or DEATH in headers


def _contents(ledger: Ledger) -> Contents:
    return ledger.contents()


def _content(delivery: Delivery) -> Content:
    sent = delivery.sent
    return sent.id, sent.routing_key, sent.body
