"""Handling each message once, however often it comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from queuecraft.failpoints import failpoint
from queuecraft.middleware.claims import short, text_of
from queuecraft.model.checks import SECONDS
from queuecraft.model.errors import ConfigError, ConnectionLost
from queuecraft.model.message import Message
from queuecraft.model.outcome import NO_REPLY, Postponed
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.handler import Handle
from queuecraft.stores.claims.base import CLAIMED, Busy
from queuecraft.stores.claims.claims import Claims

AWAY: Final = 5.0  # seconds that a message waits when it cannot be known whether it was handled
SOONEST: Final = 0.05  # seconds until one comes again that is being handled elsewhere

Key: TypeAlias = str | Callable[[Message[Any]], str] | None
"""What makes two messages the same: a header's name, a function of the message, or its id."""


class Idempotent:
    """Middleware that runs a handler once for each message, for `ttl` seconds: one that was
    handled is acknowledged unrun when it comes again, one that is being handled elsewhere waits.
    A request that was handled gets no reply when it comes again.

    Two messages of a queue are the same if they have the same `key`: their id, unless it is the
    name of a header (a message without it goes by its id) or a function of the message. A
    handler that fails has not handled its message. One that dies holds it for at most `lease`
    seconds, which are renewed while it runs; then it is run again.

    >>> import asyncio
    >>> from queuecraft.middleware.claims import MemoryClaims
    >>> from queuecraft.testing import message_of
    >>> async def charge(message):
    ...     print("charged", message.payload)
    >>> async def main():
    ...     once = Idempotent(MemoryClaims(), key=lambda message: message.payload["id"])
    ...     handle = once(charge)
    ...     await handle(message_of({"id": "o-1"}, id="m-1"))
    ...     await handle(message_of({"id": "o-1"}, id="m-2"))
    ...     await once.close()
    >>> asyncio.run(main())
    charged {'id': 'o-1'}
    """

    def __init__(
        self, store: Claims, key: Key = None, *, ttl: float = 86400.0, lease: float = 60.0
    ) -> None:
        if not isinstance(store, Claims):
            raise ConfigError(
                f"Idempotent({store!r}): expected where to write down what is done: "
                "MemoryClaims(), SqliteClaims(path) or RedisClaims(url)"
            )
        if key == "" or not (key is None or callable(key) or isinstance(key, str)):
            raise ConfigError(
                f"Idempotent(key={key!r}): expected the name of a header, or a function"
            )
        for name, seconds in (("ttl", ttl), ("lease", lease)):
            if not SECONDS.will_do(seconds):
                raise ConfigError(f"Idempotent({name}={seconds!r}): expected seconds above 0")
        self.store = store
        self._key = key
        self._ttl = ttl
        self._lease = lease

    def __call__(self, handle: Handle) -> Handle:
        claims, ttl, lease = self.store, self._ttl, self._lease

        async def handle_once(message: Message[Any]) -> object:
            key = self.key_of(message)
            try:
                answer = await claims.claim(key, lease)
            except ConnectionLost as error:
                raise Postponed(AWAY, error.message) from error
            if isinstance(answer, Busy):
                raise Postponed(max(answer.seconds, SOONEST), "it is being handled elsewhere")
            if answer is not CLAIMED:
                claims.log.debug("%s in %s was handled before", message.id, message.queue)
                # What it returned is not known, and the first reply counts: None would be one.
                return None if message.reply_to is None else NO_REPLY
            try:
                result = await handle(message)
            except GeneratorExit:  # we are being thrown away, and may wait for nothing
                claims.abandon(key)
                raise
            except BaseException:
                if message.settled == "ack":
                    await self._complete(message, key, ttl)
                else:
                    await claims.release(key)
                raise
            failpoint("idempotent.after_handle")
            if message.settled in (None, "ack"):
                await self._complete(message, key, ttl)
                failpoint("idempotent.after_complete")
            else:  # by hand, the handler has failed it
                await claims.release(key)
            return result

        return handle_once

    def key_of(self, message: Message[Any]) -> str:
        """What a message is known by in the store: its queue is part of it, since each queue that
        an event goes to has to handle it.

        >>> from queuecraft.middleware.claims import MemoryClaims
        >>> from queuecraft.testing import message_of
        >>> message = message_of({}, id="m-1", queue="billing", headers={"order": "o-1"})
        >>> Idempotent(MemoryClaims()).key_of(message)
        'handled:billing\\nid:m-1'
        >>> Idempotent(MemoryClaims(), "order").key_of(message)
        'handled:billing\\nkey:o-1'
        """
        key, kind = self._key, "key"
        found: str
        if key is None:
            kind, found = "id", message.id
        elif not isinstance(key, str):
            found = key(message)
        elif not (found := text_of(message.headers.get(key))):
            kind, found = "id", message.id
        # A name has no line ends in it.
        return short(f"handled:{message.queue}\n{kind}:{_text(kind, found)}")

    @property
    def trouble(self) -> str | None:
        """Why nothing can be handled now; None while all is well."""
        return self.store.trouble

    def attach(self, engine: Engine) -> None:
        """Say what there is to say where the others do."""
        self.store.log = engine.facts.log

    async def close(self) -> None:
        """Let go of the store."""
        await self.store.close()

    async def _complete(self, message: Message[Any], key: str, ttl: float) -> None:
        try:
            alone = await self.store.complete(key, ttl)
        except ConnectionLost as error:
            self.store.log.warning(
                "%s in %s was handled, which could not be written down: should it come again, it "
                "is handled again: %s",
                message.id,
                message.queue,
                error.message,
            )
            return
        if not alone:
            self.store.log.warning(
                "%s in %s was handled, but not within its lease: another has begun with it too",
                message.id,
                message.queue,
            )


def _text(kind: str, found: object) -> str:
    if isinstance(found, str) and found:
        return found
    # One key for all that have none would make them all the same.
    raise ConfigError(f"the {kind} that Idempotent goes by is {found!r}, not a text")
