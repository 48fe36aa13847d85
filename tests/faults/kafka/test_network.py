"""A network that cuts connections to the broker, coordinator and all, costs no message."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers.kraft import Kraft
from tests.faults.rabbitmq.test_network import company, goes_on
from tests.faults.scene import Broker, Scene
from tests.proxy import Proxy

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]

CUTS = 6


@pytest.fixture(scope="module")
def network() -> Iterator[tuple[Kraft, Proxy]]:
    """A broker of our own, which sends its clients to a proxy."""
    with Kraft() as kraft, Proxy.to(kraft.url) as proxy:
        kraft.advertise(proxy.port)
        yield kraft, proxy


@pytest.fixture
def broker(network: tuple[Kraft, Proxy], request: pytest.FixtureRequest) -> Broker:
    kraft, proxy = network
    options = f"prefix={request.node.name[:30]}.&session_timeout=2&refresh=0.3&drain_timeout=2"
    return Broker(f"{proxy.url(kraft.url)}?{options}", atomic_moves=False)


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "in order"])
async def test_connections_cut_again_and_again_lose_nothing(
    scene: Scene, network: tuple[Kraft, Proxy], reset: bool
) -> None:
    _, proxy = network
    await scene.declare()
    living = company(scene, proxy)
    for _ in range(CUTS):
        await goes_on(scene, living[:2])
        await scene.look_away()
        assert proxy.cut(reset=reset) > 0
    await goes_on(scene, living[:2])
    account = await scene.finish()
    print(account.summary(), f"{account.copies} copies")


async def test_a_broker_out_of_reach_for_longer_than_a_session_costs_nothing(
    scene: Scene, network: tuple[Kraft, Proxy]
) -> None:
    """Commits fail meanwhile, and the group forgets its members."""
    _, proxy = network
    await scene.declare()
    living = company(scene, proxy)
    lost = [each.pid for each in living]
    await scene.until(
        lambda: all(scene.account().by(pid, "ready") for pid in lost), "all are at work"
    )
    await goes_on(scene, living[:2])
    await scene.look_away()
    proxy.refuse()
    proxy.cut()
    await scene.until(
        lambda: all(scene.account().by(pid, "cut") for pid in lost), "all have noticed"
    )
    proxy.restore()
    await goes_on(scene, living[:2])
    account = await scene.finish()
    print(account.summary(), f"{account.copies} copies")
