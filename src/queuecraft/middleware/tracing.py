"""A block of the user's around the handling of each message: a span, a session, a timer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from queuecraft.model.message import Message
from queuecraft.runtime.handler import Handle


class Tracing:
    """Handles each message inside the context that `span` makes for it. What a handler raises goes
    through it.

    >>> from contextlib import contextmanager
    >>> from queuecraft import QueueCraft
    >>> @contextmanager
    ... def span(message):
    ...     print("begin", message.id)
    ...     yield
    ...     print("end", message.id)
    >>> QueueCraft().use(Tracing(span))
    """

    def __init__(
        self,
        span: Callable[
            [Message[Any]], AbstractContextManager[object] | AbstractAsyncContextManager[object]
        ],
    ) -> None:
        self._span = span

    def __call__(self, handle: Handle) -> Handle:
        span = self._span
        sync: type[object] | None = None  # the kind of context that it makes, as a rule one only

        async def traced(message: Message[Any]) -> object:
            nonlocal sync
            context: Any = span(message)
            if type(context) is sync or hasattr(context, "__enter__"):
                sync = type(context)
                with context:
                    return await handle(message)
                return None  # it keeps errors to itself
            async with context:
                return await handle(message)
            return None

        return traced
