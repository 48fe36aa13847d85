"""Messages to a broker, some at a time, each of them confirmed."""

from __future__ import annotations

from collections.abc import Sequence

from queuecraft.clock import Clock
from queuecraft.codec import Codec
from queuecraft.drivers.base import Exchange, Outgoing
from queuecraft.model.errors import PublishError, QueueError
from queuecraft.model.settings import Settings
from queuecraft.pipeline.source.messages import Target
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.entry import Entry
from queuecraft.runtime.recipe import Recipe
from queuecraft.runtime.sender import Sender


class Outlet:
    """Sends as `publish_many` does: in order, again after a lost connection, until the broker has
    answered for each. Messages are ready-made, with the ids they are to have."""

    def __init__(
        self,
        connection: Connection,
        settings: Settings,
        clock: Clock,
        target: Target,
        *,
        drop: bool = False,
    ) -> None:
        exchange = None
        if target.queue is None:
            exchange = Exchange(target.exchange or settings.exchange, settings.exchange_type)
        name = target.queue or target.exchange or settings.exchange
        self._recipe = Recipe(
            name, bytes, Codec(), clock.now, exchange=exchange, queue=target.queue
        )
        self._sender = Sender(connection, settings, clock, lambda _: None)
        self._drop = drop
        self.sent = 0

    async def send(self, messages: Sequence[Outgoing]) -> None:
        """Return when the broker has all of them. Raises `PublishError` for the first that it does
        not take; those after it may well be stored."""
        answers = await self._sender.submit(Entry(self._recipe, messages, drop=self._drop))
        for message, answer in zip(messages, answers, strict=True):
            if isinstance(answer, QueueError):
                raise self._refused(message, answer)
            self.sent += 1

    async def close(self) -> None:
        """Give up what is still on its way."""
        await self._sender.close()

    def _refused(self, message: Outgoing, error: QueueError) -> PublishError:
        outcome = error.outcome if isinstance(error, PublishError) else "rejected"
        refused = PublishError(
            f"{error.message}; this task had written {self.sent:,} before it, and writes them with "
            "the same ids when it is tried again",
            outcome=outcome,
            broker=error.broker,
            operation="write",
            queue=message.queue,
            message_id=message.id,
        )
        refused.__cause__ = error
        return refused
