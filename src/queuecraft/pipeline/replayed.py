"""What a lake has sent again as it was: it need not be archived once more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from queuecraft.codec.headers import REPLAY_ID
from queuecraft.drivers.base import Delivery
from queuecraft.model.errors import QueueError
from queuecraft.pipeline.lake import Lake

if TYPE_CHECKING:
    from queuecraft.pipeline.replay.contents import Content, Contents
    from queuecraft.pipeline.replay.ledger import Ledger

REPLAYS: Final = 100  # that are remembered, known or not
PLANS: Final = 4  # whose contents are held: 16 bytes a message


class Replayed:
    """The replays of one lake, as far as they changed nothing."""

    def __init__(self, lake: Lake) -> None:
        self._unchanged = lru_cache(REPLAYS)(partial(_unchanged, lake))
        self._contents = lru_cache(PLANS)(_contents)

    def without(self, batch: Sequence[Delivery]) -> Sequence[Delivery]:
        """All but what this lake has sent again as it was. Anyone may write the header, or keep it
        when he changes the message: what is not in the plan, just so, is not in the lake."""
        replayed: dict[Ledger, list[Delivery]] = {}
        for each in batch:
            replay_id = each.sent.headers.get(REPLAY_ID)
            ledger = self._unchanged(replay_id) if isinstance(replay_id, str) else None
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


def _unchanged(lake: Lake, replay_id: str) -> Ledger | None:
    """A replay that this lake has planned, and whose messages it has just as they are sent."""
    from queuecraft.pipeline.replay.ledger import Ledger

    try:
        ledger = Ledger.of(lake, replay_id)
        return None if ledger.plan().changed else ledger
    except (QueueError, OSError):  # none of ours, or unreadable: rather twice than never
        return None


def _contents(ledger: Ledger) -> Contents:
    return ledger.contents()


def _content(delivery: Delivery) -> Content:
    sent = delivery.sent
    return sent.id, sent.routing_key, sent.body
