"""What a test may command a `FaultyDriver` to do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from queuecraft.drivers.base import Receipt
from queuecraft.model.errors import QueueError


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a message instead of being sent: its answer, and whether it is stored.

    >>> from queuecraft.drivers.base import Unknown
    >>> Fate(Unknown(QueueError("no answer")), stored=True).stored
    True
    """

    receipt: Receipt
    stored: bool


@dataclass(slots=True)
class Rejection:
    """Reject what goes `to` a place, so many messages."""

    error: QueueError | None
    to: str | None
    of: Literal["send", "move"] | None
    left: float


@dataclass(slots=True)
class LostAnswers:
    """Lose the answers at these positions, in so many batches."""

    positions: frozenset[int] | None
    stored: bool
    left: int


class Hang:
    """A send that does not come back until it is told to; made by `FaultyDriver.hang`.

    >>> from queuecraft.drivers.base import Outgoing, Queue
    >>> from queuecraft.testing import FaultyDriver
    >>> async def main():
    ...     driver = FaultyDriver()
    ...     await driver.open()
    ...     await driver.declare(Queue("billing"))
    ...     hang = driver.hang()
    ...     sending = asyncio.create_task(driver.send([Outgoing(b"", "m-1", queue="billing")]))
    ...     await hang.reached()
    ...     print("done" if sending.done() else "hanging")
    ...     hang.release()
    ...     print(await sending)
    >>> asyncio.run(main())
    hanging
    [Accepted()]
    """

    def __init__(self, *, stored: bool) -> None:
        self.stored = stored
        self._lost = False
        self._reached = asyncio.Event()
        self._over = asyncio.Event()

    async def reached(self) -> None:
        """Wait until a send hangs here."""
        await self._reached.wait()

    def release(self) -> None:
        """Let the send go on."""
        self._over.set()

    def lose(self) -> None:
        """The connection is gone; called by the driver."""
        self._lost = True
        self._over.set()

    async def hold(self) -> bool:
        """Stay until released, or until the connection is lost: then False; called by the
        driver."""
        self._reached.set()
        await self._over.wait()
        return not self._lost
