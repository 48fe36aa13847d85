"""Sentinel: asked at each connect where the master is."""

from __future__ import annotations

import asyncio

import pytest

from queuecraft.drivers.base import ConnectionLost, Queue
from queuecraft.drivers.redis import drivers
from queuecraft.drivers.target import Target
from tests.brokers.port import Port
from tests.brokers.redis import RedisServer
from tests.redis.place import Place, eventually, ids, sent, to


def watching(master: RedisServer) -> RedisServer:
    """A sentinel that is content with its own opinion."""
    return RedisServer(
        sentinel=True,
        more="\n".join(
            [
                f"sentinel monitor shop 127.0.0.1 {master.port()} 1",
                "sentinel down-after-milliseconds shop 300",
                "sentinel failover-timeout shop 2000",
            ]
        ),
    )


async def test_a_new_master_is_found_after_a_failover() -> None:
    with (
        RedisServer(more="repl-diskless-sync-delay 0") as master,
        RedisServer(more=f"replicaof 127.0.0.1 {master.port()}") as replica,
        watching(master) as sentinel,
        Port() as nobody,
    ):
        billing = "{failover}:queue:billing"
        hosts = f"127.0.0.1:{nobody.number},127.0.0.1:{sentinel.port()}"
        place = Place(f"redis://{hosts}/0?sentinel=shop&prefix=failover")
        driver = await place.driver()
        await driver.declare(Queue("billing"))
        await sent(driver, to("billing"))

        async def is_followed() -> bool:
            known = await asyncio.to_thread(sentinel.call, "SENTINEL", "REPLICAS", "shop")
            return bool(known) and replica.call("LLEN", billing) == 1

        async def is_open() -> bool:
            try:
                await driver.open()
            except ConnectionLost:
                return False
            return True

        await eventually(is_followed)
        master.kill()
        await eventually(is_open)
        await sent(driver, to("billing", "m-2"))
        assert ids(await driver.peek("billing", 5)) == ["m-1", "m-2"]
        assert replica.call("LLEN", billing) == 2
        await place.close()


async def test_a_master_nobody_knows_is_told_with_all_who_were_asked() -> None:
    with RedisServer() as master, watching(master) as sentinel:
        url = f"redis://127.0.0.1:{sentinel.port()},127.0.0.1:{master.port()}"
        (driver,) = drivers(Target(f"{url}?mode=list&sentinel=nowhere"))
        with pytest.raises(ConnectionLost, match=r"knows no master 'nowhere'.*is it a sentinel"):
            await driver.open()
