"""RabbitMQ under test, and a network that fails in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers.rabbitmq import RabbitMQ
from tests.faults.rabbitmq.unsettled import Unsettled
from tests.faults.scene import Broker
from tests.proxy import Proxy


@pytest.fixture
def broker(rabbitmq: RabbitMQ, rabbitmq_url: str) -> Broker:
    return Broker(
        rabbitmq_url, atomic_moves=False, unsettled=Unsettled(rabbitmq.management, rabbitmq_url)
    )


@pytest.fixture
def proxy(rabbitmq_url: str) -> Iterator[Proxy]:
    with Proxy.to(rabbitmq_url) as proxy:
        yield proxy
