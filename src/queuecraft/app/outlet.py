"""What an application says to others: publish, send and request, as users see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Unpack, overload

from queuecraft.model.errors import ConfigError, PublishError, QueueError
from queuecraft.model.event import Event
from queuecraft.model.queue import Queue
from queuecraft.model.types import R, T
from queuecraft.runtime.options import PublishOptions
from queuecraft.runtime.publication import Publishing
from queuecraft.runtime.registration import Given
from queuecraft.runtime.requests import RequestOptions, Requests

REMEMBERED = 4096  # names that were sent to; they may be made of user data


class Outlet:
    """The half of a QueueCraft through which messages leave; it needs no worker."""

    def __init__(self, publishing: Publishing, requests: Requests) -> None:
        self._publishing = publishing
        self._requests = requests
        self._named_queues: dict[str, Queue[Any]] = {}

    @overload
    async def publish(
        self, event: Event[T], payload: Given[T], **options: Unpack[PublishOptions]
    ) -> str: ...
    @overload
    async def publish(
        self, event: str, payload: object, **options: Unpack[PublishOptions]
    ) -> str: ...
    async def publish(
        self, event: Event[Any] | str, payload: object, **options: Unpack[PublishOptions]
    ) -> str:
        """Publish an event to every queue bound to it; returns the message's id once the broker
        has it.

        Options: `headers, message_id, correlation_id, reply_to, timestamp, key, priority, ttl,
        delay, deliver_at, persistent, retry, dead_letter, exchange, unroutable`. Raises
        `Unroutable` when no queue is bound, `PayloadError` when the payload does not fit,
        `PublishError` when the broker did not take it or did not answer (`error.outcome` tells
        which).

        >>> import asyncio
        >>> from queuecraft import Event, QueueCraft
        >>> async def main() -> None:
        ...     async with QueueCraft() as qc:
        ...         await qc.publish(Event("order.placed", dict), {"id": "o-1"}, delay=30)
        >>> asyncio.run(main())
        Traceback (most recent call last):
        queuecraft.Unroutable: no queue is bound to event 'order.placed' ...
        """
        return await self._publishing.publish(event, payload, options)

    @overload
    async def publish_many(
        self,
        event: Event[T],
        payloads: Iterable[Given[T]],
        *,
        atomic: bool = False,
        return_exceptions: Literal[False] = False,
        **options: Unpack[PublishOptions],
    ) -> list[str]: ...
    @overload
    async def publish_many(
        self,
        event: Event[T],
        payloads: Iterable[Given[T]],
        *,
        atomic: bool = False,
        return_exceptions: Literal[True],
        **options: Unpack[PublishOptions],
    ) -> list[str | QueueError]: ...
    @overload
    async def publish_many(
        self,
        event: str,
        payloads: Iterable[object],
        *,
        atomic: bool = False,
        return_exceptions: bool = False,
        **options: Unpack[PublishOptions],
    ) -> list[str | QueueError]: ...
    async def publish_many(
        self,
        event: Event[Any] | str,
        payloads: Iterable[Any],
        *,
        atomic: bool = False,
        return_exceptions: bool = False,
        **options: Unpack[PublishOptions],
    ) -> Any:
        """Publish many payloads of one event, in as few flights as possible; returns their ids.

        If some fail, the others are published all the same; then `PublishError` is raised with
        what became of each in `error.results`, or, with `return_exceptions=True`, that list is
        returned. `atomic=True` stores all or none, where the broker can.

        >>> import asyncio
        >>> from queuecraft import Event, QueueCraft
        >>> async def main() -> int:
        ...     qc = QueueCraft()
        ...     qc.worker("audit").on("#", print)
        ...     async with qc:
        ...         return len(await qc.publish_many(Event("n", int), range(1000)))
        >>> asyncio.run(main())
        1000
        """
        if "message_id" in options:
            raise ConfigError("publish_many gives each message an id of its own")
        results = await self._publishing.publish_many(event, payloads, options, atomic=atomic)
        if not return_exceptions:
            failed = [each for each in results if isinstance(each, QueueError)]
            if failed:
                unknown = any(getattr(each, "outcome", "") == "unknown" for each in failed)
                raise PublishError(
                    f"{len(failed)} of {len(results)} messages were not published; the first: "
                    f"{failed[0]}",
                    outcome="unknown" if unknown else "rejected",
                    results=tuple(results),
                    operation="publish_many",
                ) from failed[0]
        return results

    @overload
    async def send(
        self, queue: Queue[T], payload: Given[T], **options: Unpack[PublishOptions]
    ) -> str: ...
    @overload
    async def send(self, queue: str, payload: object, **options: Unpack[PublishOptions]) -> str: ...
    async def send(
        self, queue: Queue[Any] | str, payload: object, **options: Unpack[PublishOptions]
    ) -> str:
        """Send a payload to one queue alone; returns its id once the broker has it. The worker
        handles it with `worker.on(queue)`, or with its only handler.

        >>> import asyncio
        >>> from queuecraft import Queue, QueueCraft
        >>> async def main() -> None:
        ...     async with QueueCraft() as qc:
        ...         await qc.send(Queue("invoices", dict), {"id": "i-1"})
        >>> asyncio.run(main())
        Traceback (most recent call last):
        queuecraft.PublishError: there is no such queue; start its worker first, ...
        """
        if "exchange" in options:
            raise ConfigError("send goes to a queue, not through an exchange; use publish")
        target = self._queue(queue) if isinstance(queue, str) else queue
        return await self._publishing.publish(target, payload, options)

    @overload
    async def request(
        self,
        event: Event[T] | Queue[T],
        payload: Given[T],
        reply: type[R],
        *,
        timeout: float = 5.0,
        **options: Unpack[RequestOptions],
    ) -> R: ...
    @overload
    async def request(
        self,
        event: str,
        payload: object,
        reply: type[R],
        *,
        timeout: float = 5.0,
        **options: Unpack[RequestOptions],
    ) -> R: ...
    @overload
    async def request(
        self,
        event: Event[T] | Queue[T],
        payload: Given[T],
        reply: None = None,
        *,
        timeout: float = 5.0,
        **options: Unpack[RequestOptions],
    ) -> Any: ...
    @overload
    async def request(
        self,
        event: str,
        payload: object,
        reply: None = None,
        *,
        timeout: float = 5.0,
        **options: Unpack[RequestOptions],
    ) -> Any: ...
    async def request(
        self,
        event: Event[Any] | Queue[Any] | str,
        payload: object,
        reply: Any = None,
        *,
        timeout: float = 5.0,
        **options: Unpack[RequestOptions],
    ) -> Any:
        """Publish an event, or send to one queue, and wait for what its handler returns, read as
        the type `reply`.

        A request is neither retried nor kept: it lives for `timeout` seconds, and the first reply
        wins. Raises `RequestTimeout` when none came, `RemoteError` when the handler failed,
        `PayloadError` when the reply does not fit, and what `publish` raises. Options: `headers,
        message_id, timestamp, key, priority, persistent, exchange`.

        >>> import asyncio
        >>> from queuecraft import Event, QueueCraft
        >>> price_asked = Event("price.asked", str)
        >>> async def main() -> None:
        ...     qc = QueueCraft()
        ...     pricing = qc.worker("pricing")
        ...
        ...     @pricing.on(price_asked)
        ...     async def price(article: str) -> float:
        ...         return {"tea": 4.5}[article]
        ...
        ...     async with qc:
        ...         await pricing.start()
        ...         print(await qc.request(price_asked, "tea", float))
        >>> asyncio.run(main())
        4.5
        """
        return await self._requests.request(
            self._publishing.publish, event, payload, reply, timeout, options
        )

    def _queue(self, name: str) -> Queue[Any]:
        queue = self._named_queues.get(name)
        if queue is None:
            if len(self._named_queues) >= REMEMBERED:
                self._named_queues.clear()
            queue = self._named_queues[name] = Queue(name)
        return queue
