"""TLS: who is trusted, and what is said when nobody is."""

from __future__ import annotations

import pytest

from queuecraft.drivers.base import ConnectionLost, Queue
from queuecraft.drivers.redis import drivers
from queuecraft.drivers.target import Target
from queuecraft.model.settings import Settings
from tests.brokers.redis import Redis
from tests.redis.place import Place, ids, received, sent, to


@pytest.mark.parametrize("certificate", [False, True])
async def test_a_server_is_trusted_by_its_authority(
    redis: Redis, place: Place, certificate: bool
) -> None:
    url = f"{redis.over_tls(place.url)}&cafile={redis.ca_file}"
    if certificate:
        url += f"&certfile={redis.client_cert}"
    driver = await place.driver(url=url)
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=1)
    await sent(driver, to("billing"))
    assert ids(await received(consumer)) == ["m-1"]


async def test_a_stranger_and_a_wrong_name_are_refused(redis: Redis, place: Place) -> None:
    for url in (
        redis.over_tls(place.url),
        f"{redis.over_tls(place.url, misnamed=True)}&cafile={redis.ca_file}",
    ):
        (driver,) = drivers(Target(f"{url}&mode=list"))
        with pytest.raises(ConnectionLost, match=r"TLS failed.*cafile"):
            await driver.open()


async def test_anyone_is_trusted_if_that_is_asked_for(redis: Redis, place: Place) -> None:
    await place.driver(url=f"{redis.over_tls(place.url, misnamed=True)}&verify=no")


async def test_tls_to_a_plain_port_and_the_other_way_round_are_explained(
    redis: Redis, place: Place
) -> None:
    tls = redis.over_tls(place.url).removeprefix("rediss")
    (driver,) = drivers(Target(f"redis{tls}&mode=list"))
    with pytest.raises(ConnectionLost, match=r"rediss://"):
        await driver.open()
    plain = f"{place.url.replace('redis:', 'rediss:')}&mode=list&verify=no"
    (driver,) = drivers(Target(plain, settings=Settings(timeout=0.3)))
    with pytest.raises(ConnectionLost, match="its port for TLS"):
        await driver.open()
