"""A look at each payload before its handler sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from queuecraft.codec import Codec
from queuecraft.model.errors import PayloadError
from queuecraft.model.message import Message
from queuecraft.model.outcome import Postponed, UnreadablePayload
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.handler import Handle
from queuecraft.runtime.publication import Publication, Publish
from queuecraft.runtime.router import Router


class Validation:
    """Calls `check` with each payload. If it raises, the message is a dead letter at once, reason
    `invalid-payload`: no retry would make it valid.

    >>> from queuecraft import QueueCraft
    >>> def positive(order):
    ...     if order["total"] <= 0:
    ...         raise ValueError("an order must cost something")
    >>> QueueCraft().use(Validation(positive))

    For events that are plain strings, `check` may be their types instead, by name or pattern; what
    fits none is let through. `publishing` refuses with a `PayloadError` what does not fit.

    >>> checked = Validation({"order.placed": dict[str, int], "user.*": str})
    >>> qc = QueueCraft()
    >>> qc.use(checked)
    >>> qc.use_publishing(checked.publishing)
    """

    def __init__(self, check: Callable[[Any], object] | Mapping[str, Any]) -> None:
        self._types = check if isinstance(check, Mapping) else {}
        self._check = None if isinstance(check, Mapping) else check
        self._codec = Codec()

    def attach(self, engine: Engine) -> None:
        """Read payloads as a QueueCraft does."""
        self._codec = engine.codec

    def __call__(self, handle: Handle) -> Handle:
        check, look = self._check, self._look()

        def validated(message: Message[Any]) -> Awaitable[object]:
            payload = message.payload
            try:
                if check is not None:
                    check(payload)
                else:
                    look(message.routing_key, payload)
            except Postponed:
                raise
            except Exception as error:
                raise UnreadablePayload(str(error)) from error
            return handle(message)

        return validated

    def publishing(self, publish: Publish) -> Publish:
        """For `use_publishing`: nothing is sent that would be refused when it is received."""
        check, look = self._check, self._look()

        def validated(publication: Publication) -> Awaitable[str]:
            try:
                if check is not None:
                    check(publication.payload)
                else:
                    look(publication.name, publication.payload)
            except PayloadError:
                raise
            except Exception as error:
                raise PayloadError(str(error)) from error
            return publish(publication)

        return validated

    def _look(self) -> Callable[[str, Any], None]:
        """Writes a payload down, and reads it as what it should be."""
        if not self._types:
            return lambda name, payload: None
        write = self._codec.encoder()
        readers = Router((name, self._codec.decoder(kind)) for name, kind in self._types.items())

        def look(name: str, payload: Any) -> None:
            if (read := readers.find(name)) is not None:
                body, encoding = write(payload)
                read(body, None, encoding)

        return look
