"""Publishing: confirmed, coalesced, and sent again in order when the connection breaks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, TypeAlias

from queuecraft.clock import Clock, Timer
from queuecraft.codec import Codec
from queuecraft.drivers.base import ACCEPTED, Driver, Exchange, Outgoing, Receipt, Rejected, Unknown
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import (
    ConnectionLost,
    PayloadError,
    PublishError,
    QueueError,
    QueueFull,
    Unroutable,
    UnsupportedFeature,
)
from queuecraft.model.event import Event
from queuecraft.model.queue import Queue
from queuecraft.model.settings import Settings
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.facts import Facts, MessagesPublished
from queuecraft.runtime.options import PublishOptions, Recipe

BATCH = 500  # messages in one send, at most
YIELD_EVERY = 64  # publishes without giving up the loop, so that workers are not starved
REMEMBERED = 4096  # recipes for plain strings; those may be made of user data


class _Entry:
    """One caller's messages on their way: what is still to be confirmed, and who waits."""

    __slots__ = ("atomic", "attempted", "deadline", "drop", "error", "future", "recipe", "results")

    def __init__(
        self,
        recipe: Recipe,
        messages: Sequence[Outgoing],
        drop: bool,
        atomic: bool,
        deadline: float,
    ) -> None:
        self.recipe = recipe
        self.results: list[Outgoing | str | QueueError] = list(messages)
        self.drop = drop
        self.atomic = atomic
        self.deadline = deadline
        self.attempted = False
        self.error: QueueError | None = None
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def open(self) -> list[int]:
        """The positions not yet answered for."""
        return [at for at, each in enumerate(self.results) if isinstance(each, Outgoing)]


_Seat: TypeAlias = tuple[_Entry, int, Outgoing]
"""One message in flight, and whose it is."""


class Publisher:
    """Turns payloads into messages and gets them to the broker.

    A lone publish on an inline driver is sent at once, without a turn of the loop. Everything
    else goes through one sender task, which takes whatever has piled up as one batch, so that a
    cancelled caller takes nobody with it.
    """

    def __init__(
        self,
        connection: Connection,
        codec: Codec,
        settings: Settings,
        clock: Clock,
        facts: Facts,
    ) -> None:
        self.sent = 0
        self.last_success: float | None = None
        self._connection = connection
        self._codec = codec
        self._settings = settings
        self._clock = clock
        self._facts = facts
        self._default = settings.default_exchange
        self._recipes: dict[object, Recipe] = {}
        self._pending: deque[_Entry] = deque()
        self._flying: list[_Entry] = []
        self._sender: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._budget = YIELD_EVERY
        self._closed = False
        self._drop = settings.unroutable == "drop"

    # -- what users call, through the facade ---------------------------------------------------

    async def publish(self, target: object, payload: object, options: PublishOptions) -> str:
        """One message; returns its id once the broker has it."""
        recipe = self._recipes.get(target) or self._recipe(target)
        if options:
            recipe = self._redirected(recipe, options)
            message = recipe.make_with(payload, options, self._connection.traits)
            drop = options.get("unroutable", self._settings.unroutable) == "drop"
        else:
            message = recipe.make(payload)
            drop = self._drop
        driver = self._connection.current
        if (
            driver is not None
            and driver.traits.inline
            and recipe.prepared
            and not self._pending
            and not self._flying
        ):
            try:
                (receipt,) = await driver.send((message,))
            except ConnectionLost as error:
                self._connection.lost(driver, error)
            else:
                if receipt is ACCEPTED:
                    self._count((message,))
                    self._budget -= 1
                    if self._budget <= 0:
                        self._budget = YIELD_EVERY
                        await asyncio.sleep(0)
                    return message.id
                if isinstance(receipt, Rejected):
                    if drop and isinstance(receipt.error, Unroutable):
                        return message.id
                    raise receipt.error
        (result,) = await self._submit(recipe, (message,), drop)
        if isinstance(result, str):
            return result
        raise result

    async def publish_many(
        self,
        target: object,
        payloads: Iterable[object],
        options: PublishOptions,
        *,
        atomic: bool = False,
    ) -> list[str | QueueError]:
        """Many messages in as few flights as possible; an id or an error for each."""
        traits = self._connection.traits
        if atomic and not traits.atomic_send:
            raise UnsupportedFeature(
                "this broker cannot store a batch as a whole; leave out atomic=True",
                broker=traits.name,
                operation="publish_many",
            )
        recipe = self._recipes.get(target) or self._recipe(target)
        if options:
            recipe = self._redirected(recipe, options)
        drop = options.get("unroutable", self._settings.unroutable) == "drop"
        results: list[str | QueueError] = []
        source = iter(payloads)
        while chunk := list(source if atomic else islice(source, BATCH)):
            if options:
                messages, errors = self._make_with(recipe, chunk, options)
            else:
                messages, errors = recipe.make_many(chunk)
            if atomic and errors:
                raise next(iter(errors.values()))
            answers = await self._send_many(recipe, messages, drop, atomic) if messages else []
            if errors:
                rest = iter(answers)
                answers = [errors[at] if at in errors else next(rest) for at in range(len(chunk))]
            results += answers
            await asyncio.sleep(0)
        return results

    async def flush(self) -> None:
        """Wait until everything accepted from callers has been answered for."""
        while waiting := [entry.future for entry in (*self._flying, *self._pending)]:
            await asyncio.wait(waiting)

    async def close(self) -> None:
        """Give up what is still waiting; call `flush` first to wait for it."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])
        self._fail(
            (*self._flying, *self._pending),
            ConnectionLost("shut down before the broker answered"),
        )
        self._pending.clear()

    # -- making --------------------------------------------------------------------------------

    def _recipe(self, target: object) -> Recipe:
        now = self._clock.now
        match target:
            case Event():
                recipe = Recipe(
                    target.name,
                    target.type,
                    self._codec,
                    now,
                    key=target.key,
                    exchange=self._exchange(target.exchange),
                )
            case Queue():
                name = target.name
                recipe = Recipe(name, target.type or Any, self._codec, now, queue=name)
            case str():
                Event(target)  # its checks on names apply
                recipe = Recipe(target, Any, self._codec, now, exchange=self._default)
                if len(self._recipes) >= REMEMBERED:
                    self._recipes.clear()
            case _:
                kind = type(target).__name__
                raise TypeError(f"publish takes an Event or the name of one, not {kind}")
        if recipe.exchange is not None and self._connection.prepared(recipe.exchange):
            recipe.prepared = True
        self._recipes[target] = recipe
        return recipe

    def _make_with(
        self, recipe: Recipe, payloads: Iterable[object], options: PublishOptions
    ) -> tuple[list[Outgoing], dict[int, QueueError]]:
        messages: list[Outgoing] = []
        errors: dict[int, QueueError] = {}
        for at, payload in enumerate(payloads):
            try:
                messages.append(recipe.make_with(payload, options, self._connection.traits))
            except PayloadError as error:
                errors[at] = error
        return messages, errors

    def _exchange(self, given: Exchange | str | None) -> Exchange:
        if given is None:
            return self._default
        return given if isinstance(given, Exchange) else Exchange(given, self._default.type)

    def _redirected(self, recipe: Recipe, options: PublishOptions) -> Recipe:
        given = options.get("exchange")
        if given is None:
            return recipe
        exchange = self._exchange(given)
        return recipe.through(exchange, prepared=self._connection.prepared(exchange))

    # -- sending -------------------------------------------------------------------------------

    async def _send_many(
        self, recipe: Recipe, messages: list[Outgoing], drop: bool, atomic: bool
    ) -> Sequence[str | QueueError]:
        driver = self._connection.current
        if (
            driver is not None
            and driver.traits.inline
            and recipe.prepared
            and not self._pending
            and not self._flying
        ):
            try:
                receipts = await driver.send(messages, atomic=atomic)
            except ConnectionLost as error:
                self._connection.lost(driver, error)
            else:
                if receipts.count(ACCEPTED) == len(receipts):
                    self._count(messages)
                    return [message.id for message in messages]
                entry = _Entry(recipe, messages, drop, atomic, self._deadline())
                flight = [(entry, at, message) for at, message in enumerate(messages)]
                self._answer(driver, flight, receipts)
                if not entry.open():
                    return [each for each in entry.results if not isinstance(each, Outgoing)]
                messages = [each for each in entry.results if isinstance(each, Outgoing)]
                answers = iter(await self._submit(recipe, messages, drop, atomic))
                return [
                    next(answers) if isinstance(each, Outgoing) else each for each in entry.results
                ]
        return await self._submit(recipe, messages, drop, atomic)

    async def _submit(
        self, recipe: Recipe, messages: Sequence[Outgoing], drop: bool, atomic: bool = False
    ) -> Sequence[str | QueueError]:
        """Queue the messages for the sender and wait for the answers."""
        if self._connection.current is None:
            self._refuse_in_outage(len(messages))
        entry = _Entry(recipe, messages, drop, atomic, self._deadline())
        self._pending.append(entry)
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_pending())
        if self._timer is None:
            wait = self._settings.publish_timeout
            self._timer = self._clock.call_later(wait, self._expire)
        await entry.future  # cancelling it leaves the batch alone: its place is skipped
        return [each for each in entry.results if not isinstance(each, Outgoing)]

    def _refuse_in_outage(self, count: int) -> None:
        connection = self._connection
        broker = connection.traits.name
        down = connection.state in ("reconnecting", "closing", "closed")
        if down and (self._settings.on_outage == "fail" or connection.state != "reconnecting"):
            error = connection.last_error or "this QueueCraft is shut down"
            raise PublishError(f"not connected: {error}", broker=broker)
        waiting = sum(len(entry.results) for entry in self._pending)
        if waiting + count > self._settings.max_pending:
            raise QueueFull(
                f"{waiting} publishes wait for the connection already; slow down or raise "
                "max_pending",
                broker=broker,
                operation="publish",
            )

    async def _send_pending(self) -> None:
        """The one sender: takes what has piled up, sends it, and answers its callers."""
        try:
            while self._pending:
                driver = await self._ready()
                if driver is None:
                    continue
                flight = self._take()
                if not flight:
                    continue
                await self._fly(driver, flight)
        finally:
            self._sender = None
            if self._pending and not self._closed:
                self._sender = asyncio.get_running_loop().create_task(self._send_pending())

    async def _ready(self) -> Driver | None:
        """The open driver, with the exchange of the first entry in place."""
        entry = self._pending[0]
        try:
            driver = await self._connection.ready()
            exchange = entry.recipe.exchange
            if not entry.recipe.prepared and exchange is not None:
                await self._connection.prepare(exchange)
                entry.recipe.prepared = True
                return self._connection.current
        except ConnectionLost as error:
            if self._connection.state == "reconnecting":
                return None
            self._fail(self._pending, error)
            self._pending.clear()
            return None
        except QueueError as error:  # the exchange cannot be made: that is this caller's alone
            self._pending.popleft()
            self._fail((entry,), error)
            return None
        return driver

    def _take(self) -> list[_Seat]:
        flight: list[_Seat] = []
        while self._pending and len(flight) < BATCH:
            entry = self._pending[0]
            if entry.future.done():  # cancelled or timed out while it waited
                self._pending.popleft()
                continue
            if flight and (entry.atomic or not entry.recipe.prepared or flight[-1][0].atomic):
                break
            self._pending.popleft()
            self._flying.append(entry)
            flight += [(entry, at, _message(entry, at)) for at in entry.open()]
        return flight

    async def _fly(self, driver: Driver, flight: list[_Seat]) -> None:
        messages = [message for _, _, message in flight]
        atomic = flight[0][0].atomic
        try:
            receipts = await driver.send(messages, atomic=atomic)
        except ConnectionLost as error:
            for entry in self._flying:
                entry.error = error
            self._connection.lost(driver, error)
        except Exception as error:
            wrapped = PublishError(f"the driver failed: {error!r}", outcome="unknown")
            wrapped.__cause__ = error
            for entry in self._flying:
                entry.attempted = True
            self._fail(self._flying, wrapped)
        except asyncio.CancelledError:
            for entry in self._flying:
                entry.attempted = True
            raise
        else:
            failpoint("publish.after_send")
            self._answer(driver, flight, receipts)
        # What was not confirmed goes first again, in its order, before anything newer.
        unanswered = [entry for entry in self._flying if not entry.future.done()]
        self._flying.clear()
        self._pending.extendleft(reversed(unanswered))
        if unanswered and self._connection.current is driver:
            await self._clock.sleep(0.05)  # an answer is missing though the connection stands

    def _answer(self, driver: Driver, flight: Sequence[_Seat], receipts: Sequence[Receipt]) -> None:
        accepted: list[Outgoing] = []
        lost: QueueError | None = None
        for (entry, at, message), receipt in zip(flight, receipts, strict=True):
            if receipt is ACCEPTED:
                accepted.append(message)
            if entry.future.done():  # cancelled or timed out in flight: nobody asks any more
                continue
            if receipt is ACCEPTED:
                entry.results[at] = message.id
            elif isinstance(receipt, Rejected):
                dropped = entry.drop and isinstance(receipt.error, Unroutable)
                entry.results[at] = message.id if dropped else receipt.error
            elif isinstance(receipt, Unknown):
                entry.attempted = True
                entry.error = receipt.error
                if isinstance(receipt.error, ConnectionLost):
                    lost = receipt.error
        if accepted:
            self._count(accepted)
        for entry in {entry: None for entry, _, _ in flight}:
            if not entry.open() and not entry.future.done():
                entry.future.set_result(None)
        if lost is not None:
            self._connection.lost(driver, lost)

    def _count(self, accepted: Sequence[Outgoing]) -> None:
        self.sent += len(accepted)
        self.last_success = accepted[-1].timestamp
        if self._facts.wants(MessagesPublished):
            self._facts.emit(MessagesPublished(messages=accepted))

    # -- time ----------------------------------------------------------------------------------

    def _deadline(self) -> float:
        return self._clock.monotonic() + self._settings.publish_timeout

    def _expire(self) -> None:
        """One timer for all: entries expire in the order they came."""
        self._timer = None
        now = self._clock.monotonic()
        waiting = [e for e in (*self._flying, *self._pending) if not e.future.done()]
        for entry in self._flying:
            entry.attempted = True
        late = [entry for entry in waiting if entry.deadline <= now]
        seconds = self._settings.publish_timeout
        self._fail(late, QueueError(f"no answer from the broker within {seconds:g} s"))
        rest = [entry.deadline for entry in waiting if entry.deadline > now]
        if rest:
            self._timer = self._clock.call_later(min(rest) - now, self._expire)

    def _fail(self, entries: Iterable[_Entry], error: QueueError) -> None:
        for entry in entries:
            if entry.future.done():
                continue
            cause = entry.error or error
            text = str(error) if cause is error else f"{error}: {cause}"
            for at in entry.open():
                failed = PublishError(
                    text,
                    outcome="unknown" if entry.attempted else "rejected",
                    broker=self._connection.traits.name,
                    message_id=_message(entry, at).id,
                )
                failed.__cause__ = cause
                entry.results[at] = failed
            entry.future.set_result(None)


def _message(entry: _Entry, at: int) -> Outgoing:
    message = entry.results[at]
    assert isinstance(message, Outgoing)
    return message
