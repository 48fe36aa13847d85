"""Replies that a test has said beforehand, for requests that go nowhere."""

from __future__ import annotations

from typing import Any

from queuecraft.clock import Clock
from queuecraft.codec import Codec
from queuecraft.drivers.base import Outgoing
from queuecraft.model.errors import QueueError, RequestTimeout
from queuecraft.model.event import Event
from queuecraft.model.ids import new_id
from queuecraft.model.naming import REPLIES
from queuecraft.model.outcome import Failure
from queuecraft.model.queue import Queue
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.facts import Facts
from queuecraft.runtime.replies import Results, told
from queuecraft.runtime.requests import Publish, RequestOptions, Requests, checked


class CannedReplies(Requests):
    """Answers requests with what `replies` has for the name of their event or queue."""

    def __init__(self, connection: Connection, codec: Codec, clock: Clock, facts: Facts) -> None:
        super().__init__(connection, codec, clock, facts)
        self.replies: dict[str, object] = {}
        self._results = Results(codec)

    async def request(
        self,
        publish: Publish,
        target: Event[Any] | Queue[Any] | str,
        payload: object,
        reply: Any,
        timeout: float,
        options: RequestOptions,
    ) -> Any:
        settled = checked(target, timeout, options)
        read = self.reader(reply)
        settled["correlation_id"], settled["reply_to"] = new_id(), REPLIES + "mock"
        settled["ttl"] = timeout
        message_id = await publish(target, payload, settled)
        name = target if isinstance(target, str) else target.name
        if name not in self.replies:
            raise RequestTimeout(
                f"nobody answers {name!r} here; say what a request gets: mock.reply({name!r}, ...)",
                operation="request",
                message_id=message_id,
            )
        answer = self.replies[name]
        if callable(answer):
            try:
                answer = answer(payload)
            except Exception as error:
                answer = error
        if isinstance(answer, QueueError):
            raise answer
        return self.opened(self._message(answer), read, name, message_id)

    def _message(self, answer: object) -> Outgoing:
        if isinstance(answer, Exception):
            return Outgoing(b"", new_id(), headers=told(Failure.of(answer)))
        body, content_type, encoding = self._results.written(answer)
        return Outgoing(body, new_id(), content_type=content_type, content_encoding=encoding)
