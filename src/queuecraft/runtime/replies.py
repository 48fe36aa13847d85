"""Replies: what the handler of a request returns or raises goes to who asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from queuecraft.clock import Clock
from queuecraft.codec import Codec
from queuecraft.codec.codec import EncodeBody
from queuecraft.codec.headers import ERROR, ERROR_TYPE, MAX_ERROR, trim
from queuecraft.drivers.base import NO_HEADERS, Delivery, Outgoing
from queuecraft.model.errors import ConfigError, PayloadError, QueueError
from queuecraft.model.ids import new_id
from queuecraft.model.naming import REPLIES
from queuecraft.model.outcome import Failure, NoReply, Postponed, UnreadablePayload
from queuecraft.model.printable import printable
from queuecraft.model.types import Headers
from queuecraft.runtime.handler import Call, Handler
from queuecraft.runtime.publisher import Publisher

if TYPE_CHECKING:
    from queuecraft.runtime.consumer import Consumer

REPLY = REPLIES.rstrip(".")  # what every reply is called
REMEMBERED = 256  # types of results
_PLAIN: Final = (type(None), bool, int, float, str, dict, list, tuple)


def is_request(sent: Outgoing) -> bool:
    """Whether somebody waits for a reply, at an address where replies go.

    >>> is_request(Outgoing(b"", "m-1", reply_to="billing", expires_at=2e9))
    False
    """
    to = sent.reply_to
    return to is not None and to.startswith(REPLIES) and sent.expires_at is not None


class Results:
    """What handlers return, written down; by the class of each, since nobody has said a type."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._known: dict[Any, tuple[str, EncodeBody]] = {}

    def written(self, result: object) -> tuple[bytes, str, str | None]:
        """Its body, content type and content encoding. Raises `PayloadError` if it has none.

        >>> Results(Codec()).written({"id": "o-1"})
        (b'{"id":"o-1"}', 'application/json', None)
        """
        kind = Any if type(result) in _PLAIN else type(result)
        if kind not in self._known:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[kind] = self._codec.content_type_for(kind), self._encoder(kind)
        content_type, encode = self._known[kind]
        try:
            body, encoding = encode(result)
        except PayloadError as error:
            what = f"what the handler returned cannot be sent: {error.message}"
            raise PayloadError(what, operation="reply") from error.__cause__
        return body, content_type, encoding

    def _encoder(self, kind: Any) -> EncodeBody:
        try:
            return self._codec.encoder(kind)
        except ConfigError as error:
            what = f"what the handler returned cannot be sent: {error.message}"
            raise PayloadError(what, operation="reply") from error


def told(failure: Failure) -> Headers:
    """A failure as the headers of a reply.

    >>> told(Failure("ValueError", "no money", "Traceback: ..."))
    {'x-error': 'no money', 'x-error-type': 'ValueError'}
    """
    return {
        ERROR: trim(failure.error, MAX_ERROR),
        ERROR_TYPE: trim(failure.error_type, MAX_ERROR),
    }


class Replies:
    """How the handlers of one worker answer requests: `answers` has a call in place of each."""

    def __init__(
        self,
        calls: Iterable[tuple[Handler, Call]],
        publisher: Publisher,
        codec: Codec,
        clock: Clock,
    ) -> None:
        self.answers = {call: Answer(call, handler, self) for handler, call in calls}
        self.consumer: Consumer | None = None
        self._publisher = publisher
        self._results = Results(codec)
        self._now = clock.now

    def serve(self, consumer: Consumer) -> None:
        """Answer what this consumer receives."""
        self.consumer = consumer
        consumer.admission.replies = self

    def made(self, delivery: Delivery, result: object) -> Outgoing:
        """The reply that carries a result. Raises `PayloadError` if it cannot."""
        return self._reply(delivery, *self._results.written(result))

    def refusal(self, delivery: Delivery, failure: Failure) -> Outgoing:
        """The reply that tells of a failure."""
        return self._reply(delivery, headers=told(failure))

    async def send(self, reply: Outgoing) -> None:
        """Get it to who asked, if that one still waits."""
        assert self.consumer is not None
        assert reply.expires_at is not None
        try:
            async with asyncio.timeout(max(0.0, reply.expires_at - self._now())):
                await self._publisher.reply(reply)
        except (QueueError, TimeoutError) as error:  # who asked is gone, or has given up
            self.consumer.log.debug(
                "the reply to %s is lost: %s", printable(reply.correlation_id or ""), error
            )

    def _reply(
        self,
        delivery: Delivery,
        body: bytes = b"",
        content_type: str | None = None,
        encoding: str | None = None,
        headers: Headers = NO_HEADERS,
    ) -> Outgoing:
        sent = delivery.sent
        to = sent.reply_to
        assert to is not None
        return Outgoing(
            body,
            new_id(),
            routing_key=REPLY,
            timestamp=self._now(),
            content_type=content_type,
            content_encoding=encoding,
            key=to,  # what is for one caller stays together
            queue=to,
            headers=headers,
            expires_at=sent.expires_at,
            persistent=False,
            correlation_id=sent.correlation_id or sent.id,
        )


class Answer:
    """Called with a request, as its handler is with a message, it runs the handler and replies; who
    called it acknowledges the request after that.

    A failure is told to who asked, and then raised as any other: the policy that a request brings
    along ends it there.
    """

    def __init__(self, call: Call, handler: Handler, replies: Replies) -> None:
        self._call = call
        self._replies = replies
        self._batch = f"handler {handler.name} of {handler.pattern!r}" if handler.in_batches else ""
        # Who takes whatever matches is not asked: an auditor is not to answer for others.
        self._overhears = bool({"*", "#"} & set(handler.pattern.split(".")))

    async def __call__(self, delivery: Delivery) -> None:
        """Handle a request."""
        replies = self._replies
        try:
            if self._batch:
                raise ConfigError(
                    f"{self._batch} takes batches, and cannot answer a request; let it take one "
                    "message at a time"
                )
            result = await self._call(delivery)
            reply = None
            if not (isinstance(result, NoReply) or (result is None and self._overhears)):
                reply = replies.made(delivery, result)
        except GeneratorExit:
            raise
        except asyncio.CancelledError as error:
            self._tell_if_failed(delivery, error)
            raise
        except BaseException as error:
            if not self._overhears and not isinstance(error, Postponed):
                cause = error.__cause__ if isinstance(error, UnreadablePayload) else None
                await replies.send(replies.refusal(delivery, Failure.of(cause or error)))
            raise
        if reply is not None:
            await replies.send(reply)

    def _tell_if_failed(self, delivery: Delivery, error: asyncio.CancelledError) -> None:
        """A handler that was stopped has not failed: another will answer. One that has run into its
        ack timeout has, and one that nobody has cancelled."""
        consumer, task = self._replies.consumer, asyncio.current_task()
        assert consumer is not None
        assert task is not None
        slot = consumer.slot_of(delivery)
        if self._overhears:
            return
        if slot is not None and slot.lapsed:
            failure = Failure("AckTimeout", "the handler did not return within its ack timeout")
        elif not task.cancelling():
            failure = Failure.of(error)
        else:
            return
        # Not by a task that is being cancelled.
        _ = consumer.errands.start(self._replies.send(self._replies.refusal(delivery, failure)))
