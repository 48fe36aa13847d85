"""A whole application in memory, its own handlers and settings, in a time that a test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType

from queuecraft.app import QueueCraft
from queuecraft.drivers.base import ACCEPTED, Outgoing, Receipt, Rejected
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.facts import MessagesPublished
from queuecraft.model.errors import Unroutable
from queuecraft.testing.clock import FakeClock
from queuecraft.testing.faulty import FaultyDriver
from queuecraft.testing.record import Record
from queuecraft.testing.records import Records

PATIENCE = 10.0  # seconds that a sync handler may take


class Rehearsal:
    """An application under test: what it has published, and its time.

    >>> Rehearsal.__name__
    'Rehearsal'
    """

    def __init__(self, qc: QueueCraft, clock: FakeClock, driver: FaultyDriver) -> None:
        self.clock = clock
        """The time of the application."""
        self.driver = driver
        """The broker underneath, in memory, to be broken on command."""
        self.records = Records()
        """Everything published and sent, in order, by handlers too."""
        self.published = self.records.published
        self.sent = self.records.sent
        qc.observe(MessagesPublished, self._note)
        self._qc = qc

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        await self.clock.settle()

    async def advance(self, seconds: float) -> None:
        """Let time pass: whatever is due until then happens, in order, each at its own time."""
        await self.clock.advance(seconds)

    def _note(self, fact: MessagesPublished) -> None:
        self.records += [Record(message, self._qc.codec) for message in fact.messages]


class _Hospitable(FaultyDriver):
    """Takes events that no worker of this application handles too: others would."""

    async def store(self, messages: Sequence[Outgoing], *, atomic: bool) -> Sequence[Receipt]:
        return [
            ACCEPTED if isinstance(each, Rejected) and isinstance(each.error, Unroutable) else each
            for each in await super().store(messages, atomic=atomic)
        ]


class PatientClock(FakeClock):
    """A clock that also waits for handlers in threads, which take what time they take.

    >>> PatientClock(lambda: 0).pending
    ()
    """

    def __init__(self, in_threads: Callable[[], int]) -> None:
        super().__init__()
        self._in_threads = in_threads

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        await super().settle()
        while self._in_threads():
            if loop.time() > deadline:
                raise AssertionError(
                    f"a sync handler has not returned within {PATIENCE:g} s; time stands still "
                    "for it, unless it sleeps for real"
                )
            await asyncio.sleep(0.001)
            await super().settle()


class testing:  # noqa: N801  used as a function; as one, pytest would take it for a test
    """Run an application in memory while the block does: the QueueCraft itself, with its workers,
    middleware and observers, but no broker, no journal, and a clock that stands still. Workers are
    started unless `start` is False. Events that none of them handles are taken all the same, as
    other applications would. Afterwards all is as it was.

    >>> from queuecraft import Event, Message, Retry
    >>> order_placed, order_paid = Event("order.placed", dict), Event("order.paid", dict)
    >>> qc = QueueCraft("amqp://broker.example", retry=Retry(initial_delay=20))
    >>> billing = qc.worker("billing")
    >>> @billing.on(order_placed)
    ... async def charge(order: dict, message: Message) -> None:
    ...     if message.attempt == 1:
    ...         raise OSError("the bank is closed")
    ...     await qc.publish(order_paid, order)
    >>> async def main():
    ...     async with testing(qc) as app:
    ...         await qc.publish(order_placed, {"id": "o-1"})
    ...         await app.settle()
    ...         print(app.published(order_paid))
    ...         await app.advance(21)
    ...         print(app.published(order_paid))
    >>> asyncio.run(main())
    []
    [{'id': 'o-1'}]
    """

    def __init__(self, qc: QueueCraft, *, start: bool = True) -> None:
        self._qc = qc
        self._start = start
        self._go_back: Callable[[], None] = lambda: None

    async def __aenter__(self) -> Rehearsal:
        qc = self._qc
        clock = PatientClock(lambda: qc.in_threads)
        driver = _Hospitable(MemoryDriver(clock))
        self._go_back = qc.stand_in([driver], clock)
        try:
            await qc.open()
            rehearsal = Rehearsal(qc, clock, driver)
            for worker in qc.workers if self._start else ():
                await worker.start()
        except BaseException:
            await self._end()
            raise
        return rehearsal

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        ending = asyncio.ensure_future(self._qc.shutdown(0))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait([ending])  # what still ends here is not the application's own
            raise
        finally:
            self._go_back()
