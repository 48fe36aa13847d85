"""A network that cuts, swallows or stands still costs duplicates within bounds, and no message."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest

from queuecraft import QueueCraft
from queuecraft.facts import Disconnected
from tests.faults.account import Account
from tests.faults.process import Process
from tests.faults.scene import Scene
from tests.link import Side
from tests.proxy import Proxy

CUTS = 12


def company(scene: Scene, proxy: Proxy, **options: float) -> list[Process]:
    """Two that publish and two that handle, all by way of the proxy."""
    url = proxy.url(scene.broker.url)
    return [
        scene.publisher(url=url, **options),
        scene.publisher(url=url, batch=5, in_flight=2, **options),
        scene.worker(url=url, **options),
        scene.worker(url=url, concurrency=2, prefetch=20, **options),
    ]


async def goes_on(scene: Scene, living: list[Process]) -> None:
    """Each of them publishes or handles something that it had not before."""
    before = {each: len(done_by(scene.account(), each)) for each in living}
    for each, count in before.items():

        def more(each: Process = each, count: int = count) -> bool:
            return len(done_by(scene.account(), each)) > count

        await scene.until(more, f"{each} goes on")


async def notice(scene: Scene, living: list[Process]) -> None:
    """Each of them knows that its connection is lost."""
    for each in living:
        await scene.until(partial(_cuts, scene, each), f"{each} notices it")


def _cuts(scene: Scene, process: Process) -> int:
    return len(scene.account().by(process.pid, "cut"))


def done_by(account: Account, process: Process) -> list[object]:
    return [*account.by(process.pid, "published", "handled")]


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


@pytest.mark.faults
@pytest.mark.parametrize("side", ["client", "server"])
async def test_connections_cut_in_the_middle_of_a_frame_lose_nothing(
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


async def test_what_was_not_confirmed_is_sent_again_in_order_before_what_is_newer(
    scene: Scene, proxy: Proxy, chance: random.Random
) -> None:
    url = scene.broker.url
    cuts: list[object] = []
    async with QueueCraft(proxy.url(url), reconnect_delay=0.02) as qc:
        qc.observe(Disconnected, cuts.append)
        await (await scene.qc).admin.declare("numbers", "number")
        publishes: list[asyncio.Task[str]] = []
        for n in range(1500):
            publishes.append(asyncio.create_task(qc.publish("number", n)))
            if n % 100 == 50:
                proxy.cut_after(chance.randrange(1, 10_000), to=chance.choice(["client", "server"]))
            if n % 10 == 0:
                await asyncio.sleep(0)
            if n % 200 == 199:
                await publishes[-100]
        await asyncio.gather(*publishes)
        proxy.restore()

    async with QueueCraft(url) as qc:
        there = [message.payload for message in await qc.admin.peek("numbers", 100_000)]
    first = list(dict.fromkeys(there))
    assert cuts
    assert first == list(range(1500))
    print(f"{len(cuts)} cuts, {len(there) - len(first)} duplicates")
