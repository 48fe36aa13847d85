"""Publishing once what is published twice: a second publish within a while is not sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from queuecraft.failpoints import failpoint
from queuecraft.middleware.claims import short, text_of
from queuecraft.model.checks import SECONDS
from queuecraft.model.errors import ConfigError, ConnectionLost, PublishError
from queuecraft.model.ids import new_id
from queuecraft.model.queue import Exchange, Queue
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.publication import Publication, Publish
from queuecraft.stores.claims.base import Busy, Claimed, Done
from queuecraft.stores.claims.claims import Claims

FIRST_LOOK: Final = 0.005  # seconds until we look again whether another has published it
LAST_LOOK: Final = 0.5

Key: TypeAlias = str | Callable[[Publication], str | None] | None
"""What makes two publications the same: a header's name, a function, or the `message_id`."""


class Deduplicate:
    """Middleware around publishing: a second publish of the same thing within `window` seconds is
    not sent, and returns the id of the first.

    Two are the same if they go to the same event or queue and have the same `key`: the
    `message_id` that they are published with, unless it is the name of a header or a function of
    the publication. What has no key, or None, is published as ever. While another publishes the
    same, the second waits for what becomes of it.

    A publish that failed may be repeated at once. If the broker may have stored it (the outcome
    is "unknown", or the process died), it is sent again with the id it had: `Idempotent`
    recognises it, on the side of those who handle it.

    >>> import asyncio
    >>> from queuecraft import QueueCraft
    >>> from queuecraft.middleware.claims import MemoryClaims
    >>> async def main():
    ...     qc = QueueCraft("local://")
    ...     qc.worker("billing").on("order.placed", print)
    ...     qc.use_publishing(Deduplicate(MemoryClaims(), key="order", window=60))
    ...     async with qc:
    ...         first = await qc.publish("order.placed", 9.5, headers={"order": "o-1"})
    ...         again = await qc.publish("order.placed", 9.5, headers={"order": "o-1"})
    ...         print(first == again, (await qc.admin.inspect("billing")).ready)
    >>> asyncio.run(main())
    True 1
    """

    def __init__(
        self, store: Claims, key: Key = None, *, window: float = 300.0, lease: float = 60.0
    ) -> None:
        if not isinstance(store, Claims):
            raise ConfigError(
                f"Deduplicate({store!r}): expected where to write down what was published: "
                "MemoryClaims(), SqliteClaims(path) or RedisClaims(url)"
            )
        if key == "" or not (key is None or callable(key) or isinstance(key, str)):
            raise ConfigError(
                f"Deduplicate(key={key!r}): expected the name of a header, or a function"
            )
        for name, seconds in (("window", window), ("lease", lease)):
            if not SECONDS.will_do(seconds):
                raise ConfigError(f"Deduplicate({name}={seconds!r}): expected seconds above 0")
        self.store = store
        self._key = key
        self._window = window
        self._lease = lease

    def __call__(self, publish: Publish) -> Publish:
        async def publish_once(publication: Publication) -> str:
            key = self.key_of(publication)
            if key is None:
                return await publish(publication)
            answer = await self._claim(key, publication)
            if isinstance(answer, Done):
                return answer.value.decode()
            try:
                await self._keep_id(key, publication)
                failpoint("deduplicate.before_send")
                id = await publish(publication)
            except GeneratorExit:  # we are being thrown away, and may wait for nothing
                self.store.abandon(key)
                raise
            except BaseException:
                await self.store.release(key)
                raise
            failpoint("deduplicate.after_send")
            await self._complete(key, publication, id)
            return id

        return publish_once

    def key_of(self, publication: Publication) -> str | None:
        """What a publication is known by in the store; None if it is none that can come twice.

        >>> from queuecraft.middleware.claims import MemoryClaims
        >>> once = Deduplicate(MemoryClaims())
        >>> once.key_of(Publication("order.placed", {}, {"message_id": "m-1"}))
        'published:event:order.placed\\n\\nm-1'
        >>> once.key_of(Publication("order.placed", {}, {})) is None
        True
        """
        options, key = publication.options, self._key
        if options.get("reply_to") is not None:
            return None  # a request: another's reply would not come here
        found: str | None
        if key is None:
            found = options.get("message_id")
        elif isinstance(key, str):
            found = text_of((options.get("headers") or {}).get(key)) or None
        else:
            found = _checked(key(publication))
        if found is None:
            return None
        kind = "queue" if isinstance(publication.target, Queue) else "event"
        exchange = options.get("exchange") or ""
        through = exchange.name if isinstance(exchange, Exchange) else exchange
        # Names have no line ends in them.
        return short(f"published:{kind}:{publication.name}\n{through}\n{found}")

    @property
    def trouble(self) -> str | None:
        """Why nothing can be published now; None while all is well."""
        return self.store.trouble

    def attach(self, engine: Engine) -> None:
        """Say what there is to say where the others do."""
        self.store.log = engine.facts.log

    async def close(self) -> None:
        """Let go of the store."""
        await self.store.close()

    # -- inside --------------------------------------------------------------------------------

    async def _claim(self, key: str, publication: Publication) -> Claimed | Done:
        """The claim on a key, once nobody else is at it."""
        pause = FIRST_LOOK
        while True:
            try:
                answer = await self.store.claim(key, self._lease)
            except ConnectionLost as error:
                raise PublishError(
                    f"nothing was sent to {publication.name!r}: it cannot be known whether it was "
                    f"published before: {error.message}",
                    message_id=publication.options.get("message_id"),
                ) from error
            if not isinstance(answer, Busy):
                return answer
            await self.store.clock.sleep(min(pause, max(answer.seconds, FIRST_LOOK)))
            pause = min(2 * pause, LAST_LOOK)

    async def _keep_id(self, key: str, publication: Publication) -> None:
        """Write the id down before anything is sent: whoever has to send it again uses it too."""
        if publication.options.get("message_id") is not None:
            return  # that of the caller, who will give it again
        place = short(f"{key}\nid")
        answer = await self._claim(place, publication)
        if isinstance(answer, Done):
            publication.options["message_id"] = answer.value.decode()
            return
        id = new_id()
        try:
            await self.store.complete(place, self._window, id.encode())
        except ConnectionLost as error:
            raise PublishError(
                f"nothing was sent to {publication.name!r}: its id could not be written down: "
                f"{error.message}"
            ) from error
        publication.options["message_id"] = id

    async def _complete(self, key: str, publication: Publication, id: str) -> None:
        try:
            await self.store.complete(key, self._window, id.encode())
        except ConnectionLost as error:
            self.store.log.warning(
                "%s was published to %s, which could not be written down: published again, it is "
                "sent again: %s",
                id,
                publication.name,
                error.message,
            )


def _checked(key: object) -> str | None:
    if key is None or (isinstance(key, str) and key):
        return key
    # One key for all that have none would make them all the same.
    raise ConfigError(f"the key function of Deduplicate gave {key!r}, neither a text nor None")
