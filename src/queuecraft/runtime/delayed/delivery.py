"""Getting delayed messages to where they belong: their queues, or among the dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from os import urandom
from typing import Final, TypeAlias

import msgspec

from queuecraft.clock import Clock
from queuecraft.drivers.base import Accepted, Driver, Outgoing, Receipt, Unknown
from queuecraft.failpoints import failpoint
from queuecraft.model.envelope import Delivery as Delivered
from queuecraft.model.errors import ConnectionLost, PublishError, QueueError, Unroutable
from queuecraft.model.queue import DeadLetterTarget, Exchange, Queue
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.facts import DelayedDelivered, DelayedRefused, Facts
from queuecraft.runtime.successor import dead_letter_of
from queuecraft.stores.base import DelayedStore, Moved, OneStepStore, Waiting, Which

HOLD: Final = 30.0  # seconds without a sign of a mover until another tries the same messages
RENEW: Final = 10.0  # seconds after which it gives one
NOWHERE: Final = "delayed"  # where an event that never was delivered is said to have failed
DEAD: Final = Queue[object]("delayed.dlq")
OVERDUE: Final = "overdue"

Refusals: TypeAlias = dict[Exchange | None, QueueError]
"""Why some exchanges cannot be made."""


class Delivery:
    """Takes messages out of a store, and forgets them there once the broker has them.

    Where the store can, that is one step. Elsewhere a crash in between delivers a message twice,
    with the same id, and never loses one.
    """

    def __init__(
        self, connection: Connection, clock: Clock, facts: Facts, *, drop_unroutable: bool
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._facts = facts
        self._drop_unroutable = drop_unroutable
        self._at_work = asyncio.Lock()  # held from taking messages until they are settled

    @asynccontextmanager
    async def halted(self, timeout: float) -> AsyncGenerator[None]:
        """Nothing is on its way while the block runs, unless it takes longer than `timeout`."""
        halted = False
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                halted = await self._at_work.acquire()
        try:
            yield
        finally:
            if halted:
                self._at_work.release()

    async def deliver(self, store: DelayedStore, which: Which) -> Sequence[Moved]:
        """Send messages to their targets. Those that were refused stay, for later."""
        if isinstance(store, OneStepStore):
            async with self._at_work:
                moved = await store.move(which)
                if self._drop_unroutable:
                    moved = [await self._dropped(store, each, which.now) for each in moved]
        else:
            await self._connection.ready(patient=False)  # nothing is taken in vain
            moved = await self._transfer(
                store, which, lambda waiting: waiting.message, prepare=True
            )
        self._tell(moved)
        return moved

    async def bury(self, store: DelayedStore, which: Which) -> Sequence[Moved]:
        """Keep messages as dead letters."""
        await self._connection.ready(patient=False)
        await self._connection.declare(DEAD)
        return await self._transfer(store, which, self._dead_letter, prepare=False)

    async def drop(self, store: DelayedStore, which: Which) -> Sequence[Moved]:
        """Forget messages for good."""
        async with self._at_work:
            taken = await store.take(which, urandom(8).hex(), self._clock.now() + HOLD)
            if taken:
                await store.forget(taken)
        return [Moved(each) for each in taken]

    # -- in two steps --------------------------------------------------------------------------

    async def _transfer(
        self,
        store: DelayedStore,
        which: Which,
        made: Callable[[Waiting], Outgoing],
        *,
        prepare: bool,
    ) -> Sequence[Moved]:
        while True:
            now = self._clock.now()
            taken = await store.take(which, urandom(8).hex(), now + HOLD)
            if not taken:
                return ()
            failpoint("delayed.after_take")
            try:
                refusals = await self._prepare(taken) if prepare else {}
                await self._at_work.acquire()
            except BaseException:  # also when we are stopped while the broker is away
                await self._put_back(store, taken)
                raise
            try:
                if held := await self._still_held(store, taken, now):
                    return await self._settle(store, held, made, refusals)
            finally:
                self._at_work.release()
            await self._put_back(store, taken)
            which = msgspec.structs.replace(which, now=self._clock.now())

    async def _still_held(
        self, store: DelayedStore, taken: Sequence[Waiting], since: float
    ) -> Sequence[Waiting]:
        """What may be sent: after a long wait another may have taken some, or cancelled them."""
        while taken and self._clock.now() > since + RENEW:
            since = self._clock.now()
            taken = await store.renew(taken, since + HOLD)
        return taken

    @asynccontextmanager
    async def _held_on(self, store: DelayedStore, taken: Sequence[Waiting]) -> AsyncGenerator[None]:
        """Nobody else gets the messages while the block runs, however long the broker takes."""

        async def renew() -> None:
            while True:
                await self._clock.sleep(RENEW)
                try:
                    await store.renew(taken, self._clock.now() + HOLD)
                except Exception as error:  # the next time it may go well
                    text = "delayed messages on their way cannot be held for longer: %s"
                    self._facts.log.warning(text, error)

        renewing = asyncio.get_running_loop().create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _settle(
        self,
        store: DelayedStore,
        taken: Sequence[Waiting],
        made: Callable[[Waiting], Outgoing],
        refusals: Refusals,
    ) -> Sequence[Moved]:
        fit = [each for each in taken if each.exchange not in refusals]
        try:
            async with self._held_on(store, taken):
                errors = await self._send([made(each) for each in fit]) if fit else ()
        except QueueError:  # nothing was attempted
            await self._put_back(store, taken)
            raise
        failpoint("delayed.after_send")
        unfit = [each for each in taken if each.exchange in refusals]
        moved = [Moved(each, refusals[each.exchange]) for each in unfit]
        moved += [Moved(each, error) for each, error in zip(fit, errors, strict=True)]
        if delivered := [each.waiting for each in moved if each.error is None]:
            await store.forget(delivered)
        failpoint("delayed.after_forget")
        if refused := [each.waiting for each in moved if each.error is not None]:
            await store.put_back(refused, now=self._clock.now(), failed=True)
        return moved

    async def _put_back(self, store: DelayedStore, taken: Sequence[Waiting]) -> None:
        with suppress(QueueError):  # then the hold lapses
            await asyncio.shield(store.put_back(taken, now=self._clock.now(), failed=False))

    async def _prepare(self, taken: Sequence[Waiting]) -> Refusals:
        """Make the exchanges, as far as that can be done."""
        errors: Refusals = {}
        for exchange in dict.fromkeys(each.exchange for each in taken):
            if exchange is None or self._connection.prepared(exchange):
                continue
            try:
                await self._connection.prepare(exchange)
            except ConnectionLost:
                raise
            except QueueError as error:  # that is the matter of its own messages alone
                errors[exchange] = error
            except Exception as error:
                text = f"exchange {exchange.name!r} cannot be made: {error!r}"
                errors[exchange] = PublishError(text, operation="delayed")
        return errors

    async def _send(self, messages: Sequence[Outgoing]) -> Sequence[QueueError | None]:
        driver = self._connection.current
        if driver is None:
            raise ConnectionLost("the connection to the broker was lost", operation="delayed")
        try:
            receipts = await driver.send(messages)
        except ConnectionLost as error:
            self._connection.lost(driver, error)
            raise
        except Exception as error:  # refused as a whole: one by one, it shows who is to blame
            if len(messages) > 1:
                return [(await self._send([each]))[0] for each in messages]
            if isinstance(error, QueueError):
                return [error]
            text = f"the driver failed: {error!r}"
            return [PublishError(text, outcome="unknown", operation="delayed")]
        return [self._error(driver, each) for each in receipts]

    def _error(self, driver: Driver, receipt: Receipt) -> QueueError | None:
        if isinstance(receipt, Accepted):
            return None
        if isinstance(receipt, Unknown) and isinstance(receipt.error, ConnectionLost):
            self._connection.lost(driver, receipt.error)
        dropped = self._drop_unroutable and isinstance(receipt.error, Unroutable)
        return None if dropped else receipt.error

    def _dead_letter(self, waiting: Waiting) -> Outgoing:
        message = waiting.message
        letter = dead_letter_of(
            Delivered(message, NOWHERE if message.queue is None else message.queue),
            DeadLetterTarget("", DEAD.name, DEAD.name),
            waiting.failures,
            OVERDUE,
            None,
            self._clock.now(),
        )
        return msgspec.structs.replace(letter, queue=DEAD.name)

    # -- inside --------------------------------------------------------------------------------

    async def _dropped(self, store: DelayedStore, moved: Moved, now: float) -> Moved:
        if not isinstance(moved.error, Unroutable):
            return moved
        await store.cancel(moved.waiting.message.id, now)
        return Moved(moved.waiting)

    def _tell(self, moved: Sequence[Moved]) -> None:
        delivered = [each.waiting.message for each in moved if each.error is None]
        if delivered and self._facts.wants(DelayedDelivered):
            self._facts.emit(DelayedDelivered(messages=delivered))
        refused = [each.error for each in moved if each.error is not None]
        if refused and self._facts.wants(DelayedRefused):
            self._facts.emit(DelayedRefused(count=len(refused), error=str(refused[0])))
