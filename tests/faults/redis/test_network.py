"""A network that cuts, swallows or stands still costs duplicates within bounds, and no message."""

from __future__ import annotations

import dataclasses
import random

import pytest

from tests.brokers.redis import Redis
from tests.faults.rabbitmq.test_network import company, goes_on, notice
from tests.faults.redis.modes import STREAMS_LATER
from tests.faults.scene import Broker, Scene
from tests.link import Side
from tests.proxy import Proxy

CUTS = 6
ENDS = 10


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """Here a publish may be repeated, and there are two of it: each may be retried."""
    return dataclasses.replace(broker, atomic_moves=False)


async def test_connections_cut_again_and_again_lose_nothing(scene: Scene, proxy: Proxy) -> None:
    await scene.declare()
    living = company(scene, proxy)
    for n in range(CUTS):
        await goes_on(scene, living)
        assert proxy.cut(reset=bool(n % 2)) > 0
    await goes_on(scene, living)
    account = await scene.finish()

    assert account.count("cut") >= CUTS
    print(account.summary(), f"{account.copies} copies")


@pytest.mark.parametrize("side", ["client", "server"])
async def test_connections_cut_in_the_middle_of_a_reply_or_a_command_lose_nothing(
    scene: Scene, proxy: Proxy, chance: random.Random, side: Side
) -> None:
    await scene.declare()
    living = company(scene, proxy)
    for _ in range(CUTS):
        await goes_on(scene, living)
        cut = proxy.cut_after(chance.randrange(1, 3000), to=side)
        await scene.until(cut.is_set, "so many bytes have passed")
    await goes_on(scene, living)
    account = await scene.finish()

    assert account.count("cut") >= CUTS
    print(account.summary(), f"{account.copies} copies")


@STREAMS_LATER
async def test_single_connections_that_the_server_ends_lose_nothing(
    scene: Scene, redis: Redis, proxy: Proxy, chance: random.Random
) -> None:
    """A process has several, each for something else."""
    await scene.declare()
    await scene.look_away()
    living = company(scene, proxy)
    for _ in range(ENDS):
        await goes_on(scene, living)
        connections = redis.call("CLIENT", "LIST").decode().splitlines()
        ours = [line for line in connections if " name=queuecraft" in line]
        number = chance.choice(ours).partition(" ")[0].removeprefix("id=")
        redis.call("CLIENT", "KILL", "ID", number)
    await goes_on(scene, living)
    account = await scene.finish()

    assert account.count("cut") > 0
    print(account.summary(), f"{account.copies} copies")


@STREAMS_LATER
async def test_a_network_that_swallows_everything_is_noticed_by_the_heartbeat(
    scene: Scene, proxy: Proxy
) -> None:
    await scene.declare()
    living = company(scene, proxy, heartbeat=1)
    await goes_on(scene, living)
    proxy.black_hole()
    await notice(scene, living)
    proxy.restore()
    await goes_on(scene, living)
    account = await scene.finish()
    print(account.summary(), f"{account.copies} copies")
