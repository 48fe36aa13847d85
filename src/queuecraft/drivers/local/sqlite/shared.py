"""The file of the queues, shared with what is kept beside them: sent and forgotten in one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import apsw

from queuecraft.drivers.base import Accepted, Outgoing
from queuecraft.drivers.local.sqlite.storage import Stored
from queuecraft.model.errors import QueueError

R = TypeVar("R")


class Owner(Protocol):
    """The driver, as far as it is needed here."""

    def look(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        """Read on one consistent view."""
        ...

    async def keep(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        """A transaction that is on the disk when it returns."""
        ...

    def store(self, connection: apsw.Connection, messages: Sequence[Outgoing]) -> Stored:
        """Put messages where they belong, in a transaction of the caller's."""
        ...

    def stored(self, stored: Stored) -> None:
        """Messages have arrived: wake whoever waits for them."""
        ...


class SharedFile:
    """Transactions on the file of a driver, for tables that are not the driver's own."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    async def read(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        """Look, on one consistent view."""
        return self._owner.look(operation, work)

    async def write(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        """Change something, in one transaction that is on the disk when it returns."""
        return await self._owner.keep(operation, work)

    async def write_and_send(
        self,
        operation: str,
        work: Callable[
            [apsw.Connection, Callable[[Sequence[Outgoing]], Sequence[QueueError | None]]], R
        ],
    ) -> R:
        """Change something and send messages, in one transaction; consumers are woken once it
        is committed."""
        sent: list[Stored] = []

        def both(connection: apsw.Connection) -> R:
            def send(messages: Sequence[Outgoing]) -> list[QueueError | None]:
                stored = self._owner.store(connection, messages)
                sent.append(stored)
                return [
                    None if isinstance(receipt, Accepted) else receipt.error
                    for receipt in stored.receipts
                ]

            return work(connection, send)

        result = await self._owner.keep(operation, both)
        for stored in sent:
            self._owner.stored(stored)
        return result
