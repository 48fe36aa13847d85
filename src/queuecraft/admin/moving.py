"""Taking messages from one queue to another, as they are."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from queuecraft.clock import Clock
from queuecraft.codec.headers import strip_broker_owned
from queuecraft.drivers.base import Delivery, Move, Outgoing
from queuecraft.runtime.redrive import Redrive, Run


class Moving(Run):
    """One move under way: a redrive that changes nothing about a message but its queue."""

    def __init__(
        self,
        clock: Clock,
        *,
        state: Redrive,
        target: str,
        meant: Callable[[Delivery], bool],
        limit: int | None,
        rate: float | None,
        on_progress: Callable[[Redrive], object] | None,
    ) -> None:
        super().__init__(
            clock,
            state=state,
            targets={target},
            where=None,
            owner=None,
            to=target,
            limit=limit,
            rate=rate,
            on_progress=on_progress,
        )
        self._target = target
        self._meant = meant

    def _judge(self, delivery: Delivery) -> Move | None:
        if not self._meant(delivery):
            self._count(kept=1)
            return None
        if self.state.dry_run:
            self._count(moved=1)
            return None
        return Move(delivery, relocated(delivery, self._target))


def relocated(delivery: Delivery, queue: str) -> Outgoing:
    """The same message for another queue: id, times, key and headers are kept.

    >>> there = relocated(Delivery(Outgoing(b"{}", "m-1", headers={"tenant": "t1"}), "a"), "b")
    >>> there.id, there.queue, there.headers
    ('m-1', 'b', {'tenant': 't1'})
    """
    sent = delivery.sent
    headers = strip_broker_owned(sent.headers)
    return msgspec.structs.replace(sent, exchange="", queue=queue, headers=headers)
