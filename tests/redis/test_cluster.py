"""A cluster: all keys of a prefix are on one of its nodes, wherever one asks first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from queuecraft.drivers.base import Queue
from tests.brokers.port import Port
from tests.brokers.redis import RedisServer
from tests.redis.place import Place, bound, event, eventually, ids, received, sent

SLOTS = ((0, 8191), (8192, 16383))


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[RedisServer]]:
    with Port() as one, Port() as two:
        servers = [
            RedisServer({"cluster-enabled": "yes", "cluster-port": str(port.number)})
            for port in (one, two)
        ]
        with servers[0], servers[1]:
            for server, slots in zip(servers, SLOTS, strict=True):
                assert server.call("CLUSTER", "ADDSLOTSRANGE", *slots) == b"OK"
            assert (
                servers[0].call("CLUSTER", "MEET", "127.0.0.1", servers[1].port(), two.number)
                == b"OK"
            )
            yield servers


@pytest.mark.parametrize("prefix", ["one", "two", "three", "four"])
@pytest.mark.parametrize("mode", ["list", "stream", "pubsub"])
async def test_a_prefix_is_found_on_whichever_node_it_is(
    nodes: list[RedisServer], prefix: str, mode: str
) -> None:
    for node in nodes:
        told = Place(f"{node.url}?prefix={prefix}")

        async def is_whole(told: Place = told) -> bool:
            return b"cluster_state:ok" in await told.call("CLUSTER", "INFO")

        await eventually(is_whole)
    for number, node in enumerate(nodes):
        place = Place(f"{node.url}?prefix={prefix}-{mode}")
        driver = await place.driver(mode)
        name = f"queue-{number}"
        await driver.declare(bound(name, "order.placed"))
        consumer = await driver.subscribe(Queue(name), prefetch=5)
        waiting = asyncio.create_task(received(consumer))
        await asyncio.sleep(0)
        await sent(driver, event("order.placed", name))
        got = await waiting
        assert ids(got) == [name]
        assert list(await consumer.ack(got)) == []
        await driver.delete(name)
        await place.close()
