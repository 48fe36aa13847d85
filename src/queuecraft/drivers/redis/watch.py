"""What the server says unasked: that a key has changed, and what is published to a channel.

No blocking command can wait for all that may bring a message: `BLMOVE` waits for one list, and
would have to take what it waits for. Client tracking tells of any change of any key that was asked
for, also by `redis-cli RPUSH`, and takes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from queuecraft.drivers.redis.client import Client, RedisError

log: Final = logging.getLogger("queuecraft")


class Watch:
    """Calls back once when a key changes that somebody has armed it for, and for each message of a
    channel that somebody listens to."""

    def __init__(self) -> None:
        self.deaf = False  # where the server does not track, one has to look now and then
        self._client: Client | None = None
        self._watchers: dict[bytes, dict[Callable[[], None], None]] = {}
        self._listeners: dict[bytes, dict[Callable[[bytes], None], None]] = {}

    async def open(self, client: Client) -> None:
        """Begin, on a connection whose pushes are given to `told`."""
        self._client = client
        try:
            await client.call("CLIENT", "TRACKING", "ON")
        except RedisError as error:
            self.deaf = True
            log.warning("workers will look for messages now and then: %s", error.message)

    async def close(self) -> None:
        """Listen no more."""
        client, self._client = self._client, None
        self._watchers.clear()
        self._listeners.clear()
        if client is not None:
            await client.close()

    async def arm(self, keys: Sequence[bytes], callback: Callable[[], None]) -> int:
        """Be called once when one of the keys changes from now on; how many exist already."""
        assert self._client is not None
        for key in keys:
            self._watchers.setdefault(key, {})[callback] = None
        there: int = await self._client.call("EXISTS", *keys)
        return there

    def disarm(self, keys: Sequence[bytes], callback: Callable[[], None]) -> None:
        """Be called no more."""
        for key in keys:
            watchers = self._watchers.get(key)
            if watchers is not None:
                watchers.pop(callback, None)
                if not watchers:
                    del self._watchers[key]

    async def listen(self, channel: str, heard: Callable[[bytes], None]) -> None:
        """Be called with each message of a channel from now on."""
        assert self._client is not None
        listeners = self._listeners.setdefault(channel.encode(), {})
        listeners[heard] = None
        self._client.tell("SUBSCRIBE", channel)
        await self._client.call("PING")  # once this is answered, the server has heard the other

    def ignore(self, channel: str, heard: Callable[[bytes], None]) -> None:
        """Be called no more."""
        listeners = self._listeners.get(channel.encode())
        if listeners is None:
            return
        listeners.pop(heard, None)
        if not listeners:
            del self._listeners[channel.encode()]
            if self._client is not None and self._client.lost is None:
                self._client.tell("UNSUBSCRIBE", channel)

    def listens(self, channel: str) -> bool:
        """Whether somebody here listens to a channel."""
        return channel.encode() in self._listeners

    def told(self, push: Sequence[Any]) -> None:
        """The server has said something unasked."""
        if push[0] == b"message":
            for heard in tuple(self._listeners.get(push[1], ())):
                heard(push[2])
        elif push[0] == b"invalidate":
            keys: Sequence[bytes] = tuple(self._watchers) if push[1] is None else push[1]
            for key in keys:
                for callback in tuple(self._watchers.pop(key, ())):
                    callback()
