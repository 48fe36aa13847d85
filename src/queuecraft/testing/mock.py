"""A QueueCraft that sends nothing: it records what is published, and delivers what a test says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Unpack, overload

from queuecraft.app import QueueCraft
from queuecraft.codec import Compressors, Serializers
from queuecraft.codec.headers import RETRY_COUNT
from queuecraft.drivers.base import ACCEPTED, Outgoing, Receipt
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.model.event import Event
from queuecraft.model.ids import new_id
from queuecraft.model.outcome import Acked, DeadLettered, Dropped, Outcome, PutOff, Retried
from queuecraft.model.queue import Queue
from queuecraft.model.routing import topic_matches
from queuecraft.model.settings import Settings, SettingsOptions
from queuecraft.model.types import Headers, HeaderValue, T
from queuecraft.runtime.facts import (
    Fact,
    MessageDeadLettered,
    MessageDropped,
    MessagePostponed,
    MessageRetried,
    MessagesPublished,
    MessagesSucceeded,
)
from queuecraft.runtime.handler import Middleware
from queuecraft.runtime.worker import Worker
from queuecraft.testing.canned import CannedReplies
from queuecraft.testing.clock import FakeClock
from queuecraft.testing.faulty import FaultyDriver
from queuecraft.testing.record import Record
from queuecraft.testing.records import Records


class _RecordOnly(FaultyDriver):
    """Takes everything and keeps nothing. What workers retry and dead-letter is kept."""

    async def store(self, messages: Sequence[Outgoing], *, atomic: bool) -> Sequence[Receipt]:
        return [ACCEPTED] * len(messages)


class MockQueueCraft(QueueCraft):
    """The facade for unit tests: publishing needs no worker, handling needs no publisher.

    What is published is recorded and goes nowhere. `deliver` has a worker handle a payload as
    it would a real one, with everything around the handler, and tells what became of it. Time
    stands still until `clock.advance`; retries come back when theirs has come.

    >>> from queuecraft import Event, Retry
    >>> order_placed = Event("order.placed", dict)
    >>> async def main():
    ...     async with MockQueueCraft() as mock:
    ...         await mock.publish(order_placed, {"id": "o-1"}, delay=30)
    ...         print(mock.published(order_placed), mock.records[0].delay)
    ...
    ...         billing = mock.worker("billing", retry=Retry(max_retries=1))
    ...
    ...         @billing.on(order_placed)
    ...         async def charge(order: dict) -> None:
    ...             raise ValueError("no money")
    ...
    ...         first = await mock.deliver(billing, {"id": "o-1"})
    ...         print(type(first).__name__, first.delay)
    ...         last = await mock.deliver(billing, {"id": "o-1"}, attempt=2)
    ...         print(type(last).__name__, last.failure.error)
    >>> asyncio.run(main())
    [{'id': 'o-1'}] 30.0
    Retried 1.0
    DeadLettered no money
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        serializers: Serializers | None = None,
        compressors: Compressors | None = None,
        middleware: Iterable[Middleware] = (),
        logger: logging.Logger | None = None,
        clock: FakeClock | None = None,
        **options: Unpack[SettingsOptions],
    ) -> None:
        self.clock = FakeClock() if clock is None else clock
        """The time of this QueueCraft."""
        self.driver: FaultyDriver = _RecordOnly(MemoryDriver(self.clock))
        """The driver underneath, to be broken on command."""
        super().__init__(
            url,
            settings=settings,
            drivers=(self.driver,),
            serializers=serializers,
            compressors=compressors,
            middleware=middleware,
            logger=logger,
            clock=self.clock,
            **options,
        )
        engine = self._engine
        self._canned = CannedReplies(engine.connection, engine.codec, engine.clock, engine.facts)
        self._requests = self._canned
        self.records = Records()
        """Everything published and sent, in order."""
        self.observe(MessagesPublished, self._record)

    # -- what was published --------------------------------------------------------------------

    @overload
    def published(self, event: Event[T]) -> list[T]: ...
    @overload
    def published(self, event: str) -> list[Any]: ...
    def published(self, event: Event[Any] | str) -> list[Any]:
        """The payloads published as this event, in order; a string may have wildcards.

        >>> from queuecraft import Event
        >>> async def main():
        ...     async with MockQueueCraft() as mock:
        ...         await mock.publish(Event("order.placed", dict), {"id": "o-1"})
        ...         await mock.publish("order.paid", {"id": "o-1", "total": 9.5})
        ...         return len(mock.published("order.*"))
        >>> asyncio.run(main())
        2
        """
        return self.records.published(event)

    @overload
    def sent(self, queue: Queue[T]) -> list[T]: ...
    @overload
    def sent(self, queue: str) -> list[Any]: ...
    def sent(self, queue: Queue[Any] | str) -> list[Any]:
        """The payloads sent to this queue, in order.

        >>> from queuecraft import Queue
        >>> async def main():
        ...     async with MockQueueCraft() as mock:
        ...         await mock.send(Queue("invoices", dict), {"id": "i-1"})
        ...         return mock.sent("invoices")
        >>> asyncio.run(main())
        [{'id': 'i-1'}]
        """
        return self.records.sent(queue)

    def clear(self) -> None:
        """Forget what was recorded, every reply, and every failure that was still to come.

        >>> MockQueueCraft().clear()
        """
        self.records.clear()
        self._canned.replies.clear()
        self.driver.heal()

    def fail_publishing(
        self,
        error: QueueError | None = None,
        *,
        event: Event[Any] | str | None = None,
        times: int | None = 1,
    ) -> None:
        """Let the next publishes fail, of one event or of any; `times=None` until `clear`.

        >>> from queuecraft import QueueError, Unroutable
        >>> async def main():
        ...     async with MockQueueCraft() as mock:
        ...         mock.fail_publishing(Unroutable("nobody listens"), event="order.placed")
        ...         try:
        ...             await mock.publish("order.placed", {"id": "o-1"})
        ...         except QueueError as error:
        ...             print(error)
        ...         return mock.published("order.placed")
        >>> asyncio.run(main())
        nobody listens [operation=publish]
        []
        """
        name = event.name if isinstance(event, Event) else event
        self.driver.reject(error, to=name, times=times, of="send")

    def reply(self, event: Event[Any] | Queue[Any] | str, answer: object) -> None:
        """What requests get as their reply from now on: a value, a function of the payload that
        gives one, or an exception. A `QueueError` is raised as it is; any other is what a handler
        raised, so who asked gets a `RemoteError`. A request that has no answer times out at once.

        >>> from queuecraft import Event
        >>> price_asked = Event("price.asked", str)
        >>> async def main():
        ...     async with MockQueueCraft() as mock:
        ...         mock.reply(price_asked, 4.5)
        ...         print(await mock.request(price_asked, "tea", float))
        ...         mock.reply(price_asked, KeyError("tea"))
        ...         try:
        ...             await mock.request(price_asked, "tea", float)
        ...         except QueueError as error:
        ...             print(type(error).__name__, error.error_type)
        ...         print(mock.published(price_asked))
        >>> asyncio.run(main())
        4.5
        RemoteError KeyError
        ['tea', 'tea']
        """
        self._canned.replies[event if isinstance(event, str) else event.name] = answer

    # -- what is delivered ---------------------------------------------------------------------

    async def deliver(
        self,
        to: Worker | Event[Any] | str,
        payload: object = None,
        *,
        event: Event[Any] | str | None = None,
        body: bytes | None = None,
        attempt: int = 1,
        headers: Headers | None = None,
        key: str | None = None,
        message_id: str | None = None,
        timeout: float = 5.0,
    ) -> Outcome:
        """Have a worker handle a payload, and tell what became of it: `Acked`, `Retried`,
        `DeadLettered` or `Dropped`.

        `to` is the worker, or the event if one worker alone handles it; `event` says which one
        where a worker handles several. `attempt=3` stands for two failures before. `body`
        instead of a payload are bytes as they are, for messages that cannot be read.

        >>> async def main():
        ...     async with MockQueueCraft() as mock:
        ...         audit = mock.worker("audit")
        ...
        ...         @audit.on("order.*")
        ...         async def note(order: dict) -> None:
        ...             await mock.publish("order.noted", order, headers={"by": "audit"})
        ...
        ...         outcome = await mock.deliver("order.paid", {"id": "o-1"})
        ...         print(outcome, mock.published("order.noted"))
        ...         outcome = await mock.deliver("order.paid", body=b"not JSON")
        ...         print(outcome.reason)
        >>> asyncio.run(main())
        Acked() [{'id': 'o-1'}]
        invalid-payload
        """
        worker, name, kind = self._addressee(to, event)
        message = self._message(
            worker,
            name,
            kind,
            payload,
            body=body,
            attempt=attempt,
            headers=headers,
            key=key,
            message_id=message_id,
        )
        (outcome,) = await self._outcomes(worker, [message], timeout)
        return outcome

    async def deliver_many(
        self,
        to: Worker | Event[Any] | str,
        payloads: Iterable[object],
        *,
        event: Event[Any] | str | None = None,
        attempt: int = 1,
        headers: Headers | None = None,
        key: str | None = None,
        timeout: float = 5.0,
    ) -> list[Outcome]:
        """The same for many payloads at once, and what became of each: a handler of lists gets them
        in batches. With `batch_wait`, one that is not full waits until `clock.advance`.

        >>> from queuecraft import BatchFailed
        >>> async def main():
        ...     async with MockQueueCraft() as mock:
        ...         audit = mock.worker("audit")
        ...
        ...         @audit.on("order.paid", batch_size=10)
        ...         async def store(orders: list[dict]) -> None:
        ...             print("storing", len(orders))
        ...             raise BatchFailed({1: ValueError("no such customer")})
        ...
        ...         outcomes = await mock.deliver_many(audit, [{"id": n} for n in range(3)])
        ...         print([type(outcome).__name__ for outcome in outcomes])
        >>> asyncio.run(main())
        storing 3
        ['Acked', 'Retried', 'Acked']
        """
        worker, name, kind = self._addressee(to, event)
        messages = [
            self._message(worker, name, kind, each, attempt=attempt, headers=headers, key=key)
            for each in payloads
        ]
        return await self._outcomes(worker, messages, timeout)

    # -- inside --------------------------------------------------------------------------------

    def _message(
        self,
        worker: Worker,
        name: str,
        kind: Any,
        payload: object,
        *,
        body: bytes | None = None,
        attempt: int,
        headers: Headers | None,
        key: str | None,
        message_id: str | None = None,
    ) -> Outgoing:
        encoding = None
        codec = self._engine.codec
        if body is None:
            body, encoding = codec.encoder(kind)(payload)
        told: dict[str, HeaderValue] = dict(headers or {})
        if attempt > 1:
            told[RETRY_COUNT] = attempt - 1
        return Outgoing(
            body,
            message_id or new_id(),
            routing_key=name,
            timestamp=self.clock.now(),
            content_type=codec.content_type_for(kind),
            content_encoding=encoding,
            key=key,
            queue=worker.queue_name,
            headers=told,
        )

    async def _outcomes(
        self, worker: Worker, messages: Sequence[Outgoing], timeout: float
    ) -> list[Outcome]:
        await worker.start()
        with ExitStack() as watching:
            outcomes = [
                watching.enter_context(self._outcome_of(message.id, worker.queue_name))
                for message in messages
            ]
            await self.driver.inner.send(messages)
            try:
                async with asyncio.timeout(timeout):
                    return [await outcome for outcome in outcomes]
            except TimeoutError:
                late = next(
                    message.id
                    for message, outcome in zip(messages, outcomes, strict=True)
                    if outcome.cancelled() or not outcome.done()
                )
                msg = f"{worker} did not finish message {late} within {timeout:g} s"
                raise AssertionError(msg) from None

    def _record(self, fact: MessagesPublished) -> None:
        self.records += [Record(message, self._engine.codec) for message in fact.messages]

    def _addressee(
        self, to: Worker | Event[Any] | str, event: Event[Any] | str | None
    ) -> tuple[Worker, str, Any]:
        """Who handles it, under which routing key, and the type of the payload."""
        if isinstance(to, Worker):
            worker = to
            handlers = worker.metadata.handlers
            if event is None:
                if len(handlers) != 1 or {"*", "#"} & set(handlers[0].pattern.split(".")):
                    raise ConfigError(f"{worker} may handle several events; say which: event=…")
                event = handlers[0].pattern
        else:
            event = to
            name = to.name if isinstance(to, Event) else to
            found = [each for each in self.workers if _handles(each, name)]
            if len(found) != 1:
                whom = ", ".join(map(repr, found)) or "no worker"
                raise ConfigError(f"event {name!r} is handled by {whom}; name the worker instead")
            worker = found[0]
        if isinstance(event, Event):
            return worker, event.name, event.type
        types = [each.payload_type for each in worker.metadata.handlers if each.pattern == event]
        return worker, event, types[0] if types else None

    @contextmanager
    def _outcome_of(self, id: str, queue: str) -> Generator[asyncio.Future[Outcome]]:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def tell(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        def watch(fact: Fact) -> None:
            match fact:
                case MessagesSucceeded(worker=worker, deliveries=deliveries):
                    if worker == queue and id in [each.sent.id for each in deliveries]:
                        tell(Acked())
                case MessageRetried() if fact.worker == queue and fact.delivery.sent.id == id:
                    tell(Retried(fact.delay, fact.reason, fact.failure))
                case MessageDeadLettered() if fact.worker == queue and fact.delivery.sent.id == id:
                    tell(DeadLettered(fact.reason, fact.failure))
                case MessageDropped() if fact.worker == queue and fact.delivery.sent.id == id:
                    tell(Dropped(fact.reason, fact.failure))
                case MessagePostponed() if fact.worker == queue and fact.delivery.sent.id == id:
                    tell(PutOff(fact.delay, fact.reason))
                case _:
                    pass

        stop = self.observe(Fact, watch)
        try:
            yield future
        finally:
            stop()
            future.cancel()


def _handles(worker: Worker, event: str) -> bool:
    return any(topic_matches(each.pattern, event) for each in worker.metadata.handlers)
