"""Redis under test, queues in lists and in streams, and a network that fails in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.scene import Broker
from tests.proxy import Proxy

_REDIS = "queuecraft.drivers.redis"


@pytest.fixture(params=["list", "stream"])
def mode(request: pytest.FixtureRequest) -> str:
    kept: str = request.param
    return kept


@pytest.fixture
def broker(redis_url: str, mode: str) -> Broker:
    return Broker(
        f"{redis_url}&mode={mode}",
        brisk={f"{_REDIS}.driver:BEAT": 0.1},
        short_lease={
            f"{_REDIS}.driver:LEASE": 0.8,
            f"{_REDIS}.session:LEASE": 0.8,
            f"{_REDIS}.session:BEAT": 0.1,
        },
    )


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    with Proxy.to(redis_url) as proxy:
        yield proxy
