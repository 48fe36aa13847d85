"""The Redis of delayed messages: that of the queues, or another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from queuecraft.clock import Clock
from queuecraft.drivers.base import Accepted, Outgoing
from queuecraft.drivers.redis.address import Address, addresses
from queuecraft.drivers.redis.client import Argument, Client, RedisError, Script
from queuecraft.drivers.redis.envelope import encode
from queuecraft.drivers.redis.login import log_in
from queuecraft.drivers.redis.refusals import refusal
from queuecraft.drivers.redis.sending import Sending, receipt
from queuecraft.drivers.target import Target
from queuecraft.model.errors import ConnectionLost, QueueError
from queuecraft.stores.redis import RedisDelayedStore, RedisQueueStore


class OwnServer:
    """A connection of our own, so that nobody waits for a broker's traffic."""

    def __init__(self, client: Client, operation: str = "delayed") -> None:
        self._client = client
        self._operation = operation
        self._scripts: dict[str, Script] = {}

    async def run(self, script: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """What a script returns."""
        known = self._scripts.get(script)
        if known is None:
            known = self._scripts[script] = Script(script)
        try:
            return await self._client.eval(known, keys, arguments)
        except RedisError as error:
            raise refusal(error, self._operation) from None

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone."""
        return self._client.lost is not None

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()


class QueuesServer(OwnServer):
    """The same where the queues are: messages are sent as the driver sends them."""

    def __init__(self, client: Client, prefix: str, clock: Clock) -> None:
        super().__init__(client)
        self.base = "{" + prefix + "}:"
        self.sending = _sending()
        self._ways = Sending(client, self.base, clock)

    def packed(self, message: Outgoing) -> Sequence[Argument]:
        """A message as a script gives it on."""
        return (*self._ways.way(message), encode(message))

    def answered(self, message: Outgoing, letter: str, fault: str) -> QueueError | None:
        """What the letter that a script answers with means."""
        answer = receipt(message, ord(letter), fault)
        return None if isinstance(answer, Accepted) else answer.error

    def wants_headers(self, message: Outgoing) -> None:
        """It turned out that headers decide where the message goes."""
        self._ways.wants_headers(message)


async def open_store(target: Target, *, with_queues: bool) -> RedisDelayedStore:
    """A store on the first host of a URL that answers."""
    client, prefix = await first_client(target)
    if with_queues:
        return RedisQueueStore(QueuesServer(client, prefix, target.clock), prefix)
    return RedisDelayedStore(OwnServer(client), prefix)


async def first_client(target: Target) -> tuple[Client, str]:
    """A connection to the first host of a URL that answers, and what all keys begin with there."""
    settings = target.settings
    credentials = await target.credentials()
    failure: ConnectionLost | None = None
    for address in addresses(target.url):
        try:
            client = await log_in(
                address, credentials, timeout=settings.timeout, heartbeat=settings.heartbeat
            )
        except ConnectionLost as error:
            failure = error
        else:
            return client, address.prefix
    assert failure is not None
    raise failure


def same_server(one: str, other: str) -> bool:
    """Whether two URLs lead to the same keys.

    >>> same_server("redis://:secret@one?mode=list", "redis://one:6379/0")
    True
    >>> same_server("redis://one", "redis://one?prefix=shop")
    False
    """
    return _place(addresses(one)) == _place(addresses(other))


def _place(found: Sequence[Address]) -> set[tuple[str, int, int, str, str]]:
    return {(each.host, each.port, each.database, each.prefix, each.master) for each in found}


@cache
def _sending() -> str:
    """The part of the driver's own scripts that finds out where messages go."""
    folder = files("queuecraft.drivers.redis.scripts")
    parts = ("keys", "routes", "storing")
    return "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in parts)
