"""The same for minutes: processes killed, connections cut, and the broker itself gone at times."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import signal
import time

import pytest

from tests.brokers.redis import Redis
from tests.faults.process import Process
from tests.faults.redis.test_failpoints import ALONE, TOGETHER, handling, lease
from tests.faults.scene import Broker, Scene
from tests.faults.test_failpoints import publishing
from tests.faults.test_long import company
from tests.link import Side
from tests.proxy import Proxy

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

MINUTES = 1.5
SIDES: tuple[Side, ...] = ("client", "server")


@pytest.fixture
def broker(broker: Broker, proxy: Proxy) -> Broker:
    """Here a publish may be repeated, and there are two of it: each may be retried."""
    return dataclasses.replace(broker, url=proxy.url(broker.url), atomic_moves=False)


async def test_kills_freezes_cuts_and_a_broker_that_dies_now_and_then_lose_nothing(
    scene: Scene, redis: Redis, proxy: Proxy, chance: random.Random
) -> None:
    await scene.declare()
    await scene.look_away()
    living = company(scene)
    until = time.monotonic() + MINUTES * 60
    kills = crashes = cuts = 0
    while time.monotonic() < until:
        await scene.until(lambda: any(map(scene.is_busy, living)), "one of them is at work")
        await asyncio.sleep(chance.uniform(0, 0.3))
        fate = chance.random()
        victim = chance.choice([each for each in living if scene.is_busy(each)])
        if fate < 0.4:  # who is still on his way in would be turned away, and end
            await scene.busy(*living)
        if fate < 0.05:
            await asyncio.to_thread(redis.kill)
            await asyncio.to_thread(redis.start)
            crashes += 1
        elif fate < 0.1:
            await asyncio.to_thread(redis.call, "SCRIPT", "FLUSH")
        elif fate < 0.25:
            proxy.cut(reset=chance.random() < 0.5)
            cuts += 1
        elif fate < 0.4:
            side = chance.choice(SIDES)
            cut = proxy.cut_after(chance.randrange(5000), to=side)
            await scene.until(cut.is_set, "so many bytes have passed")
            cuts += 1
        elif fate < 0.45:
            victim.send(signal.SIGSTOP)
            await asyncio.sleep(chance.uniform(0, 1))
            victim.send(signal.SIGCONT)
        else:
            scene.kill(victim)
            living[living.index(victim)] = scene.again(victim)
            kills += 1
    await scene.busy(*living)
    account = await scene.finish()

    print(account.summary(), f"{account.copies} copies, {crashes} crashes of the broker")
    assert kills > 50
    assert cuts > 10


async def test_processes_that_die_at_any_failpoint_after_any_number_of_passes_lose_nothing(
    scene: Scene, chance: random.Random
) -> None:
    points = [(point, scene.publisher) for point in ALONE[publishing]]
    points += [(point, scene.worker) for point in TOGETHER[handling]]
    await scene.declare()
    lasting = [scene.publisher(pace=0.02), scene.worker(constants=lease(scene))]
    doomed: list[Process] = []
    until = time.monotonic() + MINUTES * 30
    while doomed or time.monotonic() < until:
        if len(doomed) < 6 and time.monotonic() < until:
            point, start = chance.choice(points)
            passes = int(chance.expovariate(1 / 10))
            doomed.append(start(doom=point, passes=passes, constants=lease(scene)))
            continue
        await asyncio.sleep(chance.uniform(0, 0.2))
        oldest = doomed.pop(0)
        if oldest.status is None:  # some places are passed but rarely, and it waits in vain
            scene.kill(oldest)
        else:
            await scene.dies(oldest)
    await scene.busy(*lasting)
    account = await scene.finish()

    print(account.summary(), f"{account.copies} copies")
    assert account.count("died") > 50
