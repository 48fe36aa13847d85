"""Requests: an event is published, and who published it waits for the reply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias, TypedDict, cast

from queuecraft.clock import Clock
from queuecraft.codec import Codec
from queuecraft.codec.codec import DecodeBody
from queuecraft.codec.headers import ERROR, ERROR_TYPE, MAX_ERROR, trim
from queuecraft.drivers.base import ConnectionLost, Driver, Exchange, Outgoing, Subscription
from queuecraft.model.errors import (
    ConfigError,
    PayloadError,
    QueueError,
    RemoteError,
    RequestTimeout,
    Unroutable,
)
from queuecraft.model.event import Event
from queuecraft.model.ids import new_id
from queuecraft.model.naming import REPLIES
from queuecraft.model.policy import NoDeadLetter, NoRetry, is_number
from queuecraft.model.queue import Queue
from queuecraft.model.types import Headers
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.facts import Facts
from queuecraft.runtime.options import FOR_EVER, PublishOptions

AT_ONCE = 500  # replies taken in one go
WAIT = 30.0  # seconds one receive waits; only a bound, a reply wakes it
REJOIN = 1.0  # seconds before asking again for a queue that cannot be had
GOODBYE = 2.0  # seconds for taking the queue of replies away
REMEMBERED = 256  # types of replies

Publish: TypeAlias = Callable[[object, object, PublishOptions], Awaitable[str]]
"""Publishes a payload to a target."""


class RequestOptions(TypedDict, total=False):
    """What may be said about a request beyond its event, payload and timeout."""

    headers: Headers
    message_id: str
    timestamp: datetime
    key: str
    priority: int
    persistent: bool
    exchange: Exchange | str


class Requests:
    """The requests of one QueueCraft that wait for their replies.

    All replies come to one queue, made for the first request and gone with the QueueCraft. A reply
    is told from the others by a number that only its request had.
    """

    def __init__(self, connection: Connection, codec: Codec, clock: Clock, facts: Facts) -> None:
        self.address = ""  # not before the first request: a process may be forked before that
        self._connection = connection
        self._codec = codec
        self._clock = clock
        self._log = facts.log
        self._waiting: dict[str, asyncio.Future[Outgoing]] = {}
        self._readers: dict[Any, DecodeBody] = {}
        self._task: asyncio.Task[None] | None = None
        self._listening: asyncio.Future[None] | None = None  # done while replies can come
        self._closed = False

    async def request(
        self,
        publish: Publish,
        target: Event[Any] | Queue[Any] | str,
        payload: object,
        reply: Any,
        timeout: float,
        options: RequestOptions,
    ) -> Any:
        """Publish the payload; the reply to it, read as the type asked for."""
        settled = checked(target, timeout, options)
        read = self.reader(reply)
        name = target if isinstance(target, str) else target.name
        id = new_id()
        future: asyncio.Future[Outgoing] = asyncio.get_running_loop().create_future()
        deadline = self._clock.monotonic() + timeout
        missing = "a queue for its reply could not be had"
        self._waiting[id] = future
        scope = asyncio.timeout(None)
        try:
            async with scope:
                timer = self._clock.call_later(timeout, partial(scope.reschedule, 0.0))
                try:
                    await self._listen()
                    missing = "it could not be published"
                    settled["correlation_id"] = id
                    settled["reply_to"] = self.address
                    settled["ttl"] = max(0.001, deadline - self._clock.monotonic())
                    message_id = await self._published(publish, target, payload, settled)
                    missing = "no reply came"
                    sent = await future
                finally:
                    timer.cancel()
        except TimeoutError:
            if not scope.expired():
                raise
            raise self._timed_out(name, missing, timeout) from None
        finally:
            del self._waiting[id]
            if not future.cancel() and not future.cancelled():
                future.exception()  # or it would be missed where publishing has failed as well
        return self.opened(sent, read, name, message_id)

    async def close(self) -> None:
        """Take the queue of replies away; who still waits is told that none will come."""
        self._closed = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._shut())
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _published(
        self, publish: Publish, target: object, payload: object, options: PublishOptions
    ) -> str:
        try:
            return await publish(target, payload, options)
        except Unroutable as error:  # whose advice is for those who want no answer
            raise Unroutable(
                "nobody is there to answer: no queue is bound to it; start the worker that does",
                broker=error.broker,
                operation="request",
                message_id=error.message_id,
            ) from error

    # -- one request ---------------------------------------------------------------------------

    def reader(self, reply: Any) -> DecodeBody:
        """What reads replies of a type."""
        try:
            read = self._readers.get(reply)
        except TypeError:  # it has no hash
            return self._codec.decoder(reply)
        if read is None:
            if len(self._readers) >= REMEMBERED:
                self._readers.clear()
            read = self._readers[reply] = self._codec.decoder(reply)
        return read

    def opened(self, sent: Outgoing, read: DecodeBody, name: str, message_id: str) -> Any:
        """What a reply holds; raises what it tells of."""
        broker = self._connection.traits.name
        if ERROR in sent.headers or ERROR_TYPE in sent.headers:
            kind, text = (_text(sent.headers.get(each)) for each in (ERROR_TYPE, ERROR))
            told = _harmless(": ".join(each for each in (kind, text) if each))
            raise RemoteError(
                f"the handler of {name!r} failed: {told or 'it did not say how'}",
                error_type=kind,
                error=text,
                broker=broker,
                message_id=message_id,
            )
        try:
            return read(sent.body, sent.content_type, sent.content_encoding)
        except PayloadError as error:
            raise PayloadError(
                f"the reply to {name!r}: {error.message}",
                broker=broker,
                operation="request",
                message_id=message_id,
            ) from error.__cause__

    def _timed_out(self, name: str, what: str, timeout: float) -> RequestTimeout:
        connection = self._connection
        why = ""
        if connection.current is None and connection.last_error is not None:
            why = f"; not connected: {connection.last_error}"
        return RequestTimeout(
            f"request {name!r}: {what} within {timeout:g} s{why}",
            broker=connection.traits.name,
            operation="request",
        )

    def _shut(self) -> QueueError:
        return ConnectionLost(
            "this QueueCraft was shut down before a reply came",
            broker=self._connection.traits.name,
            operation="request",
        )

    # -- listening -----------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Wait until replies can come."""
        if self._closed:
            raise self._shut()
        if self._task is None:
            self.address = self.address or REPLIES + new_id()
            self._listening = asyncio.get_running_loop().create_future()
            self._task = asyncio.get_running_loop().create_task(self._serve())
        assert self._listening is not None
        if not self._listening.done() or self._listening.exception() is not None:
            await asyncio.shield(self._listening)  # it is for all who wait

    async def _serve(self) -> None:
        """Receive replies, on one connection after the other. Ends when there will be none."""
        error: Exception = self._shut()
        try:
            while True:
                driver = await self._connection.ready()
                await self._serve_with(driver, self._connection.generation)
        except Exception as failure:  # there is no connection to be had: the next may try again
            error = failure
        finally:
            self._task = None
            if self._listening is not None and not self._listening.done():
                self._listening.set_exception(error)
                self._listening.exception()  # perhaps nobody waits for it

    async def _serve_with(self, driver: Driver, generation: int) -> None:
        subscription: Subscription | None = None
        try:
            subscription = await driver.listen(self.address, prefetch=AT_ONCE)
            self._open()
            while True:
                got = await subscription.receive(AT_ONCE, WAIT)
                for delivery in got:
                    self._take(delivery.sent)
                if got:
                    await subscription.ack(got)
        except ConnectionLost as error:
            if generation == self._connection.generation:
                self._connection.lost(driver, error)
        except QueueError as error:  # the queue is gone, or cannot be made
            self._log.error("cannot receive replies: %s; trying again", error)
            if subscription is not None:
                with suppress(QueueError):
                    await subscription.close()
            await self._clock.sleep(REJOIN)
        except asyncio.CancelledError:
            if subscription is not None and self._connection.current is driver:
                await self._leave(driver, subscription)
            raise
        finally:
            if self._listening is not None and self._listening.done():
                self._listening = asyncio.get_running_loop().create_future()

    def _open(self) -> None:
        if self._listening is not None and not self._listening.done():
            self._listening.set_result(None)

    async def _leave(self, driver: Driver, subscription: Subscription) -> None:
        with suppress(QueueError, TimeoutError):
            async with asyncio.timeout(GOODBYE):
                await subscription.close()
                # Most queues of this kind are gone by now; a broker may keep it for a while.
                await driver.delete(self.address)

    def _take(self, sent: Outgoing) -> None:
        """The first reply wins; one that nobody waits for any more is forgotten."""
        future = self._waiting.get(sent.correlation_id or "")
        if future is not None and not future.done():
            future.set_result(sent)


def checked(
    target: Event[Any] | Queue[Any] | str, timeout: object, options: RequestOptions
) -> PublishOptions:
    """The options of a request as those of a publish; raises for what a request cannot have.

    >>> checked("price.asked", 5.0, {"ttl": 60})
    Traceback (most recent call last):
    queuecraft.ConfigError: a request cannot have ttl=; it lives for its timeout, ...
    """
    if not is_number(timeout) or not 0 < cast("float", timeout) < FOR_EVER:
        raise ConfigError(f"timeout={timeout!r}: expected seconds above 0")
    for name in PublishOptions.__annotations__:
        if name in options and name not in RequestOptions.__annotations__:
            raise ConfigError(
                f"a request cannot have {name}=; it lives for its timeout, is neither retried nor "
                "kept as a dead letter, and has a correlation id of its own"
            )
    if isinstance(target, Queue) and "exchange" in options:
        raise ConfigError("a request to a queue does not go through an exchange; name the event")
    settled = cast("PublishOptions", dict(options))
    settled["retry"], settled["dead_letter"] = NoRetry(), NoDeadLetter()
    settled["unroutable"] = "error"  # rather than waiting for nobody
    settled.setdefault("persistent", False)  # it would not be wanted after a restart
    return settled


def _text(value: object) -> str:
    """A header that should be text, whatever somebody has put there."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return "" if value is None else trim(str(value), MAX_ERROR)


def _harmless(text: str) -> str:
    """Text of somebody else, for an error that may be printed."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
