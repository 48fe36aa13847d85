"""A prefix on a Redis, the drivers that a test opens on it, and commands of other programs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from queuecraft.drivers.base import (
    ACCEPTED,
    Binding,
    Delivery,
    Exchange,
    Outgoing,
    Queue,
    Subscription,
)
from queuecraft.drivers.redis import drivers
from queuecraft.drivers.redis.driver import RedisDriver
from queuecraft.drivers.redis.subscription import RedisSubscription
from queuecraft.drivers.target import Target
from queuecraft.model.errors import QueueError
from queuecraft.model.settings import Settings
from tests.brokers.redis import call

EVENTS = Exchange("events")


def bound(name: str, *patterns: str, **options: Any) -> Queue:
    """A queue that gets these events."""
    return Queue(name, bindings=tuple(Binding(EVENTS, each) for each in patterns), **options)


def event(routing_key: str, id: str = "m-1", **fields: Any) -> Outgoing:
    """An event with an id."""
    return Outgoing(fields.pop("body", b"{}"), id, "events", routing_key, **fields)


def to(queue: str, id: str = "m-1", **fields: Any) -> Outgoing:
    """A message to a queue."""
    return Outgoing(fields.pop("body", b"{}"), id, queue=queue, **fields)


def ids(deliveries: Sequence[Delivery]) -> list[str]:
    """The ids of deliveries, in order."""
    return [each.sent.id for each in deliveries]


class Place:
    """Where a test has its keys."""

    def __init__(self, url: str) -> None:
        self.url = url
        found = re.search(r"prefix=([^&]+)", url)
        assert found is not None
        self.base = "{" + found[1] + "}:"
        self._opened: list[RedisDriver] = []

    async def driver(
        self, mode: str = "list", *, url: str | None = None, **settings: Any
    ) -> RedisDriver:
        """An opened driver."""
        target = Target(f"{url or self.url}&mode={mode}", settings=Settings(**settings))
        driver = drivers(target)[0]
        assert isinstance(driver, RedisDriver)
        self._opened.append(driver)
        await driver.open()
        return driver

    def key(self, name: str) -> str:
        """A key under the prefix."""
        return self.base + name

    async def call(self, *command: str | bytes | int) -> Any:
        """What another client of the server is answered."""
        return await asyncio.to_thread(call, self.url, *command)

    async def close(self) -> None:
        """Close all drivers."""
        for driver in self._opened:
            with suppress(QueueError):
                await driver.close()


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    """Until the condition holds; the test's own time limit is the only one."""
    while not await condition():  # noqa: ASYNC110  whatever makes it true, it sets no event
        await asyncio.sleep(0.002)


async def asleep(subscription: RedisSubscription) -> None:
    """Until a `receive` has found nothing, and waits to be told of a change."""
    while not subscription._armed or subscription._waiting is None:  # noqa: ASYNC110  as above
        await asyncio.sleep(0.001)


async def sent(driver: RedisDriver, *messages: Outgoing) -> None:
    """Send messages, all of which must be accepted."""
    receipts = await driver.send(messages)
    assert list(receipts) == [ACCEPTED] * len(messages)


async def received(subscription: Subscription, count: int = 1) -> list[Delivery]:
    """So many deliveries, however long they take; the test's own time limit is the only one."""
    got: list[Delivery] = []
    while len(got) < count:
        got += await subscription.receive(count - len(got), 100)
    return got


async def emptied(subscription: Subscription) -> list[Delivery]:
    """All that is ready."""
    got: list[Delivery] = []
    while some := await subscription.receive(100, 0):
        got += some
    return got
