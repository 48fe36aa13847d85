"""Getting messages to the broker: in batches, in order, and again until they are answered for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile

from queuecraft.clock import Clock, Timer
from queuecraft.drivers.base import ACCEPTED, Accepted, Driver, Outgoing, Receipt, Rejected, Unknown
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import (
    ConfigError,
    ConnectionLost,
    PublishError,
    QueueError,
    QueueFull,
    Unroutable,
)
from queuecraft.model.settings import Settings
from queuecraft.runtime.connection import Connection, being_cancelled
from queuecraft.runtime.entry import Crowd, Entry, Share
from queuecraft.runtime.recipe import Recipe

BATCH = 500  # messages in one send, at most
PAUSE = 0.05  # seconds before trying again, when an answer is missing though the connection stands
LONGEST_PAUSE = 1.0  # and when it is missing again and again: each try may be a duplicate
JOINING = 0.05  # of the timeout: for so long others may join a publish, and share its deadline


class Sender:
    """Sends what callers have submitted, oldest first, one batch at a time.

    One task takes whatever has piled up as one batch, so that a cancelled caller takes nobody
    with it. What was not answered for stays where it is, at the head of `entries`, and flies
    again before anything newer.
    """

    def __init__(
        self,
        connection: Connection,
        settings: Settings,
        clock: Clock,
        accepted: Callable[[Sequence[Outgoing]], None],
    ) -> None:
        self.entries: dict[Entry, None] = {}
        self._connection = connection
        self._settings = settings
        self._clock = clock
        self._accepted = accepted
        self._waiting = 0  # messages whose callers wait
        self._pause = PAUSE
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._closed = False
        self._crowd: Crowd | None = None  # takes more until it flies

    async def submit_one(
        self, recipe: Recipe, message: Outgoing, *, drop: bool
    ) -> str | QueueError:
        """Queue one message, with whatever else is published until the next flight."""
        crowd = self._crowd
        if (
            crowd is None
            or crowd.flying
            or crowd.attempted
            or crowd.recipe is not recipe
            or crowd.drop is not drop
            or crowd.future.done()
            or len(crowd.results) >= BATCH
            or self._connection.current is None
        ):
            refusal = self._refusal(1)
            if refusal is not None:
                return refusal if isinstance(refusal, QueueError) else refusal(message)
            crowd = Crowd(recipe, drop=drop)
            self._enter(crowd)
            self._crowd = crowd
        future = crowd.join(message)
        self._waiting += 1
        try:
            return await future
        except asyncio.CancelledError:  # the crowd goes on: this place in it stays empty
            if not crowd.flying and not crowd.share().places:
                self._finish(crowd)
            raise
        finally:
            self._waiting -= 1

    async def submit(self, entry: Entry) -> Sequence[str | QueueError]:
        """Queue the messages and wait for the answers."""
        count = len(entry.results)
        refusal = None if entry.attempted else self._refusal(count)
        if refusal is not None:
            entry.end(refusal)
            return entry.answers
        self._enter(entry)
        self._waiting += count
        try:
            await entry.future  # cancelling it leaves the batch alone: its place is skipped
        finally:
            self._waiting -= count
            self.entries.pop(entry, None)
        return entry.answers

    def land(
        self,
        driver: Driver,
        generation: int,
        flight: Sequence[Share],
        result: Sequence[Receipt] | Exception,
    ) -> None:
        """Answer the callers of a flight, with the receipts or with what `send` raised."""
        messages = _messages(flight)
        if not isinstance(result, Exception):
            if result.count(ACCEPTED) == len(result) == len(messages):
                self._all_accepted(flight, messages)
                return
            if len(result) != len(messages):
                result = ValueError(f"{len(result)} receipts for {len(messages)} messages")
        entries = [share.entry for share in flight]
        lost: QueueError | None = None
        if isinstance(result, ConnectionLost):  # so nothing was attempted
            lost = result
            for entry in entries:
                entry.error = lost
        elif isinstance(result, QueueError):  # neither, and it will not be better next time
            self._blame(flight, entries, result)
        elif isinstance(result, Exception):  # it should not raise this: who knows what it did
            for entry in entries:
                entry.end(self._breach(result))
        else:
            lost = self._answer(flight, result)
        for entry in entries:
            entry.flying = False
            if not entry.left:
                self._finish(entry)
        if lost is not None and self._connection.generation == generation:
            self._connection.lost(driver, lost)

    async def flush(self) -> None:
        """Wait until everything accepted from callers so far has been answered for."""
        if self.entries:
            await asyncio.wait([entry.future for entry in self.entries])

    async def close(self) -> None:
        """Give up what is still waiting; call `flush` first to wait for it."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._fail(self.entries, QueueError("shut down before the broker answered"))

    # -- at the door ---------------------------------------------------------------------------

    def _enter(self, entry: Entry) -> None:
        """Put it behind the others, and see that somebody takes it from there."""
        self._crowd = None  # who joined it now would be ahead of this one
        timeout = self._settings.publish_timeout
        entry.deadline = self._clock.monotonic() + timeout
        self.entries[entry] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        if self._timer is None:
            self._timer = self._clock.call_later(JOINING * timeout, self._tick)

    def _refusal(self, count: int) -> QueueError | Callable[[Outgoing], QueueError] | None:
        """Why no more is taken, if so."""
        connection = self._connection
        if self._closed or connection.state in ("closing", "closed"):
            return self._rejected("this QueueCraft is shut down; make a new one")
        if connection.current is not None:
            return None
        if self._settings.on_outage == "fail" and connection.down:
            return self._rejected(f"not connected: {connection.last_error}")
        if self._waiting + count <= self._settings.max_pending:
            return None
        return QueueFull(
            f"{self._waiting} publishes wait for the connection already; slow down or raise "
            f"max_pending={self._settings.max_pending}",
            broker=connection.traits.name,
            operation="publish",
        )

    def _rejected(self, text: str) -> Callable[[Outgoing], QueueError]:
        broker = self._connection.traits.name
        return lambda message: PublishError(
            text, broker=broker, queue=message.queue, message_id=message.id
        )

    # -- the one task --------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self.entries:
                entry = next(iter(self.entries))
                driver = await self._ready(entry)
                if driver is not None and (flight := self._take()):
                    await self._fly(driver, flight)
        except Exception as error:  # a mistake of ours: better told than waited for
            failed = QueueError(f"sending failed: {error!r}")
            failed.__cause__ = error
            self._fail(self.entries, failed)
        finally:
            self._task = None

    async def _ready(self, entry: Entry) -> Driver | None:
        """The open driver, once the exchange of the first entry stands; None: look again."""
        connection = self._connection
        # What was under way when the connection broke is not given up with the first failure.
        patient = self._settings.on_outage == "wait" or connection.state == "reconnecting"
        exchange = entry.recipe.exchange
        try:
            driver = await connection.ready(patient=patient)
        except (ConnectionLost, ConfigError) as error:  # and there will be none
            self._fail(self.entries, error)
            return None
        if entry.recipe.prepared or exchange is None:
            return driver
        try:
            await connection.prepare(exchange)
        except ConnectionLost as error:
            self._fail(self.entries, error)
        except QueueError as error:  # the exchange cannot be made: that is this caller's alone
            entry.end(error)
            self._finish(entry)
        except Exception as error:
            entry.end(PublishError(f"the exchange cannot be made: {error!r}"))
            self._finish(entry)
        else:
            entry.recipe.prepared = True
        return None

    def _take(self) -> list[Share]:
        flight: list[Share] = []
        taken = 0
        for entry in list(islice(self.entries, BATCH)):
            if entry.future.done():  # cancelled or timed out while it waited
                del self.entries[entry]
                continue
            if not entry.recipe.prepared:
                break
            apart = entry.alone or taken + entry.left > BATCH
            if flight and (apart or flight[-1].entry.alone):
                break
            share = entry.share()
            if not share.places:  # all were cancelled
                self._finish(entry)
                continue
            entry.flying = True
            flight.append(share)
            taken += len(share.places)
        return flight

    async def _fly(self, driver: Driver, flight: list[Share]) -> None:
        generation = self._connection.generation
        result: Sequence[Receipt] | Exception
        try:
            result = await driver.send(_messages(flight), atomic=flight[0].entry.atomic)
        except Exception as error:
            result = error
        except asyncio.CancelledError as error:
            if being_cancelled():
                raise
            result = RuntimeError(f"the driver let out a {error!r}")
        failpoint("publish.after_send")
        self.land(driver, generation, flight, result)
        missing = any(not each.entry.future.done() and each.entry.attempted for each in flight)
        if missing and self._connection.current is driver:
            await self._clock.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        else:
            self._pause = PAUSE

    # -- answering -----------------------------------------------------------------------------

    def _all_accepted(self, flight: Sequence[Share], messages: Sequence[Outgoing]) -> None:
        """As nearly every flight ends; the same as `_answer`, at half the price."""
        self._accepted(messages)
        for share in flight:
            entry = share.entry
            entry.accept(share)
            entry.flying = False
            if not entry.left:
                self._finish(entry)

    def _answer(self, flight: Sequence[Share], receipts: Sequence[Receipt]) -> QueueError | None:
        """Note what became of each message; the error of a connection that broke meanwhile."""
        accepted: list[Outgoing] = []
        missing: list[tuple[Entry, QueueError]] = []
        for (entry, at, message), receipt in zip(_each(flight), receipts, strict=True):
            # A caller who was cancelled, or timed out, in flight asks no more.
            if receipt is ACCEPTED or isinstance(receipt, Accepted):
                accepted.append(message)
                if not entry.future.done():
                    entry.answer(at, message.id)
            elif isinstance(receipt, Unknown):
                missing.append((entry, receipt.error))
            elif entry.future.done():
                continue
            elif not isinstance(receipt, Rejected):
                entry.answer(at, self._breach(TypeError(f"{receipt!r} is no receipt"))(message))
            elif entry.drop and isinstance(receipt.error, Unroutable):
                entry.answer(at, message.id)
            else:
                entry.refuse(at, message, receipt.error)
        if accepted:
            self._accepted(accepted)
        lost: QueueError | None = None
        for entry, error in missing:
            entry.attempted = True
            entry.error = error
            if isinstance(error, ConnectionLost):
                lost = error
        return lost

    def _blame(self, flight: Sequence[Share], entries: Sequence[Entry], error: QueueError) -> None:
        """A batch was refused as a whole: sent one by one, it shows who is to blame."""
        several = len(flight) > 1 or len(flight[0].places) > 1
        if several and any(isinstance(entry, Crowd) for entry in entries):
            for entry in entries:
                entry.alone = True
                if isinstance(entry, Crowd):
                    entry.singly = True
            return
        for entry in entries:
            if isinstance(entry, Crowd):
                ((_, at, message),) = _each(flight)
                entry.refuse(at, message, error)
            elif len(entries) == 1:
                entry.end(error)
            else:
                entry.alone = True

    def _breach(self, cause: Exception) -> Callable[[Outgoing], QueueError]:
        """The error of a message that a driver has no proper answer for."""

        def error(message: Outgoing) -> QueueError:
            failed = PublishError(
                f"the driver failed: {cause!r}",
                outcome="unknown",
                broker=self._connection.traits.name,
                queue=message.queue,
                message_id=message.id,
            )
            failed.__cause__ = cause
            return failed

        return error

    def _fail(self, entries: Iterable[Entry], error: QueueError) -> None:
        """Give these up; whether the broker has them is known only if they never flew."""
        for entry in tuple(entries):
            if not entry.future.done():
                entry.end(self._given_up(entry, error))
            self._finish(entry)

    def _given_up(self, entry: Entry, error: QueueError) -> Callable[[Outgoing], QueueError]:
        cause = entry.error or error
        text = error.message if cause is error else f"{error.message}: {cause.message}"
        unknown = entry.attempted or entry.flying

        def given_up(message: Outgoing) -> QueueError:
            failed = PublishError(
                text,
                outcome="unknown" if unknown else "rejected",
                broker=self._connection.traits.name,
                queue=message.queue,
                message_id=message.id,
            )
            failed.__cause__ = cause
            return failed

        return given_up

    def _finish(self, entry: Entry) -> None:
        self.entries.pop(entry, None)
        if not entry.future.done():
            entry.future.set_result(None)

    # -- time ----------------------------------------------------------------------------------

    def _tick(self) -> None:
        """One timer for all: entries expire in the order they came. It closes the crowd too, lest
        somebody joins just before its deadline: so no publish has to look at the clock."""
        self._timer = self._crowd = None
        now = self._clock.monotonic()
        timeout = self._settings.publish_timeout
        within = f"within {timeout:g} s"
        error = QueueError(f"no answer from the broker {within}")
        if self._connection.current is None:
            error = QueueError(f"no connection {within}: {self._connection.last_error}")
        elif reason := self._connection.blocked:
            error = QueueError(f"the broker took no messages {within}: {reason}")
        self._fail(takewhile(lambda entry: entry.deadline <= now, self.entries), error)
        if self.entries:
            first = next(iter(self.entries))
            wait = min(first.deadline - now, JOINING * timeout)
            self._timer = self._clock.call_later(wait, self._tick)


def _messages(flight: Sequence[Share]) -> Sequence[Outgoing]:
    if len(flight) == 1:
        return flight[0].messages
    return [message for share in flight for message in share.messages]


def _each(flight: Sequence[Share]) -> Iterator[tuple[Entry, int, Outgoing]]:
    for share in flight:
        for at, message in zip(share.places, share.messages, strict=True):
            yield share.entry, at, message
