"""A process that lives keeps what it holds, though the server or the network fails for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from queuecraft.drivers.base import ConnectionLost, Queue
from queuecraft.drivers.redis.address import addresses
from queuecraft.drivers.redis.client import Client
from queuecraft.drivers.redis.driver import RedisDriver
from queuecraft.drivers.redis.login import log_in
from queuecraft.drivers.redis.session import Session
from tests.brokers.redis import RedisServer
from tests.faults.child import change
from tests.faults.rabbitmq.handlers import until
from tests.faults.scene import Broker
from tests.proxy import Proxy
from tests.redis.place import Place


@pytest.fixture
async def place(redis_url: str) -> AsyncIterator[Place]:
    place = Place(redis_url)
    yield place
    await place.close()


async def test_a_lease_is_renewed_though_its_own_connection_is_swallowed(
    broker: Broker, place: Place, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    change({**broker.brisk, **broker.short_lease}, monkeypatch.setattr)
    ways = [proxy.url(broker.url)]

    async def connect() -> Client:
        (address,) = addresses(ways.pop() if ways else broker.url)
        return await log_in(address, None, timeout=5, heartbeat=30)

    async def expires() -> float:
        return float(await place.call("ZSCORE", place.key("sessions"), session.name))

    async def renewed() -> bool:
        return await expires() > before

    session = Session(place.base, connect)
    await place.call("ZADD", place.key("sessions"), 1, session.name)
    before = 1.0
    session.start()
    try:
        await until(renewed)
        proxy.black_hole()
        before = await expires() + 1000  # what was on its way may still arrive
        await until(renewed)
    finally:
        await session.stop()


async def test_the_dead_are_buried_though_the_server_took_nothing_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = asyncio.Event()
    ask = RedisDriver._eval

    async def watched(self: RedisDriver, operation: str, *more: Any) -> Any:
        try:
            return await ask(self, operation, *more)
        except ConnectionLost:
            if operation == "reap":
                refused.set()
            raise

    monkeypatch.setattr(RedisDriver, "_eval", watched)
    monkeypatch.setattr("queuecraft.drivers.redis.driver.BEAT", 0.05)
    with RedisServer() as server:
        place = Place(f"{server.url}?prefix=shop")
        try:
            driver = await place.driver()
            await driver.declare(Queue("billing"))
            await driver.subscribe(Queue("billing"), prefetch=5)
            seconds, _ = await place.call("TIME")
            await place.call("ZADD", place.key("sessions"), int(seconds) * 1000 + 1500, "ghost")
            await place.call("CONFIG", "SET", "min-replicas-to-write", "1")
            await refused.wait()
            await place.call("CONFIG", "SET", "min-replicas-to-write", "0")

            async def is_buried() -> bool:
                return await place.call("ZSCORE", place.key("sessions"), "ghost") is None

            await until(is_buried)
        finally:
            await place.close()
